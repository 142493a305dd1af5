"""A JobMaster for tests of workers: triggers checkpoints, keeps what is acknowledged, deploys again from it.

Decides nothing by itself: a test says when a checkpoint begins and what becomes of it. Owner: the calling thread; see
WorkerHarness for how messages come in.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.support.worker_harness import DEADLINE, WorkerHarness
from yarrow.container.protocol.worker_protocol import (
    BeginCheckpoint,
    CheckpointAcknowledged,
    CheckpointDeclined,
    CheckpointNotification,
    CoordinatorAcknowledged,
    EndOfDataReached,
    MessageFromWorker,
    ResetReader,
    SubmitTasks,
    TaskStateChanged,
)
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.common.ids import AllocationID, ExecutionAttemptID, JobMasterID, JobVertexID, OperatorID
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointOptions, SnapshotKind
from yarrow.runtime.graph.connector_spec import SourceOperator
from yarrow.runtime.graph.job_graph import JobGraph, encode_job_graph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import (
    AcknowledgeCheckpoint,
    CheckpointNotice,
    DeclineCheckpoint,
    Deployment,
    FailureCause,
    NotifyCheckpoint,
    ResetSubtask,
    TaskDeploymentDescriptor,
    TriggerCheckpoint,
    VertexPlacement,
)
from yarrow.runtime.snapshot.assignment import Assignment, assign
from yarrow.runtime.snapshot.handles import (
    CheckpointMetadata,
    OperatorState,
    OperatorSubtaskState,
    StateHandle,
)

Subtask = tuple[JobVertexID, int]


@dataclass
class TakenCheckpoint:
    """What came of a trigger."""

    checkpoint_id: int
    directory: str
    graph: JobGraph
    acknowledged: dict[Subtask, AcknowledgeCheckpoint] = field(default_factory=dict)
    coordinators: dict[OperatorID, StateHandle] = field(default_factory=dict)
    declined: list[DeclineCheckpoint] = field(default_factory=list)
    #: Subtasks that had ended when it began.
    finished: set[Subtask] = field(default_factory=set)

    def metadata(self) -> CheckpointMetadata:
        """As the JobMaster would write it."""
        return CheckpointMetadata(
            engine_version="test",
            job_id=self.graph.job_id,
            job_name=self.graph.name,
            checkpoint_id=self.checkpoint_id,
            timestamp_ms=0,
            kind=SnapshotKind.CHECKPOINT,
            operators=tuple(
                OperatorState(
                    operator_id=operator.id,
                    name=operator.name,
                    uid=operator.uid,
                    parallelism=vertex.parallelism,
                    max_parallelism=vertex.max_parallelism,
                    subtasks=self._states(vertex.id, operator.id),
                    coordinator=self.coordinators.get(operator.id),
                    finished_subtasks=tuple(
                        sorted(subtask for found, subtask in self.finished if found == vertex.id)
                    ),
                )
                for vertex in self.graph.vertices
                for operator in vertex.operators
            ),
        )

    def ended_at_their_cut(self) -> set[Subtask]:
        """Those whose operators had finished when they cut: the JobMaster counts them as finished."""
        return {place for place, part in self.acknowledged.items() if part.finished}

    def _states(self, vertex: JobVertexID, operator: OperatorID) -> dict[int, OperatorSubtaskState]:
        return {
            subtask: acknowledgement.states[operator]
            for (found, subtask), acknowledgement in self.acknowledged.items()
            if found == vertex and operator in acknowledgement.states
        }


class CheckpointHarness(WorkerHarness):
    """Workers with the checkpoints of one job at a time."""

    def __init__(
        self,
        workers: int = 1,
        *,
        processes: bool = False,
        configuration: dict[str, str] | None = None,
        tcp: bool = False,
    ) -> None:
        super().__init__(workers, processes=processes, configuration=configuration, tcp=tcp)
        self._storage = tempfile.TemporaryDirectory(prefix="yarrow-checkpoints-")
        self.states: dict[Subtask, ExecutionState] = {}
        self.causes: dict[Subtask, FailureCause] = {}
        self.ended_with_threads: list[str] = []
        #: By ended subtask: the latest checkpoint that it has cut or declined.
        self.latest_checkpoints: dict[Subtask, int] = {}
        self.at_end_of_data: set[Subtask] = set()
        self.checkpoints: dict[int, TakenCheckpoint] = {}
        self._attempts: dict[ExecutionAttemptID, Subtask] = {}
        self._worker_of: dict[Subtask, int] = {}
        self._attempt_number = -1

    def close(self) -> None:
        """Removes what checkpoints have written."""
        self._storage.cleanup()

    # ------------------------------------------------------------------ deployment

    def start(self, graph: JobGraph, restored: TakenCheckpoint | None = None) -> None:
        """Deploys all tasks as a new attempt, from a checkpoint where one is given."""
        self._attempt_number += 1
        self._graph = graph
        self._job_id = graph.job_id
        self.states.clear()
        self.causes.clear()
        self.at_end_of_data.clear()
        self._attempts.clear()
        count = len(self.addresses)
        self._placements = tuple(
            VertexPlacement(
                vertex_id=vertex.id,
                graph_id=graph.job_id,
                workers=tuple(i % count for i in range(vertex.parallelism)),
                attempts=(self._attempt_number,) * vertex.parallelism,
            )
            for vertex in graph.vertices
        )
        self._submit(restored, lambda subtask: True)

    def restart_subtasks(self, subtasks: Iterable[Subtask], restored: TakenCheckpoint | None) -> None:
        """Deploys some tasks anew, as region failover does; the others go on."""
        wanted = set(subtasks)
        self._attempt_number += 1
        number = self._attempt_number
        self._placements = tuple(
            VertexPlacement(
                vertex_id=placement.vertex_id,
                graph_id=placement.graph_id,
                workers=placement.workers,
                attempts=tuple(
                    number if (placement.vertex_id, index) in wanted else attempt
                    for index, attempt in enumerate(placement.attempts)
                ),
            )
            for placement in self._placements
        )
        self._submit(restored, wanted.__contains__)

    def _submit(self, restored: TakenCheckpoint | None, wanted: Callable[[Subtask], bool]) -> None:
        graph = self._graph
        assignment = (
            Assignment({}, {}, frozenset()) if restored is None else assign(restored.metadata(), graph)
        )
        tasks: dict[int, list[TaskDeploymentDescriptor]] = {i: [] for i in range(len(self.addresses))}
        for placement in self._placements:
            head = graph.vertex(placement.vertex_id).operators[0].id
            for number, subtask in enumerate(placement.subtasks):
                place = (placement.vertex_id, number)
                if not wanted(place):
                    continue
                self._attempts[subtask.attempt_id] = place
                self._worker_of[place] = subtask.worker
                self.states[place] = ExecutionState.DEPLOYING
                tasks[subtask.worker].append(
                    TaskDeploymentDescriptor(
                        attempt_id=subtask.attempt_id,
                        vertex_id=placement.vertex_id,
                        subtask=number,
                        attempt_number=placement.attempts[number],
                        allocation_id=AllocationID(f"{subtask.worker:032x}"),
                        restore=dict(assignment.tasks.get(place, {})),
                        restore_coordinator=assignment.coordinators.get(head) if number == 0 else None,
                        restored_checkpoint_id=-1 if restored is None else restored.checkpoint_id,
                        restore_directory="" if restored is None else restored.directory,
                        finished_before=place in assignment.finished,
                    )
                )
        for index, descriptors in tasks.items():
            if descriptors:
                self._sockets[index].send(
                    SubmitTasks(
                        deployment=Deployment(
                            job_id=graph.job_id,
                            job_master_id=JobMasterID("0" * 32),
                            job_graph=encode_job_graph(graph),
                            workers=tuple(self.addresses),
                            placements=self._placements,
                            tasks=tuple(descriptors),
                        )
                    )
                )

    def attempt(self, place: Subtask) -> ExecutionAttemptID:
        """The present attempt of a subtask."""
        placement = next(p for p in self._placements if p.vertex_id == place[0])
        return placement.subtasks[place[1]].attempt_id

    # ------------------------------------------------------------------ checkpoints

    def options(self, checkpoint_id: int, **changes: object) -> CheckpointOptions:
        """A checkpoint with a folder of its own and nothing inline but the smallest."""
        directory = os.path.join(self._storage.name, f"chk-{checkpoint_id}")
        os.makedirs(directory, exist_ok=True)
        location = CheckpointLocation(directory=directory, inline_threshold=0)
        settings: dict[str, object] = {"kind": SnapshotKind.CHECKPOINT, "location": location, **changes}
        return CheckpointOptions(**settings)  # type: ignore[arg-type]

    def trigger(self, checkpoint_id: int, options: CheckpointOptions | None = None) -> TakenCheckpoint:
        """Both phases: coordinators, and when these have answered the sources and the tasks behind ended ones."""
        options = options or self.options(checkpoint_id)
        taken = TakenCheckpoint(checkpoint_id, options.location.directory, self._graph)
        taken.finished = {place for place, state in self.states.items() if state is ExecutionState.FINISHED}
        self.checkpoints[checkpoint_id] = taken
        coordinators = {
            vertex.operators[0].id: (vertex.id, 0)
            for vertex in self._graph.vertices
            if isinstance(vertex.operators[0].spec, SourceOperator)
            and self.states[vertex.id, 0] is ExecutionState.RUNNING
        }
        for operator_id, place in coordinators.items():
            self._begin(self._worker_of[place], checkpoint_id, options, coordinators=(operator_id,))
        self.until(lambda: len(taken.coordinators) == len(coordinators) or bool(taken.declined))
        if not taken.declined:
            for place, state in self.states.items():
                if state is ExecutionState.RUNNING and not self._has_running_producer(place):
                    self._begin(
                        self._worker_of[place], checkpoint_id, options, attempts=(self.attempt(place),)
                    )
        return taken

    def _begin(
        self,
        worker: int,
        checkpoint_id: int,
        options: CheckpointOptions,
        *,
        attempts: tuple[ExecutionAttemptID, ...] = (),
        coordinators: tuple[OperatorID, ...] = (),
    ) -> None:
        trigger = TriggerCheckpoint(
            job_id=self._graph.job_id,
            checkpoint_id=checkpoint_id,
            timestamp_ms=0,
            options=options,
            attempts=attempts,
            coordinators=coordinators,
        )
        self._sockets[worker].send(BeginCheckpoint(trigger=trigger))

    def _has_running_producer(self, place: Subtask) -> bool:
        sources = [edge.source for edge in self._graph.inputs_of(place[0])]
        return any(
            self.states[source, subtask] is ExecutionState.RUNNING
            for source in sources
            for subtask in range(self._graph.vertex(source).parallelism)
        )

    def wait_acknowledged(self, taken: TakenCheckpoint) -> None:
        """Until every task that had not ended has acknowledged; AssertionError when one declines."""
        wanted = self.states.keys() - taken.finished
        self.until(lambda: bool(taken.declined) or wanted <= taken.acknowledged.keys())
        assert not taken.declined, taken.declined

    def notify(self, checkpoint_id: int, notice: CheckpointNotice) -> None:
        """Tells all workers."""
        completed = checkpoint_id if notice is CheckpointNotice.COMPLETED else -1
        notification = NotifyCheckpoint(
            job_id=self._graph.job_id,
            checkpoint_id=checkpoint_id,
            notice=notice,
            latest_completed=completed,
        )
        for framed in self._sockets:
            framed.send(CheckpointNotification(notification=notification))

    def checkpoint(self, checkpoint_id: int, options: CheckpointOptions | None = None) -> TakenCheckpoint:
        """A whole checkpoint, completed."""
        taken = self.trigger(checkpoint_id, options)
        self.wait_acknowledged(taken)
        self.notify(checkpoint_id, CheckpointNotice.COMPLETED)
        return taken

    def reset(
        self,
        vertex: JobVertexID,
        subtask: int,
        checkpoint_id: int,
        attempt: ExecutionAttemptID | None = None,
    ) -> None:
        """Tells the source's coordinator that a reader goes back whose latest attempt, or that one, has ended."""
        operator_id = self._graph.vertex(vertex).operators[0].id
        reset = ResetSubtask(
            job_id=self._graph.job_id,
            operator_id=operator_id,
            subtask=subtask,
            attempt_id=attempt or self.attempt((vertex, subtask)),
            checkpoint_id=checkpoint_id,
        )
        self._sockets[self._worker_of[vertex, 0]].send(ResetReader(reset=reset))

    # ------------------------------------------------------------------ messages

    def until(self, condition: Callable[[], bool], seconds: float = DEADLINE) -> None:
        """Takes messages until the condition holds; a TimeoutError says where tasks are by then."""
        deadline = perf_counter() + seconds
        while not condition():
            try:
                message = self.next_message(deadline)
            except TimeoutError as error:
                states = {self._described(place): state.value for place, state in self.states.items()}
                ended = sorted(self._described(place) for place in self.at_end_of_data)
                causes = [cause.stacktrace for cause in self.causes.values()]
                raise TimeoutError(
                    f"{error}: tasks are {states}, at the end of their data: {ended}; failures: {causes}"
                ) from None
            self._note(message)

    def _described(self, place: Subtask) -> str:
        vertex, subtask = place
        return f"{self._graph.vertex(vertex).name} ({subtask})"

    def until_all(self, *states: ExecutionState) -> None:
        """Until every task is in one of these states."""
        self.until(lambda: all(state in states for state in self.states.values()))

    def cancel_and_wait(self) -> None:
        """Cancels the job and waits for its tasks."""
        self.cancel()
        self.until(lambda: all(state.is_terminal for state in self.states.values()))

    def _note(self, message: MessageFromWorker) -> None:
        match message:
            case TaskStateChanged(update=update):
                place = self._attempts.get(update.attempt_id)
                if place is not None and update.attempt_id == self.attempt(place):
                    self.states[place] = update.state
                    if update.state.is_terminal:
                        self.latest_checkpoints[place] = update.latest_checkpoint
                    self.ended_with_threads += update.threads_left
                    if update.cause is not None:
                        self.causes[place] = update.cause
            case CheckpointAcknowledged():
                acknowledgement = message.acknowledgement
                taken = self.checkpoints[acknowledgement.checkpoint_id]
                taken.acknowledged[self._attempts[acknowledgement.attempt_id]] = acknowledgement
            case CoordinatorAcknowledged():
                answer = message.acknowledgement
                self.checkpoints[answer.checkpoint_id].coordinators[answer.operator_id] = answer.state
            case CheckpointDeclined():
                self.checkpoints[message.decline.checkpoint_id].declined.append(message.decline)
            case EndOfDataReached():
                self.at_end_of_data.add(self._attempts[message.attempt_id])
