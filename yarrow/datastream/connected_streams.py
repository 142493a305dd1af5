"""ConnectedStreams: two streams, of any types, read by one operator.

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
from yarrow.datastream.keyed_stream import KeyedStream
from yarrow.datastream.program.graph_builder import declared
from yarrow.datastream.program.user_functions import declares_blocking, require_function
from yarrow.datastream.stream_distribution import KeyFunction
from yarrow.runtime.data.key_types import keys_may_meet
from yarrow.runtime.graph.operator_spec import CoFunctionOperator, CoProcessOperator, CoShape

__all__ = ["ConnectedStreams"]


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
        """The declared type of the keys of both streams; None if neither declares one, or they contradict."""
        first, second = self.stream1, self.stream2
        if not isinstance(first, KeyedStream) or not isinstance(second, KeyedStream):
            return None
        if not keys_may_meet(first.key_type, second.key_type):
            return None
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
