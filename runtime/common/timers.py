"""Timers of the control plane: passed in like the Clock, so that tests move time by hand.

Owner: callbacks run on the scheduling loop (LoopTimers) or inside `advance` (ManualTimers). Must not be used
if a condition could signal the same.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Protocol

from yarrow.runtime.common.clock import ManualClock


class TimerHandle(Protocol):
    """A scheduled callback."""

    def cancel(self) -> None:
        """Cancels the callback; no effect when it has run."""
        ...


class Timers(Protocol):
    """Calls back later."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> TimerHandle:
        """Calls `callback` once, `seconds` from now, on the caller's event loop."""
        ...


class LoopTimers:
    """Timers of the running event loop."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, callback)


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
