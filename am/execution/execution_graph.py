"""ExecutionGraph: the vertices, subtasks and attempts of a running job, with the state machines of job and task.

Owner: the JobMaster's loop. Pure: no I/O, no clock but the injected one. It knows what happened and which
transitions are legal. job_scheduler.py decides what follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.accumulators import AccumulatorMergeError, merge_accumulators
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.ids import (
    AllocationID,
    ExecutionAttemptID,
    IdFactory,
    JobVertexID,
    ResourceID,
    WorkerID,
    execution_attempt_id,
)
from yarrow.runtime.common.late_records import LateRecords
from yarrow.runtime.common.state_machine import StateMachine
from yarrow.runtime.graph.job_graph import JobGraph, JobVertex
from yarrow.runtime.graph.states import (
    EXECUTION_TRANSITIONS,
    JOB_TRANSITIONS,
    ExecutionState,
)
from yarrow.runtime.rpc.messages import (
    ExceptionEntry,
    FailureCause,
    TaskExecutionStateUpdate,
    WorkerAddress,
)

#: Most concurrent failures that are kept with one failure.
_CONCURRENT_KEPT = 100
#: States that a worker may report; only the JobMaster sets the others.
REPORTED_STATES = frozenset(
    {
        ExecutionState.INITIALIZING,
        ExecutionState.RUNNING,
        ExecutionState.FINISHED,
        ExecutionState.CANCELED,
        ExecutionState.FAILED,
    }
)


class ExecutionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The part of one current execution on which the scheduler's decisions depend."""

    attempt_number: int
    state: ExecutionState
    resource_id: ResourceID | None = None
    allocation_id: AllocationID | None = None
    enumerator_lives: bool = False
    finished_readers: tuple[ExecutionAttemptID, ...] | None = None


class ExecutionGraphSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an ExecutionGraph on which the scheduler's decisions depend, apart from its JobGraph."""

    graph_id: str
    status: JobStatus
    #: How often tasks were started again after a failure.
    restarts: int
    #: Current executions by vertex, in the order of the JobGraph, and by subtask.
    executions: tuple[tuple[ExecutionSnapshot, ...], ...]


class Execution:
    """One attempt of one subtask."""

    def __init__(
        self,
        attempt_id: ExecutionAttemptID,
        vertex: JobVertex,
        subtask: int,
        attempt_number: int,
        clock: Clock,
        on_change: Callable[[ExecutionState, ExecutionState], None],
    ) -> None:
        self.attempt_id = attempt_id
        self.vertex = vertex
        self.subtask = subtask
        self.attempt_number = attempt_number
        self.machine: StateMachine[ExecutionState] = StateMachine(
            f"{vertex.name} ({subtask + 1}/{vertex.parallelism}) #{attempt_number}",
            ExecutionState.CREATED,
            EXECUTION_TRANSITIONS,
            clock,
            on_change,
        )
        #: The worker in which the attempt runs or ran; None until it is deployed.
        self.worker: WorkerAddress | None = None
        self.host = ""
        self.allocation_id: AllocationID | None = None
        self.cause: FailureCause | None = None
        self.metrics: dict[str, float] = {}
        self.late_records: tuple[LateRecords, ...] = ()
        self.accumulators: dict[str, Any] = {}
        #: The attempt's input has ended, and the attempt waits for a checkpoint that covers its end.
        self.awaits_final_checkpoint = False
        #: The latest checkpoint that an ended attempt had cut or declined; -1 = none.
        self.latest_checkpoint = -1
        #: The attempt only waits for the client of execute_and_collect to fetch its rows.
        self.awaits_client = False
        #: For subtask 0 of a source that has ended: its split enumerator lives on in its worker.
        self.enumerator_lives = False
        #: For subtask 0 of a source that ended together with its enumerator: the reader attempts that had
        #: finished.
        self.finished_readers: tuple[ExecutionAttemptID, ...] | None = None
        #: For subtask 0 of a source: it continues with the enumerator of its former attempt.
        self.enumerator_goes_on = False

    @property
    def state(self) -> ExecutionState:
        """Its present state."""
        return self.machine.state

    @property
    def title(self) -> str:
        """The task's name in Flink's form: `Map (2/4)`."""
        return f"{self.vertex.name} ({self.subtask + 1}/{self.vertex.parallelism})"


class ExecutionJobVertex:
    """A vertex with the current attempt of each subtask, and the former ones."""

    def __init__(self, vertex: JobVertex, executions: list[Execution]) -> None:
        self.vertex = vertex
        self.executions = executions
        #: Oldest first.
        self.former: list[Execution] = []
        self._former_of: Counter[int] = Counter()
        #: Number of current executions by state; the graph updates it.
        self.counts: Counter[ExecutionState] = Counter({ExecutionState.CREATED: len(executions)})

    def take_former(self, former: list[Execution]) -> None:
        """Sets the former attempts, oldest first."""
        self.former = former
        self._former_of = Counter(each.subtask for each in former)

    def add_former(self, execution: Execution, kept: int) -> None:
        """Adds a former attempt; of each subtask the last `kept` former attempts stay."""
        subtask = execution.subtask
        self.former.append(execution)
        self._former_of[subtask] += 1
        if self._former_of[subtask] > kept:
            # Search only when there are too many, and stop at the oldest: a restart does this for each of its
            # tasks.
            del self.former[next(i for i, each in enumerate(self.former) if each.subtask == subtask)]
            self._former_of[subtask] -= 1


class ExecutionGraph:
    """All executions of one job."""

    def __init__(
        self,
        job: JobGraph,
        clock: Clock,
        ids: IdFactory,
        exception_history_size: int = 16,
        attempts_history_size: int = 16,
    ) -> None:
        self.job = job
        self.graph_id = ids.hex_id()
        self._clock = clock
        self.machine: StateMachine[JobStatus] = StateMachine(
            f"job {job.name} ({job.job_id})", JobStatus.INITIALIZING, JOB_TRANSITIONS, clock
        )
        self.vertices: dict[JobVertexID, ExecutionJobVertex] = {}
        self._by_attempt: dict[ExecutionAttemptID, Execution] = {}
        self.live = 0
        for vertex in job.vertices:
            executions = [self._execution(vertex, subtask, 0) for subtask in range(vertex.parallelism)]
            self.vertices[vertex.id] = ExecutionJobVertex(vertex, executions)
            self.live += len(executions)
        #: The job only waited for its client, and its tasks were told to end.
        self.is_ending = False
        #: The cause of the job's failure; None while the job has not failed.
        self.failure: FailureCause | None = None
        #: Why the job was cancelled, if no user asked for it.
        self.cancellation = ""
        self._history_size = exception_history_size
        self._attempts_kept = attempts_history_size
        #: How often tasks were restarted after a failure; one failover counts once, however many tasks it
        #: restarts.
        self.restarts = 0
        #: Milliseconds that the job spent RESTARTING, without the present stay in that state.
        self._restarting_ms = 0
        #: Oldest first; the first is never dropped.
        self.exceptions: list[ExceptionEntry] = []
        self.last_modification = clock.epoch_ms()

    def replace_specs(self, job: JobGraph) -> None:
        """Replaces the job by itself with other specs of its operators; tasks run on."""
        self.job = job
        for vertex in job.vertices:
            held = self.vertices[vertex.id]
            held.vertex = vertex
            for execution in held.executions:
                execution.vertex = vertex

    def replace_job(self, job: JobGraph) -> None:
        """Replaces the job by itself at another parallelism.

        All tasks must have ended; attempt numbers continue.
        """
        if self.live:
            raise ValueError(f"{self.live} tasks of {self.job.name} have not ended")
        attempt = 1 + max(execution.attempt_number for execution in self.executions())
        formers = {key: [*vertex.former, *vertex.executions] for key, vertex in self.vertices.items()}
        self.job = job
        self._by_attempt.clear()
        self.vertices = {}
        for vertex in job.vertices:
            executions = [self._execution(vertex, subtask, attempt) for subtask in range(vertex.parallelism)]
            self.vertices[vertex.id] = ExecutionJobVertex(vertex, executions)
            kept = self._attempts_kept * vertex.parallelism
            self.vertices[vertex.id].take_former(formers[vertex.id][-kept:] if kept else [])
            self.live += len(executions)

    def snapshot(self) -> ExecutionGraphSnapshot:
        """The present state, as far as decisions depend on it."""
        return ExecutionGraphSnapshot(
            graph_id=self.graph_id,
            status=self.status,
            restarts=self.restarts,
            executions=tuple(
                tuple(
                    ExecutionSnapshot(
                        attempt_number=execution.attempt_number,
                        state=execution.state,
                        resource_id=execution.worker.resource_id if execution.worker is not None else None,
                        allocation_id=execution.allocation_id,
                        enumerator_lives=execution.enumerator_lives,
                        finished_readers=execution.finished_readers,
                    )
                    for execution in vertex.executions
                )
                for vertex in self.vertices.values()
            ),
        )

    def restore(self, snapshot: ExecutionGraphSnapshot) -> None:
        """Makes the executions of a snapshot the current ones, for decisions alone: of workers only ids are known."""
        self.graph_id = snapshot.graph_id
        self.restarts = snapshot.restarts
        self.machine.restore(snapshot.status)
        self._by_attempt.clear()
        self.live = 0
        for vertex, kept in zip(self.vertices.values(), snapshot.executions, strict=True):
            vertex.executions = [
                self._restored(vertex.vertex, index, each) for index, each in enumerate(kept)
            ]
            vertex.counts = Counter(execution.state for execution in vertex.executions)
            self.live += sum(not execution.state.is_terminal for execution in vertex.executions)

    def _restored(self, vertex: JobVertex, subtask: int, kept: ExecutionSnapshot) -> Execution:
        execution = self._execution(vertex, subtask, kept.attempt_number)
        execution.machine.restore(kept.state)
        if kept.resource_id is not None:
            execution.worker = unknown_worker(kept.resource_id)
        execution.allocation_id = kept.allocation_id
        execution.enumerator_lives = kept.enumerator_lives
        execution.finished_readers = kept.finished_readers
        return execution

    @property
    def all_running(self) -> bool:
        """True when every task runs or has finished."""
        return all(
            vertex.counts[ExecutionState.RUNNING] + vertex.counts[ExecutionState.FINISHED]
            == len(vertex.executions)
            for vertex in self.vertices.values()
        )

    def _execution(self, vertex: JobVertex, subtask: int, attempt: int) -> Execution:
        attempt_id = execution_attempt_id(self.graph_id, vertex.id, subtask, attempt)

        def changed(previous: ExecutionState, state: ExecutionState) -> None:
            counts = self.vertices[vertex.id].counts
            counts[previous] -= 1
            counts[state] += 1
            self.live -= state.is_terminal
            self.last_modification = self._clock.epoch_ms()

        execution = Execution(attempt_id, vertex, subtask, attempt, self._clock, changed)
        self._by_attempt[attempt_id] = execution
        return execution

    @property
    def status(self) -> JobStatus:
        """The job's present state."""
        return self.machine.state

    @property
    def all_ended(self) -> bool:
        """True when no current execution is live."""
        return self.live == 0

    @property
    def restarting_ms(self) -> int:
        """Milliseconds that the job has spent RESTARTING so far."""
        if self.status is not JobStatus.RESTARTING:
            return self._restarting_ms
        here = self._clock.epoch_ms() - self.machine.timestamps[JobStatus.RESTARTING]
        return self._restarting_ms + max(0, here)

    def executions(self) -> Iterator[Execution]:
        """Current executions, vertex by vertex, in order of subtasks."""
        for vertex in self.vertices.values():
            yield from vertex.executions

    def execution(self, attempt_id: ExecutionAttemptID) -> Execution | None:
        """The current execution with that id; None for a former attempt or an unknown one."""
        return self._by_attempt.get(attempt_id)

    def subtask(self, vertex_id: JobVertexID, subtask: int) -> Execution | None:
        """The current execution of a subtask; None if there is no such subtask."""
        vertex = self.vertices.get(vertex_id)
        if vertex is None or not 0 <= subtask < len(vertex.executions):
            return None
        return vertex.executions[subtask]

    def transition(self, status: JobStatus, cause: str = "") -> None:
        """Moves the job to a status. Raises IllegalTransitionError if the table has no such edge."""
        if self.status is JobStatus.RESTARTING:
            self._restarting_ms = self.restarting_ms
        self.machine.transition(status, cause)
        self.last_modification = self._clock.epoch_ms()

    def next_attempt(self, execution: Execution) -> Execution:
        """Replaces an ended execution by a new attempt of the same subtask."""
        if not execution.state.is_terminal:
            raise ValueError(f"{execution.title} has not ended: its state is {execution.state.name}")
        vertex = self.vertices[execution.vertex.id]
        following = self._execution(execution.vertex, execution.subtask, execution.attempt_number + 1)
        del self._by_attempt[execution.attempt_id]
        vertex.add_former(execution, self._attempts_kept)
        vertex.executions[execution.subtask] = following
        vertex.counts[execution.state] -= 1
        vertex.counts[ExecutionState.CREATED] += 1
        self.live += 1
        return following

    def apply(self, update: TaskExecutionStateUpdate) -> Execution | None:
        """Takes in a worker's report. Returns the execution if its state changed, else None.

        Reports of former attempts, and late or repeated reports, change nothing.
        """
        execution = self._by_attempt.get(update.attempt_id)
        if execution is None or update.state not in REPORTED_STATES:
            return None
        if execution.state.is_terminal or not execution.machine.can(update.state):
            return None
        if update.accumulators:
            execution.accumulators = update.accumulators
        if update.metrics:
            execution.metrics = {**execution.metrics, **update.metrics}
        execution.late_records = update.late_records or execution.late_records
        if update.state is ExecutionState.FAILED:
            execution.cause = update.cause
        execution.enumerator_lives = update.enumerator_lives
        execution.finished_readers = update.finished_readers
        execution.latest_checkpoint = update.latest_checkpoint
        execution.machine.transition(update.state)
        return execution

    def record_exception(self, cause: FailureCause, execution: Execution | None) -> None:
        """Adds a line to the exception history."""
        self.exceptions.append(self._entry(cause, execution))
        if len(self.exceptions) > self._history_size:
            del self.exceptions[1 if self._history_size > 1 else 0]

    def record_concurrent(self, cause: FailureCause, execution: Execution | None) -> None:
        """Adds a failure that happened while the tasks of the last failure were about to restart."""
        if not self.exceptions:
            self.record_exception(cause, execution)
            return
        root = self.exceptions[-1]
        if len(root.concurrent) < _CONCURRENT_KEPT:
            entry = self._entry(cause, execution)
            self.exceptions[-1] = msgspec.structs.replace(root, concurrent=(*root.concurrent, entry))

    def task_that_failed_by(self, cause: FailureCause) -> str:
        """Title of the task whose failure with that cause was recorded last; "" if no single task failed."""
        for entry in reversed(self.exceptions):
            for failure in (entry, *entry.concurrent):
                if failure.cause is cause:
                    return failure.task_name
        return ""

    def _entry(self, cause: FailureCause, execution: Execution | None) -> ExceptionEntry:
        worker = execution.worker if execution is not None else None
        return ExceptionEntry(
            cause=cause,
            timestamp_ms=self._clock.epoch_ms(),
            task_name=execution.title if execution is not None else "",
            endpoint=f"{worker.host}:{worker.port}" if worker is not None else "",
            resource_id=worker.resource_id if worker is not None else "",
        )

    def accumulators(self) -> dict[str, Any]:
        """User accumulators merged over all current executions.

        An accumulator that cannot be merged gives the reason instead.
        """
        parts = [execution.accumulators for execution in self.executions() if execution.accumulators]
        merged: dict[str, Any] = {}
        for name in dict.fromkeys(name for part in parts for name in part):
            try:
                merged |= merge_accumulators({name: part[name]} for part in parts if name in part)
            except AccumulatorMergeError as error:
                merged[name] = f"not merged: {error}"
        return merged


def unknown_worker(resource_id: ResourceID) -> WorkerAddress:
    """The address of a worker of which a snapshot holds only the TaskExecutor's id."""
    return WorkerAddress(
        worker_id=WorkerID(""), resource_id=resource_id, host="", port=0, unix_path="", host_key=""
    )
