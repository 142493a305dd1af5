"""ManualTimers: a test moves time by hand.

Owner: the test's thread; callbacks run inside `advance`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.timers import TimerHandle


class ManualTimer:
    """A callback in ManualTimers."""

    def __init__(self, due: float, callback: Callable[[], None]) -> None:
        self.due = due
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualTimers:
    """Timers that run when a test moves the clock, in order of due time, then of scheduling."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._queue: list[tuple[float, int, ManualTimer]] = []
        self._count = 0

    def call_later(self, seconds: float, callback: Callable[[], None]) -> TimerHandle:
        timer = ManualTimer(self._clock.monotonic() + seconds, callback)
        self._count += 1
        heapq.heappush(self._queue, (timer.due, self._count, timer))
        return timer

    @property
    def pending(self) -> int:
        """Number of timers that have neither run nor been cancelled."""
        return sum(not timer.cancelled for _, _, timer in self._queue)

    def advance(self, seconds: float) -> None:
        """Moves the clock forward, stopping at each due timer to run it."""
        end = self._clock.monotonic() + seconds
        while self._queue and self._queue[0][0] <= end:
            due, _, timer = heapq.heappop(self._queue)
            self._clock.advance(max(0.0, due - self._clock.monotonic()))
            if not timer.cancelled:
                timer.callback()
        self._clock.advance(max(0.0, end - self._clock.monotonic()))
