"""The way a window takes: a fast operator for windows with the default trigger, or the general one; slices of columns.

Owner: the thread that builds the program; pure. A class of the user's that extends an assigner or a trigger takes the
general way, since it may mean something else. See docs/design/0034-fast-windows.md, 0041-windows-of-slices.md and
0042-sessions-and-counts.md.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypedDict

from yarrow.datastream.window import (
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    CumulativeEventTimeWindows,
    CumulativeProcessingTimeWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    Evictor,
    ProcessingTimeTrigger,
    PurgingTrigger,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    Trigger,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.window_spec import (
    AllCountWindowOperator,
    AllSessionWindowOperator,
    AllSlicedWindowOperator,
    AllTumblingWindowOperator,
    AllWindowOperator,
    CountWindowOperator,
    SessionWindowOperator,
    SlicedWindowOperator,
    TumblingWindowOperator,
    WindowKind,
    WindowOperator,
)


class Way(NamedTuple):
    """The operator that runs windows."""

    #: The specs of windows by key, and of windows of a whole stream.
    keyed: type[WindowOperator]
    whole: type[WindowOperator]
    #: The fields of these specs that the general operator lacks.
    numbers: Mapping[str, object]
    #: The plan's text: the option that asks for the general way; empty if there is none.
    reason: str = ""


class Windows(NamedTuple):
    """What a program has said about windows."""

    assigner: WindowAssigner[Any, Any]
    trigger: Trigger[Any, Any]
    evictor: Evictor[Any, Any] | None
    kind: WindowKind
    #: True if a window function stands behind reduce or aggregate.
    has_window_function: bool
    #: The function of reduce or aggregate; None if the window keeps all rows.
    combining: Any
    lateness_ms: int


def _general(reason: str) -> Way:
    return Way(WindowOperator, AllWindowOperator, {}, reason)


def _tumbling(windows: Windows) -> Way:
    assigner: Any = windows.assigner
    if not _fires_at_the_end(windows):
        return _slow_trigger(windows)
    numbers = {"size_ms": assigner.size, "offset_ms": assigner.offset}
    return Way(TumblingWindowOperator, AllTumblingWindowOperator, numbers)


def _sliding(windows: Windows) -> Way:
    return _by_slices(windows, _slices_of_sliding(windows.assigner))


def _cumulative(windows: Windows) -> Way:
    return _by_slices(windows, _slices_of_cumulative(windows.assigner))


def _by_slices(windows: Windows, numbers: SlicedWindows) -> Way:
    if not _fires_at_the_end(windows):
        return _slow_trigger(windows)
    if windows.kind is WindowKind.AGGREGATED and not _returns_a_value(windows.combining.merge):
        return _general(f"key by key because merge of {type(windows.combining).__name__} returns nothing")
    return Way(SlicedWindowOperator, AllSlicedWindowOperator, numbers)


def _fires_at_the_end(windows: Windows) -> bool:
    """Whether windows of time have their default trigger."""
    default = EventTimeTrigger if windows.assigner.is_event_time() else ProcessingTimeTrigger
    return type(windows.trigger) is default


def _returns_a_value(function: Any) -> bool:
    """False if a function of Python returns nothing but None, or only raises. It is not called."""
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
    if code is None:
        return True
    before = None
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("RETURN_VALUE", "RETURN_CONST"):
            constant = instruction if instruction.opname == "RETURN_CONST" else before
            if instruction.is_jump_target and constant is before:
                # Code that jumps there brings a value of its own, as in `a if b else None`.
                return True
            is_none = constant is not None and constant.opname.endswith("_CONST") and constant.argval is None
            if not is_none:
                return True
        before = instruction
    return False


def _counting(windows: Windows) -> Way:
    assigner: Any = windows.assigner
    if assigner.window_size != assigner.window_slide:
        return _slow_assigner(windows)
    purging: Any = windows.trigger
    nested = purging.nested_trigger if type(purging) is PurgingTrigger else None
    if type(nested) is not CountTrigger or nested.window_size != assigner.window_size:
        return _slow_trigger(windows)
    if windows.has_window_function:
        return _general("key by key because of its window function, which gets the window's number")
    return Way(CountWindowOperator, AllCountWindowOperator, {"size": assigner.window_size})


def _sessions(windows: Windows) -> Way:
    assigner: Any = windows.assigner
    if type(windows.trigger) is not EventTimeTrigger:
        return _slow_trigger(windows)
    return Way(SessionWindowOperator, AllSessionWindowOperator, {"gap_ms": assigner.session_gap})


def _slow_assigner(windows: Windows) -> Way:
    return _general(f"key by key because of its assigner {type(windows.assigner).__name__}")


def _slow_trigger(windows: Windows) -> Way:
    return _general(f"key by key because of its trigger {type(windows.trigger).__name__}")


#: Assigners with a fast way.
_FAST: Mapping[type, Callable[[Windows], Way]] = {
    TumblingEventTimeWindows: _tumbling,
    TumblingProcessingTimeWindows: _tumbling,
    EventTimeSessionWindows: _sessions,
    SlidingEventTimeWindows: _sliding,
    SlidingProcessingTimeWindows: _sliding,
    CumulativeEventTimeWindows: _cumulative,
    CumulativeProcessingTimeWindows: _cumulative,
    CountTumblingWindowAssigner: _counting,
    CountSlidingWindowAssigner: _counting,
}


def way_of(windows: Windows) -> Way:
    """The way that these windows take."""
    if windows.evictor is not None:
        # All records stay, whatever the function is.
        kept = "" if windows.kind is WindowKind.ROWS else "keeps all records because of its evictor"
        return _general(kept)
    if windows.kind is WindowKind.ROWS:
        return _general("key by key because its function takes all records")
    return _FAST.get(type(windows.assigner), _slow_assigner)(windows)


class SlicedWindows(TypedDict):
    """The fields of the specs whose windows are made of slices of time, in ms."""

    size_ms: int
    slide_ms: int
    offset_ms: int
    cumulative: bool


def slices_to_pre_aggregate(windows: Windows, method: str) -> SlicedWindows:
    """The slices by which subtasks may fold the rows of windows before one operator merges what they have folded.

    Raises InvalidProgramError with the reason, for windows whose rows have to come singly.
    """
    assigner, way = type(windows.assigner), way_of(windows)
    if windows.evictor is not None:
        reason = f"its evictor {type(windows.evictor).__name__} needs all records"
    elif assigner not in SLICED:
        kinds = ", ".join(kind.__name__ for kind in SLICED)
        reason = f"the windows of {assigner.__name__} cannot be made of slices of event time, as those of {kinds} can"
    elif way.reason:
        reason = f"the windows run {way.reason}"
    elif windows.kind is WindowKind.AGGREGATED and not _returns_a_value(windows.combining.merge):
        reason = f"merge of {type(windows.combining).__name__} returns nothing"
    else:
        return SLICED[assigner](windows.assigner)
    raise InvalidProgramError(
        f"{method}(pre_aggregate=True): {reason}. Change that, or leave pre_aggregate out"
    )


def _slices_of_tumbling(assigner: Any) -> SlicedWindows:
    size, offset = assigner.size, assigner.offset
    return SlicedWindows(size_ms=size, slide_ms=size, offset_ms=offset, cumulative=False)


def _slices_of_sliding(assigner: Any) -> SlicedWindows:
    return SlicedWindows(
        size_ms=assigner.size, slide_ms=assigner.slide, offset_ms=assigner.offset, cumulative=False
    )


def _slices_of_cumulative(assigner: Any) -> SlicedWindows:
    return SlicedWindows(
        size_ms=assigner.size, slide_ms=assigner.step, offset_ms=assigner.offset, cumulative=True
    )


#: How the windows of an assigner are made of slices, of columns; those of other assigners are not.
SLICED: Mapping[type, Callable[[Any], SlicedWindows]] = {
    TumblingEventTimeWindows: _slices_of_tumbling,
    SlidingEventTimeWindows: _slices_of_sliding,
    CumulativeEventTimeWindows: _slices_of_cumulative,
}
