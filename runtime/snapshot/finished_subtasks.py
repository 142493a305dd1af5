"""Subtasks that had finished when a snapshot was taken: which are not run again, and where that would lose rows.

A subtask that is not run again reads nothing. So nobody may send it anything: in the program that wrote the snapshot
that is so, in a changed one, or at other parallelisms, it may be otherwise. Owner: none (pure).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from yarrow.runtime.common.ids import JobVertexID, OperatorID
from yarrow.runtime.graph.distribution import producers_of
from yarrow.runtime.graph.job_graph import JobGraph, JobVertex, OperatorDescriptor
from yarrow.runtime.snapshot.handles import OperatorState

#: A subtask of a vertex.
Subtask = tuple[JobVertexID, int]


def finished_subtasks(states: Mapping[OperatorID, OperatorState], job: JobGraph) -> frozenset[Subtask]:
    """Those that are not run again: all their operators had finished, and all who would send them rows.

    At another parallelism the subtasks of a vertex had finished together, or none of them had.
    """
    found = {(vertex.id, subtask) for vertex in job.vertices for subtask in _finished(vertex, states)}
    while fed := _fed(found, job):
        found -= fed
    return frozenset(found)


def _finished(vertex: JobVertex, states: Mapping[OperatorID, OperatorState]) -> Iterable[int]:
    known = [states.get(operator.id) for operator in vertex.operators]
    own = [state for state in known if state is not None]
    if len(own) < len(known):
        return ()
    if all(state.fully_finished for state in own):
        return range(vertex.parallelism)
    same = [state for state in own if state.parallelism == vertex.parallelism or state.fully_finished]
    if len(same) < len(own):
        return ()
    parts = [set(state.finished_subtasks) for state in own if not state.fully_finished]
    return set.intersection(*parts)


def _fed(found: set[Subtask], job: JobGraph) -> set[Subtask]:
    """Those of `found` to which somebody sends rows that is not in it."""
    fed: set[Subtask] = set()
    for edge in job.edges:
        source, target = job.vertex(edge.source), job.vertex(edge.target)
        running = {subtask for subtask in range(source.parallelism) if (source.id, subtask) not in found}
        if not running:
            continue
        for subtask in range(target.parallelism):
            if (target.id, subtask) in found:
                producers = producers_of(
                    edge.partitioner.kind, source.parallelism, target.parallelism, subtask
                )
                if not running.isdisjoint(producers):
                    fed.add((target.id, subtask))
    return fed


def lost_rows(states: Mapping[OperatorID, OperatorState], job: JobGraph) -> dict[JobVertexID, str]:
    """Vertices of which operators have wholly finished and others, or who feeds them, have not: why each is refused."""
    refused: dict[JobVertexID, str] = {}
    ended = {vertex.id: _ended(vertex, states) for vertex in job.vertices}
    for vertex in job.vertices:
        over = ended[vertex.id]
        if not over:
            continue
        chained = [operator for operator in vertex.operators if operator not in over]
        feeding = [
            job.vertex(edge.source).operators[edge.source_operator]
            for edge in job.edges
            if edge.target == vertex.id and len(ended[edge.source]) < len(job.vertex(edge.source).operators)
        ]
        name = over[0].name
        if chained:
            refused[vertex.id] = _reason(name, f"'{chained[0].name}', which is chained with it, had not")
        elif feeding:
            refused[vertex.id] = _reason(name, f"'{feeding[0].name}', which it reads, had not")
    return refused


def _ended(vertex: JobVertex, states: Mapping[OperatorID, OperatorState]) -> list[OperatorDescriptor]:
    """The operators of a vertex all of whose subtasks had finished."""
    return [
        operator
        for operator in vertex.operators
        if operator.id in states and states[operator.id].fully_finished
    ]


def _reason(operator: str, other: str) -> str:
    return (
        f"operator '{operator}' had finished when the snapshot was taken, and is not run again; {other}, and its rows "
        "would be lost. A job that has read all its input, or was drained (stop --drain), ends with that snapshot. "
        f"Restore from an earlier one, or give '{operator}' another uid, so that it begins anew, and drop its state "
        "(run -n, execution.state-recovery.ignore-unclaimed-state: true)."
    )
