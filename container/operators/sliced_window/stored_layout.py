"""StoredLayout: how windows of slices are cut, in operator state, so that a restore refuses other windows.

Owner: the task thread, while it sets up an operator and before a cut. Must not fire windows. See
docs/design/0041-windows-of-slices.md.
"""

from __future__ import annotations

from yarrow.common.typeinfo import Types
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.time_slices import TimeSlices
from yarrow.container.operators.window.stored_forms import (
    FIRED_SLICES,
    SLICES,
    STACKS,
    other_windows,
    restored_names,
)
from yarrow.datastream.state import ListStateDescriptor
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP

#: Name of the operator state with the cut of windows: (size, slide, offset, 1 = cumulative, end of the next window).
_LAYOUT = "_window_slices_layout"


class StoredLayout:
    """How windows are cut, and which window is the next to fire, in operator state."""

    def __init__(self, context: OperatorContext, layout: TimeSlices) -> None:
        """Raises StateMigrationError for restored slices of other windows."""
        number = Types.LONG()
        self._state = context.operator_state.union_list_state(
            ListStateDescriptor(_LAYOUT, Types.TUPLE([number] * 5))
        )
        self._cut = layout.size, layout.slide, layout.offset, int(layout.cumulative)
        stored = self._state.get()
        others = [cut for *cut, _ in stored if tuple(cut) != self._cut]
        if others and _has_slices(context):
            raise other_windows(context, SLICES, _shown(*others[0]), _shown(*self._cut))
        #: The end of the first window that some former subtask had not fired; the slices before were read.
        self.next_end: int = min((end for *_, end in stored), default=MIN_TIMESTAMP)

    def store(self, next_end: int | None) -> None:
        """Notes the end of the next window to fire; None = there is none."""
        self._state.update([(*self._cut, MAX_TIMESTAMP if next_end is None else next_end)])


def _has_slices(context: OperatorContext) -> bool:
    return not {SLICES, STACKS, FIRED_SLICES}.isdisjoint(restored_names(context))


def _shown(size: int, slide: int, offset: int, cumulative: int) -> str:
    kind = "cumulative" if cumulative else "sliding"
    return f"{kind} windows of {size} ms by {slide} ms with the offset {offset} ms"
