"""FinishedSubtasks: subtasks that had finished at a snapshot: which are not run again, and where that would lose rows.

A subtask that is not run again reads nothing, so nobody may send it rows. That holds in the program that
wrote the snapshot. It may fail in a changed program, or at other parallelisms. Owner: none (pure).
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
    """The subtasks that are not run again: all their operators and all their producers had finished.

    At another parallelism, all subtasks of a vertex must have finished, or none counts as finished.
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
    """The subtasks of `found` with a producer outside of it."""
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
    """Refused vertices with reasons: some operators have wholly finished, but others or the producers have not."""
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
    """The operators of a vertex whose subtasks had all finished."""
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
