"""Garbage collection as the worker owns it: young collections between slices, full ones only when idle.

Owner: the task thread of the worker; automatic collection is off in worker processes. An automatic full collection over
a large heap state would stop all tasks for the better part of a second. Never used in the one-process mode, whose
interpreter is the user's.
"""

from __future__ import annotations

import gc

from yarrow.runtime.common.clock import perf_counter

#: Net new container objects after which a young collection runs between two slices. The net: objects that replaced
#: older ones do not count, so that a collection may walk many more, up to a microsecond each.
_YOUNG_OBJECTS = 100_000
#: Every so many young collections the middle generation is collected too, which walks what all of them left.
_YOUNG_PER_MIDDLE = 4
#: A full collection when idle needs this many middle ones before it, else it would find little.
_MIDDLE_PER_FULL = 12


class GarbageCollection:
    """Decides when to collect; counts pauses."""

    def __init__(self) -> None:
        self._young = 0
        self._middle = 0
        self.count = 0
        self.total_seconds = 0.0
        self.longest_seconds = 0.0

    def take_over(self) -> None:
        """Switches automatic collection off and leaves all that is loaded out of later ones."""
        gc.disable()
        gc.collect()
        gc.freeze()

    def between_slices(self) -> None:
        """A young collection when enough objects are new."""
        if gc.get_count()[0] < _YOUNG_OBJECTS:
            return
        self._young += 1
        # The first is one: tables of state leave the young generations while they are small, and are not walked again.
        middle = self._young % _YOUNG_PER_MIDDLE == 1
        if middle:
            self._middle += 1
        self._collect(1 if middle else 0)

    def when_idle(self) -> None:
        """A full collection when there is a point in it; what survives is frozen."""
        if self._middle >= _MIDDLE_PER_FULL:
            self._middle = 0
            self._collect(2)
            gc.freeze()

    def _collect(self, generation: int) -> None:
        started = perf_counter()
        gc.collect(generation)
        elapsed = perf_counter() - started
        self.count += 1
        self.total_seconds += elapsed
        self.longest_seconds = max(self.longest_seconds, elapsed)
