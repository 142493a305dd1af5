"""GarbageCollection: collects young objects between slices, and everything only when the worker is idle.

Owner: the task thread of the worker; automatic collection is off in worker processes. An automatic full
collection over a large heap state would stop all tasks for up to a second. Never used in the one-process
mode, whose interpreter is the user's.
"""

from __future__ import annotations

import gc

from yarrow.runtime.common.clock import perf_counter

#: Net number of new container objects after which young objects are collected between two slices.
_NEW_OBJECTS = 100_000
#: Seconds of work after which young objects are collected in any case. The net number hides objects that
#: replaced older ones. A collection walks each of them, up to a microsecond for one that is in no cache.
_WORK_SECONDS = 0.05
#: Least number of young collections before a full one; with fewer, a full one would find little.
_COLLECTIONS_PER_FULL = 100


class GarbageCollection:
    """Decides when to collect; counts pauses."""

    def __init__(self) -> None:
        self._since_full = 0
        self._last = perf_counter()
        self.count = 0
        self.total_seconds = 0.0
        self.longest_seconds = 0.0

    def take_over(self) -> None:
        """Switches automatic collection off, and excludes all loaded objects from later collections."""
        gc.disable()
        gc.collect()
        gc.freeze()

    def between_slices(self) -> None:
        """Collects young objects, if there are many or the last collection was long ago.

        It collects both young generations at once, so that survivors such as tables of state are walked only
        once.
        """
        if gc.get_count()[0] < _NEW_OBJECTS and perf_counter() - self._last < _WORK_SECONDS:
            return
        self._since_full += 1
        self._collect(1)

    def when_idle(self) -> None:
        """Runs a full collection if that is worth it; freezes the survivors."""
        if self._since_full >= _COLLECTIONS_PER_FULL:
            self._since_full = 0
            self._collect(2)
            gc.freeze()

    def _collect(self, generation: int) -> None:
        started = perf_counter()
        gc.collect(generation)
        self._last = perf_counter()
        elapsed = self._last - started
        self.count += 1
        self.total_seconds += elapsed
        self.longest_seconds = max(self.longest_seconds, elapsed)
