"""GarbageTime: how often and how long Python has collected garbage in this process, where it is left to Python.

Owner: any thread; Python calls `_noted` in whichever thread collects, one collection at a time. Workers collect between
slices and measure that themselves.
"""

from __future__ import annotations

import functools
import gc

from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.metrics.rate import RateBetweenReadings

_PREFIX = "Status.JVM.GarbageCollector.All"


class GarbageTime:
    """Count and time of the collections since it was made; see `of_this_process`."""

    def __init__(self) -> None:
        self._started = 0.0
        self.total_ms = 0.0
        self._rate = RateBetweenReadings(lambda: self.total_ms)
        gc.callbacks.append(self._noted)

    def _noted(self, phase: str, info: dict[str, int]) -> None:
        now = perf_counter()
        if phase == "start":
            self._started = now
        else:
            self.total_ms += 1000 * (now - self._started)

    def metrics(self) -> dict[str, float]:
        """Present values; times in milliseconds."""
        return {
            f"{_PREFIX}.Count": float(sum(part["collections"] for part in gc.get_stats())),
            f"{_PREFIX}.Time": self.total_ms,
            f"{_PREFIX}.TimeMsPerSecond": self._rate(),
        }


@functools.cache
def of_this_process() -> GarbageTime:
    """The one of this process; it measures from the first call on."""
    return GarbageTime()
