"""JobScheduler: what a job does next, decided from its ExecutionGraph and SlotPool.

Owner: the JobMaster's loop. Pure: every method takes in one event at a given time and returns actions for the
JobMaster to carry out, in order; it never sends, waits or looks at a clock of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from yarrow.am.jobmaster.execution_graph import Execution, ExecutionGraph
from yarrow.am.jobmaster.failover import FailJob, FailoverStrategy
from yarrow.am.jobmaster.regions import (
    PipelinedRegion,
    one_region,
    pipelined_regions,
    shared_slot,
)
from yarrow.am.jobmaster.settings import SchedulerMode
from yarrow.am.jobmaster.slot_pool import HeldSlot, SharedSlot, SlotPool
from yarrow.runtime.common.errors import UnsupportedFeatureError
from yarrow.runtime.common.ids import AllocationID, ExecutionAttemptID, ResourceID
from yarrow.runtime.graph.states import ExecutionState, JobStatus
from yarrow.runtime.rpc.messages import FailureCause, SlotOffer, TaskExecutionStateUpdate


@dataclass(frozen=True, slots=True)
class DeclareRequirements:
    """Tell the ResourceManager that the job needs so many slots in all."""

    slots: int


@dataclass(frozen=True, slots=True)
class Deploy:
    """Start these executions; their workers and allocations are set."""

    executions: tuple[Execution, ...]


@dataclass(frozen=True, slots=True)
class CancelTasks:
    """Ask a TaskExecutor to cancel tasks."""

    resource_id: ResourceID
    attempts: tuple[ExecutionAttemptID, ...]


@dataclass(frozen=True, slots=True)
class FreeSlot:
    """Give a slot back to its TaskExecutor; whatever still runs there is killed."""

    slot: HeldSlot
    cause: str


@dataclass(frozen=True, slots=True)
class ArmCancellationTimeout:
    """Call `cancellation_timed_out` after task.cancellation.timeout."""


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The job is FINISHED, CANCELED or FAILED and holds no slot any more."""

    status: JobStatus


SchedulerAction = DeclareRequirements | Deploy | CancelTasks | FreeSlot | ArmCancellationTimeout | JobEnded
Actions = list[SchedulerAction]


class JobScheduler:
    """The pure core of the JobMaster."""

    def __init__(
        self, graph: ExecutionGraph, pool: SlotPool, mode: SchedulerMode, failover: FailoverStrategy
    ) -> None:
        self.graph = graph
        self.pool = pool
        self._failover = failover
        job = graph.job
        regions = one_region(job) if mode is SchedulerMode.EAGER else pipelined_regions(job)
        #: Regions whose slots have not been asked for.
        self._later: list[PipelinedRegion] = list(regions)
        #: Regions that wait for slots.
        self._waiting: list[PipelinedRegion] = []
        self._declared = 0
        #: What still needs each shared slot: executions that have not ended, and coordinators of sources.
        self._users: Counter[SharedSlot] = Counter()
        #: Executions of each vertex that have not ended.
        self._live = {vertex.id: vertex.parallelism for vertex in job.vertices}
        for execution in graph.executions():
            self._users[shared_slot(execution.vertex, execution.subtask)] += 1
        for vertex in job.vertices:
            if vertex.is_source:
                self._users[shared_slot(vertex, 0)] += 1

    def start(self, now: float) -> Actions:
        """INITIALIZING -> CREATED -> RUNNING, and the first slots are asked for."""
        self.graph.transition(JobStatus.CREATED)
        self.graph.transition(JobStatus.RUNNING)
        return self._schedule()

    def offered(
        self, resource_id: ResourceID, offers: Iterable[SlotOffer], now: float
    ) -> tuple[tuple[AllocationID, ...], Actions]:
        """The allocations taken, and what becomes possible with them."""
        if self.graph.status is not JobStatus.RUNNING:
            return (), []
        taken = self.pool.offer(resource_id, offers)
        return taken, self._schedule()

    def updated(self, updates: Iterable[TaskExecutionStateUpdate], now: float) -> Actions:
        """Reports of workers."""
        actions: Actions = []
        for update in updates:
            execution = self.graph.apply(update)
            if execution is not None:
                actions += self._changed(execution, now)
        return actions

    def slot_lost(self, allocation_id: AllocationID, cause: FailureCause, now: float) -> Actions:
        """A slot's worker is gone: all that ran in it has failed."""
        slot = self.pool.remove(allocation_id)
        if slot is None:
            return []
        return [*self._fail_in([slot], cause, now), *self._declare()]

    def task_executor_lost(self, resource_id: ResourceID, cause: FailureCause, now: float) -> Actions:
        """A TaskExecutor is gone with all that ran there."""
        lost = self.pool.remove_task_executor(resource_id)
        return [*self._fail_in(lost, cause, now), *self._declare()]

    def tasks_lost(self, attempts: Iterable[ExecutionAttemptID], cause: FailureCause, now: float) -> Actions:
        """These attempts could not be deployed, or their TaskExecutor does not have them any more."""
        executions = [self.graph.execution(attempt) for attempt in attempts]
        return self._fail_all([execution for execution in executions if execution is not None], cause, now)

    def fail(self, cause: FailureCause, now: float) -> Actions:
        """The job fails for a reason that is no single task's."""
        if self.graph.status not in (JobStatus.CREATED, JobStatus.RUNNING):
            return []
        self.graph.record_exception(cause, None)
        return self._decide(None, cause, now)

    def cancel(self, now: float) -> Actions:
        """The user cancels; no effect on a job that is ending by cancellation or has ended."""
        if not self.graph.machine.can(JobStatus.CANCELLING):
            return []
        armed = self.graph.status is JobStatus.FAILING
        self.graph.transition(JobStatus.CANCELLING, "cancelled by the user")
        return self._cancel_all(now, arm=not armed)

    def cancellation_timed_out(self, now: float, text: str) -> Actions:
        """Tasks that still have not ended are given up: freeing their slots kills their workers."""
        if self.graph.status not in (JobStatus.FAILING, JobStatus.CANCELLING):
            return []
        actions: Actions = []
        for execution in list(self.graph.executions()):
            if execution.state.is_terminal:
                continue
            held = self.pool.remove(execution.allocation_id) if execution.allocation_id else None
            if held is not None:
                actions.append(FreeSlot(held, text))
            execution.machine.transition(ExecutionState.CANCELED, text)
            actions += self._changed(execution, now)
        return actions

    def check(self, now: float) -> Actions:
        """Gives back slots that were idle too long."""
        idle = self.pool.take_idle(now)
        if not idle:
            return []
        return [*self._declare(), *(FreeSlot(slot, "idle (slot.idle.timeout)") for slot in idle)]

    def explanation(self) -> str:
        """What the job waits for, "" when for nothing."""
        if self.graph.status is not JobStatus.RUNNING or not self.pool.waiting:
            return ""
        return f"needs {self.pool.held + self.pool.waiting} slots, has {self.pool.held} of them"

    # Scheduling.

    def _schedule(self) -> Actions:
        """Asks for the slots of regions whose inputs are complete, deploys those whose slots are there."""
        ready = [region for region in self._later if self._inputs_complete(region)]
        for region in ready:
            self._later.remove(region)
            self._waiting.append(region)
            for execution in self._executions(region):
                execution.machine.transition(ExecutionState.SCHEDULED)
            self.pool.require(
                shared_slot(execution.vertex, execution.subtask)
                for execution in sorted(self._executions(region), key=lambda item: item.subtask)
            )
        actions = self._declare()
        if self.pool.waiting and len(self._waiting) == 1:
            # The common case while offers come in one by one: no need to look at each subtask.
            return actions
        for region in list(self._waiting):
            executions = self._executions(region)
            if self._place(executions):
                self._waiting.remove(region)
                actions.append(Deploy(tuple(executions)))
        return actions

    def _inputs_complete(self, region: PipelinedRegion) -> bool:
        return all(
            self.graph.vertices[source].counts[ExecutionState.FINISHED]
            == self.graph.vertices[source].vertex.parallelism
            for source in region.blocking_inputs
        )

    def _executions(self, region: PipelinedRegion) -> list[Execution]:
        return [
            execution for vertex in region.vertices for execution in self.graph.vertices[vertex].executions
        ]

    def _place(self, executions: list[Execution]) -> bool:
        """Gives each execution its slot when all slots are there; else changes nothing."""
        slots = []
        for execution in executions:
            slot = self.pool.slot(shared_slot(execution.vertex, execution.subtask))
            if slot is None:
                return False
            slots.append(slot)
        for execution, slot in zip(executions, slots, strict=True):
            execution.worker = slot.worker
            execution.allocation_id = slot.allocation_id
            execution.machine.transition(ExecutionState.DEPLOYING)
        return True

    def _declare(self) -> Actions:
        required = self.pool.required
        if required == self._declared:
            return []
        self._declared = required
        return [DeclareRequirements(required)]

    # What becomes of tasks.

    def _changed(self, execution: Execution, now: float) -> Actions:
        """An execution entered a state by report or by force."""
        state = execution.state
        if not state.is_terminal:
            return []
        self._leave_slot(execution, now)
        if state is ExecutionState.FAILED:
            cause = execution.cause or _unexplained(execution)
            return self._task_failed(execution, cause, now)
        if state is ExecutionState.CANCELED and self.graph.status is JobStatus.RUNNING:
            return self._task_failed(execution, _unexpected_cancel(execution), now)
        if state is ExecutionState.FINISHED and self.graph.status is JobStatus.RUNNING:
            actions = self._schedule() if self._later else []
            return [*actions, *self._conclude()]
        return self._conclude()

    def _leave_slot(self, execution: Execution, now: float) -> None:
        """A source's coordinator lives with its subtask 0, until the last of its readers has ended."""
        vertex = execution.vertex
        self._live[vertex.id] -= 1
        self._leave(shared_slot(vertex, execution.subtask), now)
        if self._live[vertex.id] == 0 and vertex.is_source:
            self._leave(shared_slot(vertex, 0), now)

    def _leave(self, shared: SharedSlot, now: float) -> None:
        self._users[shared] -= 1
        if self._users[shared] == 0:
            self.pool.release(shared, now)

    def _task_failed(self, execution: Execution, cause: FailureCause, now: float) -> Actions:
        history = self.graph.exceptions
        # The loss of a worker fails all its tasks at once: one line in the history.
        if not history or history[-1].cause is not cause:
            self.graph.record_exception(cause, execution)
        if self.graph.status is not JobStatus.RUNNING:
            return self._conclude()
        return self._decide(execution, cause, now)

    def _decide(self, execution: Execution | None, cause: FailureCause, now: float) -> Actions:
        decision = self._failover.decide(self.graph, execution, cause)
        if not isinstance(decision, FailJob):
            raise UnsupportedFeatureError(
                "restarting tasks after a failure needs checkpoints, which this version does not have:"
                " use restart-strategy: none"
            )
        self.graph.failure = cause
        self.graph.transition(JobStatus.FAILING, cause.message)
        return self._cancel_all(now, arm=True)

    def _fail_in(self, slots: list[HeldSlot], cause: FailureCause, now: float) -> Actions:
        lost = {slot.allocation_id for slot in slots}
        return self._fail_all(
            [execution for execution in self.graph.executions() if execution.allocation_id in lost],
            cause,
            now,
        )

    def _fail_all(self, executions: list[Execution], cause: FailureCause, now: float) -> Actions:
        """Marks all first, so that none of them is asked to cancel; then reacts once for each."""
        ended = []
        for execution in executions:
            if execution.state.is_terminal:
                continue
            if execution.state is ExecutionState.CANCELING:
                execution.machine.transition(ExecutionState.CANCELED, cause.message)
            else:
                execution.cause = cause
                execution.machine.transition(ExecutionState.FAILED, cause.message)
            ended.append(execution)
        return [action for execution in ended for action in self._changed(execution, now)]

    def _cancel_all(self, now: float, arm: bool) -> Actions:
        """Everything that lives is cancelled: here what was not deployed, by its TaskExecutor the rest."""
        asked: dict[ResourceID, list[ExecutionAttemptID]] = {}
        self._later.clear()
        self._waiting.clear()
        for execution in self.graph.executions():
            if execution.state in (ExecutionState.CREATED, ExecutionState.SCHEDULED):
                execution.machine.transition(ExecutionState.CANCELED)
                self._leave_slot(execution, now)
            elif execution.machine.can(ExecutionState.CANCELING) and execution.worker is not None:
                execution.machine.transition(ExecutionState.CANCELING)
                asked.setdefault(execution.worker.resource_id, []).append(execution.attempt_id)
        actions: Actions = [CancelTasks(resource, tuple(attempts)) for resource, attempts in asked.items()]
        if asked and arm:
            actions.append(ArmCancellationTimeout())
        return [*actions, *self._conclude()]

    def _conclude(self) -> Actions:
        """Ends the job when nothing lives any more."""
        graph = self.graph
        if not graph.all_ended or graph.machine.is_terminal:
            return []
        ends = {
            JobStatus.RUNNING: JobStatus.FINISHED,
            JobStatus.FAILING: JobStatus.FAILED,
            JobStatus.CANCELLING: JobStatus.CANCELED,
        }
        graph.transition(ends[graph.status])
        slots = self.pool.clear()
        frees: Actions = [FreeSlot(slot, f"the job is {graph.status.value}") for slot in slots]
        # Slots that become free before the ResourceManager knows would come back to this job.
        return [*self._declare(), *frees, JobEnded(graph.status)]


def _unexplained(execution: Execution) -> FailureCause:
    text = f"{execution.title} failed and its worker gave no cause"
    return FailureCause(exception_name="", message=text, stacktrace=text)


def _unexpected_cancel(execution: Execution) -> FailureCause:
    text = f"{execution.title} was cancelled by its worker, not by the JobMaster"
    return FailureCause(exception_name="", message=text, stacktrace=text)
