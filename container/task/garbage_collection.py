"""Garbage collection as the worker owns it: young collections between slices, full ones only when idle.

Owner: the task thread of the worker; automatic collection is off in worker processes. An automatic full collection over
a large heap state would stop all tasks for the better part of a second. Never used in the one-process mode, whose
interpreter is the user's.
"""

from __future__ import annotations

import gc

from yarrow.runtime.common.clock import perf_counter

#: Net new container objects after which is collected between two slices.
_NEW_OBJECTS = 100_000
#: Seconds of work after which is collected whatever the number says: it is a net number, in which objects that replaced
#: older ones do not show, and a collection walks each of them, up to a microsecond where they are in no cache.
_WORK_SECONDS = 0.05
#: A full collection when idle needs this many others before it, else it would find little.
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
        """Switches automatic collection off and leaves all that is loaded out of later ones."""
        gc.disable()
        gc.collect()
        gc.freeze()

    def between_slices(self) -> None:
        """A collection of what is new, when that is much or has not been done for a while.

        Both young generations at once: what survives, as tables of state do, is walked once and never again.
        """
        if gc.get_count()[0] < _NEW_OBJECTS and perf_counter() - self._last < _WORK_SECONDS:
            return
        self._since_full += 1
        self._collect(1)

    def when_idle(self) -> None:
        """A full collection when there is a point in it; what survives is frozen."""
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
