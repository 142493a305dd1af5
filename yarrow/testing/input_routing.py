"""InputRouting: sends what a test pushes to the subtasks that a job would send it to.

Owner: the test's thread. Rows go by key, by the user's partitioner, or in turn; batches of columns by the rows of each
key. All subtasks get control elements. Must not know fragments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import pyarrow as pa

from yarrow.container.codegen.user_functions import load_function, method_of
from yarrow.container.network.output_channel import OutputChannel
from yarrow.runtime.data.elements import ArrowBatch, RowBatch, StreamElement
from yarrow.runtime.data.key_groups import group_of_raw_key, operator_index_for_key_group
from yarrow.runtime.graph.job_graph import JobEdge, JobGraph
from yarrow.runtime.graph.operator_spec import PartitionerKind

#: The name of whoever routes, in errors.
_HARNESS = "the harness"


class EdgeRouting:
    """The way of one input's elements over one edge, to several subtasks."""

    def __init__(self, graph: JobGraph, edge: JobEdge) -> None:
        target = graph.vertex(edge.target)
        self.subtasks = target.parallelism
        self._groups = target.max_parallelism
        self._turn = count()
        self._spec = edge.partitioner
        self._of_row = self._subtask_of_row()

    def _subtask_of_row(self) -> Callable[[Any], int]:
        spec, subtasks = self._spec, self.subtasks
        if spec.kind is PartitionerKind.KEY_GROUP and spec.key_selector is not None:
            key_of = method_of(load_function(spec.key_selector, _HARNESS), "get_key", _HARNESS)
            return lambda row: self._subtask_of_key(key_of(row))
        if (
            spec.kind is PartitionerKind.CUSTOM
            and spec.key_selector is not None
            and spec.function is not None
        ):
            key_of = method_of(load_function(spec.key_selector, _HARNESS), "get_key", _HARNESS)
            partition = method_of(load_function(spec.function, _HARNESS), "partition", _HARNESS)
            return lambda row: int(partition(key_of(row), subtasks))
        if spec.kind is PartitionerKind.GLOBAL:
            return lambda row: 0
        return lambda row: next(self._turn) % subtasks

    def _subtask_of_key(self, key: Any) -> int:
        group = group_of_raw_key(key, self._groups)
        return operator_index_for_key_group(self._groups, self.subtasks, group)

    def pieces(self, batch: RowBatch | ArrowBatch) -> Iterator[tuple[int, RowBatch | ArrowBatch]]:
        """The part of the batch for each subtask that gets one."""
        if self._spec.kind is PartitionerKind.BROADCAST:
            for subtask in range(self.subtasks):
                yield subtask, batch
            return
        of_rows = self._subtasks_of(batch)
        for subtask in range(self.subtasks):
            own = [at for at, chosen in enumerate(of_rows) if chosen == subtask]
            if own:
                yield subtask, _chosen(batch, own)

    def _subtasks_of(self, batch: RowBatch | ArrowBatch) -> list[int]:
        if isinstance(batch, RowBatch):
            return [self._of_row(row) for row in batch.rows]
        columns = self._spec.key_column
        if columns is None:
            subtask = next(self._turn) % self.subtasks
            return [subtask] * len(batch)
        if isinstance(columns, str):
            keys = batch.batch.column(columns).to_pylist()
        else:
            keys = list(zip(*(batch.batch.column(name).to_pylist() for name in columns), strict=True))
        return [self._subtask_of_key(key) for key in keys]


class InputRouting:
    """The ways of one input's elements, over all edges behind it."""

    def __init__(self, graph: JobGraph, edges: Sequence[JobEdge], channels: Sequence[OutputChannel]) -> None:
        """`channels` are those to all subtasks behind the first edge, then those behind the second one, and so on."""
        self._channels = list(channels)
        self._edges = [EdgeRouting(graph, edge) for edge in edges]

    def send(self, element: StreamElement) -> None:
        """Sends an element to each subtask that a job would send it to."""
        if not isinstance(element, RowBatch | ArrowBatch):
            for channel in self._channels:
                channel.send_control(element)
            return
        first = 0
        for edge in self._edges:
            for subtask, piece in edge.pieces(element):
                self._channels[first + subtask].send_batch(piece)
            first += edge.subtasks


def _chosen(batch: RowBatch | ArrowBatch, positions: list[int]) -> RowBatch | ArrowBatch:
    kinds = None if batch.kinds is None else bytes(batch.kinds[at] for at in positions)
    if isinstance(batch, RowBatch):
        stamps = None if batch.timestamps is None else [batch.timestamps[at] for at in positions]
        return RowBatch([batch.rows[at] for at in positions], stamps, kinds)
    chosen = pa.array(positions, pa.int64())
    times = None if batch.timestamps is None else batch.timestamps.take(chosen)
    return ArrowBatch(batch.batch.take(chosen), times, kinds)
