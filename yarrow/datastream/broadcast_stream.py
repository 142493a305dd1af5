"""BroadcastStream and BroadcastConnectedStream: a stream that every subtask reads, and one that is processed by it.

Owner: the thread that builds the program. A subtask keeps broadcast state of the broadcast stream: the maps
of the descriptors. It is the same in each subtask as long as the function writes the same in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from yarrow.common.typeinfo import TypeInformation
from yarrow.datastream.data_stream import DataStream
from yarrow.datastream.functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from yarrow.datastream.keyed_stream import KeyedStream
from yarrow.datastream.program.graph_builder import declared
from yarrow.datastream.program.user_functions import declares_blocking, require_function
from yarrow.datastream.state import MapStateDescriptor
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.operator_spec import BroadcastProcessOperator

__all__ = ["BroadcastConnectedStream", "BroadcastStream"]


class BroadcastStream:
    """A stream that every subtask reads, with its broadcast states. `DataStream.broadcast` makes it."""

    def __init__(
        self, input_stream: DataStream, broadcast_state_descriptors: Sequence[MapStateDescriptor[Any, Any]]
    ) -> None:
        self.input_stream = input_stream
        self.broadcast_state_descriptors = list(broadcast_state_descriptors)
        names: set[str] = set()
        for descriptor in self.broadcast_state_descriptors:
            if not isinstance(descriptor, MapStateDescriptor):
                raise TypeError(f"broadcast takes MapStateDescriptors, not {descriptor!r}")
            if descriptor.get_name() in names:
                raise InvalidProgramError(
                    f"broadcast: two states are named {descriptor.get_name()!r}; give each a name of its own"
                )
            names.add(descriptor.get_name())


class BroadcastConnectedStream:
    """A stream, keyed or not, connected with a BroadcastStream. Made by `DataStream.connect`."""

    def __init__(
        self,
        non_broadcast_stream: DataStream,
        broadcast_stream: BroadcastStream,
        broadcast_state_descriptors: Sequence[MapStateDescriptor[Any, Any]],
    ) -> None:
        self.non_broadcast_stream = non_broadcast_stream
        self.broadcast_stream = broadcast_stream
        self.broadcast_state_descriptors = list(broadcast_state_descriptors)

    def process(
        self,
        func: BroadcastProcessFunction[Any, Any, Any] | KeyedBroadcastProcessFunction[Any, Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Return what a BroadcastProcessFunction emits, or a KeyedBroadcastProcessFunction on a keyed stream."""
        stream = self.non_broadcast_stream
        keyed = isinstance(stream, KeyedStream)
        if keyed and isinstance(func, BroadcastProcessFunction):
            raise TypeError(
                "process takes a KeyedBroadcastProcessFunction where the stream is keyed, not a"
                " BroadcastProcessFunction"
            )
        if not keyed and isinstance(func, KeyedBroadcastProcessFunction):
            raise TypeError(
                "process takes a KeyedBroadcastProcessFunction where the stream is keyed: call key_by before connect"
            )
        wanted = KeyedBroadcastProcessFunction if keyed else BroadcastProcessFunction
        require_function(func, wanted, "process with a broadcast stream", callables=False)
        name = "Keyed-Co-Process-Broadcast" if keyed else "Co-Process-Broadcast"
        environment = stream.get_execution_environment()
        builder = environment.graph_builder
        spec = BroadcastProcessOperator(
            function=builder.pickle(func, name),
            states=builder.pickle(
                tuple(self.broadcast_state_descriptors), name, "broadcast state descriptors"
            ),
            key_selector=stream.key_selector if isinstance(stream, KeyedStream) else None,
        )
        made = builder.two_input(
            builder.as_rows(stream.transformation),
            builder.as_rows(self.broadcast_stream.input_stream.transformation),
            name,
            spec,
            output_type=declared(output_type),
            blocking=declares_blocking(func),
            state_key_type=stream.key_type if isinstance(stream, KeyedStream) else None,
        )
        return DataStream(environment, made)
