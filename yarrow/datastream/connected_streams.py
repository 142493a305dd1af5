"""ConnectedStreams: two streams, of any types, read by one operator; also a stream with its own feedback.

Owner: the thread that builds the program. If both streams are keyed, their operator has one key space:
records of both streams with one key share its state.
"""

from __future__ import annotations

from typing import Any

from yarrow.common.typeinfo import TypeInformation
from yarrow.datastream.data_stream import DataStream
from yarrow.datastream.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
)
from yarrow.datastream.joined_streams import require_keys_that_meet
from yarrow.datastream.keyed_stream import KeyedStream
from yarrow.datastream.program.graph_builder import declared
from yarrow.datastream.program.loop_ends import end_loop, feedback_of_type
from yarrow.datastream.program.user_functions import declares_blocking, require_function
from yarrow.datastream.stream_distribution import KeyFunction
from yarrow.runtime.graph.operator_spec import CoFunctionOperator, CoProcessOperator, CoShape

__all__ = ["ConnectedIterativeStreams", "ConnectedStreams", "IterativeStream"]


class ConnectedStreams:
    """Two connected streams. Made by `DataStream.connect`."""

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        self.stream1 = stream1
        self.stream2 = stream2

    def key_by(
        self,
        key_selector1: KeyFunction,
        key_selector2: KeyFunction,
        key_type: TypeInformation | None = None,
    ) -> ConnectedStreams:
        """Return both streams distributed by key; equal keys of the two reach the same subtask."""
        return ConnectedStreams(
            KeyedStream.of(self.stream1, key_selector1, key_type),
            KeyedStream.of(self.stream2, key_selector2, key_type),
        )

    def map(
        self, func: CoMapFunction[Any, Any, Any], output_type: TypeInformation | None = None
    ) -> DataStream:
        """Return the stream of one result for each record of both."""
        require_function(func, CoMapFunction, "map on connected streams", callables=False)
        return self._co_function("Co-Map", CoShape.CO_MAP, func, output_type)

    def flat_map(
        self, func: CoFlatMapFunction[Any, Any, Any], output_type: TypeInformation | None = None
    ) -> DataStream:
        """Return the stream of any number of results for each record of both."""
        require_function(func, CoFlatMapFunction, "flat_map on connected streams", callables=False)
        return self._co_function("Co-Flat Map", CoShape.CO_FLAT_MAP, func, output_type)

    def process(
        self,
        func: CoProcessFunction[Any, Any, Any] | KeyedCoProcessFunction[Any, Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Return what a CoProcessFunction emits, or a KeyedCoProcessFunction on keyed streams."""
        selectors = self._key_selectors()
        if isinstance(func, KeyedCoProcessFunction):
            if selectors is None:
                raise TypeError(
                    "process takes a KeyedCoProcessFunction where both streams are keyed: call key_by before"
                    " it"
                )
            name = "Co-Keyed-Process"
        else:
            require_function(func, CoProcessFunction, "process on connected streams", callables=False)
            name = "Co-Process"
        builder = self.stream1.get_execution_environment().graph_builder
        spec = CoProcessOperator(function=builder.pickle(func, name), key_selectors=selectors)
        return self._two_input(name, spec, func, output_type)

    def _key_selectors(self) -> tuple[bytes, bytes] | None:
        first, second = self.stream1, self.stream2
        if isinstance(first, KeyedStream) and isinstance(second, KeyedStream):
            return first.key_selector, second.key_selector
        return None

    def _key_type(self) -> TypeInformation | None:
        """The declared type of the keys of both streams; None if neither declares one.

        Raises InvalidProgramError for types of which no key of the one is a key of the other.
        """
        first, second = self.stream1, self.stream2
        if not isinstance(first, KeyedStream) or not isinstance(second, KeyedStream):
            return None
        require_keys_that_meet("connect", first.key_type, second.key_type)
        return first.key_type or second.key_type

    def _co_function(
        self, name: str, shape: CoShape, func: Any, output_type: TypeInformation | None
    ) -> DataStream:
        builder = self.stream1.get_execution_environment().graph_builder
        spec = CoFunctionOperator(
            shape=shape, function=builder.pickle(func, name), key_selectors=self._key_selectors()
        )
        return self._two_input(name, spec, func, output_type)

    def _two_input(
        self,
        name: str,
        spec: CoFunctionOperator | CoProcessOperator,
        func: Any,
        output_type: TypeInformation | None,
    ) -> DataStream:
        environment = self.stream1.get_execution_environment()
        builder = environment.graph_builder
        made = builder.two_input(
            builder.as_rows(self.stream1.transformation),
            builder.as_rows(self.stream2.transformation),
            name,
            spec,
            output_type=declared(output_type),
            blocking=declares_blocking(func),
            state_key_type=self._key_type(),
        )
        return DataStream(environment, made)


class IterativeStream(DataStream):
    """The records of a stream, and those that come back to it. Made by `DataStream.iterate`."""

    def close_with(self, feedback_stream: DataStream) -> DataStream:
        """Send the records of `feedback_stream` round again, and return it.

        It must have the type and parallelism of this stream, and come from it. Raises InvalidProgramError for another
        type, for a second call, and for a stream of another program. The graph is refused for another parallelism.
        """
        head = self.operator("close_with")
        end_loop(self._builder, head, head.output_type, self._same_program(feedback_stream, "close_with"))
        return feedback_stream

    def with_feedback_type(self, feedback_type: TypeInformation | None) -> ConnectedIterativeStreams:
        """Return this stream connected with its feedback, whose records have a type of their own.

        The second input of functions behind it gets the feedback.
        """
        made = feedback_of_type(self._builder, self.operator("with_feedback_type"), feedback_type)
        return ConnectedIterativeStreams(self, self._stream(made))


class ConnectedIterativeStreams(ConnectedStreams):
    """A stream connected with the feedback of a loop. Made by `IterativeStream.with_feedback_type`."""

    def close_with(self, feedback_stream: DataStream) -> DataStream:
        """Send the records of `feedback_stream` to the second input, and return it.

        Raises InvalidProgramError for another type than that of `with_feedback_type`, for a second call, and for a
        stream of another program. The graph is refused for another parallelism.
        """
        stream = self.stream1
        read = stream._same_program(feedback_stream, "close_with")
        wanted = self.stream2.transformation.output_type
        end_loop(
            stream.get_execution_environment().graph_builder, stream.operator("close_with"), wanted, read
        )
        return feedback_stream
