"""LiveSlices: the slices that have rows, the windows that have still to fire, and when a slice is gone.

Owner: the task thread. Decisions follow the rules of windows. A window fires when the watermark has reached end - 1,
and is late when it has reached end - 1 + lateness. Must not know keys, rows or aggregates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Generic, TypeVar

from yarrow.container.operators.time_slices import TimeSlices

#: What is kept of a slice.
S = TypeVar("S")


class LiveSlices(Generic[S]):
    """The slices of one subtask, by their start, each with what is kept of it."""

    def __init__(self, layout: TimeSlices, lateness_ms: int) -> None:
        self.layout = layout
        self._lateness = lateness_ms
        self._slices: dict[int, S] = {}
        #: Ends of windows that have still to fire: a heap, and the same as a set.
        self._ends: list[int] = []
        self._pending: set[int] = set()
        #: (end of its last window, start) of each slice, a heap.
        self._last_ends: list[tuple[int, int]] = []

    def __iter__(self) -> Iterator[tuple[int, S]]:
        return iter(self._slices.items())

    def __len__(self) -> int:
        return len(self._slices)

    def is_lost(self, start: int, watermark: int) -> bool:
        """True if no window, or none that is not late, contains the slice."""
        ends = self.layout.ends_of(start)
        return not ends or self._is_late(ends[-1], watermark)

    def _is_late(self, end: int, watermark: int) -> bool:
        return end - 1 + self._lateness <= watermark

    def open(self, start: int, watermark: int | None, make: Callable[[], S]) -> S:
        """The slice with this start, made if it does not exist.

        Its windows that the watermark has not reached have still to fire; None = all of them.
        """
        found = self._slices.get(start)
        if found is not None:
            return found
        found = self._slices[start] = make()
        ends = self.layout.ends_of(start)
        heappush(self._last_ends, (ends[-1], start))
        for end in ends:
            if (watermark is None or end - 1 > watermark) and end not in self._pending:
                self._pending.add(end)
                heappush(self._ends, end)
        return found

    def at(self, start: int) -> S | None:
        """The slice with this start; None = it has no rows."""
        return self._slices.get(start)

    def replace(self, start: int, states: S) -> None:
        """Puts other states in the place of a slice's."""
        self._slices[start] = states

    def reached(self, start: int, watermark: int) -> tuple[int | None, list[int]]:
        """The last end of a window of this slice that has fired, None = none; and the ends of those not late yet."""
        ends = self.layout.ends_of(start)
        if ends[0] - 1 > watermark:
            return None, []
        ends = [end for end in ends if end - 1 <= watermark]
        return ends[-1], [end for end in ends if not self._is_late(end, watermark)]

    def pending(self, start: int) -> list[int]:
        """The ends of this slice's windows that have still to fire, ascending."""
        return [end for end in self.layout.ends_of(start) if end in self._pending]

    def of_window(self, end: int) -> list[S]:
        """The slices of a window that have rows, in order of time."""
        return [self._slices[start] for start in self.layout.slices_of(end) if start in self._slices]

    @property
    def next_end(self) -> int | None:
        """The end of the next window to fire; None = there is none."""
        return self._ends[0] if self._ends else None

    def has_fired(self) -> None:
        """Takes the next window as fired."""
        self._pending.remove(heappop(self._ends))

    def gone(self, watermark: int) -> Iterator[S]:
        """Removes the slices whose windows have fired and are late."""
        while self._last_ends:
            end, start = self._last_ends[0]
            if not self._is_late(end, watermark) or (self._ends and self._ends[0] <= end):
                return
            heappop(self._last_ends)
            yield self._slices.pop(start)
