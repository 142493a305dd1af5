"""The way a window takes: a fast operator for windows of time with the default trigger, or the general one.

Owner: the thread that builds the program; pure. A class of the user's that extends an assigner or a trigger takes the
general way, since it may mean something else. See docs/design/0034-fast-windows.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from yarrow.datastream.window import (
    EventTimeTrigger,
    Evictor,
    ProcessingTimeTrigger,
    Trigger,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from yarrow.runtime.graph.window_spec import WindowKind

#: Assigners with a fast way, each with its default trigger.
_TUMBLING: Mapping[type, type] = {
    TumblingEventTimeWindows: EventTimeTrigger,
    TumblingProcessingTimeWindows: ProcessingTimeTrigger,
}


class TumblingWay(NamedTuple):
    """Numbers of tumbling windows that take the fast way, in milliseconds."""

    size_ms: int
    offset_ms: int


class GeneralWay(NamedTuple):
    """The general operator, and the option that asks for it."""

    #: The plan's text.
    reason: str


def way_of(
    assigner: WindowAssigner[Any, Any],
    trigger: Trigger[Any, Any],
    evictor: Evictor[Any, Any] | None,
    kind: WindowKind,
) -> TumblingWay | GeneralWay:
    """The way that these windows take."""
    default = _TUMBLING.get(type(assigner))
    if evictor is not None:
        # All records stay, whatever the function is.
        kept = "" if kind is WindowKind.ROWS else "keeps all records because of its evictor"
        return GeneralWay(kept)
    if kind is WindowKind.ROWS:
        return GeneralWay("key by key because its function takes all records")
    if default is None:
        return GeneralWay(f"key by key because of its assigner {type(assigner).__name__}")
    if type(trigger) is not default:
        return GeneralWay(f"key by key because of its trigger {type(trigger).__name__}")
    tumbling: Any = assigner
    return TumblingWay(tumbling.size, tumbling.offset)
