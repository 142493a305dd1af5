"""CheckpointPlan: which tasks begin a checkpoint, which must acknowledge it, and which have ended already.

Owner: the JobMaster's loop. Pure; computed from the ExecutionGraph for every checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Protocol

import msgspec

from yarrow.am.execution.execution_graph import Execution, ExecutionGraph, ExecutionJobVertex
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.ids import ExecutionAttemptID, JobVertexID, OperatorID
from yarrow.runtime.graph.distribution import producers_of
from yarrow.runtime.graph.job_graph import JobEdge, JobGraph
from yarrow.runtime.graph.states import ExecutionState

#: Why there is no checkpoint if the user wants none with ended tasks.
FINISHED_TASKS = "some tasks have finished (execution.checkpointing.checkpoints-after-tasks-finish is false)"


class CheckpointPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The participants of one checkpoint."""

    #: Tasks that get the trigger: sources, and tasks all of whose producers have ended.
    trigger: tuple[ExecutionAttemptID, ...]
    #: Vertex and subtask of every task that must acknowledge.
    acknowledge: dict[ExecutionAttemptID, tuple[JobVertexID, int]]
    #: Split enumerators, by the operator of their source.
    coordinators: tuple[OperatorID, ...] = ()
    #: Subtasks that ended before the checkpoint, or before their barrier came.
    finished: dict[JobVertexID, tuple[int, ...]] = msgspec.field(default_factory=dict)

    def without(self, ended: Collection[ExecutionAttemptID]) -> CheckpointPlan:
        """The plan after the end of these tasks, before whose cut no barrier came."""
        finished = dict(self.finished)
        for attempt_id in ended:
            vertex_id, subtask = self.acknowledge[attempt_id]
            finished[vertex_id] = tuple(sorted((*finished.get(vertex_id, ()), subtask)))
        return msgspec.structs.replace(
            self,
            trigger=tuple(attempt_id for attempt_id in self.trigger if attempt_id not in ended),
            acknowledge={
                attempt_id: place for attempt_id, place in self.acknowledge.items() if attempt_id not in ended
            },
            finished=finished,
        )

    def triggering(self, attempts: tuple[ExecutionAttemptID, ...]) -> CheckpointPlan:
        """The plan in which these tasks get the trigger, too."""
        return msgspec.structs.replace(self, trigger=(*self.trigger, *attempts))


class Participants(Protocol):
    """The tasks of a job, as far as its coordinator needs to know them."""

    @property
    def job(self) -> JobGraph:
        """The present job; a rescale changes its parallelisms."""
        ...

    def problem(self) -> str:
        """Why no checkpoint is possible now, "" = one is. Cheap, because each event asks."""
        ...

    def all_await_end(self) -> frozenset[ExecutionAttemptID]:
        """All running tasks, if each is at the end of its input and waits for a checkpoint; else empty."""
        ...

    def plan(self) -> CheckpointPlan:
        """The participants of a checkpoint that begins now. Call it only if there is no problem."""
        ...

    def cut_off(
        self, attempts: Collection[ExecutionAttemptID], plan: CheckpointPlan
    ) -> list[ExecutionAttemptID]:
        """The tasks among these to which no barrier comes any more: their producers take no part in the plan.

        It also names tasks at the end of their input, because a trigger that comes twice changes nothing.
        """
        ...


class GraphParticipants:
    """The participants according to an ExecutionGraph."""

    def __init__(self, graph: ExecutionGraph, after_tasks_finish: bool) -> None:
        self._graph = graph
        self._after_tasks_finish = after_tasks_finish

    @property
    def job(self) -> JobGraph:
        return self._graph.job

    def problem(self) -> str:
        graph = self._graph
        if graph.status is not JobStatus.RUNNING:
            return f"the job is {graph.status.value}"
        if graph.is_ending:
            return "all tasks of the job are ending"
        running = finished = 0
        for vertex in graph.vertices.values():
            counts = vertex.counts
            running += counts[ExecutionState.RUNNING]
            finished += counts[ExecutionState.FINISHED]
            if counts[ExecutionState.RUNNING] + counts[ExecutionState.FINISHED] < vertex.vertex.parallelism:
                return _not_running(vertex)
        if not running:
            return "all tasks have finished"
        if finished and not self._after_tasks_finish:
            return FINISHED_TASKS
        return ""

    def all_await_end(self) -> frozenset[ExecutionAttemptID]:
        found = []
        for execution in self._graph.executions():
            if execution.state is ExecutionState.FINISHED:
                continue
            if not execution.awaits_final_checkpoint:
                return frozenset()
            found.append(execution.attempt_id)
        return frozenset(found)

    def plan(self) -> CheckpointPlan:
        graph = self._graph
        finished = {
            vertex_id: tuple(
                execution.subtask
                for execution in vertex.executions
                if execution.state is ExecutionState.FINISHED
            )
            for vertex_id, vertex in graph.vertices.items()
            if vertex.counts[ExecutionState.FINISHED]
        }
        running = [execution for execution in graph.executions() if execution.state is ExecutionState.RUNNING]
        return CheckpointPlan(
            trigger=tuple(execution.attempt_id for execution in _without_running_producers(graph, running)),
            acknowledge={
                execution.attempt_id: (execution.vertex.id, execution.subtask) for execution in running
            },
            coordinators=tuple(
                vertex.head.id
                for vertex in graph.job.vertices
                # The enumerator ends with subtask 0, which waits until no reader needs it any more.
                if vertex.has_enumerator and 0 not in finished.get(vertex.id, ())
            ),
            finished=finished,
        )

    def cut_off(
        self, attempts: Collection[ExecutionAttemptID], plan: CheckpointPlan
    ) -> list[ExecutionAttemptID]:
        graph = self._graph
        inputs = _inputs(graph)
        found = []
        for attempt_id in attempts:
            execution = graph.execution(attempt_id)
            if execution is None:
                continue
            edges = inputs.get(execution.vertex.id, ())
            if execution.awaits_final_checkpoint or not any(
                producer.attempt_id in plan.acknowledge
                for edge in edges
                for producer in _producers(graph, edge, execution.subtask)
            ):
                found.append(attempt_id)
        return found


def _not_running(vertex: ExecutionJobVertex) -> str:
    fine = (ExecutionState.RUNNING, ExecutionState.FINISHED)
    waiting = next(execution for execution in vertex.executions if execution.state not in fine)
    return f"{waiting.title} is {waiting.state.value}, not RUNNING"


def _inputs(graph: ExecutionGraph) -> dict[JobVertexID, list[JobEdge]]:
    inputs: dict[JobVertexID, list[JobEdge]] = {}
    for edge in graph.job.edges:
        inputs.setdefault(edge.target, []).append(edge)
    return inputs


def _without_running_producers(graph: ExecutionGraph, running: list[Execution]) -> Iterator[Execution]:
    inputs = _inputs(graph)
    for execution in running:
        edges = inputs.get(execution.vertex.id, ())
        if execution.awaits_final_checkpoint or not any(
            _has_running_producer(graph, edge, execution.subtask) for edge in edges
        ):
            yield execution


def _has_running_producer(graph: ExecutionGraph, edge: JobEdge, consumer: int) -> bool:
    if graph.vertices[edge.source].counts[ExecutionState.RUNNING] == 0:
        return False
    # In most jobs the first producer answers, because none has finished.
    return any(_sends_barriers(producer) for producer in _producers(graph, edge, consumer))


def _producers(graph: ExecutionGraph, edge: JobEdge, consumer: int) -> Iterator[Execution]:
    """The tasks that send to a subtask over an edge."""
    source = graph.vertices[edge.source]
    for producer in producers_of(
        edge.partitioner.kind,
        source.vertex.parallelism,
        graph.vertices[edge.target].vertex.parallelism,
        consumer,
    ):
        yield source.executions[producer]


def _sends_barriers(execution: Execution) -> bool:
    """False for a task at the end of its input: it has told its consumers so, and sends no barrier any more."""
    return execution.state is ExecutionState.RUNNING and not execution.awaits_final_checkpoint
