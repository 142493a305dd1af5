"""WindowedStream and AllWindowedStream: streams cut into windows, by key or as a whole.

Owner: the thread that builds the program. What cannot work is refused here, at the line that asks for it. Windows run
in the window operator; see docs/windows.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self

from yarrow.common.execution_modes import TimeCharacteristic
from yarrow.common.typeinfo import TypeInformation
from yarrow.datastream.data_stream import DataStream
from yarrow.datastream.fast_windows import Way, Windows, slices_to_pre_aggregate, way_of
from yarrow.datastream.functions import (
    AggregateFunction,
    AllWindowFunction,
    Function,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
    WindowFunction,
)
from yarrow.datastream.functions.functions_of_two_streams import FunctionOfTwoStreams
from yarrow.datastream.functions.key_functions import NullByteKeySelector
from yarrow.datastream.keyed_stream import KeyedStream
from yarrow.datastream.output_tag import OutputTag
from yarrow.datastream.program.graph_builder import declared
from yarrow.datastream.program.pre_aggregation import KEY_OF_TRIPLE, pre_aggregation
from yarrow.datastream.program.user_functions import declares_blocking, require_function, with_article
from yarrow.datastream.window import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    Evictor,
    MergingWindowAssigner,
    Trigger,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.operator_spec import OperatorSpec
from yarrow.runtime.graph.transformations import SpecTransformation, Transformation, has_no_time
from yarrow.runtime.graph.window_spec import (
    PreAggregationOperator,
    WindowCallKind,
    WindowKind,
)

if TYPE_CHECKING:
    from yarrow.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = ["AllWindowedStream", "WindowedStream"]

_log = logging.getLogger(__name__)


#: Windows of which each row has one, whatever other rows there are in others.
_OF_ONE_ROW: Final = (TumblingEventTimeWindows, EventTimeSessionWindows, DynamicEventTimeSessionWindows)


class _Firing(NamedTuple):
    """What a window keeps, and what happens when it fires."""

    method: str
    kind: WindowKind
    #: The function of reduce or aggregate.
    combining: Any
    window_function: Any
    #: Declared type of what a window keeps, or of its rows.
    kept_type: TypeInformation | None
    #: Rows are folded in front of the exchange to the windows.
    pre_aggregate: bool = False


class WindowsWithLateness:
    """The common part of streams cut into windows, of rows or of columns: what becomes of late records."""

    def __init__(self, window_assigner: WindowAssigner[Any, Any]) -> None:
        if not isinstance(window_assigner, WindowAssigner):
            raise TypeError(
                f"window takes a WindowAssigner, such as TumblingEventTimeWindows.of(Duration.of_seconds(5)), not"
                f" {window_assigner!r}"
            )
        self._assigner = window_assigner
        self._lateness_ms = 0
        self._late_tag: OutputTag | None = None

    def allowed_lateness(self, time_ms: int) -> Self:
        """Let windows take late records for so long behind their end, in milliseconds of event time.

        Windows of processing time have no late records: it has no effect there.
        """
        if isinstance(time_ms, bool) or not isinstance(time_ms, int) or time_ms < 0:
            raise InvalidProgramError(
                f"allowed_lateness({time_ms!r}): give whole milliseconds from 0 on; 0 drops each late record"
            )
        if not self._assigner.is_event_time():
            _log.warning(
                "allowed_lateness(%d) has no effect: the windows of %s do not end by event time, so no record is late",
                time_ms,
                type(self._assigner).__name__,
            )
        self._lateness_ms = time_ms
        return self

    def side_output_late_data(self, output_tag: OutputTag) -> Self:
        """Send late records to a side output, which `get_side_output` of the result gives."""
        if not isinstance(output_tag, OutputTag):
            raise TypeError(f"side_output_late_data takes an OutputTag, not {output_tag!r}")
        self._late_tag = output_tag
        return self

    def _require_time(self, read: Transformation, environment: StreamExecutionEnvironment) -> None:
        """Raises InvalidProgramError for windows of event time behind sources that give no time."""
        stamped = environment.get_stream_time_characteristic() is TimeCharacteristic.INGESTION_TIME
        if self._assigner.is_event_time() and not stamped and has_no_time(read):
            raise InvalidProgramError(
                f"window({type(self._assigner).__name__}): nothing before these windows gives records a timestamp. Call"
                " assign_timestamps_and_watermarks before key_by, with a strategy that has a timestamp assigner, or use"
                " windows of processing time"
            )


class _StreamOfWindows(WindowsWithLateness):
    """The common part of streams of rows cut into windows."""

    #: Classes of window functions, and how each is called.
    _calls: ClassVar[Mapping[type[Function], WindowCallKind]]
    #: True if windows hold the records of all keys.
    _whole: ClassVar[bool] = False

    def __init__(self, keyed_stream: KeyedStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        super().__init__(window_assigner)
        self._keyed_stream = keyed_stream
        self._evictor: Evictor[Any, Any] | None = None
        self._set_trigger(window_assigner.get_default_trigger(self.get_execution_environment()))

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """Return the environment of the program."""
        return self._keyed_stream.get_execution_environment()

    def get_input_type(self) -> TypeInformation:
        """Return the declared type of the records; PICKLED_BYTE_ARRAY when none was declared."""
        return self._keyed_stream.get_type()

    @property
    def _record_type(self) -> TypeInformation | None:
        """The declared type of the records; None = not declared."""
        return self._keyed_stream.transformation.output_type

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """Set when windows fire, in place of the assigner's default trigger.

        Raises InvalidProgramError for a trigger that cannot merge where windows merge.
        """
        if not isinstance(trigger, Trigger):
            raise TypeError(f"trigger takes a Trigger, such as CountTrigger.of(3), not {trigger!r}")
        self._set_trigger(trigger)
        return self

    def _set_trigger(self, trigger: Trigger[Any, Any]) -> None:
        if isinstance(self._assigner, MergingWindowAssigner) and not trigger.can_merge():
            raise InvalidProgramError(
                f"trigger({type(trigger).__name__}): the windows of {type(self._assigner).__name__} merge, and this"
                " trigger cannot. Choose a trigger whose can_merge() is true, or an assigner whose windows do not"
                " merge"
            )
        self._trigger = trigger

    def evictor(self, evictor: Evictor[Any, Any]) -> Self:
        """Set what removes records of a window that fires, before or behind its function.

        A window keeps all records then. A function of reduce or aggregate runs when the window fires, over the records
        that are left.
        """
        if not isinstance(evictor, Evictor):
            raise TypeError(f"evictor takes an Evictor, such as CountEvictor.of(3), not {evictor!r}")
        self._evictor = evictor
        return self

    def reduce(
        self,
        reduce_function: Callable[[Any, Any], Any] | ReduceFunction[Any],
        window_function: Any = None,
        output_type: TypeInformation | None = None,
        *,
        pre_aggregate: bool = False,
    ) -> DataStream:
        """Return the stream of one record out of the records of each window.

        A window keeps only the reduced record. With a window function that record is its only element.

        With `pre_aggregate` each subtask of the stream before the windows reduces its own records first. The function
        must then be associative and take its arguments in any order. Not in Flink's DataStream API. Raises
        InvalidProgramError for windows other than tumbling, sliding and cumulative ones of event time with their
        default trigger, and for an evictor.
        """
        require_function(reduce_function, ReduceFunction, "reduce")
        record_type = self._record_type
        if window_function is None and output_type is None:
            output_type = record_type
        firing = _Firing(
            "reduce", WindowKind.REDUCED, reduce_function, window_function, record_type, pre_aggregate
        )
        return self._fire(firing, tuple(self._calls), output_type)

    def aggregate(
        self,
        aggregate_function: AggregateFunction[Any, Any, Any],
        window_function: Any = None,
        accumulator_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
        *,
        pre_aggregate: bool = False,
    ) -> DataStream:
        """Return the stream of the aggregate of the records of each window.

        A window keeps only the accumulator. With a window function the result is its only element.

        With `pre_aggregate` each subtask of the stream before the windows makes an accumulator of its own records, and
        the windows `merge` these, in any order. It raises InvalidProgramError as `reduce` does, and for a function
        whose `merge` returns nothing.
        """
        require_function(aggregate_function, AggregateFunction, "aggregate", callables=False)
        kept = declared(accumulator_type)
        firing = _Firing(
            "aggregate", WindowKind.AGGREGATED, aggregate_function, window_function, kept, pre_aggregate
        )
        return self._fire(firing, tuple(self._calls), output_type)

    def apply(self, window_function: Any, output_type: TypeInformation | None = None) -> DataStream:
        """Return the stream of the results of a function of all records of a window."""
        return self._of_rows("apply", window_function, 0, output_type)

    def process(self, process_window_function: Any, output_type: TypeInformation | None = None) -> DataStream:
        """Return the stream of the results of a function of all records of a window, with state and side outputs."""
        return self._of_rows("process", process_window_function, 1, output_type)

    def _of_rows(
        self, method: str, function: Any, place: int, output_type: TypeInformation | None
    ) -> DataStream:
        firing = _Firing(method, WindowKind.ROWS, None, function, self._record_type)
        return self._fire(firing, (tuple(self._calls)[place],), output_type)

    def _fire(
        self, firing: _Firing, expected: tuple[type[Function], ...], output_type: TypeInformation | None
    ) -> DataStream:
        self._require_time(self._keyed_stream.transformation, self.get_execution_environment())
        builder = self.get_execution_environment().graph_builder
        name, function = type(self._assigner).__name__, firing.window_function
        call = WindowCallKind.NONE
        if function is not None or firing.kind is WindowKind.ROWS:
            call = self._call_of(firing.method, function, expected)
        functions = [each for each in (firing.combining, function) if each is not None]
        prepared, read = None, self._keyed_stream.transformation
        if firing.pre_aggregate:
            prepared, read = self._pre_aggregated(firing)
        made = builder.one_input(
            read,
            name,
            self._operator_spec(firing, call),
            output_type=declared(output_type),
            blocking=any(map(declares_blocking, functions)),
            state_key_type=self._keyed_stream.key_type,
            description=self._description(firing),
        )
        if prepared is not None:
            prepared.prepares = made
        return DataStream(self.get_execution_environment(), made)

    def _pre_aggregated(self, firing: _Firing) -> tuple[SpecTransformation, Transformation]:
        """The operator that makes partial values of the windows, and these distributed by key."""
        slices = slices_to_pre_aggregate(self._windows(firing), firing.method)
        builder, keyed = self.get_execution_environment().graph_builder, self._keyed_stream
        spec = PreAggregationOperator(
            key_selector=keyed.key_selector,
            kind=firing.kind,
            combining=builder.pickle(firing.combining, type(self._assigner).__name__),
            kept_type=None if firing.kept_type is None else firing.kept_type.to_spec(),
            **slices,
        )
        types = keyed.key_type, firing.kept_type, self._record_type
        description = f"PreAggregation({type(self._assigner).__name__}, {firing.method})"
        blocking = declares_blocking(firing.combining)
        return pre_aggregation(builder, keyed.transformation, spec, types, description, blocking=blocking)

    def _operator_spec(self, firing: _Firing, call: WindowCallKind) -> OperatorSpec:
        """The spec of the way that these windows take."""
        builder = self.get_execution_environment().graph_builder
        name, function, evictor = type(self._assigner).__name__, firing.window_function, self._evictor
        kept_type = firing.kept_type if evictor is None else self._record_type
        way = self._way(firing)
        fields: dict[str, Any] = {
            "key_selector": builder.pickle(KEY_OF_TRIPLE, name, "key selector")
            if firing.pre_aggregate
            else self._keyed_stream.key_selector,
            "assigner": builder.pickle(self._assigner, name, "window assigner"),
            "trigger": builder.pickle(self._trigger, name, "trigger"),
            "kind": firing.kind,
            "combining": None if firing.combining is None else builder.pickle(firing.combining, name),
            "call": call,
            "window_function": None if function is None else builder.pickle(function, name),
            "kept_type": None if kept_type is None else kept_type.to_spec(),
            "allowed_lateness_ms": self._lateness_ms,
            "late_tag": None if self._late_tag is None else self._late_tag.tag_id,
            "evictor": None if evictor is None else builder.pickle(evictor, name, "evictor"),
            "pre_aggregated": firing.pre_aggregate,
            "remakes_windows": self._remakes_windows(firing),
            "of_two_streams": isinstance(function, FunctionOfTwoStreams),
            **way.numbers,
        }
        return (way.whole if self._whole else way.keyed)(**fields)

    def _remakes_windows(self, firing: _Firing) -> bool:
        """Whether the rows of a window make the same window when they come again."""
        # Subclasses may assign other windows, and other triggers fire by more than time.
        is_known = type(self._assigner) in _OF_ONE_ROW and type(self._trigger) is EventTimeTrigger
        return is_known and firing.kind is WindowKind.ROWS and self._evictor is None

    def _way(self, firing: _Firing) -> Way:
        return way_of(self._windows(firing))

    def _windows(self, firing: _Firing) -> Windows:
        return Windows(
            self._assigner,
            self._trigger,
            self._evictor,
            firing.kind,
            firing.window_function is not None,
            firing.combining,
            self._lateness_ms,
        )

    def _description(self, firing: _Firing) -> str:
        """The plan's text: the parts of the windows, and which option made them slow."""
        parts = [type(self._assigner).__name__, type(self._trigger).__name__]
        if self._evictor is not None:
            parts.append(type(self._evictor).__name__)
        reason = self._way(firing).reason
        slow = f", {reason}" if reason else ""
        merged = ", of partial values" if firing.pre_aggregate else ""
        return f"Window({', '.join([*parts, firing.method])}){slow}{merged}"

    def _call_of(self, method: str, function: Any, expected: tuple[type[Function], ...]) -> WindowCallKind:
        for kind in expected:
            if isinstance(function, kind):
                return self._calls[kind]
        names = " or ".join(map(with_article, expected))
        if isinstance(function, type) and issubclass(function, Function):
            raise TypeError(f"{method} takes an object, not a class: pass {function.__name__}(...) instead")
        raise TypeError(f"{method} takes {names}, not {function!r}")


class WindowedStream(_StreamOfWindows):
    """A keyed stream cut into windows. Made by `KeyedStream.window` and `count_window`."""

    _calls: ClassVar[Mapping[type[Function], WindowCallKind]] = {
        WindowFunction: WindowCallKind.APPLY,
        ProcessWindowFunction: WindowCallKind.PROCESS,
    }


class AllWindowedStream(_StreamOfWindows):
    """A stream cut into windows that hold the records of all keys. Made by `DataStream.window_all`.

    One subtask has all windows: parallelism and max parallelism of the operator are 1.
    """

    _calls: ClassVar[Mapping[type[Function], WindowCallKind]] = {
        AllWindowFunction: WindowCallKind.APPLY_ALL,
        ProcessAllWindowFunction: WindowCallKind.PROCESS_ALL,
    }
    _whole = True

    def __init__(self, data_stream: DataStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        super().__init__(KeyedStream.of(data_stream, NullByteKeySelector(), None), window_assigner)

    def _fire(
        self, firing: _Firing, expected: tuple[type[Function], ...], output_type: TypeInformation | None
    ) -> DataStream:
        return super()._fire(firing, expected, output_type).force_non_parallel()


def count_windows(size: int, slide: int) -> CountSlidingWindowAssigner:
    """Return the assigner of count windows; a slide of 0 is the size. Raises InvalidProgramError for a bad number."""
    for number in (size, slide):
        if isinstance(number, bool) or not isinstance(number, int):
            raise InvalidProgramError(f"a count window takes whole numbers of records, not {number!r}")
    if size < 1 or slide < 0:
        raise InvalidProgramError(
            f"a count window has size {size} and slide {slide}. Give numbers from 1 on, or leave the slide out"
        )
    return CountSlidingWindowAssigner.of(size, slide) if slide else CountTumblingWindowAssigner.of(size)
