"""Clock: the source of time in the runtime; it is passed in, and the `time` module is read nowhere else.

Owner: any thread (SystemClock is stateless; ManualClock belongs to its test). Timeouts use `monotonic`,
timestamps shown to users use `epoch_ms`.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Source of the present time."""

    def epoch_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC: for display and processing time; may jump."""
        ...

    def passed_ms(self) -> int:
        """The last millisecond of `epoch_ms` that is over: timers up to it are due, since nothing else comes in it."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back: for timeouts and durations."""
        ...


class SystemClock:
    """The machine's clocks."""

    def epoch_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def passed_ms(self) -> int:
        return self.epoch_ms() - 1

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that a test moves: both readings advance together. It stands at the end of its millisecond."""

    def __init__(self, epoch_ms: int = 0) -> None:
        self._epoch_ms = float(epoch_ms)
        self._monotonic = 0.0

    def epoch_ms(self) -> int:
        return int(self._epoch_ms)

    def passed_ms(self) -> int:
        return self.epoch_ms()

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Moves both readings forward by `seconds`."""
        self._epoch_ms += seconds * 1000
        self._monotonic += seconds


#: For measurements inside one thread's loop without a method call; the same source as SystemClock.monotonic.
perf_counter = time.perf_counter
