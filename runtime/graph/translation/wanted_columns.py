"""What the operators behind a source of columns need of its rows: filters and selections reach into the scan. Pure.

Owner: the thread that builds the program. The operators stay where they are, so a reader that leaves nothing out gives
the same results. Watermarks and timestamps of a source come from all its rows, so a source that makes them is left as
it is. Must not look into files or user code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from yarrow.common.values.conditions import AllOf, AnyCondition, WantedColumns, comparisons_of, expressions_of
from yarrow.runtime.graph.job_graph import JobEdge, JobVertex, OperatorDescriptor


def with_wanted_columns(vertex: JobVertex, edges: tuple[JobEdge, ...]) -> JobVertex:
    """The vertex, whose source knows what is wanted of its rows; `edges` are those of the whole job."""
    spec = vertex.head.spec
    if not spec.is_source:
        return vertex
    outputs = [edge for edge in edges if edge.source == vertex.id]
    wanted = _wanted(_only_readers(vertex, outputs))
    if not wanted:
        return vertex
    head = msgspec.structs.replace(vertex.head, spec=spec.narrowed(wanted))
    return msgspec.structs.replace(vertex, operators=(head, *vertex.operators[1:]))


def _only_readers(vertex: JobVertex, outputs: Sequence[JobEdge]) -> Iterator[OperatorDescriptor]:
    """The operators of a chain behind its head, as long as each alone reads the rows of the one before it."""
    position = 0
    while True:
        calls = [call for call in vertex.chained_edges if call.source == position]
        leaves = any(edge.source_operator == position for edge in outputs)
        if leaves or len(calls) != 1 or calls[0].side_output is not None:
            return
        position = calls[0].target
        yield vertex.operators[position]


def _wanted(readers: Iterator[OperatorDescriptor]) -> WantedColumns:
    """What the built-in filters and selections at the beginning of these operators leave of the rows."""
    conditions: list[AnyCondition] = []
    columns: tuple[str, ...] | None = None
    for operator in readers:
        condition, selected = operator.spec.condition, operator.spec.selected_columns
        if condition is not None and not list(expressions_of(condition)):
            conditions.append(condition)
        elif selected is None:
            # Other operators, and Arrow expressions, may read any column.
            break
        elif columns is None:
            compared = (part.column for each in conditions for part in comparisons_of(each))
            columns = tuple(dict.fromkeys((*selected, *compared)))
    every = AllOf(tuple(conditions)) if len(conditions) > 1 else next(iter(conditions), None)
    return WantedColumns(columns, every)
