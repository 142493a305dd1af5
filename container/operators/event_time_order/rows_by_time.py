"""RowsByTime: rows of many keys in memory, in order of their time; rows of one time in order of their number.

Owner: the task thread; pure, without clock, state and I/O. Must not know watermarks or where rows are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any, Final

#: Most rows that leave together: whoever takes them looks at its deadline behind them.
PIECE: Final = 256

#: (number, key, row); a number is that of the row's arrival.
NumberedRow = tuple[int, Any, Any]
_NUMBER: Final = itemgetter(0)


class RowsByTime:
    """Rows that wait, by their time."""

    def __init__(self) -> None:
        self._rows: dict[int, list[NumberedRow]] = {}
        #: Heap of the times in `_rows`.
        self._times: list[int] = []
        #: The time whose rows stand in order, the first one last, because some of them have left.
        self._begun: int | None = None

    @property
    def first_time(self) -> int | None:
        """The earliest time; None = no row waits."""
        return self._times[0] if self._times else None

    def add(self, time: int, number: int, key: Any, row: Any) -> None:
        """Adds a row. Its time must be later than all that have left."""
        rows = self._rows.get(time)
        if rows is None:
            self._rows[time] = [(number, key, row)]
            heappush(self._times, time)
        else:
            rows.append((number, key, row))

    def add_all(self, key: Any, entries: Iterable[tuple[int, int, Any]]) -> None:
        """Adds rows of a key: (time, number, row)."""
        found = self._rows
        for time, number, row in entries:
            rows = found.get(time)
            if rows is None:
                found[time] = [(number, key, row)]
                heappush(self._times, time)
            else:
                rows.append((number, key, row))

    def take_until(self, last: int) -> Iterator[tuple[int, list[NumberedRow]]]:
        """Removes the rows up to time `last`, and yields them by time: at most `PIECE` rows together.

        Rows that were not yielded stay.
        """
        times = self._times
        while times and times[0] <= last:
            time = times[0]
            waiting = self._rows[time]
            if time != self._begun:
                waiting.sort(key=_NUMBER, reverse=len(waiting) > PIECE)
            if len(waiting) <= PIECE:
                if time == self._begun:
                    waiting.reverse()
                    self._begun = None
                heappop(times)
                yield time, self._rows.pop(time)
            else:
                self._begun = time
                piece = waiting[: -PIECE - 1 : -1]
                del waiting[-PIECE:]
                yield time, piece

    def __iter__(self) -> Iterator[tuple[int, NumberedRow]]:
        """All rows with their times, in order."""
        for time in sorted(self._times):
            for row in sorted(self._rows[time], key=_NUMBER):
                yield time, row
