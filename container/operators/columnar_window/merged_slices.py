"""MergedSlices: merges of slices that several windows share, so that a window costs a few merges, whatever its size.

Owner: the task thread. Time is cut into blocks as long as windows, so a window lies in two blocks at most. In the
earlier block it is an end of the block: ends are merged from the last slice backwards, once a block. In the later block
it is a beginning, which grows by the slices that come. Blocks lie at fixed times. So a restored operator merges in the
same order, and its float sums are the same. Must not know keys or watermarks.
"""

from __future__ import annotations

from collections.abc import Callable

from yarrow.container.operators.columnar_window.slice_states import SliceStates
from yarrow.container.operators.time_slices import TimeSlices
from yarrow.runtime.data.elements import MIN_TIMESTAMP


class MergedSlices:
    """The merges of the present two blocks; they are no state, since slices have all that is in them."""

    def __init__(
        self,
        layout: TimeSlices,
        slice_at: Callable[[int], SliceStates | None],
        make: Callable[[], SliceStates],
    ) -> None:
        """`slice_at` gives the slice with a start, None if it has no rows; `make` gives empty states."""
        self._layout = layout
        self._slice_at = slice_at
        self._make = make
        self.forget()

    def forget(self) -> None:
        """Forgets all merges: the slices are others."""
        #: The start of the later block.
        self._border = MIN_TIMESTAMP
        #: The merged beginning of the later block, and where it ends.
        self._beginning: SliceStates | None = None
        self._reached = MIN_TIMESTAMP
        #: Ends of the earlier block, each with its start: a stack, the longest on top. None = no slice has rows.
        self._ends: list[tuple[int, SliceStates | None]] = []
        #: The last window by its end: a firing may be cut.
        self._window: tuple[int, SliceStates] | None = None

    def changed(self, start: int) -> None:
        """Says that rows come to the slice with this start."""
        if start >= self._reached:
            return
        self._window = None
        if start >= self._border:
            self._beginning, self._reached = None, self._border
        while self._ends and self._ends[-1][0] <= start:
            self._ends.pop()

    def window(self, end: int, size: int) -> SliceStates:
        """The merged slices of the window with this end; `size` slots exist. Nobody may change them.

        Raises SumOverflowError if the sum of some slices is too large; then `forget` has to be called.
        """
        if self._window is not None and self._window[0] == end:
            return self._window[1]
        start, border = self._layout.start_of(end), self._layout.block_of(end - 1)
        if border != self._border:
            self.forget()
            self._border = self._reached = border
        beginning = self._beginning_to(end, size)
        made = beginning if border <= start else self._joined(self._end_from(start, size), beginning, size)
        self._window = end, made
        return made

    def _beginning_to(self, end: int, size: int) -> SliceStates:
        if self._beginning is None or end < self._reached:
            self._beginning, self._reached = self._make(), self._border
        for start in range(self._reached, end, self._layout.step):
            states = self._slice_at(start)
            if states is not None:
                self._beginning.absorb(states, size)
        self._reached = end
        return self._beginning

    def _end_from(self, start: int, size: int) -> SliceStates | None:
        """The merged slices of the earlier block from a start of a window on."""
        while self._ends and self._ends[-1][0] < start:
            self._ends.pop()
        at, merged = self._ends[-1] if self._ends else (self._border, None)
        step = self._layout.step
        for earlier in range(at - step, start - 1, -step):
            states = self._slice_at(earlier)
            if states is not None:
                merged = states if merged is None else self._joined(merged, states, size)
            if self._layout.is_start(earlier):
                self._ends.append((earlier, merged))
        return merged

    def _joined(self, first: SliceStates | None, second: SliceStates, size: int) -> SliceStates:
        if first is None:
            return second
        made = self._make()
        made.absorb(first, size)
        made.absorb(second, size)
        return made
