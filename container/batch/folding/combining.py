"""Combining: makes the outputs of a task that fold rows before the shuffle, from the operator behind the exchange.

Owner: the task thread. Whether an exchange is combined is the plan's decision. Must not fold anything itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from yarrow.container.batch.folding.combining_partition import CombiningPartition, TableMemory
from yarrow.container.batch.folding.row_folds import Folding
from yarrow.container.codegen.user_functions import load_function, method_of
from yarrow.container.network.output_channel import OutputChannel
from yarrow.container.task.checkpointing.channel_origins import edge_type
from yarrow.container.task.task_environment import BatchBounds
from yarrow.runtime.config.options import execution, pipeline
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.job_graph import JobEdge, JobGraph
from yarrow.runtime.graph.operator_spec import StreamKind

if TYPE_CHECKING:
    from yarrow.container.batch.folding.combining_columns import CombiningColumns

#: The part of the memory for sorting that tables of a task which orders its input take, and those of columns.
_PART: Final = 4


def combining_partition(
    graph: JobGraph, edge: JobEdge, channels: Sequence[OutputChannel], bounds: BatchBounds, settings: Settings
) -> CombiningPartition | CombiningColumns:
    """The output for an edge that the plan combines, over the channels of all key groups."""
    outputs = len(graph.outputs_of(edge.source))
    sorting = settings.get(execution.SORT_MEMORY).bytes
    part = sorting // _PART // outputs
    if edge.stream_kind is StreamKind.COLUMNAR:
        from yarrow.container.batch.folding.combining_columns import CombiningColumns

        return CombiningColumns(graph, edge, channels, bounds, part)
    folding = _folding(graph, edge, object_reuse=settings.get(pipeline.OBJECT_REUSE))
    table = settings.get(execution.COMBINE_MEMORY).bytes // outputs
    if graph.inputs_of(edge.source):
        # The task holds rows that it orders, too.
        table = min(table, part)
    return CombiningPartition(edge, channels, bounds, folding, TableMemory(table, sorting // outputs))


def _folding(graph: JobGraph, edge: JobEdge, *, object_reuse: bool) -> Folding:
    head = graph.vertex(edge.target).head
    fold = head.spec.row_fold
    assert fold is not None, "the plan combines rolling aggregates"
    selector = edge.partitioner.key_selector
    assert selector is not None, "a keyed edge of rows has a key selector"
    function = None if fold.function is None else load_function(fold.function, head.name)
    return Folding(
        operator=head.name,
        key=method_of(load_function(selector, head.name), "get_key", head.name),
        reduce=None if function is None else method_of(function, "reduce", head.name),
        commutes=fold.commutes,
        kind=fold.kind,
        position=fold.position,
        row_type=edge_type(edge),
        object_reuse=object_reuse,
    )
