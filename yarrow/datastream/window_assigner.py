"""Window assigners: which windows a record belongs to.

Called by the window operator, in the thread that owns the task; an assigner is settings alone. Sizes, gaps
and offsets are in milliseconds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from operator import index
from typing import Any, Generic, TypeVar

from yarrow.common.serializer import TypeSerializer
from yarrow.common.time import Duration, Time, milliseconds_of
from yarrow.common.typeinfo import Types
from yarrow.common.watermark_strategy import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.datastream.functions import RuntimeContext
from yarrow.datastream.state import ValueStateDescriptor
from yarrow.datastream.window_trigger import (
    CountTrigger,
    EndOfStreamTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
)
from yarrow.datastream.window_types import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
    Window,
)

__all__ = [
    "CountSlidingWindowAssigner",
    "CountTumblingWindowAssigner",
    "CumulativeEventTimeWindows",
    "CumulativeProcessingTimeWindows",
    "DynamicEventTimeSessionWindows",
    "DynamicProcessingTimeSessionWindows",
    "EventTimeSessionWindows",
    "GlobalWindows",
    "MergingWindowAssigner",
    "ProcessingTimeSessionWindows",
    "SessionWindowTimeGapExtractor",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "WindowAssigner",
]

T = TypeVar("T")
W = TypeVar("W", bound=Window)
# Nested classes need a variable of their own.
WINDOW = TypeVar("WINDOW", bound=Window)


class WindowAssigner(ABC, Generic[T, W]):
    """Assigns records to windows."""

    class WindowAssignerContext(ABC):
        """The facts that an assigner can ask for."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the machine's time."""

        @abstractmethod
        def get_runtime_context(self) -> RuntimeContext:
            """Return the context of the operator, whose state is that of the record's key."""

    @abstractmethod
    def assign_windows(self, element: T, timestamp: int, context: WindowAssignerContext) -> Collection[W]:
        """Return the windows of a record.

        `timestamp` is its event time, or MIN_TIMESTAMP when it has none; assigners of event time then raise
        ValueError.
        """

    def take_back(self, element: T, context: WindowAssignerContext) -> None:
        """Make the assigner's state as before the record that `assign_windows` got last.

        Called when `on_error` of the windows leaves this record out. An assigner without state need not override it.
        Not in Flink.
        """
        return None

    @abstractmethod
    def get_default_trigger(self, env: Any) -> Trigger[T, W]:
        """Return the trigger that is used unless another was set; `env` is the StreamExecutionEnvironment."""

    @abstractmethod
    def get_window_serializer(self) -> TypeSerializer[W]:
        """Return the serializer of the windows."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Whether windows end by event time."""


class MergingWindowAssigner(WindowAssigner[T, W]):
    """Assigns each record to a window of its own and merges windows afterwards."""

    class MergeCallback(ABC, Generic[WINDOW]):
        """Hears of merged windows."""

        @abstractmethod
        def merge(self, windows_to_be_merged: Iterable[WINDOW], merge_result: WINDOW) -> None:
            """Hear that these windows are replaced by their union."""

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: MergeCallback[W]) -> None:
        """Tell the callback of every group of windows that become one."""


class SessionWindowTimeGapExtractor(ABC):
    """Gives each record the gap after which its session ends."""

    @abstractmethod
    def extract(self, element: Any) -> int:
        """Return the gap of a record in milliseconds, at least 1."""


class _TimeWindows(WindowAssigner[Any, TimeWindow]):
    """The common part of assigners of windows of time, on either clock."""

    def get_window_serializer(self) -> TypeSerializer[TimeWindow]:
        return TimeWindowSerializer()

    @abstractmethod
    def _time(self, timestamp: int, context: WindowAssigner.WindowAssignerContext) -> int:
        """Return the time of a record by the clock of the windows."""


class _EventTimeWindows(_TimeWindows):
    """The common part of all assigners of event time."""

    def get_default_trigger(self, env: Any) -> Trigger[Any, TimeWindow]:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True

    def _time(self, timestamp: int, context: WindowAssigner.WindowAssignerContext) -> int:
        if timestamp == MIN_TIMESTAMP:
            raise ValueError(
                f"{type(self).__name__} got a record without a timestamp: give the stream event time with "
                "assign_timestamps_and_watermarks, or use windows of processing time"
            )
        return timestamp


class _ProcessingTimeWindows(_TimeWindows):
    """The common part of all assigners of processing time."""

    def get_default_trigger(self, env: Any) -> Trigger[Any, TimeWindow]:
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        return False

    def _time(self, timestamp: int, context: WindowAssigner.WindowAssignerContext) -> int:
        return context.get_current_processing_time()


class _TumblingWindows(_TimeWindows):
    """Windows of one size, one after the other."""

    #: The window of the last element: most elements come to it.
    _last: TimeWindow | None = None

    def __init__(self, size: int, offset: int) -> None:
        _check_size_and_offset(self, size, size, offset)
        self.size, self.offset = size, offset

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        time, last = self._time(timestamp, context), self._last
        # A subclass may change its size and offset between two elements.
        start = TimeWindow.get_window_start_with_offset(time, self.offset, self.size)
        if last is None or last.start != start or last.end != start + self.size:
            (last,) = _sliding(time, self.size, self.size, self.offset)
            self._last = last
        return [last]


class TumblingEventTimeWindows(_EventTimeWindows, _TumblingWindows):
    """Windows of one size, one after the other, by event time."""

    @staticmethod
    def of(size: Time | Duration, offset: Time | Duration | None = None) -> TumblingEventTimeWindows:
        """Return windows of a size that begin at `offset` and its multiples.

        An offset of hours, for example, stands for a time zone.
        """
        return TumblingEventTimeWindows(milliseconds_of(size, "size"), _offset_of(offset))


class TumblingProcessingTimeWindows(_ProcessingTimeWindows, _TumblingWindows):
    """Windows of one size, one after the other, by processing time."""

    @staticmethod
    def of(size: Time | Duration, offset: Time | Duration | None = None) -> TumblingProcessingTimeWindows:
        """Return windows of a size that begin at `offset` and its multiples.

        An offset of hours, for example, stands for a time zone.
        """
        return TumblingProcessingTimeWindows(milliseconds_of(size, "size"), _offset_of(offset))


class _SlidingWindows(_TimeWindows):
    """Windows of one size, one starting every slide."""

    def __init__(self, size: int, slide: int, offset: int) -> None:
        _check_size_and_offset(self, size, slide, offset)
        self.size, self.slide, self.offset = size, slide, offset

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return _sliding(self._time(timestamp, context), self.size, self.slide, self.offset)


class SlidingEventTimeWindows(_EventTimeWindows, _SlidingWindows):
    """Windows of one size, one starting every slide, by event time."""

    @staticmethod
    def of(
        size: Time | Duration, slide: Time | Duration, offset: Time | Duration | None = None
    ) -> SlidingEventTimeWindows:
        """Return windows of a size, one starting at `offset` and at every slide from there."""
        return SlidingEventTimeWindows(
            milliseconds_of(size, "size"), milliseconds_of(slide, "slide"), _offset_of(offset)
        )


class SlidingProcessingTimeWindows(_ProcessingTimeWindows, _SlidingWindows):
    """Windows of one size, one starting every slide, by processing time."""

    @staticmethod
    def of(
        size: Time | Duration, slide: Time | Duration, offset: Time | Duration | None = None
    ) -> SlidingProcessingTimeWindows:
        """Return windows of a size, one starting at `offset` and at every slide from there."""
        return SlidingProcessingTimeWindows(
            milliseconds_of(size, "size"), milliseconds_of(slide, "slide"), _offset_of(offset)
        )


class _CumulativeWindows(_TimeWindows):
    """Windows of one start that grow by a step up to a size; the next ones start there."""

    def __init__(self, size: int, step: int, offset: int) -> None:
        _check_size_and_offset(self, size, size, offset)
        if step < 1 or size % step:
            raise ValueError(
                f"{type(self).__name__} needs a size that is a multiple of its step, and a step of at least 1 ms. It"
                f" got size {size} ms, step {step} ms"
            )
        self.size, self.step, self.offset = size, step, offset

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        time = self._time(timestamp, context)
        start = TimeWindow.get_window_start_with_offset(time, self.offset, self.size)
        first = time - (time - start) % self.step + self.step
        return [TimeWindow(start, end) for end in range(first, start + self.size + 1, self.step)]


class CumulativeEventTimeWindows(_EventTimeWindows, _CumulativeWindows):
    """Windows by event time that grow by a step up to a size, such as the sales of a day so far, each hour."""

    @staticmethod
    def of(
        size: Time | Duration, step: Time | Duration, offset: Time | Duration | None = None
    ) -> CumulativeEventTimeWindows:
        """Return windows that start at `offset` and multiples of the size from there, one ending at every step."""
        return CumulativeEventTimeWindows(
            milliseconds_of(size, "size"), milliseconds_of(step, "step"), _offset_of(offset)
        )


class CumulativeProcessingTimeWindows(_ProcessingTimeWindows, _CumulativeWindows):
    """Windows by processing time that grow by a step up to a size."""

    @staticmethod
    def of(
        size: Time | Duration, step: Time | Duration, offset: Time | Duration | None = None
    ) -> CumulativeProcessingTimeWindows:
        """Return windows that start at `offset` and multiples of the size from there, one ending at every step."""
        return CumulativeProcessingTimeWindows(
            milliseconds_of(size, "size"), milliseconds_of(step, "step"), _offset_of(offset)
        )


class _FixedGap(SessionWindowTimeGapExtractor):
    """An extractor with the same gap for every record."""

    def __init__(self, gap: int) -> None:
        self.gap = gap

    def extract(self, element: Any) -> int:
        return self.gap


class _SessionWindows(_TimeWindows, MergingWindowAssigner[Any, TimeWindow]):
    """An assigner of sessions: a session ends when no record comes within the gap of its last ones."""

    def __init__(self, session_window_time_gap_extractor: SessionWindowTimeGapExtractor) -> None:
        if not callable(getattr(session_window_time_gap_extractor, "extract", None)):
            raise TypeError(
                "with_dynamic_gap takes a SessionWindowTimeGapExtractor, whose extract gives the gap of a record in"
                f" milliseconds, not {session_window_time_gap_extractor!r}"
            )
        self.extractor = session_window_time_gap_extractor

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return _session(self._time(timestamp, context), element, self.extractor)

    def merge_windows(
        self, windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback[TimeWindow]
    ) -> None:
        TimeWindow.merge_windows(windows, callback.merge)


class DynamicEventTimeSessionWindows(_EventTimeWindows, _SessionWindows):
    """An assigner of sessions by event time: a session ends when no record comes within the gap of its last ones."""

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicEventTimeSessionWindows:
        """Return sessions whose gap is extracted from each record."""
        return DynamicEventTimeSessionWindows(extractor)


class DynamicProcessingTimeSessionWindows(_ProcessingTimeWindows, _SessionWindows):
    """An assigner of sessions by processing time: each ends when no record comes within the gap of its last ones."""

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicProcessingTimeSessionWindows:
        """Return sessions whose gap is extracted from each record."""
        return DynamicProcessingTimeSessionWindows(extractor)


class EventTimeSessionWindows(DynamicEventTimeSessionWindows):
    """Sessions by event time with one gap for all records."""

    def __init__(self, session_gap: int) -> None:
        _check_gap(session_gap)
        super().__init__(_FixedGap(session_gap))
        self.session_gap = session_gap

    @staticmethod
    def with_gap(size: Time | Duration) -> EventTimeSessionWindows:
        """Return sessions with this gap."""
        return EventTimeSessionWindows(milliseconds_of(size, "size"))


class ProcessingTimeSessionWindows(DynamicProcessingTimeSessionWindows):
    """Sessions by processing time with one gap for all records."""

    def __init__(self, session_gap: int) -> None:
        _check_gap(session_gap)
        super().__init__(_FixedGap(session_gap))
        self.session_gap = session_gap

    @staticmethod
    def with_gap(size: Time | Duration) -> ProcessingTimeSessionWindows:
        """Return sessions with this gap."""
        return ProcessingTimeSessionWindows(milliseconds_of(size, "size"))


class GlobalWindows(WindowAssigner[Any, GlobalWindow]):
    """An assigner of one window for everything."""

    def __init__(self, default_trigger: Trigger[Any, Any] | None = None) -> None:
        """Without a default trigger only a trigger of the user's fires the window."""
        self._default_trigger = default_trigger

    @staticmethod
    def create() -> GlobalWindows:
        """Return the assigner whose window fires only with a trigger of the user's."""
        return GlobalWindows()

    @staticmethod
    def create_with_end_of_stream_trigger() -> GlobalWindows:
        """Return the assigner whose window fires once, when the stream has ended."""
        return GlobalWindows(EndOfStreamTrigger())

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[GlobalWindow]:
        return [GlobalWindow.get()]

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        return self._default_trigger or NeverTrigger()

    def get_window_serializer(self) -> TypeSerializer[GlobalWindow]:
        return GlobalWindowSerializer()

    def is_event_time(self) -> bool:
        return False


class CountSlidingWindowAssigner(WindowAssigner[Any, CountWindow]):
    """An assigner of windows of a number of records, one starting every slide.

    Window n holds the records n * slide to n * slide + size.

    Each window fires once, when it is full; windows that are not full at the end of the stream do not fire.
    """

    def __init__(self, window_size: int, window_slide: int) -> None:
        if window_size < 1 or window_slide < 1:
            raise ValueError(
                f"size and slide of a count window must be at least 1, not {window_size} and {window_slide}"
            )
        self.window_size, self.window_slide = window_size, window_slide
        self._count = ValueStateDescriptor[int]("count-window-assigner-count", Types.LONG())

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
        """Return windows of a number of records, one starting every `window_slide` records."""
        return CountSlidingWindowAssigner(window_size, window_slide)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[CountWindow]:
        state = context.get_runtime_context().get_state(self._count)
        place = state.value() or 0
        state.update(place + 1)
        # Window n holds the places from n * slide to n * slide + size - 1.
        first = max(0, (place - self.window_size) // self.window_slide + 1)
        return [CountWindow(number) for number in range(place // self.window_slide, first - 1, -1)]

    def take_back(self, element: Any, context: WindowAssigner.WindowAssignerContext) -> None:
        """Count the record no more."""
        state = context.get_runtime_context().get_state(self._count)
        place = state.value() or 0
        if place > 1:
            state.update(place - 1)
        else:
            state.clear()

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        # A full window never gets another record, so it need not be kept.
        return PurgingTrigger(CountTrigger(self.window_size))

    def get_window_serializer(self) -> TypeSerializer[CountWindow]:
        return CountWindowSerializer()

    def is_event_time(self) -> bool:
        return False


class CountTumblingWindowAssigner(CountSlidingWindowAssigner):
    """Windows of a number of records, one after the other."""

    def __init__(self, window_size: int) -> None:
        super().__init__(window_size, window_size)

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:  # type: ignore[override]
        """Return windows of a number of records."""
        return CountTumblingWindowAssigner(window_size)


def _offset_of(offset: Time | Duration | None) -> int:
    return 0 if offset is None else milliseconds_of(offset, "offset")


def _check_size_and_offset(assigner: object, size: int, slide: int, offset: int) -> None:
    if size < 1 or slide < 1 or abs(offset) >= slide:
        raise ValueError(
            f"{type(assigner).__name__} needs a size and a slide of at least 1 ms and an offset smaller than"
            f" the slide. It got size {size} ms, slide {slide} ms, offset {offset} ms"
        )


def _check_gap(gap: int) -> None:
    if gap < 1:
        raise ValueError(f"the gap of a session window must be at least 1 ms, not {gap} ms")


def _sliding(time: int, size: int, slide: int, offset: int) -> list[TimeWindow]:
    """Return the windows that contain `time`, latest first.

    The list is empty when `time` falls between two windows that do not touch.
    """
    last_start = TimeWindow.get_window_start_with_offset(time, offset, slide)
    return [TimeWindow(start, start + size) for start in range(last_start, time - size, -slide)]


def _session(time: int, element: Any, extractor: SessionWindowTimeGapExtractor) -> list[TimeWindow]:
    gap = extractor.extract(element)
    try:
        whole = index(gap)
    except TypeError:
        raise ValueError(
            f"{type(extractor).__name__} gave {gap!r} for {element!r}: a gap is a whole number of milliseconds"
        ) from None
    if not 1 <= whole <= MAX_TIMESTAMP - time:
        limit = "at least 1 is needed" if whole < 1 else "the session would end beyond 64 bits"
        raise ValueError(f"{type(extractor).__name__} gave a gap of {whole} ms for {element!r}: {limit}")
    return [TimeWindow(time, time + whole)]
