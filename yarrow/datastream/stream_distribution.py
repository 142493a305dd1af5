"""Distribution of a stream: which subtask of the next operator gets a record. `key_by` is with DataStream itself.

Owner: the thread that builds the program. Each method returns a stream that differs from this one in the way to what is
put behind it, and in nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from yarrow.datastream.functions import KeySelector, Partitioner
from yarrow.datastream.program.user_functions import require_function
from yarrow.datastream.program_stream import ProgramStream
from yarrow.datastream.state import MapStateDescriptor
from yarrow.runtime.graph.operator_spec import PartitionerKind, PartitionerSpec

if TYPE_CHECKING:
    from yarrow.datastream.broadcast_stream import BroadcastStream
    from yarrow.datastream.data_stream import DataStream

#: Types of key selectors: a function of the record, or an object with get_key.
KeyFunction = Callable[[Any], Any] | KeySelector[Any, Any]


class StreamDistribution(ProgramStream):
    """The methods that choose a partitioner."""

    def partition_custom(
        self,
        partitioner: Callable[[Any, int], int] | Partitioner[Any],
        key_selector: KeyFunction,
    ) -> DataStream:
        """Return the stream whose records go to the subtask that `partitioner(key, number)` names."""
        require_function(partitioner, Partitioner, "partition_custom")
        require_function(key_selector, KeySelector, "partition_custom")
        spec = PartitionerSpec(
            kind=PartitionerKind.CUSTOM,
            key_selector=self._builder.pickle(key_selector, "partition_custom", "key selector"),
            function=self._builder.pickle(partitioner, "partition_custom", "partitioner"),
        )
        return self._partition(spec, self._builder.as_rows(self.transformation))

    def forward(self) -> DataStream:
        """Return the stream whose records stay in their subtask; needs equal parallelism behind it."""
        return self._partition(PartitionerSpec(kind=PartitionerKind.FORWARD))

    def shuffle(self) -> DataStream:
        """Return the stream whose records go to subtasks chosen at random."""
        return self._partition(PartitionerSpec(kind=PartitionerKind.SHUFFLE))

    def rebalance(self) -> DataStream:
        """Return the stream whose records go to all subtasks in turn."""
        return self._partition(PartitionerSpec(kind=PartitionerKind.REBALANCE))

    def rescale(self) -> DataStream:
        """Return the stream whose records go in turn to some of the subtasks, near their producer."""
        return self._partition(PartitionerSpec(kind=PartitionerKind.RESCALE))

    def global_(self) -> DataStream:
        """Return the stream whose records all go to the first subtask."""
        return self._partition(PartitionerSpec(kind=PartitionerKind.GLOBAL))

    @overload
    def broadcast(self) -> DataStream: ...
    @overload
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor[Any, Any],
        *other_broadcast_state_descriptors: MapStateDescriptor[Any, Any],
    ) -> BroadcastStream: ...
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor[Any, Any] | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor[Any, Any],
    ) -> DataStream | BroadcastStream:
        """Return the stream whose records go to every subtask.

        With descriptors it is a BroadcastStream, for `connect`: functions keep its records in the states
        described.
        """
        stream = self._partition(PartitionerSpec(kind=PartitionerKind.BROADCAST))
        if broadcast_state_descriptor is None:
            return stream
        from yarrow.datastream.broadcast_stream import BroadcastStream

        return BroadcastStream(stream, [broadcast_state_descriptor, *other_broadcast_state_descriptors])
