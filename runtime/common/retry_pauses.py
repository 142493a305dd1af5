"""RetryPauses: the pauses between attempts that fail for a time, with jitter and up to a deadline.

Owner: the caller that repeats attempts. The caller decides which failures pass, and waits by itself. One way for all
clients of other systems: those that failed together ask again one by one, and none of them for ever.
"""

from __future__ import annotations

from yarrow.runtime.common.backoff import Backoff
from yarrow.runtime.common.clock import Clock, SystemClock
from yarrow.runtime.common.randomness import new_generator, shortened

__all__ = ["RetryPauses"]


class RetryPauses:
    """The pauses of one request, from its first attempt on."""

    __slots__ = ("_backoff", "_clock", "_deadline", "_random")

    def __init__(
        self,
        total_seconds: float,
        first_seconds: float,
        longest_seconds: float,
        clock: Clock | None = None,
    ) -> None:
        """`total_seconds` lie between the first attempt and the last. Pauses double from the first to the longest."""
        self._clock = clock or SystemClock()
        self._deadline = self._clock.monotonic() + total_seconds
        self._backoff = Backoff(first_seconds, longest_seconds)
        self._random = new_generator()

    @property
    def left_seconds(self) -> float:
        """Seconds until the deadline; 0 when it is over."""
        return max(0.0, self._deadline - self._clock.monotonic())

    def next_seconds(self) -> float | None:
        """The pause before the next attempt; None = the deadline comes first, so that no attempt is left."""
        seconds = shortened(self._backoff.next_seconds(), self._random)
        return seconds if seconds <= self.left_seconds else None
