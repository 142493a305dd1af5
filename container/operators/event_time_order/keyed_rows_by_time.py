"""KeyedRowsByTime: rows with their keys in memory, by time; rows of one time stand as they came.

Owner: the task thread; pure, without clock, state and I/O. What `freeze` gives belongs to the snapshot thread: lists
only grow behind what was frozen. A list that has left does not change any more. Must not know watermarks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import repeat
from operator import itemgetter
from typing import Any, Final, NamedTuple

from yarrow.container.operators.pair_form import PairForm

#: Most rows that leave together: whoever takes them looks at its deadline behind them.
PIECE: Final = 512
_TIME: Final = itemgetter(0)


class RowsOfTime(NamedTuple):
    """The rows of one time at a cut."""

    time: int
    #: Keys and rows in turn, in the form in which they wait. Only places from `start` to `end` count.
    entries: Sequence[Any]
    start: int
    end: int


class KeyedRowsByTime:
    """Rows that wait, with their canonical keys."""

    def __init__(self, form: PairForm | None = None) -> None:
        """`form`: that in which rows wait; None = as they are."""
        self.form = form
        #: The keys and rows of each time in turn. Generated code appends to lists that are there.
        self.entries: dict[int, list[Any]] = {}
        #: Heap of the times in `entries`.
        self._times: list[int] = []
        #: How many places of the first time have left.
        self._left = 0

    @property
    def first_time(self) -> int | None:
        """The earliest time; None = no row waits."""
        return self._times[0] if self._times else None

    @property
    def count(self) -> int:
        """The number of rows. Any thread; a step a time."""
        return (sum(map(len, list(self.entries.values()))) - self._left) // 2

    def begin(self, time: int) -> list[Any]:
        """The list of a time that has none; a key and its row are appended at once.

        The time must be later than all that have left.
        """
        heappush(self._times, time)
        begun = self.entries[time] = []
        return begun

    def add(self, key: Any, time: int, row: Any) -> None:
        """Adds a row. Its time must be later than all that have left."""
        entries = self.entries.get(time)
        if entries is None:
            entries = self.begin(time)
        entries.append(key)
        entries.append(row if self.form is None else self.form.kept(key, row))

    def take_until(self, last: int) -> Iterator[tuple[list[Any], list[int]]]:
        """Removes the rows up to time `last`, and yields them in order with their times: at most `PIECE` together.

        Rows that were not yielded stay.
        """
        while self._times and self._times[0] <= last:
            yield self._piece(last)

    def _piece(self, last: int) -> tuple[list[Any], list[int]]:
        """Removes the first rows, which are not later than `last`."""
        times, entries, form = self._times, self.entries, self.form
        keys, rows, stamps = list[Any](), list[Any](), list[int]()
        while times and times[0] <= last and len(rows) < PIECE:
            time = times[0]
            waiting, start = entries[time], self._left
            end = start + 2 * (PIECE - len(rows))
            rows += waiting[start + 1 : end : 2]
            if form is not None:
                keys += waiting[start:end:2]
            stamps += repeat(time, len(rows) - len(stamps))
            if end < len(waiting):
                self._left = end
                break
            self._left = 0
            heappop(times)
            del entries[time]
        return rows if form is None else form.rows(keys, rows), stamps

    def take_with_keys(self, last: int, most: int) -> list[tuple[int, list[Any]]]:
        """Removes the first rows up to time `last`, at most `most` of them; keys and rows in turn, by time."""
        times, entries = self._times, self.entries
        taken, room = list[tuple[int, list[Any]]](), 2 * most
        while times and times[0] <= last and room > 0:
            time = times[0]
            waiting, start = entries[time], self._left
            end = start + room
            if end < len(waiting):
                self._left = end
                taken.append((time, waiting[start:end]))
                break
            self._left = 0
            heappop(times)
            del entries[time]
            rows = waiting[start:] if start else waiting
            room -= len(rows)
            taken.append((time, rows))
        return taken

    def freeze(self) -> Iterator[RowsOfTime]:
        """The present rows, by time. The call takes few steps; iterating puts the times in order."""
        times, waiting = list(self.entries), list(self.entries.values())
        frozen = zip(times, waiting, list(map(len, waiting)), strict=True)
        return _in_order(frozen, self.first_time, self._left)


def _in_order(
    frozen: Iterable[tuple[int, list[Any], int]], first_time: int | None, left: int
) -> Iterator[RowsOfTime]:
    """Times with their lists and lengths at the cut, by time; of the first one `left` places have left."""
    for time, waiting, length in sorted(frozen, key=_TIME):
        yield RowsOfTime(time, waiting, left if time == first_time else 0, length)
