"""The planner of batch jobs: a JobGraph becomes stages and exchanges. Pure.

Owner: any thread. Must not refuse programs: `batch_rules.check` comes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Final

from yarrow.runtime.graph import batch_sql
from yarrow.runtime.graph.batch_plan import (
    BatchExchange,
    BatchPlan,
    BatchStage,
    ExchangeKind,
    InputOrder,
    SqlAggregation,
)
from yarrow.runtime.graph.combining import combining_of
from yarrow.runtime.graph.job_graph import JobEdge, JobGraph, JobVertex
from yarrow.runtime.graph.operator_spec import PartitionerKind

_KINDS: Final[Mapping[PartitionerKind, ExchangeKind]] = {
    PartitionerKind.FORWARD: ExchangeKind.FORWARD,
    PartitionerKind.SHUFFLE: ExchangeKind.REBALANCE,
    PartitionerKind.REBALANCE: ExchangeKind.REBALANCE,
    PartitionerKind.RESCALE: ExchangeKind.REBALANCE,
    PartitionerKind.CUSTOM: ExchangeKind.REBALANCE,
    PartitionerKind.BROADCAST: ExchangeKind.BROADCAST,
    PartitionerKind.GLOBAL: ExchangeKind.GLOBAL,
    PartitionerKind.KEY_GROUP: ExchangeKind.KEYED,
}


def plan(graph: JobGraph, *, combine: bool = True) -> BatchPlan:
    """The stages of a bounded job, upstream first.

    `combine`: rows may be folded before they are sent (`execution.batch.combine`).
    """
    decisions = batch_sql.decisions(graph)
    exchanges = [
        _exchange(graph, edge, combine=combine, by_sql=isinstance(decisions.get(edge.source), SqlAggregation))
        for edge in graph.edges
    ]
    return BatchPlan(
        stages=tuple(_stage(vertex, exchanges, decisions.get(vertex.id)) for vertex in graph.vertices)
    )


def _stage(
    vertex: JobVertex, exchanges: Sequence[BatchExchange], decision: SqlAggregation | str | None
) -> BatchStage:
    inputs = tuple(exchange for exchange in exchanges if exchange.target == vertex.id)
    return BatchStage(
        vertex_id=vertex.id,
        name=vertex.name,
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        inputs=inputs,
        outputs=tuple(exchange for exchange in exchanges if exchange.source == vertex.id),
        is_source=vertex.is_source,
        order=_order(vertex, {exchange.kind for exchange in inputs}),
        sql=None if isinstance(decision, str) else decision,
        no_sql=decision if isinstance(decision, str) else "",
    )


def _order(vertex: JobVertex, kinds: Set[ExchangeKind]) -> InputOrder:
    if ExchangeKind.KEYED in kinds:
        return InputOrder.BY_TIME if vertex.head.spec.is_rolling else InputOrder.BY_KEY
    return InputOrder.AS_READ if kinds <= {ExchangeKind.FORWARD} else InputOrder.BY_PLACE


def _exchange(graph: JobGraph, edge: JobEdge, *, combine: bool, by_sql: bool) -> BatchExchange:
    kind = _KINDS[edge.partitioner.kind]
    if edge.partitioner.kind.is_pointwise:
        producers, consumers = graph.vertex(edge.source).parallelism, graph.vertex(edge.target).parallelism
        # Both pointwise partitioners connect subtask i with subtask i where the stages are equally wide.
        kind = ExchangeKind.FORWARD if producers == consumers else ExchangeKind.REBALANCE
    combining, note = (
        (None, "Spark SQL has aggregated the rows") if by_sql else combining_of(graph, edge, combine=combine)
    )
    return BatchExchange(
        edge=edge.index,
        source=edge.source,
        target=edge.target,
        target_input=edge.target_input,
        kind=kind,
        combining=combining,
        combining_note=note,
    )
