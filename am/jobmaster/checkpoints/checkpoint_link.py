"""CheckpointLink: carries out the CheckpointCoordinator's actions and tells it of events.

Owner: the JobMaster's loop. Must not decide anything itself. checkpoint_storage_access.py touches storage,
and checkpoint_messages.py finds the receivers of messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from yarrow.am.checkpoint.completed import CompletedCheckpoint, FinalOutcome
from yarrow.am.checkpoint.coordinator import CheckpointCoordinator
from yarrow.am.checkpoint.events import (
    Action,
    Discard,
    DiscardLocation,
    Event,
    FailJob,
    JobEndEvent,
    Notify,
    PrepareLocation,
    Refused,
    Requested,
    SettleDoubt,
    StoreMetadata,
    Succeeded,
    TasksFinished,
    TasksRestart,
    TriggerCoordinators,
    TriggerTasks,
    Wake,
)
from yarrow.am.checkpoint.failures import final_cause
from yarrow.am.checkpoint.plan import GraphParticipants
from yarrow.am.checkpoint.restore import Restorer, StartingPoint, folders_to_mark
from yarrow.am.checkpoint.settings import CheckpointSettings
from yarrow.am.execution.errors import failure_of
from yarrow.am.execution.execution_graph import Execution, ExecutionGraph
from yarrow.am.execution.restore import RestorePlan
from yarrow.am.jobmaster.checkpoints.checkpoint_messages import CheckpointMessages
from yarrow.am.jobmaster.checkpoints.checkpoint_storage_access import CheckpointStorageAccess
from yarrow.am.jobmaster.links.task_executor_link import TaskExecutorLink
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import CheckpointFailedError, YarrowError
from yarrow.runtime.common.ids import ExecutionAttemptID, IdFactory, ResourceID
from yarrow.runtime.common.timers import TimerHandle, Timers
from yarrow.runtime.data.checkpoint_options import (
    CheckpointType,
    SnapshotKind,
)
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.messages import (
    DeclineCheckpoint,
    FailureCause,
    TriggerCheckpoint,
)

T = TypeVar("T")


class CheckpointServices(msgspec.Struct, frozen=True):
    """The clock, timers, ids and links that a CheckpointLink uses."""

    clock: Clock
    timers: Timers
    ids: IdFactory
    #: TaskExecutors of the job; the mapping is always current.
    links: Mapping[ResourceID, TaskExecutorLink]


class CheckpointFlags(msgspec.Struct, frozen=True):
    """What restarts must know of a job's checkpoints."""

    #: A checkpoint later than the latest one may still complete.
    in_doubt: bool = False
    #: A savepoint that was to end the job is complete. Some tasks have then ended with the savepoint, and must restart
    #: with the others. A savepoint after which the job continues does not count.
    ends_with_savepoint: bool = False
    #: The job makes checkpoints, has none yet, and began from none.
    awaits_first: bool = False


class CheckpointLink:
    """The checkpoints of one running job, and the states that its tasks restore from them."""

    def __init__(
        self,
        owner: RpcEndpoint,
        graph: ExecutionGraph,
        services: CheckpointServices,
        settings: CheckpointSettings,
        starting_point: StartingPoint,
        on_too_many_failures: Callable[[FailureCause], None],
        on_changed: Callable[[CheckpointFlags], None],
    ) -> None:
        """`on_too_many_failures` gets the cause when more checkpoints failed than are tolerated.

        `on_changed` gets the flags whenever one of them has changed, and at `begin` if one of them is set then.
        """
        self._on_changed = on_changed
        self._owner = owner
        self._on_too_many_failures = on_too_many_failures
        self._graph = graph
        self._services = services
        self._settings = settings
        self._storage = CheckpointStorageAccess(
            owner.name,
            starting_point.storage,
            starting_point.recovery,
            settings.directory,
            owner.run_blocking,
            services.timers,
        )
        self._messages = CheckpointMessages(graph, services.links, self.trigger_failed)
        self._restorer = Restorer(graph)
        participants = GraphParticipants(graph, settings.after_tasks_finish)
        self._coordinator = CheckpointCoordinator(
            settings,
            participants,
            services.clock,
            starting_point.next_id,
            starting_point.latest_savepoint_id,
            self._storage.retried,
        )
        if starting_point.restored is not None:
            self._coordinator.restored(starting_point.restored, starting_point.older)
        self._leftovers = starting_point.leftovers
        self._answers: dict[str, asyncio.Future[CompletedCheckpoint]] = {}
        self._work: set[asyncio.Task[None]] = set()
        self._next_restart: asyncio.Future[None] | None = None
        self._timer: TimerHandle | None = None
        self._timer_due = 0.0
        #: Running and finished tasks of each vertex at the last `observe`.
        self._seen: tuple[tuple[int, int], ...] = ()
        self._over = False
        #: The failure names the checkpoint that stays.
        self._told_place = False
        #: The flags of the last `on_changed`.
        self._told = CheckpointFlags()
        #: Tasks are restarting: the checkpoint from which they begin counts as a restore.
        self._restarting = False

    # What others look at.

    @property
    def coordinator(self) -> CheckpointCoordinator:
        """The coordinator, with its store and statistics."""
        return self._coordinator

    # Events.

    def begin(self) -> None:
        """Starts checkpoints, and deletes leftovers of the job's former masters."""
        self._tell_changes()
        leftovers, self._leftovers = self._leftovers, ()
        for location in leftovers:
            self._spawn(self._storage.delete(location, ()), f"discard {location.directory}")

    def handle(self, event: Event) -> None:
        """Passes an event to the coordinator and carries out its actions."""
        self._owner.assert_main_thread()
        actions = self._coordinator.handle(event)
        self._tell_changes()
        for action in actions:
            self._do(action)
        self._arm()

    def _tell_changes(self) -> None:
        coordinator = self._coordinator
        flags = CheckpointFlags(
            coordinator.later_may_complete,
            coordinator.ends_with_savepoint,
            self._settings.interval is not None and coordinator.store.latest is None,
        )
        if flags != self._told:
            self._told = flags
            self._on_changed(flags)

    def end_of_data(self, attempts: Sequence[ExecutionAttemptID]) -> None:
        """Notes that these tasks are at the end of their input and wait for a checkpoint."""
        for attempt_id in attempts:
            if (execution := self._graph.execution(attempt_id)) is not None:
                execution.awaits_final_checkpoint = True
        self.handle(Wake())

    def observe(self) -> None:
        """Tells the coordinator of task states that the scheduler has changed."""
        status = self._graph.status
        if status.is_globally_terminal_state() or status in (JobStatus.FAILING, JobStatus.CANCELLING):
            if not self._over:
                self._over = True
                self._storage.job_is_over()
                self.handle(JobEndEvent(f"the job is {status.value}"))
            if status is JobStatus.FAILED and not self._told_place:
                # Not before: a job that is cancelled while it fails may lose its checkpoints.
                self._told_place = True
                self._tell_where_to_go_on()
            return
        seen = tuple(
            (vertex.counts[ExecutionState.RUNNING], vertex.counts[ExecutionState.FINISHED])
            for vertex in self._graph.vertices.values()
        )
        if seen == self._seen:
            return
        self._seen = seen
        missing = {attempt for pending in self._coordinator.pending for attempt in pending.missing_tasks}
        executions = [each for attempt in missing if (each := self._graph.execution(attempt)) is not None]
        finished = {
            execution.attempt_id: execution.latest_checkpoint
            for execution in executions
            if execution.state is ExecutionState.FINISHED
        }
        self.handle(TasksFinished(finished) if finished else Wake())

    def _tell_where_to_go_on(self) -> None:
        """Adds to a final failure the place of the checkpoint from which the user starts the program again."""
        failure = self._graph.failure
        if failure is not None and failure.is_final:
            self._graph.failure = final_cause(failure, self._coordinator.store.latest)

    def _arm(self) -> None:
        due = self._coordinator.next_wake()
        if self._timer is not None and due == self._timer_due:
            return
        self.stop()
        if due is not None:
            self._timer_due = due
            seconds = max(0.0, due - self._services.clock.monotonic())
            self._timer = self._services.timers.call_later(seconds, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.handle(Wake())

    def stop(self) -> None:
        """Stops all timers."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def in_doubt(self) -> bool:
        """True while tasks must not be restored, because another master might begin from a later checkpoint."""
        return self._coordinator.in_doubt

    async def release(self, terminal: bool) -> None:
        """Gives up the job's checkpoint pointers. `terminal`: no master will begin from them any more."""
        await self._storage.release(terminal)

    async def end(self) -> None:
        """Deletes the checkpoints that must not outlive the ended job, and waits for pending writes and deletions."""
        self.observe()
        self.stop()
        outcome = FinalOutcome.of(self._graph.status, self._graph.failure)
        for dropped in self._coordinator.store.end(outcome, self._settings.retention):
            for action in self._coordinator.dropped(dropped):
                self._do(action)
        while self._work:
            await asyncio.gather(*self._work, return_exceptions=True)
        kept = self._coordinator.store.all
        await self._storage.clean_up([each.checkpoint_id for each in kept])
        own = [each.pointer for each in kept if each.owned and not each.claimed]
        if folders := folders_to_mark(outcome, self._settings, own):
            await self._storage.mark_kept(folders, outcome.why)

    @property
    def left_some(self) -> bool:
        """True if `end` could not delete everything that must not outlive the job."""
        return self._storage.left_some

    # Requests.

    async def request(
        self,
        kind: SnapshotKind,
        directory: str = "",
        cancel_job: bool = False,
        *,
        native: bool = False,
        checkpoint_type: CheckpointType = CheckpointType.CONFIGURED,
    ) -> CompletedCheckpoint:
        """Takes a checkpoint or savepoint now.

        Raises CheckpointFailedError with the cause if it does not complete.
        """
        request = Requested(
            request_id=self._services.ids.hex_id(),
            kind=kind,
            directory=directory,
            cancel_job=cancel_job,
            native=native,
            checkpoint_type=checkpoint_type,
        )
        answer: asyncio.Future[CompletedCheckpoint] = self._owner.loop.create_future()
        self._answers[request.request_id] = answer
        self.handle(request)
        return await answer

    def next_restart(self) -> asyncio.Future[None]:
        """A future that is done when tasks restart."""
        if self._next_restart is None:
            self._next_restart = self._owner.loop.create_future()
        return self._next_restart

    # Restores.

    @property
    def checkpoint_id(self) -> int:
        """The checkpoint from which a task that restarts now would begin; -1 = none."""
        latest = self._coordinator.store.latest
        return -1 if latest is None else latest.checkpoint_id

    def on_restart(self, attempts: frozenset[ExecutionAttemptID]) -> None:
        """Aborts pending checkpoints: these attempts are being cancelled to start again."""
        self._restarting = True
        if self._next_restart is not None:
            self._next_restart.set_result(None)
            self._next_restart = None
        self.handle(TasksRestart("tasks of the job restart"))

    def restore_for(self, executions: Sequence[Execution]) -> RestorePlan:
        """The part of the latest completed checkpoint that belongs to executions about to be deployed."""
        latest = self._coordinator.store.latest
        latest_savepoint_id = self._coordinator.latest_savepoint_id
        if latest is None:
            return RestorePlan(latest_savepoint_id=latest_savepoint_id)
        if self._restarting:
            self._restarting = False
            self._coordinator.statistics.restored(latest)
        plan = self._restorer.plan(latest, executions)
        return msgspec.structs.replace(plan, latest_savepoint_id=latest_savepoint_id)

    # Actions.

    def _do(self, action: Action) -> None:
        match action:
            case PrepareLocation(checkpoint_id):
                self._spawn(self._report(self._storage.prepare, action), f"begin checkpoint {checkpoint_id}")
            case TriggerCoordinators():
                self._messages.trigger_coordinators(action)
            case TriggerTasks():
                self._messages.trigger_tasks(action)
            case StoreMetadata(checkpoint_id):
                self._spawn(self._report(self._storage.store, action), f"store checkpoint {checkpoint_id}")
            case SettleDoubt(checkpoint_id):
                settling = self._report(self._storage.settle, checkpoint_id)
                self._spawn(settling, f"settle checkpoint {checkpoint_id}")
            case Notify():
                self._messages.notify(action)
            case DiscardLocation(checkpoint_id, location, shared):
                self._spawn(self._storage.delete(location, shared), f"discard checkpoint {checkpoint_id}")
            case Discard(dropped):
                deleting = self._storage.delete_completed(dropped)
                self._spawn(deleting, f"discard checkpoint {dropped.checkpoint.checkpoint_id}")
            case Succeeded(request, checkpoint):
                self._answer(request, checkpoint)
            case Refused(request, cause):
                self._refuse(request, cause)
            case FailJob(cause):
                self._on_too_many_failures(cause)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._owner.spawn(work, name)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _report(self, carry_out: Callable[[T], Awaitable[Event | None]], what: T) -> None:
        event = await carry_out(what)
        if event is not None:
            self.handle(event)

    def trigger_failed(self, trigger: TriggerCheckpoint, error: YarrowError) -> None:
        """Aborts the checkpoint whose trigger a TaskExecutor did not take."""
        text = f"checkpoint {trigger.checkpoint_id} could not be triggered: {error}"
        self.handle(
            DeclineCheckpoint(
                job_id=trigger.job_id,
                checkpoint_id=trigger.checkpoint_id,
                attempt_id=ExecutionAttemptID(""),
                cause=failure_of(CheckpointFailedError, text),
            )
        )

    def _answer(self, request: Requested, checkpoint: CompletedCheckpoint) -> None:
        answer = self._answers.pop(request.request_id, None)
        if answer is not None and not answer.done():
            answer.set_result(checkpoint)

    def _refuse(self, request: Requested, cause: FailureCause) -> None:
        answer = self._answers.pop(request.request_id, None)
        if answer is not None and not answer.done():
            answer.set_exception(CheckpointFailedError(cause.message))
