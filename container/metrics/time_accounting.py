"""Where a task's time goes: busy, idle, back-pressured softly or hard; together they are all of it.

Owner: the task thread. Measured at the edges of slices, not sampled: a task that could run but waits for its thread
counts as busy, as a thread waiting for a core would.
"""

from __future__ import annotations

from enum import IntEnum


class Phase(IntEnum):
    """What a task does or waits for."""

    BUSY = 0
    IDLE = 1
    #: Soft: the task waits for credit between two slices and takes mails meanwhile.
    BACK_PRESSURED = 2
    #: Hard: besides, user code stands still in the middle of an emit.
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
        """From `now` on the task is in `phase`."""
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
        """Milliseconds per second by phase; over the present window once it is a second old."""
        elapsed = now - self._window_start
        if elapsed < 1.0:
            return self._rates
        return [
            (total - 1000.0 * former) / elapsed
            for total, former in zip(self.totals_ms(now), self._window_totals, strict=True)
        ]
