"""The planner of batch jobs: a JobGraph becomes stages and exchanges. Pure.

Owner: any thread. Must not refuse programs: `batch_rules.check` comes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from yarrow.runtime.graph import batch_sql
from yarrow.runtime.graph.batch_plan import BatchExchange, BatchPlan, BatchStage, ExchangeKind
from yarrow.runtime.graph.job_graph import JobEdge, JobGraph
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


def plan(graph: JobGraph) -> BatchPlan:
    """The stages of a bounded job, upstream first."""
    exchanges = [_exchange(graph, edge) for edge in graph.edges]
    decisions = batch_sql.decisions(graph)
    return BatchPlan(
        stages=tuple(
            BatchStage(
                vertex_id=vertex.id,
                name=vertex.name,
                parallelism=vertex.parallelism,
                max_parallelism=vertex.max_parallelism,
                inputs=tuple(exchange for exchange in exchanges if exchange.target == vertex.id),
                outputs=tuple(exchange for exchange in exchanges if exchange.source == vertex.id),
                is_source=vertex.is_source,
                sql=None if isinstance(found := decisions.get(vertex.id), str) else found,
                no_sql=found if isinstance(found, str) else "",
            )
            for vertex in graph.vertices
        )
    )


def _exchange(graph: JobGraph, edge: JobEdge) -> BatchExchange:
    kind = _KINDS[edge.partitioner.kind]
    if edge.partitioner.kind.is_pointwise:
        producers, consumers = graph.vertex(edge.source).parallelism, graph.vertex(edge.target).parallelism
        # Both pointwise partitioners connect subtask i with subtask i where the stages are equally wide.
        kind = ExchangeKind.FORWARD if producers == consumers else ExchangeKind.REBALANCE
    return BatchExchange(
        edge=edge.index,
        source=edge.source,
        target=edge.target,
        target_input=edge.target_input,
        kind=kind,
    )
