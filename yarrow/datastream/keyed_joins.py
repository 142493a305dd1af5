"""Joins of two keyed streams: interval, as-of, immediate and delayed joins.

Owner: the thread that builds the program. What cannot work is refused here, at the line that asks for it. Must not know
the class of streams that a program sees. The operators are in `yarrow.container.operators.join`; see docs/joins.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, NoReturn, Self, TypedDict, TypeVar

from yarrow.common.time import Duration, Time, milliseconds_of
from yarrow.common.typeinfo import TypeInformation
from yarrow.common.watermark_strategy import MAX_TIMESTAMP
from yarrow.datastream.fast_windows import SLICED, SlicedWindows
from yarrow.datastream.functions.process_join_function import ProcessJoinFunction
from yarrow.datastream.joined_streams import require_keys_that_meet, require_times
from yarrow.datastream.output_tag import OutputTag
from yarrow.datastream.program.arrow_schemas import plain_schema, schema_bytes
from yarrow.datastream.program.graph_builder import declared
from yarrow.datastream.program.user_functions import declares_blocking, require_function
from yarrow.datastream.state import StateTtlConfig
from yarrow.datastream.window_assigner import WindowAssigner
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError
from yarrow.runtime.graph.data_set_spec import JoinKind
from yarrow.runtime.graph.join_spec import (
    AsOfDirection,
    AsOfJoinOperator,
    ColumnarAsOfJoinOperator,
    ColumnarIntervalJoinOperator,
    ColumnarJoinOperator,
    ColumnarWindowJoinOperator,
    DelayedJoinOperator,
    ImmediateJoinOperator,
    IntervalJoinOperator,
    KeyedJoinOperator,
)
from yarrow.runtime.graph.operator_spec import KeyColumns, StreamKind, TypeSpec
from yarrow.runtime.graph.transformations import ChainingStrategy, Transformation

__all__ = [
    "AsOfJoin",
    "AsOfJoined",
    "ColumnarAsOfJoin",
    "ColumnarAsOfJoined",
    "ColumnarIntervalJoin",
    "ColumnarIntervalJoined",
    "ColumnarWindowJoin",
    "ColumnarWindowJoined",
    "DelayedJoin",
    "DelayedJoined",
    "ImmediateJoin",
    "IntervalJoin",
    "IntervalJoined",
]

#: The class of streams that a program sees.
S = TypeVar("S")
#: A join whose direction is known.
J = TypeVar("J")

Function = ProcessJoinFunction[Any, Any, Any]


class _SharedSettings(TypedDict):
    """The fields that the specs of all joins have."""

    kind: JoinKind
    key_selectors: tuple[bytes, bytes]
    function: bytes
    row_types: tuple[TypeSpec, TypeSpec]
    late_tags: tuple[str | None, str | None]


class _KeyedStreams(Generic[S]):
    """Two keyed streams of one program."""

    #: The method that began the join, for messages, and the name of its operator.
    call: str
    name: str

    def __init__(self, left: Any, right: Any, result: Callable[[Transformation], S]) -> None:
        """`left` and `right` are KeyedStreams. `result` makes a stream of a transformation.

        Raises InvalidProgramError if their keys are never equal, or nothing gives one of them timestamps.
        """
        require_keys_that_meet(self.call, left.key_type, right.key_type)
        self.streams = left, right
        self.result = result


class _LateTags:
    """The side outputs of late records of both streams."""

    _late_tags: tuple[OutputTag | None, OutputTag | None]

    @property
    def _late_ids(self) -> tuple[str | None, str | None]:
        left, right = (None if each is None else each.tag_id for each in self._late_tags)
        return left, right


class _KeyedJoined(_LateTags, Generic[S]):
    """Two keyed streams; how their records meet is known."""

    def __init__(self, joined: _KeyedStreams[S]) -> None:
        self._joined = joined
        self._kind = JoinKind.INNER
        self._late_tags = (None, None)

    def _made(
        self,
        function: Function,
        output_type: TypeInformation | None,
        spec: Callable[[_SharedSettings], KeyedJoinOperator],
    ) -> S:
        """The stream of the results of a function; `spec` makes the spec of what all joins have."""
        require_function(function, ProcessJoinFunction, "process", callables=False)
        left, right = self._joined.streams
        builder, name = left.get_execution_environment().graph_builder, self._joined.name
        types = [each.transformation.output_type for each in (left, right)]
        types = [None if each is None else each.to_spec() for each in types]
        shared = _SharedSettings(
            kind=self._kind,
            key_selectors=(left.key_selector, right.key_selector),
            function=builder.pickle(function, name),
            row_types=(types[0], types[1]),
            late_tags=self._late_ids,
        )
        made = builder.two_input(
            left.transformation,
            right.transformation,
            name,
            spec(shared),
            output_type=declared(output_type),
            blocking=declares_blocking(function),
            state_key_type=left.key_type or right.key_type,
        )
        return self._joined.result(made)


class _Late(_LateTags):
    """A join by event time, so that records may be late."""

    def side_output_left_late_data(self, output_tag: OutputTag) -> Self:
        """Send late records of the first stream to a side output, which `get_side_output` of the result gives."""
        self._late_tags = _tag("side_output_left_late_data", output_tag), self._late_tags[1]
        return self

    def side_output_right_late_data(self, output_tag: OutputTag) -> Self:
        """Send late records of the second stream to a side output."""
        self._late_tags = self._late_tags[0], _tag("side_output_right_late_data", output_tag)
        return self


class _LateJoined(_KeyedJoined[S], _Late):
    """Two keyed streams that are joined by event time, so that records may be late."""


class _Outer:
    """A join of which each side may keep records that meet none."""

    _kind: JoinKind

    def left_outer(self) -> Self:
        """Keep records of the first stream that meet none, paired with None."""
        self._kind = JoinKind.LEFT_OUTER
        return self

    def right_outer(self) -> Self:
        """Keep records of the second stream that meet none, paired with None."""
        self._kind = JoinKind.RIGHT_OUTER
        return self

    def full_outer(self) -> Self:
        """Keep records of both streams that meet none, paired with None."""
        self._kind = JoinKind.FULL_OUTER
        return self


class _OuterJoined(_LateJoined[S], _Outer):
    """Two keyed streams that are joined by event time, of which each side may keep records that meet none."""


class _Interval:
    """A join of records that meet near in time; the bounds are known."""

    _bounds: tuple[int, int]

    def _set_bounds(self, bounds: tuple[int, int]) -> None:
        lower, upper = self._bounds = bounds
        if lower > upper:
            raise InvalidProgramError(
                f"interval_join between {lower} ms and {upper} ms: no time lies between these bounds. Give the lower"
                " one first, and mind which of them are exclusive"
            )
        if max(abs(lower), abs(upper)) > MAX_TIMESTAMP:
            raise InvalidProgramError(
                f"interval_join between {lower} ms and {upper} ms: bounds are 64-bit numbers"
            )

    def lower_bound_exclusive(self) -> Self:
        """Let the lower bound not belong to the interval."""
        self._set_bounds((self._bounds[0] + 1, self._bounds[1]))
        return self

    def upper_bound_exclusive(self) -> Self:
        """Let the upper bound not belong to the interval."""
        self._set_bounds((self._bounds[0], self._bounds[1] - 1))
        return self


def _tag(call: str, output_tag: OutputTag) -> OutputTag:
    if not isinstance(output_tag, OutputTag):
        raise TypeError(f"{call} takes an OutputTag, not {output_tag!r}")
    return output_tag


# ---------------------------------------------------------------------- interval joins


class IntervalJoin(_KeyedStreams[S]):
    """Two keyed streams whose records meet near in time. Made by `KeyedStream.interval_join`."""

    call = "interval_join"
    name = "Interval Join"

    def __init__(self, left: Any, right: Any, result: Callable[[Transformation], S]) -> None:
        super().__init__(left, right, result)
        require_times(self.call, self.streams, "join by windows of processing time")

    def in_event_time(self) -> Self:
        """Join by event time, as is the case anyway."""
        return self

    def in_processing_time(self) -> NoReturn:
        """Refused: interval joins use event time."""
        raise UnsupportedFeatureError(
            "in_processing_time is refused: an interval join uses event time. Join by windows of processing time"
            " instead."
        )

    def between(self, lower_bound: Time | Duration, upper_bound: Time | Duration) -> IntervalJoined[S]:
        """Let a record at t meet records of the other stream from t + lower to t + upper, both included."""
        return IntervalJoined(
            self, (milliseconds_of(lower_bound, "lower_bound"), milliseconds_of(upper_bound, "upper_bound"))
        )


class IntervalJoined(_OuterJoined[S], _Interval):
    """Two keyed streams whose records meet near in time; the bounds are known."""

    def __init__(self, joined: IntervalJoin[S], bounds: tuple[int, int]) -> None:
        super().__init__(joined)
        self._set_bounds(bounds)

    def process(self, process_join_function: Function, output_type: TypeInformation | None = None) -> S:
        """Return all results of a function that is called for each pair. They bear the later time of the pair."""
        lower, upper = self._bounds
        return self._made(
            process_join_function,
            output_type,
            lambda shared: IntervalJoinOperator(lower_ms=lower, upper_ms=upper, **shared),
        )


# ---------------------------------------------------------------------- as-of joins


class _AsOf(ABC, Generic[J]):
    """An as-of join whose direction is to be said."""

    @abstractmethod
    def _directed(self, direction: AsOfDirection, tolerance_ms: int | None) -> J:
        """The join with a direction and a tolerance; None = any time."""

    def backward(self, tolerance: Time | Duration | None = None) -> J:
        """Let a record meet the last record of the second stream up to its own time.

        `tolerance`: most time between both records, included; None = any time.
        """
        return self._looking(AsOfDirection.BACKWARD, tolerance)

    def forward(self, tolerance: Time | Duration | None = None) -> J:
        """Let a record meet the first record of the second stream from its own time on.

        Without a tolerance a record waits until such a record comes, or the input ends.
        """
        return self._looking(AsOfDirection.FORWARD, tolerance)

    def nearest(self, tolerance: Time | Duration) -> J:
        """Let a record meet the nearest record of the second stream, of two equally near ones the earlier one."""
        return self._looking(AsOfDirection.NEAREST, tolerance)

    def _looking(self, direction: AsOfDirection, tolerance: Time | Duration | None) -> J:
        span = None if tolerance is None else milliseconds_of(tolerance, "tolerance")
        if span is None and direction is AsOfDirection.NEAREST:
            raise InvalidProgramError(
                "as_of_join: nearest needs a tolerance. Without one a record, and event time behind the join, could"
                " wait for ever"
            )
        if span is not None and not 0 <= span <= MAX_TIMESTAMP:
            raise InvalidProgramError(
                f"as_of_join: a tolerance of {span} ms is refused. Give one from 0 to 64-bit milliseconds"
            )
        return self._directed(direction, span)


class _AsOfOuter:
    """An as-of join whose first side may keep records that meet none; the direction is known."""

    _kind: JoinKind
    _direction: AsOfDirection
    _tolerance_ms: int | None

    def left_outer(self) -> Self:
        """Keep records of the first stream that meet none, paired with None.

        Raises InvalidProgramError for `forward` without a tolerance: no record would leave before the input ends.
        """
        if self._direction is AsOfDirection.FORWARD and self._tolerance_ms is None:
            raise InvalidProgramError(
                "as_of_join: left_outer behind forward needs a tolerance. Without one a record meets none only when"
                " the input has ended"
            )
        self._kind = JoinKind.LEFT_OUTER
        return self


class AsOfJoin(_KeyedStreams[S], _AsOf["AsOfJoined[S]"]):
    """Two keyed streams; each record of the first one meets the record of the second one that holds at its time.

    Made by `KeyedStream.as_of_join`.
    """

    call = "as_of_join"
    name = "As-Of Join"

    def __init__(self, left: Any, right: Any, result: Callable[[Transformation], S]) -> None:
        super().__init__(left, right, result)
        require_times(self.call, self.streams, "use immediate_join, which takes records as they come")

    def _directed(self, direction: AsOfDirection, tolerance_ms: int | None) -> AsOfJoined[S]:
        return AsOfJoined(self, direction, tolerance_ms)


class AsOfJoined(_AsOfOuter, _LateJoined[S]):
    """Two keyed streams in an as-of join; the direction is known."""

    def __init__(self, joined: AsOfJoin[S], direction: AsOfDirection, tolerance_ms: int | None) -> None:
        super().__init__(joined)
        self._direction = direction
        self._tolerance_ms = tolerance_ms

    def process(self, process_join_function: Function, output_type: TypeInformation | None = None) -> S:
        """Return all results of a function that is called for each pair. They bear the later time of the pair."""
        return self._made(
            process_join_function,
            output_type,
            lambda shared: AsOfJoinOperator(
                direction=self._direction, tolerance_ms=self._tolerance_ms, **shared
            ),
        )


# ---------------------------------------------------------------------- delayed joins


class DelayedJoin(_KeyedStreams[S]):
    """Two keyed streams whose records wait to be joined in batches. Made by `KeyedStream.delayed_join`."""

    call = "delayed_join"
    name = "Delayed Join"

    def __init__(self, left: Any, right: Any, result: Callable[[Transformation], S]) -> None:
        super().__init__(left, right, result)
        require_times(self.call, self.streams, "join by windows of processing time")

    def after(self, delay: Time | Duration) -> DelayedJoined[S]:
        """Join the records of a key so long after the first one that waits.

        A batch has the records from the time t of that record up to t + delay, which does not belong to it.
        """
        span = milliseconds_of(delay, "delay")
        if not 0 < span <= MAX_TIMESTAMP:
            raise InvalidProgramError(
                f"delayed_join: a delay of {span} ms is refused. Give one above 0, of 64-bit milliseconds"
            )
        return DelayedJoined(self, span)


class DelayedJoined(_OuterJoined[S]):
    """Two keyed streams in a delayed join; the delay is known."""

    def __init__(self, joined: DelayedJoin[S], delay_ms: int) -> None:
        super().__init__(joined)
        self._delay_ms = delay_ms

    def process(self, process_join_function: Function, output_type: TypeInformation | None = None) -> S:
        """Return all results of a function that is called for each pair. They bear the last time of their batch."""
        return self._made(
            process_join_function,
            output_type,
            lambda shared: DelayedJoinOperator(delay_ms=self._delay_ms, **shared),
        )


# ---------------------------------------------------------------------- immediate joins


class ImmediateJoin(_KeyedJoined[S]):
    """Two keyed streams; each record of the second one meets the records of the first one that have come before it.

    Made by `KeyedStream.immediate_join`.
    """

    def __init__(self, left: Any, right: Any, result: Callable[[Transformation], S]) -> None:
        super().__init__(_ImmediateStreams(left, right, result))
        self._latest_only = False
        self._ttl: StateTtlConfig | None = None

    def latest_only(self) -> Self:
        """Keep one record of the first stream a key: a further one replaces it."""
        self._latest_only = True
        return self

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> Self:
        """Let records of the first stream expire. Without it they stay."""
        if not isinstance(ttl_config, StateTtlConfig):
            raise TypeError(f"enable_time_to_live takes a StateTtlConfig, not {ttl_config!r}")
        self._ttl = ttl_config if ttl_config.is_enabled() else None
        return self

    def right_outer(self) -> Self:
        """Keep records of the second stream that meet none, paired with None."""
        self._kind = JoinKind.RIGHT_OUTER
        return self

    def process(self, process_join_function: Function, output_type: TypeInformation | None = None) -> S:
        """Return all results of a function that is called for each pair.

        They leave at once, with the time of the record of the second stream.
        """
        builder = self._joined.streams[0].get_execution_environment().graph_builder
        ttl = None if self._ttl is None else builder.pickle(self._ttl, self._joined.name)
        return self._made(
            process_join_function,
            output_type,
            lambda shared: ImmediateJoinOperator(latest_only=self._latest_only, ttl=ttl, **shared),
        )


class _ImmediateStreams(_KeyedStreams[S]):
    """The streams of an immediate join, which need no times."""

    call = "immediate_join"
    name = "Immediate Join"


# ---------------------------------------------------------------------- columns


class _ColumnarSettings(TypedDict):
    """The fields that the specs of all joins of columns have."""

    kind: JoinKind
    key_columns: tuple[KeyColumns, KeyColumns]
    schemas: tuple[bytes, bytes]
    schema: bytes
    late_tags: tuple[str | None, str | None]


class _ColumnarStreams(Generic[S]):
    """Two columnar keyed streams of one program."""

    #: The method that began the join, for messages; the name of its operator; and what to do without timestamps.
    call: str
    name: str
    without_times: str

    def __init__(self, left: Any, right: Any, result: Callable[[Transformation], S]) -> None:
        """`left` and `right` are ColumnarKeyedStreams. `result` makes a stream of a transformation.

        Raises InvalidProgramError for an unknown schema, for keys of other types, or if nothing gives timestamps.
        """
        self.streams = left, right
        require_times(self.call, self.streams, self.without_times)
        self.schemas = self._known_schema("first", left), self._known_schema("second", right)
        types = [
            [schema.field(key).type for key in of.key_columns]
            for schema, of in zip(self.schemas, self.streams, strict=True)
        ]
        if types[0] != types[1]:
            raise InvalidProgramError(
                f"{self.call}: the streams are keyed by columns of the types {types[0]} and {types[1]}. Cast one of"
                " them, so that both have the same types"
            )
        self.result = result

    def _known_schema(self, number: str, stream: Any) -> Any:
        """The Arrow schema of a stream. Raises InvalidProgramError if it is unknown, or has columns of a dictionary."""
        return plain_schema(
            stream.transformation.output_schema, self.call, f"the {number} stream", "the join"
        )

    def schema_of_results(self, suffix: str) -> bytes:
        """The columns of both streams; those of the second one whose names the first one has get the suffix.

        Raises InvalidProgramError for names that are still equal.
        """
        import pyarrow as pa

        left, right = self.schemas
        fields = [field.with_nullable(True) for field in left]
        for field in right:
            name = f"{field.name}{suffix}" if field.name in left.names else field.name
            fields.append(field.with_name(name).with_nullable(True))
        names = [field.name for field in fields]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidProgramError(
                f"{self.call}: two columns of the result are named {twice}. Give to_columns another suffix, or rename"
                " columns before the join"
            )
        return schema_bytes(pa.schema(fields))


class _ColumnarJoined(_Late, ABC, Generic[S]):
    """Two columnar keyed streams; how their rows meet is known."""

    def __init__(self, joined: _ColumnarStreams[S]) -> None:
        self._joined = joined
        self._kind = JoinKind.INNER
        self._late_tags = (None, None)

    @abstractmethod
    def _spec(self, shared: _ColumnarSettings) -> ColumnarJoinOperator:
        """The spec, made of what all joins of columns have."""

    def to_columns(self, suffix: str = "_right") -> S:
        """Return the columns of both streams beside each other, a row for each pair, with the time that rows have.

        A column of the second stream whose name the first one has gets the suffix. An outer join has nulls in the place
        of a row that is missing. Raises InvalidProgramError for names that are still equal.
        """
        left, right = self._joined.streams
        schema = self._joined.schema_of_results(suffix)
        shared = _ColumnarSettings(
            kind=self._kind,
            key_columns=(left.key_column, right.key_column),
            schemas=(schema_bytes(self._joined.schemas[0]), schema_bytes(self._joined.schemas[1])),
            schema=schema,
            late_tags=self._late_ids,
        )
        made = left.get_execution_environment().graph_builder.two_input(
            left.transformation,
            right.transformation,
            self._joined.name,
            self._spec(shared),
            output_kind=StreamKind.COLUMNAR,
            output_schema=schema,
            state_key_type=left.key_type or right.key_type,
        )
        # A watermark in the middle of a chain would make all its results in one slice.
        made.chaining = ChainingStrategy.HEAD
        return self._joined.result(made)


class ColumnarIntervalJoin(_ColumnarStreams[S]):
    """Two columnar keyed streams whose rows meet near in time. Made by `ColumnarKeyedStream.interval_join`."""

    call = "interval_join"
    name = "Interval Join of Columns"
    without_times = "convert both to rows and join by windows of processing time"

    def between(
        self, lower_bound: Time | Duration, upper_bound: Time | Duration
    ) -> ColumnarIntervalJoined[S]:
        """Let a row at t meet rows of the other stream from t + lower to t + upper, both included."""
        return ColumnarIntervalJoined(
            self, (milliseconds_of(lower_bound, "lower_bound"), milliseconds_of(upper_bound, "upper_bound"))
        )


class ColumnarIntervalJoined(_Interval, _Outer, _ColumnarJoined[S]):
    """Two columnar keyed streams whose rows meet near in time; the bounds are known."""

    def __init__(self, joined: ColumnarIntervalJoin[S], bounds: tuple[int, int]) -> None:
        super().__init__(joined)
        self._set_bounds(bounds)

    def _spec(self, shared: _ColumnarSettings) -> ColumnarIntervalJoinOperator:
        lower, upper = self._bounds
        return ColumnarIntervalJoinOperator(lower_ms=lower, upper_ms=upper, **shared)


class ColumnarAsOfJoin(_ColumnarStreams[S], _AsOf["ColumnarAsOfJoined[S]"]):
    """Two columnar keyed streams; each row of the first one meets the row of the second one that holds at its time.

    Made by `ColumnarKeyedStream.as_of_join`.
    """

    call = "as_of_join"
    name = "As-Of Join of Columns"
    without_times = "convert both to rows and use immediate_join, which takes records as they come"

    def _directed(self, direction: AsOfDirection, tolerance_ms: int | None) -> ColumnarAsOfJoined[S]:
        return ColumnarAsOfJoined(self, direction, tolerance_ms)


class ColumnarAsOfJoined(_AsOfOuter, _ColumnarJoined[S]):
    """Two columnar keyed streams in an as-of join; the direction is known."""

    def __init__(
        self, joined: ColumnarAsOfJoin[S], direction: AsOfDirection, tolerance_ms: int | None
    ) -> None:
        super().__init__(joined)
        self._direction = direction
        self._tolerance_ms = tolerance_ms

    def _spec(self, shared: _ColumnarSettings) -> ColumnarAsOfJoinOperator:
        return ColumnarAsOfJoinOperator(direction=self._direction, tolerance_ms=self._tolerance_ms, **shared)


class ColumnarWindowJoin(_ColumnarStreams[S]):
    """Two columnar keyed streams whose rows meet in windows. Made by `ColumnarKeyedStream.window_join`."""

    call = "window_join"
    name = "Window Join of Columns"
    without_times = "convert both to rows and join by windows of processing time"

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> ColumnarWindowJoined[S]:
        """Let rows of one window meet: tumbling, sliding or cumulative windows of event time.

        Raises InvalidProgramError for other windows.
        """
        slices_of = SLICED.get(type(window_assigner))
        if slices_of is None:
            listed = ", ".join(sorted(kind.__name__ for kind in SLICED))
            raise InvalidProgramError(
                f"window_join: window({type(window_assigner).__name__}) has no columnar form; these have: {listed}."
                " Convert both streams with to_rows() and use join for all others"
            )
        return ColumnarWindowJoined(self, slices_of(window_assigner))


class ColumnarWindowJoined(_Outer, _ColumnarJoined[S]):
    """Two columnar keyed streams whose rows meet in windows; the windows are known."""

    def __init__(self, joined: ColumnarWindowJoin[S], windows: SlicedWindows) -> None:
        super().__init__(joined)
        self._windows = windows

    def _spec(self, shared: _ColumnarSettings) -> ColumnarWindowJoinOperator:
        return ColumnarWindowJoinOperator(**self._windows, **shared)
