"""IntervalJoin: two keyed streams whose records meet near in time.

Owner: the thread that builds the program. What cannot work is refused here, at the line that asks for it. Must not know
the class of streams that a program sees. The operator is in `yarrow.container.operators.join`; see docs/joins.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NoReturn, Self, TypeVar

from yarrow.common.time import Duration, Time, milliseconds_of
from yarrow.common.typeinfo import TypeInformation
from yarrow.common.watermark_strategy import MAX_TIMESTAMP
from yarrow.datastream.functions.process_join_function import ProcessJoinFunction
from yarrow.datastream.joined_streams import require_keys_that_meet, require_times
from yarrow.datastream.output_tag import OutputTag
from yarrow.datastream.program.graph_builder import declared
from yarrow.datastream.program.user_functions import declares_blocking, require_function
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError
from yarrow.runtime.graph.data_set_spec import JoinKind
from yarrow.runtime.graph.transformations import Transformation
from yarrow.runtime.graph.window_spec import IntervalJoinOperator

__all__ = ["IntervalJoin", "IntervalJoined"]

#: The class of streams that a program sees.
S = TypeVar("S")


class IntervalJoin(Generic[S]):
    """Two keyed streams whose records meet near in time. Made by `KeyedStream.interval_join`."""

    def __init__(self, left: Any, right: Any, result: Callable[[Transformation], S]) -> None:
        """`left` and `right` are KeyedStreams. `result` makes a stream of a transformation.

        Raises InvalidProgramError if their keys are never equal, or nothing gives one of them timestamps.
        """
        require_keys_that_meet("interval_join", left.key_type, right.key_type)
        require_times("interval_join", (left, right), "join by windows of processing time")
        self._streams = left, right
        self._result = result

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
            self._streams, self._result, (milliseconds_of(lower_bound), milliseconds_of(upper_bound))
        )


class IntervalJoined(Generic[S]):
    """Two keyed streams whose records meet near in time; the bounds are known."""

    def __init__(
        self, streams: tuple[Any, Any], result: Callable[[Transformation], S], bounds: tuple[int, int]
    ) -> None:
        self._streams = streams
        self._result = result
        self._set_bounds(bounds)
        self._kind = JoinKind.INNER
        self._late_tags: tuple[OutputTag | None, OutputTag | None] = (None, None)

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

    def side_output_left_late_data(self, output_tag: OutputTag) -> Self:
        """Send late records of the first stream to a side output, which `get_side_output` of the result gives."""
        self._late_tags = _tag("side_output_left_late_data", output_tag), self._late_tags[1]
        return self

    def side_output_right_late_data(self, output_tag: OutputTag) -> Self:
        """Send late records of the second stream to a side output."""
        self._late_tags = self._late_tags[0], _tag("side_output_right_late_data", output_tag)
        return self

    def process(
        self,
        process_join_function: ProcessJoinFunction[Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> S:
        """Return all results of a function that is called for each pair. They bear the later time of the pair."""
        require_function(process_join_function, ProcessJoinFunction, "process", callables=False)
        left, right = self._streams
        builder, name = left.get_execution_environment().graph_builder, "Interval Join"
        types = [each.transformation.output_type for each in (left, right)]
        specs = [None if each is None else each.to_spec() for each in types]
        tags = [None if each is None else each.tag_id for each in self._late_tags]
        spec = IntervalJoinOperator(
            kind=self._kind,
            key_selectors=(left.key_selector, right.key_selector),
            function=builder.pickle(process_join_function, name),
            lower_ms=self._bounds[0],
            upper_ms=self._bounds[1],
            row_types=(specs[0], specs[1]),
            late_tags=(tags[0], tags[1]),
        )
        made = builder.two_input(
            left.transformation,
            right.transformation,
            name,
            spec,
            output_type=declared(output_type),
            blocking=declares_blocking(process_join_function),
            state_key_type=left.key_type or right.key_type,
        )
        return self._result(made)


def _tag(call: str, output_tag: OutputTag) -> OutputTag:
    if not isinstance(output_tag, OutputTag):
        raise TypeError(f"{call} takes an OutputTag, not {output_tag!r}")
    return output_tag
