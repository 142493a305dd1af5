"""Combining: whether the producers of a keyed exchange fold rows by key before they send them. Pure.

Owner: any thread. Rows are folded only where the results of the rolling aggregate behind the exchange cannot show it.
Must not look into user code.
"""

from __future__ import annotations

from typing import Final

from yarrow.runtime.config.options import execution
from yarrow.runtime.graph.batch_plan import Combining
from yarrow.runtime.graph.job_graph import JobEdge, JobGraph
from yarrow.runtime.graph.operator_spec import (
    AggregateKind,
    AggregateOperator,
    ArrowAggregateOperator,
    PartitionerKind,
    ReduceOperator,
)

#: Aggregates of rows that can be folded; the others are no aggregates of rows.
_FOLDED: Final = frozenset(
    (AggregateKind.SUM, AggregateKind.MIN, AggregateKind.MAX, AggregateKind.MIN_BY, AggregateKind.MAX_BY)
)


def combining_of(graph: JobGraph, edge: JobEdge, *, combine: bool = True) -> tuple[Combining | None, str]:
    """Which rows of an edge are folded, and why; the reason is "" where the edge is not keyed.

    `combine`: the option that allows it.
    """
    if edge.partitioner.kind is not PartitionerKind.KEY_GROUP:
        return None, ""
    head = graph.vertex(edge.target).head
    spec = head.spec
    if not isinstance(spec, ReduceOperator | AggregateOperator | ArrowAggregateOperator):
        return None, f"'{head.name}' is no rolling aggregate: it takes each row"
    if not combine:
        return None, f"{execution.BATCH_COMBINE.key} is false"
    if isinstance(spec, ReduceOperator):
        return _of_reduce(spec)
    if isinstance(spec, ArrowAggregateOperator):
        return Combining.ALL, ", ".join(dict.fromkeys(each.kind.value for each in spec.aggregates))
    if spec.kind not in _FOLDED:
        return None, f"{spec.kind.value} is no aggregate of rows"
    return Combining.ALL, spec.kind.value


def _of_reduce(spec: ReduceOperator) -> tuple[Combining | None, str]:
    if spec.is_rich:
        return None, "the function of reduce has an open(): it may keep state or count its calls"
    if spec.commutes:
        return Combining.ALL, "reduce, whose function commutes"
    return (
        Combining.UNTIMED,
        "reduce: rows with a time come in its order; reduce(function, commutes=True) says that no order shows",
    )
