"""HeldRows: rows of keys that cannot match yet, as columns: no object, partial match or timer of them exists.

Owner: the task thread. A key's partial matches follow from its rows. Where only complete matches can be seen, the rows
of a key stay here until one comes that may make a match complete. A row whose time limit has passed can be in no match
any more. Must not know the matcher. See docs/design/0044-patterns-of-columns.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Container, Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from yarrow.cep.conditions import ColumnCondition
from yarrow.cep.pattern_table import PatternTable
from yarrow.container.operators.columnar_pattern.leaving_rows import places_that_matter
from yarrow.container.operators.columnar_pattern.pending_batches import (
    FrozenRows,
    Numbers,
    WaitingColumns,
    codes_of,
    joined,
)
from yarrow.container.operators.columnar_pattern.possible_states import PossibleStates
from yarrow.container.operators.columnar_pattern.relevant_rows import bits_of
from yarrow.runtime.data.batch_key import BatchKey

#: A key with so many rows here goes to the matcher, which keeps only what its partial matches need.
MOST_ROWS: Final = 32
#: Rows of so large a part of the time limit may stand in one batch, and are dropped together.
_PARTS_OF_THE_LIMIT: Final = 8


def can_be_held(table: PatternTable) -> bool:
    """True if only a row can make a match complete, and nothing but its columns and the time limit tells which."""
    return (
        table.within_ms is not None
        and table.sees_records_alone
        and not any(state.matches_in_time or state.gap_ms is not None for state in table.states)
        and all(isinstance(part.condition, ColumnCondition) for test in table.tests for part in test.parts)
    )


class _Batch:
    """Neighbouring rows by their numbers."""

    __slots__ = ("behind", "end", "first", "first_end", "keys", "left", "numbers", "rows", "there")

    def __init__(
        self, rows: WaitingColumns, keys: list[Any], numbers: Numbers, ends: tuple[int, int]
    ) -> None:
        """`keys` are canonical, `numbers` int64 and rising, both one a row; `ends`: see first_end and end."""
        self.rows, self.keys, self.numbers = rows, keys, numbers
        #: Rows that were not taken, and for each row whether it is one: bool, shape (rows,).
        self.left, self.there = len(keys), np.ones(len(keys), np.bool_)
        #: The number of the first row, and that behind the last one.
        self.first, self.behind = int(numbers[0]), int(numbers[-1]) + 1
        #: When the time limits of the rows have passed that came first, and when those of all.
        self.first_end, self.end = ends

    def take(self, numbers: list[int]) -> WaitingColumns | None:
        """Removes rows by their numbers, and returns them."""
        places = np.searchsorted(self.numbers, np.array(numbers, np.int64))
        self.there[places] = False
        self.left -= len(numbers)
        return self.rows.at(places)

    def without_taken(self) -> _Batch:
        """The rows that are left, at least one."""
        if self.left == len(self.keys):
            return self
        places = np.flatnonzero(self.there)
        rows = self.rows.at(places)
        assert rows is not None
        keys = [self.keys[place] for place in places.tolist()]
        return _Batch(rows, keys, self.numbers[places], (self.first_end, self.end))


class HeldRows:
    """The rows of all keys that cannot match yet."""

    def __init__(self, key: BatchKey, within_ms: int, states: PossibleStates) -> None:
        self._key = key
        self._steps = states
        self._within = within_ms
        #: By their numbers, and so by their ends: later rows have later times.
        self._batches: deque[_Batch] = deque()
        self._next = 0
        #: The numbers of each key's rows by canonical key, in order of time.
        self._places: dict[Any, list[int]] = {}
        #: The states that are possible for each of these keys.
        self._states: dict[Any, int] = {}

    @property
    def first_end(self) -> int | None:
        """When the time limits of a batch have passed; None without rows."""
        return self._batches[0].end if self._batches else None

    def sift(self, rows: WaitingColumns, live: Container[Any]) -> WaitingColumns | None:
        """Keeps those of the leaving rows whose keys cannot match yet; returns the others, None if there are none.

        The rows that were held of their keys come with them. `live`: canonical keys with partial matches.
        """
        codes, keys = codes_of(self._key, rows.records)
        states = [self._states.get(key, 0) for key in keys]
        held = self._places
        runs = [key in live or len(held.get(key, ())) >= MOST_ROWS for key in keys]
        begun = np.array([possible > 0 or run for possible, run in zip(states, runs, strict=True)], np.bool_)
        places = places_that_matter(rows, codes, begun)
        codes = codes[places]
        changes = self._looked_at(
            codes.tolist(), bits_of(rows.truths[places], np.uint8).tolist(), states, runs
        )
        leaving = np.array(runs, np.bool_)[codes]
        stays = ~leaving & changes
        kept = rows.at(places[stays])
        if kept is not None:
            self._hold(kept, [keys[code] for code in codes[stays].tolist()])
            self._states.update((keys[code], states[code]) for code in set(codes[stays].tolist()))
        if not leaving.any():
            return None
        former = self._take([key for key, run in zip(keys, runs, strict=True) if run and key in held])
        return joined([each for each in (former, rows.at(places[leaving])) if each is not None])

    def _looked_at(
        self, codes: Sequence[int], results: Sequence[int], states: list[int], runs: list[bool]
    ) -> npt.NDArray[np.bool_]:
        """Whether each row may change partial matches of its key: bool, shape (rows,).

        `states` has the possible states by the number of the key, which change. `runs` becomes True for keys that may
        match.
        """
        step = self._steps.step
        found = np.zeros(len(codes), np.bool_)
        for place, (code, result) in enumerate(zip(codes, results, strict=True)):
            if not runs[code]:
                states[code], found[place], runs[code] = step(states[code], result)
        return found

    def _hold(self, rows: WaitingColumns, keys: list[Any]) -> None:
        end = int(rows.times.max()) + self._within
        places, batches = self._places, self._batches
        numbers = range(self._next, self._next + len(keys))
        for number, key in zip(numbers, keys, strict=True):
            found = places.get(key)
            if found is None:
                places[key] = [number]
            else:
                found.append(number)
        self._next = numbers.stop
        batches.append(_Batch(rows, keys, np.arange(numbers.start, numbers.stop), (end, end)))
        # Few batches are left, each of a part of the time limit, and a row moves only a few times.
        while len(batches) > 1 and self._are_one(batches[-2], batches[-1]):
            last, before = batches.pop().without_taken(), batches.pop().without_taken()
            both = joined([before.rows, last.rows])
            assert both is not None
            of_both = np.concatenate([before.numbers, last.numbers])
            batches.append(_Batch(both, before.keys + last.keys, of_both, (before.first_end, last.end)))

    def _are_one(self, before: _Batch, last: _Batch) -> bool:
        """True if two neighbouring batches become one."""
        return (
            before.left <= 2 * last.left
            and last.end - before.first_end <= self._within // _PARTS_OF_THE_LIMIT
        )

    def _take(self, keys: Iterable[Any]) -> WaitingColumns | None:
        """Removes the rows of some keys that have rows, and returns them; None without keys."""
        firsts = [batch.first for batch in self._batches]
        by_batch: dict[int, list[int]] = {}
        for key in keys:
            del self._states[key]
            for number in self._places.pop(key):
                by_batch.setdefault(bisect_right(firsts, number) - 1, []).append(number)
        taken = [self._batches[at].take(numbers) for at, numbers in by_batch.items()]
        for at in by_batch:
            batch = self._batches[at]
            if 0 < batch.left < len(batch.keys) // 2:
                self._batches[at] = batch.without_taken()
        if any(not self._batches[at].left for at in by_batch):
            self._batches = deque(batch for batch in self._batches if batch.left)
        return joined([rows for rows in taken if rows is not None])

    def drop_until(self, time: int) -> None:
        """Drops batches whose time limits have passed at `time`."""
        places, batches = self._places, self._batches
        while batches and batches[0].end <= time:
            batch = batches.popleft()
            for key in batch.keys:
                # A key whose rows were taken, or that had several rows, may have none left.
                numbers = places.get(key)
                if numbers is None:
                    continue
                left = [number for number in numbers if number >= batch.behind]
                if left:
                    places[key] = left
                else:
                    del places[key], self._states[key]

    def clear(self) -> None:
        """Drops all rows."""
        self._batches.clear()
        self._places.clear()
        self._states.clear()

    # ------------------------------------------------------------------ snapshots (HeldElsewhere)

    @property
    def row_count(self) -> int:
        """See HeldElsewhere."""
        return sum(batch.left for batch in list(self._batches))

    def frozen(self) -> list[FrozenRows]:
        """See HeldElsewhere: the rows themselves never change."""
        return [FrozenRows(batch.rows, batch.there.copy()) for batch in self._batches]
