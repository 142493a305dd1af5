"""JobScheduler: what a job does next, decided from its ExecutionGraph and SlotPool.

Owner: the JobMaster's loop. Pure: `handle` takes in one event and returns actions for the JobMaster to carry
out, in order. The scheduler never sends, waits or looks at a clock of its own, and decides by its events
alone. failover.py decides which tasks restart, restart_strategies.py whether and when, and
deployment_queue.py what is deployed next.
"""

from __future__ import annotations

from collections.abc import Iterable

from yarrow.am.execution.execution_graph import Execution, ExecutionGraph
from yarrow.am.jobmaster.scheduling.deployment_queue import DeploymentQueue
from yarrow.am.jobmaster.scheduling.failover import Failover
from yarrow.am.jobmaster.scheduling.pending_rescale import PendingRescale
from yarrow.am.jobmaster.scheduling.regions import Subtask
from yarrow.am.jobmaster.scheduling.restart_strategies import NoRestartBackoff, RestartBackoff
from yarrow.am.jobmaster.scheduling.restarts import (
    PendingRestart,
    Restarts,
    cancel_tasks,
    cause_at_start,
    cause_of,
    fail_tasks,
    last_cause,
    unexpected_cancel,
)
from yarrow.am.jobmaster.scheduling.scheduler_actions import (
    Actions,
    ArmCancellationTimeout,
    ArmRestart,
    FreeSlot,
    JobEnded,
    JobReplaced,
    RescaleEnded,
    RescaleSlotsAnswered,
    ResetReaderAction,
    SlotsAccepted,
    TasksRestarting,
)
from yarrow.am.jobmaster.scheduling.scheduler_events import (
    CancellationTimedOut,
    CheckpointsChanged,
    ClientAwaited,
    FailedGlobally,
    IdleSlotsChecked,
    JobCancelled,
    JobFailed,
    JobStarted,
    JobSuspended,
    RescaleBegun,
    RescaleSlotsFailed,
    RescaleSlotsReleased,
    RescaleSlotsWanted,
    RestartCancellationTimedOut,
    RestartDue,
    SchedulerEvent,
    SlotLost,
    SlotRequestTimedOut,
    SlotsOffered,
    TaskExecutorLost,
    TasksLost,
    TasksStopForRescale,
    TasksUpdated,
)
from yarrow.am.jobmaster.scheduling.scheduler_state import SchedulerSnapshot
from yarrow.am.jobmaster.scheduling.settings import FailoverScope, SchedulerMode
from yarrow.am.jobmaster.scheduling.slot_holds import SlotHolds
from yarrow.am.jobmaster.scheduling.slot_pool import HeldSlot, SlotPool
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.ids import AllocationID, ExecutionAttemptID, ResourceID
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import FailureCause, SlotOffer, TaskExecutionStateUpdate

_NOT_FINISHED = (ExecutionState.FAILED, ExecutionState.CANCELED)
#: Seconds between looks at a restart that waits for a checkpoint whose pointer is in doubt.
_DOUBT_PAUSE = 0.5
_ACTIVE = (JobStatus.RUNNING, JobStatus.RESTARTING)


class JobScheduler:
    """The pure core of the JobMaster."""

    def __init__(
        self,
        graph: ExecutionGraph,
        pool: SlotPool,
        mode: SchedulerMode,
        backoff: RestartBackoff | None = None,
        scope: FailoverScope = FailoverScope.REGION,
    ) -> None:
        self.graph = graph
        self.pool = pool
        self._backoff = backoff or NoRestartBackoff()
        self._scope = scope
        self._failover = Failover(graph, scope)
        self._restarts = Restarts()
        self._holds = SlotHolds(graph.job, pool)
        #: From the last CheckpointsChanged: no task may start, because the checkpoint to restore is not
        #: known.
        self._checkpoints_in_doubt = False
        #: From the last CheckpointsChanged: a restart must restart the whole job.
        self._ends_with_savepoint = False
        #: From the last CheckpointsChanged: the job's first checkpoint is still to come.
        self._awaits_first = False
        #: From the last ClientAwaited: a restart must restart the whole job.
        self._is_ending = False
        self._queue = DeploymentQueue(graph, pool, self._holds, self._failover, mode)
        self._rescale = PendingRescale(pool)

    def snapshot(self) -> SchedulerSnapshot:
        """The whole state on which the next decisions depend."""
        return SchedulerSnapshot(
            job=self.graph.job,
            graph=self.graph.snapshot(),
            pool=self.pool.snapshot(),
            queue=self._queue.snapshot(),
            restarts=self._restarts.snapshot(),
            rescale=self._rescale.snapshot(),
            backoff=self._backoff.snapshot(),
            scope=self._scope,
            lost_results=self._failover.lost_results(),
            holding=self._holds.subtasks(),
            holding_results=self._holds.results(),
            checkpoints_in_doubt=self._checkpoints_in_doubt,
            ends_with_savepoint=self._ends_with_savepoint,
            is_ending=self._is_ending,
            awaits_first=self._awaits_first,
        )

    @classmethod
    def restored(cls, snapshot: SchedulerSnapshot, graph: ExecutionGraph) -> JobScheduler:
        """A scheduler that continues from the snapshot. `graph` is a new one of the snapshot's job."""
        graph.restore(snapshot.graph)
        pool, backoff = SlotPool.restored(snapshot.pool), snapshot.backoff.restored()
        scheduler = cls(graph, pool, snapshot.queue.mode, backoff, snapshot.scope)
        scheduler._queue.restore(snapshot.queue)
        scheduler._restarts = Restarts.restored(snapshot.restarts)
        scheduler._rescale.restore(snapshot.rescale)
        for producer in snapshot.lost_results:
            scheduler._failover.result_lost(producer)
        scheduler._holds.restore(snapshot.holding, snapshot.holding_results)
        scheduler._checkpoints_in_doubt = snapshot.checkpoints_in_doubt
        scheduler._ends_with_savepoint = snapshot.ends_with_savepoint
        scheduler._is_ending = snapshot.is_ending
        scheduler._awaits_first = snapshot.awaits_first
        return scheduler

    def handle(self, event: SchedulerEvent) -> Actions:
        """Takes in an event; returns the resulting actions in their order."""
        now = event.now
        match event:
            case JobStarted():
                return self._start()
            case SlotsOffered(_, resource_id, offers):
                return self._offered(resource_id, offers)
            case TasksUpdated(_, updates):
                return self._updated(updates, now)
            case CheckpointsChanged(_, in_doubt, ends_with_savepoint, awaits_first):
                self._checkpoints_in_doubt, self._ends_with_savepoint = in_doubt, ends_with_savepoint
                self._awaits_first = awaits_first
                return []
            case ClientAwaited(_, is_ending):
                self._is_ending = is_ending
                return []
            case RestartDue(_, restart_id):
                return self._restart_due(restart_id, now)
            case IdleSlotsChecked():
                return self._check(now)
            case JobFailed(_, cause):
                return self._fail(cause, now)
            case JobCancelled(_, reason):
                return self._cancel(now, reason)
            case JobSuspended(_, cause):
                return self._suspend(cause)
            case CancellationTimedOut(_, text):
                return self._cancellation_timed_out(now, text)
            case RescaleSlotsWanted() | RescaleSlotsFailed() | RescaleSlotsReleased() | TasksStopForRescale():
                return self._handle_rescale(event)
            case RescaleBegun(_, job):
                return self._begin_rescale(job, now)
            case _:
                return self._handle_loss(event)

    def _handle_loss(
        self,
        event: SlotLost
        | TaskExecutorLost
        | TasksLost
        | SlotRequestTimedOut
        | FailedGlobally
        | RestartCancellationTimedOut,
    ) -> Actions:
        """Handles the loss of something that tasks need."""
        now = event.now
        match event:
            case SlotLost(_, allocation_id, cause):
                return self._slot_lost(allocation_id, cause, now)
            case TaskExecutorLost(_, resource_id, cause):
                return self._fail_in(self.pool.remove_task_executor(resource_id), cause, now)
            case TasksLost(_, attempts, cause):
                return self._tasks_lost(attempts, cause, now)
            case SlotRequestTimedOut(_, cause):
                waiting = [self._execution(subtask) for subtask in self._queue.waiting()]
                return self._fail_all(waiting, cause, now)
            case FailedGlobally(_, cause):
                return self._fail_globally(cause, now)
            case RestartCancellationTimedOut(_, restart_id, cause):
                return self._restart_cancel_timed_out(restart_id, cause, now)

    def _handle_rescale(
        self, event: RescaleSlotsWanted | RescaleSlotsFailed | RescaleSlotsReleased | TasksStopForRescale
    ) -> Actions:
        """Handles the slots of a rescale, and tasks that stop for it."""
        match event:
            case RescaleSlotsWanted(_, job):
                return self._hold_slots_for(job)
            case RescaleSlotsFailed(_, why):
                return self._rescale.fail_slots(why)
            case RescaleSlotsReleased(now):
                return self._let_slots_go(now)
            case TasksStopForRescale(_, stops):
                self._rescale.stops_tasks = stops
                return self._conclude()

    def _start(self) -> Actions:
        self.graph.transition(JobStatus.CREATED)
        self.graph.transition(JobStatus.RUNNING)
        return self._schedule()

    def _offered(self, resource_id: ResourceID, offers: Iterable[SlotOffer]) -> Actions:
        if self.graph.status not in _ACTIVE:
            return [SlotsAccepted(())]
        taken = self.pool.offer(resource_id, offers)
        return [SlotsAccepted(taken), *self._schedule(), *self._rescale.look_for_slots()]

    def _updated(self, updates: Iterable[TaskExecutionStateUpdate], now: float) -> Actions:
        actions: Actions = []
        for update in updates:
            execution = self.graph.apply(update)
            if execution is None:
                continue
            if execution.cause is not None and execution.cause.lost_result:
                self._note_lost_result(ExecutionAttemptID(execution.cause.lost_result), now)
            if update.threads_left and execution.state in _NOT_FINISHED:
                actions += self._worker_polluted(execution, update.threads_left, now)
            else:
                actions += self._changed(execution, now)
        rescaled = self._rescale.awaits_all_running and self.graph.status is JobStatus.RUNNING
        if rescaled and self.graph.all_running:
            self._rescale.all_run()
            actions.append(RescaleEnded(None))
        return actions

    def _note_lost_result(self, attempt: ExecutionAttemptID, now: float) -> None:
        """Notes that a consumer could not read the result, so that the producer restarts with the consumer."""
        producer = self.graph.execution(attempt)
        if producer is not None and producer.state is ExecutionState.FINISHED:
            subtask = Subtask(producer.vertex.id, producer.subtask)
            self._failover.result_lost(subtask)
            self._holds.let_go_result(subtask, now)

    def _worker_polluted(self, execution: Execution, threads: tuple[str, ...], now: float) -> Actions:
        """Deploys nothing to the slot for now: its TaskExecutor kills the worker and offers the slot again."""
        slot = self.pool.remove(execution.allocation_id) if execution.allocation_id is not None else None
        actions = self._changed(execution, now)
        if slot is None:
            return [*actions, *self._queue.declare()]
        text = (
            f"the worker is replaced, since {execution.title} left the threads {', '.join(threads)} running"
        )
        cause = FailureCause(exception_name="", message=text, stacktrace=text)
        return [*actions, *self._fail_in([slot], cause, now)]

    def _slot_lost(self, allocation_id: AllocationID, cause: FailureCause, now: float) -> Actions:
        slot = self.pool.remove(allocation_id)
        if slot is None:
            return []
        return self._fail_in([slot], cause, now)

    def _tasks_lost(self, attempts: Iterable[ExecutionAttemptID], cause: FailureCause, now: float) -> Actions:
        executions = [self.graph.execution(attempt) for attempt in attempts]
        return self._fail_all([execution for execution in executions if execution is not None], cause, now)

    def _fail(self, cause: FailureCause, now: float) -> Actions:
        if self.graph.status not in (JobStatus.CREATED, *_ACTIVE):
            return []
        self.graph.record_exception(cause, None)
        return self._fail_job(cause, now)

    def _fail_globally(self, cause: FailureCause, now: float) -> Actions:
        if self.graph.status not in _ACTIVE:
            return []
        self._record(None, cause)
        return self._failed(self._failover.everything(), cause, now)

    @property
    def slots_for_rescale(self) -> int:
        """The number of slots for which a rescale waits; 0 if none does."""
        return self._rescale.slots_awaited

    def _hold_slots_for(self, job: JobGraph) -> Actions:
        if self.graph.status not in _ACTIVE or self._failover.has_blocking_edges:
            # Nothing can be rescaled; the rescale's checkpoint will report that.
            return [RescaleSlotsAnswered(None)]
        return [*self._rescale.wish_slots(job), *self._queue.declare()]

    def _let_slots_go(self, now: float) -> Actions:
        if self.graph.machine.is_terminal:
            return []
        self._rescale.drop_slots()
        idle = self.pool.take_idle(now)
        return [*self._queue.declare(), *(FreeSlot(slot, "the slot is not needed any more") for slot in idle)]

    def _begin_rescale(self, job: JobGraph, now: float) -> Actions:
        self._rescale.stops_tasks = False
        if self.graph.status not in _ACTIVE:
            return []
        self._rescale.begins(job)
        return self._restart_everything("rescaled", now)

    @property
    def _needs_global_restart(self) -> bool:
        """True if a restart now must restart the whole job."""
        return self._ends_with_savepoint or self._is_ending

    def _restart_everything(self, why: str, now: float) -> Actions:
        return self._restart_uncounted(self._failover.everything(), why, now)

    def _restart_uncounted(self, members: frozenset[Subtask], why: str, now: float) -> Actions:
        """Restarts subtasks without counting a failure: there was none, or it was counted already."""
        if self._needs_global_restart:
            members = self._failover.everything()
        restart = self._restarts.add(members, 0.0, now)
        if self.graph.status is JobStatus.RUNNING:
            self.graph.transition(JobStatus.RESTARTING, why)
        return self._begin_restart(restart, now)

    def _suspend(self, cause: str) -> Actions:
        if self.graph.machine.can(JobStatus.SUSPENDED):
            self.graph.transition(JobStatus.SUSPENDED, cause)
        return []

    def _cancel(self, now: float, reason: str) -> Actions:
        if not self.graph.machine.can(JobStatus.CANCELLING):
            return []
        armed = self.graph.status is JobStatus.FAILING
        self.graph.cancellation = reason
        self.graph.transition(JobStatus.CANCELLING, reason or "cancelled by the user")
        return self._cancel_all(now, arm=not armed)

    def _cancellation_timed_out(self, now: float, text: str) -> Actions:
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

    def _restart_cancel_timed_out(self, restart_id: int, cause: FailureCause, now: float) -> Actions:
        restart = self._restarts.get(restart_id)
        if restart is None:
            return []
        stuck = list(self._live(restart))
        allocations = {execution.allocation_id for execution in stuck} - {None}
        slots = [slot for slot in self.pool.held_slots() if slot.allocation_id in allocations]
        for slot in slots:
            self.pool.remove(slot.allocation_id)
        frees: Actions = [FreeSlot(slot, cause.message) for slot in slots]
        actions = [*frees, *self._fail_in(slots, cause, now)]
        return [*actions, *self._fail_all(list(filter(self._is_current, stuck)), cause, now)]

    def _restart_due(self, restart_id: int, now: float) -> Actions:
        restart = self._restarts.get(restart_id)
        if restart is None:
            return []
        restart.pause_over = True
        return self._restart_when_ready(restart, now)

    def _check(self, now: float) -> Actions:
        idle = self.pool.take_idle(now)
        if not idle:
            return []
        return [
            *self._queue.declare(),
            *(FreeSlot(slot, "the slot was idle (slot.idle.timeout)") for slot in idle),
        ]

    def explanation(self, now: float) -> str:
        """The thing that the job waits for; "" while it waits for nothing."""
        if self.graph.status in _ACTIVE and self.pool.waiting:
            return f"needs {self.pool.held + self.pool.waiting} slots and has {self.pool.held}"
        if self.graph.status is not JobStatus.RESTARTING:
            return ""
        restart = self._restarts.pending()[0]
        if self._lives(restart):
            return "waits for tasks to end before it restarts them"
        return f"restarts in {max(0.0, restart.due - now):.1f} s: {self._backoff.description}"

    def _schedule(self) -> Actions:
        return self._queue.schedule(one_by_one=not self._restarts)

    def _execution(self, subtask: Subtask) -> Execution:
        return self.graph.vertices[subtask.vertex].executions[subtask.number]

    # Changes of tasks.

    def _changed(self, execution: Execution, now: float) -> Actions:
        """Reacts to an execution's new state, reported by a worker or set here."""
        state, status = execution.state, self.graph.status
        if not state.is_terminal:
            return []
        subtask = Subtask(execution.vertex.id, execution.subtask)
        restart = self._restarts.of(subtask)
        if restart is not None:
            if state is ExecutionState.FAILED:
                self.graph.record_concurrent(cause_of(execution), execution)
            return self._restart_when_ready(restart, now)
        if state is ExecutionState.FAILED:
            return self._fail_together([execution], cause_of(execution), now)
        if state is ExecutionState.CANCELED and status in _ACTIVE:
            return self._fail_together([execution], unexpected_cancel(execution), now)
        if state is ExecutionState.FINISHED and status in _ACTIVE:
            if left_behind := self._failover.readers_left_behind(execution):
                return self._restart_uncounted(
                    left_behind, ("the split enumerator of a source reader has ended"), now
                )
            self._keep_result(subtask, now)
            self._holds.let_go(subtask, now)
            actions = self._schedule() if self._queue.has_later else []
            return [*actions, *self._conclude()]
        self._holds.let_go(subtask, now)
        return self._conclude()

    def _keep_result(self, subtask: Subtask, now: float) -> None:
        """Holds a finished producer's slot until its result has been read; frees that of a finished consumer."""
        if not self._failover.has_blocking_edges:
            return
        if self._failover.is_result_needed(subtask):
            self._holds.hold_result(subtask)
        for producer in self._holds.results():
            if not self._failover.is_result_needed(producer):
                self._holds.let_go_result(producer, now)

    def _fail_in(self, slots: list[HeldSlot], cause: FailureCause, now: float) -> Actions:
        """Fails the tasks in lost slots, and asks for other slots for what needs them."""
        if not slots:
            return []
        lost = {slot.allocation_id for slot in slots}
        executions = [execution for execution in self.graph.executions() if execution.allocation_id in lost]
        for execution in executions:
            execution.enumerator_lives = False
        along: set[Subtask] = set()
        if self.graph.status in _ACTIVE:
            along = self._failover.readers_without_coordinator(executions)
            for execution in executions:
                producer = Subtask(execution.vertex.id, execution.subtask)
                finished = execution.state is ExecutionState.FINISHED
                if finished and self._failover.is_result_needed(producer):
                    self._failover.result_lost(producer)
                    self._holds.let_go_result(producer, now)
                    along.add(producer)
            self.pool.require(
                slot.shared for slot in slots if slot.shared is not None and self._holds.is_held(slot.shared)
            )
        actions = self._fail_all(executions, cause, now, along)
        return [*actions, *self._schedule_lost()]

    def _schedule_lost(self) -> Actions:
        """Schedules at once: an idle slot may replace a lost one."""
        return self._schedule() if self.graph.status in _ACTIVE else self._queue.declare()

    def _fail_all(
        self,
        executions: list[Execution],
        cause: FailureCause,
        now: float,
        along: Iterable[Subtask] = (),
    ) -> Actions:
        """Marks all executions as failed first, so that none is cancelled, then reacts once for all."""
        failed, ended = fail_tasks(executions, cause)
        actions = self._fail_together(failed, cause, now, along)
        for execution in ended:
            # All are marked. Reacting to the failure or end of one may already have restarted others.
            if self._is_current(execution):
                actions += self._changed(execution, now)
        return actions

    def _is_current(self, execution: Execution) -> bool:
        """False for an attempt that a later attempt has replaced."""
        return self.graph.execution(execution.attempt_id) is execution

    def _fail_together(
        self,
        executions: list[Execution],
        cause: FailureCause,
        now: float,
        along: Iterable[Subtask] = (),
    ) -> Actions:
        """Reacts to one failure of several tasks. `along` are ended or live tasks that restart with them."""
        failed = {Subtask(execution.vertex.id, execution.subtask) for execution in executions} | set(along)
        if not failed:
            return []
        self._record(executions[0] if executions else None, cause)
        if self.graph.status not in _ACTIVE:
            for subtask in failed:
                self._holds.let_go(subtask, now)
            return self._conclude()
        return self._failed(failed, cause, now)

    def _record(self, execution: Execution | None, cause: FailureCause) -> None:
        if self._restarts:
            self.graph.record_concurrent(cause, execution)
        else:
            self.graph.record_exception(cause, execution)

    # Restarting.

    def _failed(self, failed: Iterable[Subtask], cause: FailureCause, now: float) -> Actions:
        """Restarts the necessary subtasks, or fails the job.

        Failures within a running restart count as one. A final cause fails the job at once, and so does one that
        needs the user while the job waits for its first checkpoint. A job that makes no checkpoints goes by its
        strategy: nothing tells whether its settings have ever worked.
        """
        if cause.is_final:
            return self._fail_job(cause, now)
        if cause.needs_user and self._awaits_first and not self._checkpoints_in_doubt:
            would_restart = self._backoff.may_restart(now)
            return self._fail_job(cause_at_start(cause) if would_restart else cause, now)
        if not self._restarts:
            self._backoff.failed(now)
        if not self._backoff.may_restart(now):
            return self._fail_job(last_cause(cause, self.graph.restarts, self._backoff.description), now)
        self._rescale.failed(cause)
        why = f"the job failed while it waited for slots: {cause.message}"
        answered = self._rescale.fail_slots(why)
        if self._rescale.next_job is not None or self._needs_global_restart:
            members = self._failover.everything()
        else:
            members = self._failover.tasks_to_restart(failed)
        if not self._restarts:
            self.graph.restarts += 1
        restart = self._restarts.add(members, self._backoff.delay(), now)
        if self.graph.status is JobStatus.RUNNING:
            self.graph.transition(JobStatus.RESTARTING, cause.message)
        return [*answered, *self._begin_restart(restart, now, cause)]

    def _begin_restart(
        self, restart: PendingRestart, now: float, cause: FailureCause | None = None
    ) -> Actions:
        members = restart.members
        self._queue.forget(members)
        for subtask in members:
            self._holds.let_go_result(subtask, now)
            self._holds.hold(subtask)
        executions = list(map(self._execution, sorted(members)))
        # Subtasks that had or wanted a slot ask for one now; those that wait for inputs ask later.
        self._queue.require(
            Subtask(each.vertex.id, each.subtask)
            for each in executions
            if each.allocation_id is not None or each.state is ExecutionState.SCHEDULED
        )
        cancels = cancel_tasks(executions)
        attempts = frozenset(each.attempt_id for each in executions)
        actions: Actions = [TasksRestarting(attempts, restart.delay, cause), *cancels]
        if self._lives(restart):
            actions.append(ArmCancellationTimeout(restart.id))
        if not restart.pause_over:
            actions.append(ArmRestart(restart.id, restart.delay))
        return [*actions, *self._queue.declare(), *self._restart_when_ready(restart, now)]

    def _live(self, restart: PendingRestart) -> Iterable[Execution]:
        return (each for each in map(self._execution, sorted(restart.members)) if not each.state.is_terminal)

    def _lives(self, restart: PendingRestart) -> bool:
        """Whether a task of the restart is still live. Unsorted, because this runs at each end of a task."""
        return any(not self._execution(member).state.is_terminal for member in restart.members)

    def _restart_when_ready(self, restart: PendingRestart, now: float) -> Actions:
        if not restart.pause_over or self._lives(restart):
            return []
        if self._checkpoints_in_doubt:
            restart.pause_over = False
            return [ArmRestart(restart.id, _DOUBT_PAUSE)]
        if along := self._failover.readers_lost_since(restart.members):
            return self._begin_restart(self._restarts.add(restart.members | along, 0.0, now), now)
        self._restarts.remove(restart)
        self._failover.result_restarts(restart.members)
        readers = self._failover.readers_to_reset(restart.members)
        resets = self._resets(readers)
        replaced: Actions = []
        if (next_job := self._rescale.next_job) is not None:
            replaced = self._replace_job(next_job)
        else:
            for subtask in restart.members:
                following = self.graph.next_attempt(self._execution(subtask))
                following.enumerator_goes_on = subtask.number == 0 and subtask in readers
            self._queue.add(restart.members)
        if not self._restarts:
            self.graph.transition(JobStatus.RUNNING)
        return [*resets, *replaced, *self._schedule()]

    def _resets(self, readers: Iterable[Subtask]) -> Actions:
        """Resets readers before new attempts exist: the former attempt tells where the enumerator lives."""
        actions: Actions = []
        for reader in readers:
            worker = self._execution(Subtask(reader.vertex, 0)).worker
            if worker is not None:
                execution = self._execution(reader)
                operator, ended = execution.vertex.operators[0].id, execution.attempt_id
                actions.append(
                    ResetReaderAction(worker.resource_id, reader.vertex, operator, reader.number, ended)
                )
        return actions

    def _replace_job(self, job: JobGraph) -> Actions:
        """Continues the job at other parallelisms in its slots. All tasks have ended."""
        failure = self._rescale.replaced(self.graph.job)
        self.graph.replace_job(job)
        self._failover = Failover(self.graph, self._scope)
        self._holds = SlotHolds(job, self.pool)
        self.pool.release_unless(self._holds.is_held)
        # The new tasks ask for their slots, and use those that were held for them.
        self._rescale.drop_slots()
        self._queue.job_replaced(self._holds, self._failover)
        actions: Actions = [JobReplaced(job)]
        return actions if failure is None else [*actions, RescaleEnded(failure)]

    # Ending.

    def _fail_job(self, cause: FailureCause, now: float) -> Actions:
        self.graph.failure = cause
        self.graph.transition(JobStatus.FAILING, cause.message)
        return self._cancel_all(now, arm=True)

    def _cancel_all(self, now: float, arm: bool) -> Actions:
        self._queue.clear()
        self._restarts.clear()
        answered = self._rescale.fail_slots(f"the job is {self.graph.status.value}")
        actions = [*answered, *cancel_tasks(self.graph.executions())]
        for execution in self.graph.executions():
            if execution.state.is_terminal:
                self._holds.let_go(Subtask(execution.vertex.id, execution.subtask), now)
        if arm and not self.graph.all_ended:
            actions.append(ArmCancellationTimeout())
        return [*actions, *self._conclude()]

    def _conclude(self) -> Actions:
        """Ends the job when no execution is live any more."""
        graph = self.graph
        if not graph.all_ended or graph.machine.is_terminal or self._restarts:
            return []
        if self._rescale.stops_tasks and graph.status is JobStatus.RUNNING:
            return []
        ends = {
            JobStatus.RUNNING: JobStatus.FINISHED,
            JobStatus.FAILING: JobStatus.FAILED,
            JobStatus.CANCELLING: JobStatus.CANCELED,
        }
        graph.transition(ends[graph.status])
        slots = self.pool.clear()
        frees: Actions = [FreeSlot(slot, f"the job is {graph.status.value}") for slot in slots]
        # Declare before freeing: otherwise the ResourceManager would give the freed slots back to this job.
        return [*self._queue.declare(), *frees, JobEnded(graph.status)]
