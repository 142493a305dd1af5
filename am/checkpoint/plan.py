"""CheckpointPlan: which tasks begin a checkpoint, which are waited for and which have ended already.

Owner: the JobMaster's loop. Pure; computed anew for every checkpoint from the ExecutionGraph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from yarrow.am.jobmaster.execution_graph import Execution, ExecutionGraph
from yarrow.runtime.common.ids import ExecutionAttemptID, JobVertexID, OperatorID
from yarrow.runtime.graph.distribution import producers_of
from yarrow.runtime.graph.job_graph import JobEdge, JobVertex
from yarrow.runtime.graph.operator_spec import SourceOperator
from yarrow.runtime.graph.states import ExecutionState, JobStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPlan:
    """Who takes part in one checkpoint."""

    #: Tasks that get the trigger: sources, and tasks all of whose producers have ended.
    trigger: tuple[ExecutionAttemptID, ...]
    #: Vertex and subtask of every task whose part is waited for.
    acknowledge: dict[ExecutionAttemptID, tuple[JobVertexID, int]]
    #: Split enumerators, by the operator of their source.
    coordinators: tuple[OperatorID, ...] = ()
    #: Subtasks that had ended before.
    finished: dict[JobVertexID, tuple[int, ...]] = field(default_factory=dict)


def checkpoint_plan(graph: ExecutionGraph, after_tasks_finish: bool) -> CheckpointPlan | str:
    """The plan for now, or why there can be no checkpoint."""
    if graph.status is not JobStatus.RUNNING:
        return f"the job is {graph.status.value}"
    finished: dict[JobVertexID, tuple[int, ...]] = {}
    for vertex_id, vertex in graph.vertices.items():
        for execution in vertex.executions:
            if execution.state not in (ExecutionState.RUNNING, ExecutionState.FINISHED):
                return f"{execution.title} is {execution.state.value}, not RUNNING"
        if vertex.counts[ExecutionState.FINISHED]:
            finished[vertex_id] = tuple(
                execution.subtask
                for execution in vertex.executions
                if execution.state is ExecutionState.FINISHED
            )
    running = [
        execution for execution in graph.executions() if execution.state is ExecutionState.RUNNING
    ]
    if not running:
        return "all tasks have finished"
    if finished and not after_tasks_finish:
        return (
            "some tasks have finished (execution.checkpointing.checkpoints-after-tasks-finish is false)"
        )
    return CheckpointPlan(
        trigger=tuple(execution.attempt_id for execution in _without_running_producers(graph, running)),
        acknowledge={
            execution.attempt_id: (execution.vertex.id, execution.subtask) for execution in running
        },
        coordinators=tuple(
            operator_id
            for vertex in graph.job.vertices
            if len(finished.get(vertex.id, ())) < vertex.parallelism
            for operator_id in enumerator_of(vertex)
        ),
        finished=finished,
    )


def enumerator_of(vertex: JobVertex) -> tuple[OperatorID, ...]:
    """The operator whose split enumerator lives with subtask 0 of the vertex; empty where there is none."""
    head = vertex.operators[0]
    return (head.id,) if isinstance(head.spec, SourceOperator) else ()


def _without_running_producers(graph: ExecutionGraph, running: list[Execution]) -> Iterator[Execution]:
    inputs: dict[JobVertexID, list[JobEdge]] = {}
    for edge in graph.job.edges:
        inputs.setdefault(edge.target, []).append(edge)
    for execution in running:
        edges = inputs.get(execution.vertex.id, ())
        if not any(_has_running_producer(graph, edge, execution.subtask) for edge in edges):
            yield execution


def _has_running_producer(graph: ExecutionGraph, edge: JobEdge, consumer: int) -> bool:
    source = graph.vertices[edge.source]
    alive = source.counts[ExecutionState.RUNNING]
    if alive in (0, source.vertex.parallelism):
        return alive > 0
    producers = producers_of(
        edge.partitioner.kind,
        source.vertex.parallelism,
        graph.vertices[edge.target].vertex.parallelism,
        consumer,
    )
    return any(source.executions[producer].state is ExecutionState.RUNNING for producer in producers)
