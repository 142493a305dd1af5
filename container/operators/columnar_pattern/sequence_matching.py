"""SequenceMatching: runs a plain sequence of steps over columns, whose partial matches are arrays.

Owner: the task thread; the snapshot thread reads what a cut has frozen. Only rows of matches become objects, and of
partial matches that are asked for when their time has passed. Rows that partial matches hold are stored as rows that
wait: run again, they make the same partial matches. Must not know user functions of matches. See
docs/design/0058-sequences-of-columns.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from yarrow.cep.conditions import ColumnCondition
from yarrow.cep.partial_matches import PartialMatches
from yarrow.cep.pattern import Step
from yarrow.common.types import Row
from yarrow.container.operators.columnar.arrow_columns import build_columns
from yarrow.container.operators.columnar_pattern.column_conditions import Truths
from yarrow.container.operators.columnar_pattern.partial_sequences import DuePiece, Ended, PartialSequences
from yarrow.container.operators.columnar_pattern.pending_batches import (
    FrozenRows,
    Numbers,
    PendingBatches,
    WaitingColumns,
    codes_of,
)
from yarrow.container.operators.columnar_pattern.relevant_rows import Flags
from yarrow.container.operators.columnar_pattern.taken_rows import LEAST_SWEEP, NumberedRows, TakenRows
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.data.batch_key import BatchKey

#: A canonical key with the plain tuple of a PatternResult.
KeyedMatch = tuple[Any, Any]
#: Rows that run together, at least and at most. Between two pieces the task looks at its deadline.
_LEAST_PIECE: Final = 64
_MOST_PIECE: Final = 16_384
_FIRST_PIECE: Final = 2048
#: Seconds below which the next piece takes twice as many rows, and above which it takes half as many. Functions of
#: matches count, too.
_SHORT: Final = 0.020
_LONG: Final = 0.080


class SequenceMatching:
    """The due rows and the partial matches of one operator; part of its snapshots as HeldElsewhere."""

    def __init__(
        self,
        key: BatchKey,
        steps: Sequence[Step],
        conditions: Sequence[ColumnCondition],
        within_ms: int | None,
        rows_of: Callable[[pa.RecordBatch], list[Row]],
        *,
        gives_timed_out: bool,
    ) -> None:
        """`conditions`: those whose results are known, in the order of `Truths`. `rows_of` makes objects."""
        self._key = key
        self._names = [str(step.name) for step in steps]
        numbers = {id(condition): number for number, condition in enumerate(conditions)}
        #: For each step its conditions: whether it is joined by `or`, and the number of its result.
        self._conditions = [
            [(part.joined_by_or, numbers[id(part.condition)]) for part in step.conditions] for step in steps
        ]
        self._rows_of = rows_of
        self._sequences = PartialSequences(len(steps), within_ms, gives_timed_out=gives_timed_out)
        self._taken = TakenRows()
        #: The slot of each key that began a match, and the keys by slot.
        self._slots: dict[Any, int] = {}
        self._keys: list[Any] = []
        self._next = 0
        #: Rows that run, in order of time, and how many of them have run.
        self._due: WaitingColumns | None = None
        self._done = 0
        self._most = _FIRST_PIECE

    # ------------------------------------------------------------------ rows

    def is_due(self, time: int) -> bool:
        """True while rows are left, or partial matches are due to end by a time."""
        first_end = self._sequences.first_end
        return self._due is not None or (first_end is not None and first_end <= time)

    def run_until(self, pending: PendingBatches, time: int, deadline: float) -> Iterator[list[KeyedMatch]]:
        """Runs the rows that wait up to `time`, and lets time pass; gives what has ended, a piece of work at a time.

        It stops behind `deadline` (perf_counter): then `is_due` or the rows that wait tell whether something is left.
        """
        now = perf_counter()
        while (due := self._due_until(pending, time)) is not None:
            if found := self._run(self._next_piece(due)):
                yield found
            began, now = now, perf_counter()
            if now - began < _SHORT:
                self._most = min(2 * self._most, _MOST_PIECE)
            elif now - began > _LONG:
                self._most = max(self._most // 2, _LEAST_PIECE)
            if now >= deadline:
                return
        if self.is_due(time) and (found := self._matches(self._sequences.pass_time(time), ())):
            yield found
        self._sweep_if_large()

    def _due_until(self, pending: PendingBatches, time: int) -> WaitingColumns | None:
        """The rows of which some have not run, or else those that wait up to a time; None if there are none."""
        if self._due is None and (rows := pending.take_until(time)) is not None:
            self._due, self._done = rows.by_time(), 0
        return self._due

    def _next_piece(self, due: WaitingColumns) -> WaitingColumns:
        """Some of the rows, which count as run."""
        start, count = self._done, len(due.times)
        self._done = end = min(start + self._most, count)
        if end == count:
            self._due = None
        return due.between(start, end)

    def _run(self, rows: WaitingColumns) -> list[KeyedMatch]:
        """Runs rows; returns what has ended, in the order of its end."""
        codes, keys = codes_of(self._key, rows.records)
        takes = [self._takes(rows.truths, parts) for parts in self._conditions]
        first, self._next = self._next, self._next + len(rows.times)
        piece = DuePiece(rows.times, codes, self._slots_of(keys, codes[takes[0]]), takes, first)
        ended, held = self._sequences.run(piece)
        numbered = NumberedRows(rows, np.arange(first, self._next))
        found = self._matches(ended, [numbered])
        places = np.flatnonzero(held)
        kept = rows.at(places)
        if kept is not None:
            self._taken.add(kept, places + first)
        self._sweep_if_large()
        return found

    @staticmethod
    def _takes(truths: Truths, parts: Sequence[tuple[bool, int]]) -> Flags:
        """The rows that a step takes: bool, shape (rows,)."""
        found = np.ones(len(truths), np.bool_)
        for at, (joined_by_or, number) in enumerate(parts):
            own = truths[:, number]
            found = found | own if at and joined_by_or else found & own
        return found

    def _slots_of(self, keys: Sequence[Any], begins: Numbers) -> Numbers:
        """The slot of each key, int64, shape (keys,); -1 = none. `begins`: the places of keys that get one."""
        slots = self._slots
        found = np.array(list(map(slots.get, keys, repeat(-1))), np.int64)
        new = np.zeros(len(keys), np.bool_)
        new[begins] = True
        places = np.flatnonzero(new & (found < 0))
        first = len(self._keys)
        found[places] = np.arange(first, first + len(places))
        added = [keys[place] for place in places.tolist()]
        self._keys += added
        slots.update(zip(added, range(first, first + len(added)), strict=True))
        return found

    # ------------------------------------------------------------------ matches

    def _matches(self, ended: Ended, others: Sequence[NumberedRows]) -> list[KeyedMatch]:
        """What has ended as objects. `others`: rows that are not held."""
        count = len(ended.times)
        if not count:
            return []
        make = self._whole if ended.rows.min() >= 0 else self._parts
        matches = make(ended.rows, others)
        keys = self._keys
        return list(
            zip(
                [keys[slot] for slot in ended.slots.tolist()],
                zip(matches, ended.times.tolist(), ended.timed_out.tolist(), strict=True),
                strict=True,
            )
        )

    def _whole(self, numbers: Numbers, others: Sequence[NumberedRows]) -> list[dict[str, list[Any]]]:
        """Matches with a row for each step; each has objects of its own."""
        rows, count, names = self._objects(numbers.reshape(-1), others), numbers.shape[1], self._names
        of_steps = [[[row] for row in rows[at : at + count]] for at in range(0, len(rows), count)]
        return [dict(zip(names, taken, strict=True)) for taken in zip(*of_steps, strict=True)]

    def _parts(self, numbers: Numbers, others: Sequence[NumberedRows]) -> list[dict[str, list[Any]]]:
        """Matches, some of which lack rows of the last steps."""
        there = numbers.T >= 0
        rows = iter(self._objects(numbers.T[there], others))
        names = self._names
        return [
            {name: [next(rows)] for name in names[:taken]}
            for taken in np.count_nonzero(there, axis=1).tolist()
        ]

    def _objects(self, numbers: Numbers, others: Sequence[NumberedRows]) -> list[Row]:
        return self._rows_of(self._taken.records(numbers, others))

    # ------------------------------------------------------------------ what is held

    def _sweep_if_large(self) -> None:
        """Drops rows and slots that no partial match needs, once they may be as many as the others."""
        sequences = self._sequences
        if not sequences.count:
            if self._keys:
                self._forget_slots()
            self._taken.clear()
            return
        if self._taken.count > 2 * sequences.most_rows + LEAST_SWEEP:
            self._taken.keep(sequences.rows_held())
        if len(self._keys) > 2 * sequences.count + LEAST_SWEEP:
            self._renumber_slots()

    def _renumber_slots(self) -> None:
        slots = self._sequences.renumber_slots()
        self._keys = [self._keys[slot] for slot in slots.tolist()]
        self._slots = {key: slot for slot, key in enumerate(self._keys)}

    def _forget_slots(self) -> None:
        self._slots.clear()
        self._keys.clear()

    def take_left(self) -> WaitingColumns | None:
        """Removes the rows that have not run, and returns them; None if there are none."""
        due, self._due = self._due, None
        return None if due is None else due.between(self._done, len(due.times))

    def clear(self) -> None:
        """Forgets all partial matches."""
        self._sequences.clear()
        self._taken.clear()
        self._forget_slots()

    # ------------------------------------------------------------------ snapshots (HeldElsewhere)

    @property
    def row_count(self) -> int:
        """See HeldElsewhere; rows that nobody holds count too until they are dropped."""
        return self._taken.count

    def frozen(self) -> list[FrozenRows]:
        """See HeldElsewhere: the rows themselves never change."""
        return self._taken.frozen(self._sequences.rows_held())


def rows_of_partial_matches(
    matches: Iterable[PartialMatches], schema: pa.Schema
) -> tuple[Numbers, pa.RecordBatch] | None:
    """The times (int64, shape (rows,)) of the rows that partial matches of some keys hold, and these rows.

    They are in order of time. None if there are none.
    """
    rows: list[tuple[int, Any]] = []
    for each in matches:
        held = {position for run in each.runs for _, position in each.path(run[1])}
        rows += [each.records[position] for position in sorted(held)]
    if not rows:
        return None
    rows.sort(key=itemgetter(0))
    columns = build_columns([row for _, row in rows], list(schema))
    times = np.array([time for time, _ in rows], np.int64)
    return times, pa.RecordBatch.from_arrays(columns, schema=schema)
