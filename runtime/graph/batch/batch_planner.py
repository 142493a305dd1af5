"""The planner of batch jobs: a JobGraph becomes stages and exchanges. Pure.

Owner: any thread. The producers of a keyed exchange fold rows by key where the results of the rolling aggregate behind
it cannot show that. Must not look into user code, nor refuse programs: `batch_rules.check` comes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Final

from yarrow.common.values.error_handling import ErrorPolicy
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.config.options import execution
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.batch import batch_sql
from yarrow.runtime.graph.batch.batch_iterations import iterations_of
from yarrow.runtime.graph.batch.batch_plan import (
    BatchExchange,
    BatchPlan,
    BatchStage,
    Combining,
    ExchangeKind,
    InputOrder,
    SqlAggregation,
)
from yarrow.runtime.graph.batch.history import history_of
from yarrow.runtime.graph.job_graph import JobEdge, JobGraph, JobVertex
from yarrow.runtime.graph.operator_spec import (
    AggregateKind,
    PartitionerKind,
    RollingFold,
)

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
#: Aggregates of rows that can be folded; the others are no aggregates of rows.
_FOLDED: Final = frozenset(
    (AggregateKind.SUM, AggregateKind.MIN, AggregateKind.MAX, AggregateKind.MIN_BY, AggregateKind.MAX_BY)
)


def plan(
    graph: JobGraph, *, combine: bool | None = None, in_python: Mapping[JobVertexID, str] | None = None
) -> BatchPlan:
    """The stages of a bounded job, upstream first.

    `combine`: rows may be folded before they are sent; None = what the job's configuration says of it. `in_python`:
    sources that Spark SQL cannot read exactly, and why; their files were looked at.
    """
    if combine is None:
        combine = Settings(graph.configuration, "the job").get(execution.BATCH_COMBINE)
    history = history_of(graph)
    if history is not None:
        # Each row of a rolling aggregate leaves, as in the stream, and its state is the operator's own.
        combine = False
    decisions: Mapping[JobVertexID, SqlAggregation | str]
    decisions = {} if history is not None else {**batch_sql.decisions(graph), **(in_python or {})}
    iterations = iterations_of(graph)
    is_line = not iterations and _is_line(graph)
    exchanges = [
        _by_sql(graph, edge, is_line=is_line)
        if isinstance(decisions.get(edge.source), SqlAggregation)
        else _exchange(edge, _kind(graph, edge), *_combining(graph, edge, combine=combine))
        for edge in graph.edges
    ]
    return BatchPlan(
        stages=tuple(_stage(vertex, exchanges, decisions.get(vertex.id)) for vertex in graph.vertices),
        iterations=iterations,
        history=history,
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
        scan_note=vertex.head.spec.scan_note,
    )


def _order(vertex: JobVertex, kinds: Set[ExchangeKind]) -> InputOrder:
    if vertex.head.spec.takes_inputs_in_turn:
        return InputOrder.BY_INPUT
    if ExchangeKind.KEYED in kinds:
        return InputOrder.BY_TIME if vertex.head.spec.is_rolling else InputOrder.BY_KEY
    return InputOrder.AS_READ if kinds <= {ExchangeKind.FORWARD} else InputOrder.BY_PLACE


def _is_line(graph: JobGraph) -> bool:
    """Whether rows of two stages never meet: there is one source, and each stage reads one and is read by one."""
    edges = len(graph.edges)
    are_single = (
        len({edge.source for edge in graph.edges}) == len({edge.target for edge in graph.edges}) == edges
    )
    return are_single and edges == len(graph.vertices) - 1


def _by_sql(graph: JobGraph, edge: JobEdge, *, is_line: bool) -> BatchExchange:
    """The exchange behind aggregates of Spark SQL. One row of each key is left, and no state waits for the key.

    So rows stay where Spark has computed them. In a plan that is no line Spark numbers its partitions anew, and a task
    without rows would not know its own number.
    """
    kind = _kind(graph, edge)
    if is_line and edge.partitioner.function is None and _are_equally_wide(graph, edge):
        kind = ExchangeKind.FORWARD
    return _exchange(edge, kind, None, "Spark SQL has aggregated the rows")


def _kind(graph: JobGraph, edge: JobEdge) -> ExchangeKind:
    if edge.partitioner.kind.is_pointwise:
        # Both pointwise partitioners connect subtask i with subtask i where the stages are equally wide.
        return ExchangeKind.FORWARD if _are_equally_wide(graph, edge) else ExchangeKind.REBALANCE
    return _KINDS[edge.partitioner.kind]


def _are_equally_wide(graph: JobGraph, edge: JobEdge) -> bool:
    return graph.vertex(edge.source).parallelism == graph.vertex(edge.target).parallelism


def _exchange(edge: JobEdge, kind: ExchangeKind, combining: Combining | None, note: str) -> BatchExchange:
    return BatchExchange(
        edge=edge.index,
        source=edge.source,
        target=edge.target,
        target_input=edge.target_input,
        kind=kind,
        combining=combining,
        combining_note=note,
    )


def _combining(graph: JobGraph, edge: JobEdge, *, combine: bool) -> tuple[Combining | None, str]:
    """Which rows of an edge are folded, and why; the reason is "" where the edge is not keyed.

    `combine`: the option that allows it.
    """
    if edge.partitioner.kind is not PartitionerKind.KEY_GROUP:
        return None, ""
    head = graph.vertex(edge.target).head
    rows, columns = head.spec.row_fold, head.spec.keyed_aggregates
    if rows is None and columns is None:
        return None, f"'{head.name}' is no rolling aggregate: it takes each row"
    if edge.partitioner.function is not None:
        return None, "a partitioner of the program sends each row"
    if not combine:
        return None, f"{execution.BATCH_COMBINE.key} is false"
    if head.errors.policy is not ErrorPolicy.FAIL:
        return None, f"on_error of '{head.name}' leaves out single rows"
    if columns is not None:
        return Combining.ALL, ", ".join(dict.fromkeys(each.kind.value for each in columns.aggregates))
    assert rows is not None, "the operator folds rows or columns"
    if rows.kind is None:
        return _of_reduce(rows)
    if rows.kind not in _FOLDED:
        return None, f"{rows.kind.value} is no aggregate of rows"
    return Combining.ALL, rows.kind.value


def _of_reduce(fold: RollingFold) -> tuple[Combining | None, str]:
    if fold.is_rich:
        return None, "the function of reduce has an open(): it may keep state or count its calls"
    if fold.commutes:
        return Combining.ALL, "reduce, whose function commutes"
    return (
        Combining.UNTIMED,
        "reduce: rows with a time come in its order; reduce(function, commutes=True) says that no order shows",
    )
