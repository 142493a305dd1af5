"""CEP and PatternStream: a stream in which a pattern is looked for.

Owner: the thread that builds the program. What cannot work is refused here, at the line that asks for it. The
operator is in `yarrow.container.operators.cep`; see docs/cep.md.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, TypedDict

from yarrow.cep.pattern import MalformedPatternError, Pattern
from yarrow.cep.pattern_functions import (
    Match,
    PatternFlatSelectFunction,
    PatternFlatTimeoutFunction,
    PatternProcessFunction,
    PatternSelectFunction,
    PatternTimeoutFunction,
    SelectingMatches,
    SelectingTimeouts,
    TimedOutPartialMatchHandler,
)
from yarrow.cep.pattern_table import compile_pattern
from yarrow.cep.plain_sequences import why_no_plain_sequence
from yarrow.common.execution_modes import TimeCharacteristic
from yarrow.common.typeinfo import TypeInformation
from yarrow.datastream.columnar_keyed_stream import ColumnarKeyedStream
from yarrow.datastream.data_stream import DataStream
from yarrow.datastream.functions.key_functions import NullByteKeySelector
from yarrow.datastream.keyed_stream import KeyedStream
from yarrow.datastream.output_tag import OutputTag
from yarrow.datastream.program.arrow_schemas import plain_schema
from yarrow.datastream.program.graph_builder import declared
from yarrow.datastream.program.user_functions import declares_blocking, require_function
from yarrow.runtime.columns.condition_checks import why_not_compared
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.pattern_spec import AllPatternOperator, ColumnarPatternOperator, PatternOperator
from yarrow.runtime.graph.transformations import ChainingStrategy, has_no_time

__all__ = ["CEP", "EventComparator", "PatternStream"]

#: Name of the operator.
_NAME: Final = "CEP"
#: Compares two records of one time: below 0 if the first one comes first, 0 if either may.
EventComparator = Callable[[Any, Any], int]


class _SharedSettings(TypedDict):
    """The fields that the specs of all patterns have."""

    pattern: bytes
    function: bytes
    late_tag: str | None
    max_partial_matches: int | None


class CEP:
    """Makes streams of matches."""

    @staticmethod
    def pattern(
        stream: DataStream, pattern: Pattern, comparator: EventComparator | None = None
    ) -> PatternStream:
        """Return the stream in which a pattern is looked for, key by key if the stream is keyed.

        `comparator`: the order of records with one time, a callable of two records or an object with `compare`.
        Otherwise they come as they came. A stream without keys is looked through by one subtask.

        A stream that is keyed by names of columns is looked through in record batches. Its pattern may have conditions
        over columns, and other conditions and functions get Rows. It has no comparator.
        Raises MalformedPatternError for a pattern that cannot match, and InvalidProgramError for conditions over
        columns that the stream does not have.
        """
        if not isinstance(stream, DataStream):
            raise TypeError(f"CEP.pattern takes a DataStream or KeyedStream, not {stream!r}")
        if not isinstance(pattern, Pattern):
            raise TypeError(f"CEP.pattern takes a Pattern, such as Pattern.begin('start'), not {pattern!r}")
        if comparator is not None and not callable(getattr(comparator, "compare", comparator)):
            raise TypeError(f"CEP.pattern takes a comparator of two records, not {comparator!r}")
        compile_pattern(pattern)
        if isinstance(stream, ColumnarKeyedStream):
            return _ColumnarPatternStream.of(stream, pattern, comparator)
        _refuse_column_conditions(pattern)
        keyed = (
            stream if isinstance(stream, KeyedStream) else KeyedStream.of(stream, NullByteKeySelector(), None)
        )
        return _RowPatternStream(stream, keyed, pattern, comparator)


class PatternStream(ABC):
    """A stream in which a pattern is looked for. Made by `CEP.pattern`.

    Each method that sets something returns a new PatternStream.
    """

    def __init__(self, stream: DataStream, pattern: Pattern) -> None:
        """`stream`: the keyed one."""
        self._stream = stream
        self._pattern = pattern
        self._late_tag: OutputTag | None = None
        self._event_time = True
        self._most: int | None = None
        self._endless = False

    # ------------------------------------------------------------------ settings

    def in_event_time(self) -> PatternStream:
        """Take records in the order of their timestamps, as is the case anyway."""
        return self._with(_event_time=True)

    def in_processing_time(self) -> PatternStream:
        """Take records as they come, at the time of the machine."""
        return self._with(_event_time=False)

    def side_output_late_data(self, late_data_output_tag: OutputTag) -> PatternStream:
        """Send late records to a side output, which `get_side_output` of the result gives."""
        return self._with(_late_tag=_tag("side_output_late_data", late_data_output_tag))

    def max_partial_matches(self, number: int) -> PatternStream:
        """Let a key have so many partial matches at most: those that began first end when there are more.

        The metric `numPartialMatchesDropped` counts them.
        """
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise InvalidProgramError(f"max_partial_matches({number!r}): give a whole number from 1 on")
        return self._with(_most=number)

    def allow_endless(self) -> PatternStream:
        """Allow a loop that nothing ends, although the partial matches of a key may then grow without end."""
        return self._with(_endless=True)

    def _with(self, **settings: Any) -> PatternStream:
        changed = copy.copy(self)
        for name, value in settings.items():
            setattr(changed, name, value)
        return changed

    # ------------------------------------------------------------------ results

    def select(
        self,
        pattern_select_function: PatternSelectFunction | Callable[[Match], Any],
        timed_out_tag: OutputTag | None = None,
        timeout_function: PatternTimeoutFunction | Callable[[Match, int], Any] | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Return the stream of one record a match.

        With `timed_out_tag` and `timeout_function`, a partial match whose time has passed leaves a record in that side
        output.
        """
        require_function(pattern_select_function, PatternSelectFunction, "select")
        if timeout_function is not None:
            require_function(timeout_function, PatternTimeoutFunction, "select")
        return self._selected(
            "select", pattern_select_function, timed_out_tag, timeout_function, output_type, is_flat=False
        )

    def flat_select(
        self,
        pattern_flat_select_function: PatternFlatSelectFunction | Callable[[Match], Any],
        timed_out_tag: OutputTag | None = None,
        timeout_function: PatternFlatTimeoutFunction | Callable[[Match, int], Any] | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Return the stream of any number of records a match; see `select`."""
        require_function(pattern_flat_select_function, PatternFlatSelectFunction, "flat_select")
        if timeout_function is not None:
            require_function(timeout_function, PatternFlatTimeoutFunction, "flat_select")
        return self._selected(
            "flat_select",
            pattern_flat_select_function,
            timed_out_tag,
            timeout_function,
            output_type,
            is_flat=True,
        )

    def _selected(
        self,
        method: str,
        function: Any,
        tag: OutputTag | None,
        timeout: Any,
        output_type: TypeInformation | None,
        *,
        is_flat: bool,
    ) -> DataStream:
        if (tag is None) is not (timeout is None):
            raise TypeError(f"{method}: timed_out_tag and timeout_function come together, or not at all")
        made: PatternProcessFunction = (
            SelectingMatches(function, method, is_flat=is_flat)
            if tag is None
            else SelectingTimeouts(function, method, timeout, tag, is_flat=is_flat)
        )
        if tag is not None:
            self._check_timed_out_tag(method, tag)
        blocking = declares_blocking(function) or declares_blocking(timeout)
        return self._matched(made, output_type, blocking=blocking)

    def process(
        self, pattern_process_function: PatternProcessFunction, output_type: TypeInformation | None = None
    ) -> DataStream:
        """Return the stream of the results of a function that is called for each match.

        A function that is a TimedOutPartialMatchHandler, too, gets the partial matches whose time has passed.
        """
        require_function(pattern_process_function, PatternProcessFunction, "process", callables=False)
        blocking = declares_blocking(pattern_process_function)
        return self._matched(pattern_process_function, output_type, blocking=blocking)

    def _matched(
        self, function: PatternProcessFunction, output_type: TypeInformation | None, *, blocking: bool
    ) -> DataStream:
        self._require_bounds()
        self._require_time(function)
        environment = self._stream.get_execution_environment()
        builder = environment.graph_builder
        shared: _SharedSettings = {
            "pattern": builder.pickle(self._pattern, _NAME, "pattern"),
            "function": builder.pickle(function, _NAME),
            "late_tag": None if self._late_tag is None else self._late_tag.tag_id,
            "max_partial_matches": self._most,
        }
        made = builder.one_input(
            self._stream.transformation,
            _NAME,
            output_type=declared(output_type),
            blocking=blocking,
            description=f"CEP({', '.join(self._pattern.names())}){self._slow_way()}",
            **self._operator(shared),
        )
        return self._result(DataStream(environment, made))

    @abstractmethod
    def _operator(self, shared: _SharedSettings) -> dict[str, Any]:
        """The spec of the operator, and what else it needs of `GraphBuilder.one_input`."""

    def _result(self, stream: DataStream) -> DataStream:
        """The stream of matches as the program gets it."""
        return stream

    def _slow_way(self) -> str:
        """The plan's text: what asks for the slower of two ways; empty if there is none."""
        return ""

    def _check_timed_out_tag(self, method: str, tag: OutputTag) -> None:
        """Raises TypeError or InvalidProgramError if partial matches cannot go to that side output."""
        _tag(method, tag)

    def _require_bounds(self) -> None:
        """Raises MalformedPatternError for partial matches that may grow without end."""
        step = self._pattern.endless_step()
        if step is not None and not self._endless and self._most is None:
            raise MalformedPatternError(
                f"the loop of {step} has neither a time limit nor an end, so the partial matches of a key may grow"
                " without end. Call within or until, bound them by max_partial_matches, or say allow_endless()"
            )

    def _require_time(self, function: PatternProcessFunction) -> None:
        """Raises InvalidProgramError where event time is needed and nothing before gives it."""
        environment = self._stream.get_execution_environment()
        stamped = environment.get_stream_time_characteristic() is TimeCharacteristic.INGESTION_TIME
        if self._event_time and not stamped and has_no_time(self._stream.transformation):
            raise InvalidProgramError(
                "CEP.pattern: nothing before it gives records a timestamp. Call assign_timestamps_and_watermarks before"
                " key_by, with a strategy that has a timestamp assigner, or call in_processing_time()"
            )
        if isinstance(function, TimedOutPartialMatchHandler) and not _has_limit(self._pattern):
            raise InvalidProgramError(
                "CEP.pattern: the function wants partial matches that time out, but the pattern has no time limit. Call"
                " within"
            )


class _RowPatternStream(PatternStream):
    """A stream of rows in which a pattern is looked for."""

    def __init__(
        self, stream: DataStream, keyed: KeyedStream, pattern: Pattern, comparator: EventComparator | None
    ) -> None:
        """`keyed`: the stream itself, or all of its rows under one key."""
        super().__init__(keyed, pattern)
        self._keyed = keyed
        self._is_keyed = stream is keyed
        self._comparator = comparator

    def _operator(self, shared: _SharedSettings) -> dict[str, Any]:
        keyed, comparator = self._keyed, self._comparator
        builder, row_type = keyed.get_execution_environment().graph_builder, keyed.transformation.output_type
        spec = (PatternOperator if self._is_keyed else AllPatternOperator)(
            key_selector=keyed.key_selector,
            row_type=None if row_type is None else row_type.to_spec(),
            comparator=None if comparator is None else builder.pickle(comparator, _NAME, "comparator"),
            event_time=self._event_time,
            **shared,
        )
        return {"spec": spec, "state_key_type": keyed.key_type}

    def _result(self, stream: DataStream) -> DataStream:
        return stream if self._is_keyed else stream.force_non_parallel()


class _ColumnarPatternStream(PatternStream):
    """A stream of record batches in which a pattern is looked for."""

    def __init__(self, stream: ColumnarKeyedStream, pattern: Pattern) -> None:
        super().__init__(stream, pattern)
        self._columnar = stream

    @staticmethod
    def of(
        stream: ColumnarKeyedStream, pattern: Pattern, comparator: EventComparator | None
    ) -> _ColumnarPatternStream:
        """The stream with a pattern. Raises InvalidProgramError for what record batches do not have."""
        if comparator is not None:
            raise InvalidProgramError(
                "CEP.pattern: rows of columns with one time come as they came, and no comparator orders them. Call"
                " to_rows() before key_by, and key by a function of the row"
            )
        schema = plain_schema(stream.transformation.output_schema, "CEP.pattern", "the stream", "it")
        twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
        if twice:
            raise InvalidProgramError(
                f"CEP.pattern: two columns of the stream are named {twice}. Name them apart: records of matches are"
                " Rows with the names of columns"
            )
        for step in pattern.all_steps():
            for condition in step.column_conditions():
                if why := why_not_compared(condition.expression, schema):
                    raise InvalidProgramError(f"CEP.pattern: a condition of the step {step}: {why}")
        return _ColumnarPatternStream(stream, pattern)

    def in_processing_time(self) -> PatternStream:
        raise InvalidProgramError(
            "in_processing_time: a stream of columns is looked through in event time. Call to_rows() before key_by, and"
            " key by a function of the row"
        )

    def _operator(self, shared: _SharedSettings) -> dict[str, Any]:
        stream = self._columnar
        schema = stream.transformation.output_schema
        assert schema is not None, "it was checked"
        return {
            "spec": ColumnarPatternOperator(key_column=stream.key_column, schema=schema, **shared),
            "state_key_type": stream.key_type,
            "state_key_columns": () if isinstance(stream.key_column, str) else stream.key_column,
            "chaining": ChainingStrategy.HEAD,
        }

    def _slow_way(self) -> str:
        reason = why_no_plain_sequence(self._pattern, self._most)
        return f", row by row because of {reason}" if reason else ""

    def _check_timed_out_tag(self, method: str, tag: OutputTag) -> None:
        super()._check_timed_out_tag(method, tag)
        if self._late_tag is not None and tag.tag_id == self._late_tag.tag_id:
            raise InvalidProgramError(
                f"{method}: the side output {tag.tag_id!r} takes batches of late rows. Give partial matches that time"
                " out another OutputTag"
            )


def _refuse_column_conditions(pattern: Pattern) -> None:
    """Raises InvalidProgramError for a pattern over rows with conditions over columns."""
    for step in pattern.all_steps():
        if any(step.column_conditions()):
            raise InvalidProgramError(
                f"CEP.pattern: the step {step} has a condition over columns, and the stream has rows. Call key_by with"
                " names of columns on a stream of columns, or give a function of the row"
            )


def _has_limit(pattern: Pattern) -> bool:
    """True if a partial match may time out."""
    return any(
        step.within_ms is not None
        or step.within_previous_ms is not None
        or (step.repetition is not None and step.repetition.window_ms is not None)
        for step in pattern.all_steps()
    )


def _tag(call: str, output_tag: OutputTag) -> OutputTag:
    if not isinstance(output_tag, OutputTag):
        raise TypeError(f"{call} takes an OutputTag, not {output_tag!r}")
    return output_tag
