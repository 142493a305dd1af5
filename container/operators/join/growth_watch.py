"""GrowthWatch: notices that a join gathers rows while its event time stands.

Owner: the task thread; no clock, no state. Whoever asks gives the time. Must not know rows, inputs or logs.
"""

from __future__ import annotations

from typing import Final, NamedTuple

#: Seconds for which event time stands before growth is a matter of concern.
STANDS_SECONDS: Final = 60.0
#: Rows by which a join grows meanwhile.
LEAST_GROWTH: Final = 1000


class Growth(NamedTuple):
    """The rows that a join has gathered since its event time stands."""

    seconds: float
    #: Rows then and now.
    before: int
    now: int


class GrowthWatch:
    """Watches one subtask."""

    def __init__(self) -> None:
        self._watermark: int | None = None
        self._since = 0.0
        self._before = 0
        #: Rows above which it is told again.
        self._next = 0

    def look(self, now: float, watermark: int, rows: int) -> Growth | None:
        """The growth that is to be told at a time in seconds: the first, and then each doubling."""
        if watermark != self._watermark:
            self._watermark, self._since, self._before = watermark, now, rows
            self._next = rows + LEAST_GROWTH
            return None
        if now - self._since < STANDS_SECONDS or rows < self._next:
            return None
        self._next = 2 * rows
        return Growth(now - self._since, self._before, rows)
