"""LoopRounds: decides when a marker goes round a loop, and when the loop is over. Pure: no clock, no I/O.

A head sends marker r + 1 when marker r has come back. A marker pushes all rows before it round. If no head had
feedback between two markers, then nothing was on its way: see docs/design/0040.
"""

from __future__ import annotations

from typing import NamedTuple


class Round(NamedTuple):
    """What the next marker says."""

    number: int
    #: Rounds in a row, up to now, in which no head had feedback, as far as this head knows.
    quiet_rounds: int


class LoopRounds:
    """The markers of one head; times are epoch ms."""

    def __init__(self, wait_ms: int, quiet_rounds: int) -> None:
        self._wait_ms = wait_ms
        self._needed = quiet_rounds
        self._round = 0
        #: As of the last marker that came back.
        self._quiet = 0
        self._had_feedback = True
        self._under_way = False
        self._ending = False
        self._quiet_since = 0
        #: True when the loop is empty for good.
        self.over = False

    def begin(self, now_ms: int) -> None:
        """Begins to look for the end: no further input comes."""
        if not self._ending:
            self._ending = True
            self._quiet_since = max(self._quiet_since, now_ms)

    def note_feedback(self, now_ms: int) -> None:
        """Takes note of feedback."""
        self._had_feedback = True
        self._quiet_since = now_ms

    @property
    def due_ms(self) -> int | None:
        """Time of the next marker; None = none is to be sent."""
        if not self._ending or self._under_way or self.over:
            return None
        return self._quiet_since + self._wait_ms

    def next(self) -> Round:
        """The next marker, which leaves now."""
        self._round += 1
        quiet = 0 if self._had_feedback else self._quiet + 1
        self._had_feedback = False
        self._under_way = True
        return Round(self._round, quiet)

    def returned(self, number: int, quiet_rounds: int) -> None:
        """Takes a marker that has been round."""
        if number == self._round and self._under_way:
            self._under_way = False
            self._quiet = quiet_rounds
            self.over = quiet_rounds >= self._needed
