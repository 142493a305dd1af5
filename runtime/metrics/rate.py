"""RateBetweenReadings: how fast a count grows, for metrics that are read about once a second.

Owner: the thread that reads it. Must not count anything itself.
"""

from __future__ import annotations

from collections.abc import Callable

from yarrow.runtime.common.clock import perf_counter

#: Readings that follow each other faster give the rate of before.
_SHORTEST_SECONDS = 0.5


class RateBetweenReadings:
    """Growth per second of a count between two readings."""

    def __init__(self, total: Callable[[], float]) -> None:
        self._total = total
        self._last = (perf_counter(), 0.0)
        self._rate = 0.0

    def __call__(self) -> float:
        now, value = perf_counter(), self._total()
        then, former = self._last
        if now - then >= _SHORTEST_SECONDS:
            self._rate = max(0.0, (value - former) / (now - then))
            self._last = (now, value)
        return self._rate
