"""ChannelOrigins: the channels that hold records in unaligned checkpoints, their names, and the owners of their rows.

Owner: the task thread while it builds or opens a task. Pointwise and broadcast edges hold no records unless
forced: their rows cannot move to other subtasks. Blocking edges hold none either, because their producers
have ended. Must not touch channels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.codegen.freezing import needs_fixing
from yarrow.container.codegen.user_functions import load_function, method_of
from yarrow.container.network.channel_recording import ChannelOrigin
from yarrow.container.network.element_codec import ElementCodec
from yarrow.runtime.data.elements import ArrowBatch, Batch, RowBatch
from yarrow.runtime.data.key_groups import group_of_raw_key, key_group_range_for_operator_index
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.runtime.graph.job_graph import JobEdge, JobGraph, JobVertex, ResultPartitionType
from yarrow.runtime.graph.operator_spec import (
    PartitionerKind,
    StreamKind,
)
from yarrow.runtime.snapshot.channel_edges import edge_name, edges_by_name
from yarrow.runtime.snapshot.handles import SerializerConfig, ValueFormat

if TYPE_CHECKING:
    import pyarrow as pa

    from yarrow.runtime.data.batch_key import BatchKey

#: Returns the rows of a batch that a subtask takes.
Keep = Callable[[Batch], Batch]


def edge_type(edge: JobEdge) -> TypeInformation | None:
    """The declared type of an edge's rows; None = undeclared, or columns."""
    if edge.type_spec is None or edge.stream_kind is StreamKind.COLUMNAR:
        return None
    return TypeInformation.from_spec(edge.type_spec)


def codec_of(edge: JobEdge) -> ElementCodec:
    """The codec of an edge's elements, including those that a former version of the job left in a savepoint."""
    return ElementCodec(serializer_for(edge_type(edge)))


def checking_codec_of(graph: JobGraph, edge: JobEdge) -> ElementCodec:
    """The codec of an edge that refuses batches which this job's producer cannot have sent."""
    source, target = graph.vertex(edge.source), graph.vertex(edge.target)
    name = f"{edge.index} from '{source.name}' to '{target.name}'"
    producer = source.operators[edge.source_operator].name
    return ElementCodec(serializer_for(edge_type(edge)), enforced_schema(graph, edge), name, producer)


def enforced_schema(graph: JobGraph, edge: JobEdge) -> pa.Schema | None:
    """The schema of an edge's batches, which the producer enforces; None if it enforces none."""
    if edge.stream_kind is not StreamKind.COLUMNAR or edge.side_output is not None:
        return None
    found = _emitted_schema(graph.vertex(edge.source), edge.source_operator)
    if found is None:
        return None
    import pyarrow as pa  # only jobs with columns load it

    return pa.ipc.read_schema(pa.py_buffer(found))


def _emitted_schema(vertex: JobVertex, operator: int) -> bytes | None:
    spec = vertex.operators[operator].spec
    if not spec.keeps_schema:
        return spec.emitted_schema
    # Batches from an exchange may come from a former version of the job.
    for chained in vertex.chained_edges:
        if chained.target == operator and chained.side_output is None:
            return _emitted_schema(vertex, chained.source)
    return None


class ChannelOrigins:
    """Names of the channels of one job."""

    def __init__(self, graph: JobGraph, *, forced: bool) -> None:
        self.graph = graph
        self._forced = forced

    def edge(self, name: str) -> JobEdge:
        """The edge of a channel state; the assignment has refused unknown names."""
        return edges_by_name(self.graph)[name]

    def overtakable(
        self, edge: JobEdge, producer: int, consumer: int, codec: ElementCodec
    ) -> ChannelOrigin | None:
        """The name of a channel whose records barriers may overtake; None for all others."""
        kind = edge.partitioner.kind
        if edge.result_type is ResultPartitionType.BLOCKING:
            return None
        if (kind.is_pointwise or kind is PartitionerKind.BROADCAST) and not self._forced:
            return None
        return self.origin(edge, producer, consumer, codec)

    def origin(
        self, edge: JobEdge, producer: int, consumer: int, codec: ElementCodec | None = None
    ) -> ChannelOrigin:
        """The name of a channel."""
        target = self.graph.vertex(edge.target)
        columnar = edge.stream_kind is StreamKind.COLUMNAR
        return ChannelOrigin(
            edge=edge_name(self.graph, edge),
            producer=producer,
            consumer=consumer,
            codec=codec or codec_of(edge),
            rows=None if columnar else _rows_config(edge),
            consumers=target.parallelism,
            max_parallelism=target.max_parallelism,
            changeable=not columnar and needs_fixing(edge_type(edge), object_reuse=False),
        )


def _rows_config(edge: JobEdge) -> SerializerConfig:
    if edge.type_spec is None:
        return SerializerConfig(format=ValueFormat.PICKLE)
    return SerializerConfig(format=ValueFormat.TYPED, type_spec=edge.type_spec)


def rows_of_subtask(graph: JobGraph, edge: JobEdge, subtask: int) -> Keep:
    """Keeps the rows of a keyed edge whose key groups belong to `subtask`."""
    target = graph.vertex(edge.target)
    most = target.max_parallelism
    groups = key_group_range_for_operator_index(most, target.parallelism, subtask)
    first, last = groups.start, groups.end
    column = edge.partitioner.key_column
    if edge.stream_kind is StreamKind.COLUMNAR:
        from yarrow.runtime.data.batch_key import BatchKey  # with pyarrow, which only jobs with columns load

        assert column is not None
        key = BatchKey(column)
        return lambda batch: _own_columns(batch, key, most, first, last)
    name = target.operators[0].name
    assert edge.partitioner.key_selector is not None
    get_key = method_of(load_function(edge.partitioner.key_selector, name), "get_key", name)

    def own_rows(batch: Batch) -> Batch:
        assert isinstance(batch, RowBatch)
        kept = [
            i for i, row in enumerate(batch.rows) if first <= group_of_raw_key(get_key(row), most) <= last
        ]
        rows: list[Any] = [batch.rows[i] for i in kept]
        stamps, kinds = batch.timestamps, batch.kinds
        return RowBatch(
            rows,
            None if stamps is None else [stamps[i] for i in kept],
            None if kinds is None else bytes(kinds[i] for i in kept),
        )

    return own_rows


def _own_columns(batch: Batch, key: BatchKey, most: int, first: int, last: int) -> Batch:
    from yarrow.container.network.columnar_partition import taken

    assert isinstance(batch, ArrowBatch)
    groups = key.hashes(batch.batch) % np.uint64(most)
    return taken(batch, np.flatnonzero((groups >= first) & (groups <= last)))
