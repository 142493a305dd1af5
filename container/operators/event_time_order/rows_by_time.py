"""RowsByTime: rows in memory in order of their time; rows of one time in order of their number.

Owner: the task thread; pure, without clock, state and I/O. Must not know keys, watermarks or where rows are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final

#: Most rows that leave together: whoever takes them looks at its deadline behind them.
PIECE: Final = 512

#: (time, number of arrival, row).
NumberedRow = tuple[int, int, Any]
_NUMBER: Final = itemgetter(1)


class RowsByTime:
    """Rows that wait, by their time."""

    def __init__(self) -> None:
        #: The rows of each time, in order of their number. Generated code appends to lists that are there.
        self.rows: dict[int, list[NumberedRow]] = {}
        #: Heap of the times in `rows`.
        self._times: list[int] = []
        #: The time whose rows stand the other way round, because some of them have left.
        self._begun: int | None = None

    @property
    def first_time(self) -> int | None:
        """The earliest time; None = no row waits."""
        return self._times[0] if self._times else None

    @property
    def count(self) -> int:
        """The number of rows; takes a step for each time."""
        return sum(map(len, self.rows.values()))

    def add(self, row: NumberedRow) -> None:
        """Adds a row with a number above all that are here. Its time must be later than all that have left."""
        time = row[0]
        rows = self.rows.get(time)
        if rows is None:
            self.rows[time] = [row]
            heappush(self._times, time)
        else:
            rows.append(row)

    def add_between(self, rows: Iterable[NumberedRow], after: int, last: int) -> int:
        """Adds those of the rows that are later than `after` and not later than `last`; returns how many.

        They may have any numbers. When all are there, `sort_after` puts them in order.
        """
        found, added = self.rows, 0
        for row in rows:
            time = row[0]
            if after < time <= last:
                added += 1
                if time in found:
                    found[time].append(row)
                else:
                    found[time] = [row]
                    heappush(self._times, time)
        return added

    def sort_after(self, time: int) -> None:
        """Puts rows later than `time` in order of their number."""
        for each, rows in self.rows.items():
            if each > time:
                rows.sort(key=_NUMBER)

    def keep_first(self, most: int) -> int:
        """Removes late times until `most` rows are left or one time; returns the last time that is left."""
        times = sorted(self._times)
        counts = accumulate(len(self.rows[time]) for time in times)
        kept = max(1, sum(1 for count in counts if count <= most))
        for time in times[kept:]:
            del self.rows[time]
        self._times = times[:kept]
        heapify(self._times)
        return self._times[-1]

    def take_until(self, last: int) -> Iterator[list[NumberedRow]]:
        """Removes the rows up to time `last`, and yields them in order: at most `PIECE` rows together.

        Rows that were not yielded stay.
        """
        while self._times and self._times[0] <= last:
            yield self._piece(last)

    def _piece(self, last: int) -> list[NumberedRow]:
        """Removes the first rows, which are not later than `last`."""
        times, piece = self._times, list[NumberedRow]()
        while times and times[0] <= last and len(piece) < PIECE:
            time, room = times[0], PIECE - len(piece)
            waiting = self.rows[time]
            if time != self._begun and len(waiting) <= room:
                piece += waiting
            else:
                if time != self._begun:
                    self._begun = time
                    waiting.reverse()
                piece += waiting[: -room - 1 : -1]
                del waiting[-room:]
                if waiting:
                    break
            heappop(times)
            del self.rows[time]
        return piece

    def __iter__(self) -> Iterator[NumberedRow]:
        """All rows, in order."""
        for time in sorted(self._times):
            rows = self.rows[time]
            yield from reversed(rows) if time == self._begun else rows


def unnumbered(rows: list[NumberedRow]) -> tuple[list[Any], list[int]]:
    """The rows alone, and their times."""
    return [row for _, _, row in rows], [time for time, _, _ in rows]
