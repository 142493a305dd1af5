"""TimeAccounting: divides a task's time into busy, idle, and softly or hard back-pressured.

Owner: the task thread. Time is measured at the edges of slices, not sampled. A task that could run but waits
for its thread counts as busy, like a thread that waits for a core.
"""

from __future__ import annotations

from enum import IntEnum


class Phase(IntEnum):
    """What a task does or waits for."""

    BUSY = 0
    IDLE = 1
    #: Soft: the task waits for credit between two slices, and still runs mails.
    BACK_PRESSURED = 2
    #: Hard: in addition, user code is blocked in the middle of an emit.
    HARD_BACK_PRESSURED = 3

    @property
    def is_back_pressured(self) -> bool:
        """Softly or hard."""
        return self >= Phase.BACK_PRESSURED


class TimeAccounting:
    """Accumulated seconds by phase, and the share of the last full second."""

    def __init__(self, now: float) -> None:
        self._stamp = now
        self.phase = Phase.IDLE
        self._totals = [0.0] * len(Phase)
        self._window_start = now
        self._window_totals = [0.0] * len(Phase)
        self._rates = [0.0, 1000.0, 0.0, 0.0]

    def enter(self, phase: Phase, now: float) -> None:
        """Enters `phase` at time `now`."""
        self._totals[self.phase] += now - self._stamp
        self._stamp = now
        self.phase = phase
        elapsed = now - self._window_start
        if elapsed >= 1.0:
            self._close_window(now, elapsed)

    def _close_window(self, now: float, elapsed: float) -> None:
        self._rates = [
            1000.0 * (total - former) / elapsed
            for total, former in zip(self._totals, self._window_totals, strict=True)
        ]
        self._window_totals = self._totals.copy()
        self._window_start = now

    def totals_ms(self, now: float) -> list[float]:
        """Accumulated milliseconds by phase."""
        totals = self._totals.copy()
        totals[self.phase] += now - self._stamp
        return [1000 * total for total in totals]

    def per_second(self, now: float) -> list[float]:
        """Milliseconds per second by phase, over the last full window of a second."""
        elapsed = now - self._window_start
        if elapsed < 1.0:
            return self._rates
        return [
            (total - 1000.0 * former) / elapsed
            for total, former in zip(self.totals_ms(now), self._window_totals, strict=True)
        ]
