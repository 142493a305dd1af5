"""CheckpointLink: carries out what the CheckpointCoordinator decides, and tells it what happens.

Owner: the JobMaster's loop; storage is touched in its blocking threads only. Must not decide anything itself. A storage
that fails fails the checkpoint, never the job.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from yarrow.am.checkpoint.completed import CompletedCheckpoint, Dropped
from yarrow.am.checkpoint.coordinator import CheckpointCoordinator
from yarrow.am.checkpoint.events import (
    Action,
    Discard,
    DiscardLocation,
    DoubtSettled,
    Event,
    FailJob,
    JobEnds,
    LocationFailed,
    LocationReady,
    MetadataFailed,
    MetadataStored,
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
from yarrow.am.checkpoint.plan import GraphParticipants, enumerator_of
from yarrow.am.checkpoint.recovery_store import RecoveryStoreError, UnknownOutcomeError
from yarrow.am.checkpoint.restore import Restorer, StartingPoint
from yarrow.am.checkpoint.settings import CheckpointSettings
from yarrow.am.errors import failure_of
from yarrow.am.jobmaster.execution_graph import Execution, ExecutionGraph
from yarrow.am.jobmaster.restore import RestorePlan
from yarrow.am.jobmaster.task_executor_link import TaskExecutorLink
from yarrow.runtime.common import fault_points
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import CheckpointFailedError, YarrowError
from yarrow.runtime.common.ids import ExecutionAttemptID, IdFactory, OperatorID, ResourceID
from yarrow.runtime.common.timers import TimerHandle, Timers
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import ExecutionState, JobStatus
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.messages import (
    CheckpointNotice,
    DeclineCheckpoint,
    FailureCause,
    NotifyCheckpoint,
    TriggerCheckpoint,
)
from yarrow.runtime.snapshot.handles import CheckpointMetadata
from yarrow.runtime.snapshot.options import (
    CheckpointLocation,
    CheckpointOptions,
    CheckpointType,
    SnapshotKind,
)
from yarrow.runtime.snapshot.storage import OpenedSnapshot

_log = logging.getLogger(__name__)

#: Seconds until a pointer that may have been written is removed again, after it could not be.
_DOUBT_PAUSE = 1.0


class _NotPointedTo(Exception):
    """The metadata are written, the pointer to them is not, or perhaps."""

    def __init__(self, pointer: str, error: RecoveryStoreError) -> None:
        super().__init__(str(error))
        self.pointer = pointer
        self.error = error


class CheckpointedJob(Protocol):
    """What the link asks of its JobMaster."""

    def fail_by_checkpoints(self, cause: FailureCause) -> None:
        """More checkpoints failed than are tolerated."""
        ...


@dataclass(frozen=True, slots=True)
class CheckpointServices:
    """What a CheckpointLink gets from its surroundings."""

    clock: Clock
    timers: Timers
    ids: IdFactory
    #: TaskExecutors of the job, as they are at the time of asking.
    links: Mapping[ResourceID, TaskExecutorLink]


class CheckpointLink:
    """Checkpoints of one running job; implements RestoreProvider."""

    def __init__(
        self,
        owner: RpcEndpoint,
        job: CheckpointedJob,
        graph: ExecutionGraph,
        services: CheckpointServices,
        settings: CheckpointSettings,
        starting_point: StartingPoint,
    ) -> None:
        self._owner = owner
        self._job = job
        self._graph = graph
        self._services = services
        self._settings = settings
        self._starting_point = starting_point
        self._storage = starting_point.storage
        self._recovery = starting_point.recovery
        self._restorer = Restorer(graph.job)
        participants = GraphParticipants(graph, settings.after_tasks_finish)
        self._coordinator = CheckpointCoordinator(
            graph.job,
            settings,
            participants,
            services.clock,
            starting_point.next_id,
            starting_point.latest_savepoint_id,
        )
        if starting_point.restored is not None:
            self._coordinator.restored(starting_point.restored, starting_point.older)
        self._answers: dict[str, asyncio.Future[CompletedCheckpoint]] = {}
        self._work: set[asyncio.Task[None]] = set()
        self._next_restart: asyncio.Future[None] | None = None
        self._timer: TimerHandle | None = None
        self._timer_due = 0.0
        #: Running and finished tasks of each vertex when last looked at.
        self._seen: tuple[tuple[int, int], ...] = ()
        self._over = False
        #: Tasks restart: what they begin from is a restore to be counted.
        self._restarting = False

    # What others look at.

    @property
    def coordinator(self) -> CheckpointCoordinator:
        """The decisions, with store and statistics."""
        return self._coordinator

    # What happens.

    def handle(self, event: Event) -> None:
        """Tells the coordinator and does what it says."""
        self._owner.assert_main_thread()
        for action in self._coordinator.handle(event):
            self._do(action)
        self._arm()

    def end_of_data(self, attempts: Sequence[ExecutionAttemptID]) -> None:
        """These tasks are at the end of their input and wait for a checkpoint."""
        for attempt_id in attempts:
            if (execution := self._graph.execution(attempt_id)) is not None:
                execution.awaits_final_checkpoint = True
        self.handle(Wake())

    def observe(self) -> None:
        """Looks at what the scheduler has changed."""
        status = self._graph.status
        if status.is_globally_terminal or status in (JobStatus.FAILING, JobStatus.CANCELLING):
            if not self._over:
                self._over = True
                self.handle(JobEnds(f"the job is {status.value}"))
            return
        seen = tuple(
            (vertex.counts[ExecutionState.RUNNING], vertex.counts[ExecutionState.FINISHED])
            for vertex in self._graph.vertices.values()
        )
        if seen == self._seen:
            return
        self._seen = seen
        finished = frozenset(
            attempt_id
            for pending in self._coordinator.pending
            for attempt_id in pending.missing_tasks
            if self._has_finished(attempt_id)
        )
        self.handle(TasksFinished(finished) if finished else Wake())

    def _has_finished(self, attempt_id: ExecutionAttemptID) -> bool:
        execution = self._graph.execution(attempt_id)
        return execution is not None and execution.state is ExecutionState.FINISHED

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
        """No timer runs any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def in_doubt(self) -> bool:
        """True while tasks must not be restored: another master might begin from a later checkpoint than they would."""
        return self._coordinator.in_doubt

    @property
    def later_may_complete(self) -> bool:
        """As `in_doubt`, for tasks of which it is just being decided that they restart."""
        return self._coordinator.later_may_complete

    async def release(self, terminal: bool) -> None:
        """This master is done with the job's pointers; `terminal`: nobody will begin from them any more."""
        try:
            await self._owner.run_blocking(self._recovery.close, terminal)
        except RecoveryStoreError as error:
            _log.warning("%s: pointers to checkpoints were not removed: %s", self._owner.name, error)

    async def end(self) -> None:
        """The job has ended: deletes what is not to outlive it, waits for what is being written or deleted."""
        self.observe()
        self.stop()
        status, retention = self._graph.status, self._settings.retention
        for dropped in self._coordinator.store.end(status, retention):
            for action in self._coordinator.dropped(dropped):
                self._do(action)
        while self._work:
            await asyncio.gather(*self._work, return_exceptions=True)
        if not self._coordinator.store.all:
            await self._owner.run_blocking(self._storage.clean_up)

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
        """Takes a checkpoint or savepoint now; CheckpointFailedError with the cause when it is not completed."""
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
        """Done when tasks restart."""
        if self._next_restart is None:
            self._next_restart = self._owner.loop.create_future()
        return self._next_restart

    # RestoreProvider.

    @property
    def checkpoint_id(self) -> int:
        latest = self._coordinator.store.latest
        return -1 if latest is None else latest.checkpoint_id

    def job_replaced(self, job: JobGraph) -> None:
        """The job goes on at another parallelism, from the latest checkpoint."""
        self._restorer = Restorer(job)
        self._coordinator.job_replaced(job)

    def needs_global_restart(self) -> bool:
        """Where a savepoint was to end the job: some tasks have ended with it, and must go on like the others.

        A savepoint that the job lives on after commits nothing, and asks for nothing.
        """
        return self._coordinator.ends_with_savepoint

    def on_restart(self, attempts: frozenset[ExecutionAttemptID]) -> None:
        self._restarting = True
        if self._next_restart is not None:
            self._next_restart.set_result(None)
            self._next_restart = None
        self.handle(TasksRestart("tasks restart"))

    def restore_for(self, executions: Sequence[Execution]) -> RestorePlan:
        latest = self._coordinator.store.latest
        latest_savepoint_id = self._coordinator.latest_savepoint_id
        if latest is None:
            return RestorePlan(latest_savepoint_id=latest_savepoint_id)
        if self._restarting:
            self._restarting = False
            self._coordinator.statistics.restored(latest)
        plan = self._restorer.plan(latest, executions)
        return replace(plan, latest_savepoint_id=latest_savepoint_id)

    # Actions.

    def _do(self, action: Action) -> None:
        match action:
            case PrepareLocation():
                self._spawn(self._prepare(action), f"begin checkpoint {action.checkpoint_id}")
            case TriggerCoordinators(checkpoint_id, timestamp_ms, options, coordinators):
                self._trigger_coordinators(checkpoint_id, timestamp_ms, options, coordinators)
            case TriggerTasks(checkpoint_id, timestamp_ms, options, attempts):
                self._trigger_tasks(checkpoint_id, timestamp_ms, options, attempts)
            case StoreMetadata():
                self._spawn(self._store(action), f"store checkpoint {action.checkpoint_id}")
            case SettleDoubt(checkpoint_id):
                self._spawn(self._settle(checkpoint_id), f"settle checkpoint {checkpoint_id}")
            case Notify():
                self._notify(action)
            case DiscardLocation(checkpoint_id, location, shared):
                self._spawn(self._delete(location, shared), f"discard checkpoint {checkpoint_id}")
            case Discard(dropped):
                self._discard(dropped)
            case Succeeded(request, checkpoint):
                self._answer(request, checkpoint)
            case Refused(request, cause):
                self._refuse(request, cause)
            case FailJob(cause):
                self._job.fail_by_checkpoints(cause)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._owner.spawn(work, name)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _prepare(self, action: PrepareLocation) -> None:
        try:
            location = await self._owner.run_blocking(self._begin, action)
        except RecoveryStoreError as error:
            self.handle(LocationFailed(action.checkpoint_id, self._recovery_failure(error), counts=False))
        except Exception as error:
            self.handle(LocationFailed(action.checkpoint_id, self._storage_failure(error, action.directory)))
        else:
            self.handle(LocationReady(action.checkpoint_id, location))

    def _begin(self, action: PrepareLocation) -> CheckpointLocation:
        self._recovery.use_checkpoint_id(action.checkpoint_id)
        return self._storage.begin(action.checkpoint_id, action.kind, action.directory)

    async def _store(self, action: StoreMetadata) -> None:
        try:
            pointer = await self._owner.run_blocking(self._write, action.location, action.metadata)
        except _NotPointedTo as failed:
            self.handle(
                MetadataFailed(
                    action.checkpoint_id,
                    self._recovery_failure(failed.error),
                    counts=False,
                    pointer=failed.pointer,
                    in_doubt=isinstance(failed.error, UnknownOutcomeError),
                )
            )
        except Exception as error:
            directory = action.location.directory
            self.handle(MetadataFailed(action.checkpoint_id, self._storage_failure(error, directory)))
        else:
            self.handle(MetadataStored(action.checkpoint_id, pointer))

    def _write(self, location: CheckpointLocation, metadata: CheckpointMetadata) -> str:
        checkpoint_id, kind = metadata.checkpoint_id, metadata.kind
        fault_points.reach("coordinator.before-metadata", checkpoint_id=checkpoint_id)
        outlived = kind.is_savepoint and not kind.stops_job
        if outlived:
            try:
                # Before anybody can find it: no master may have sinks throw away what it holds.
                self._recovery.note_savepoint(checkpoint_id)
            except RecoveryStoreError as error:
                raise _NotPointedTo("", RecoveryStoreError(str(error))) from error
        pointer = self._storage.complete(location, metadata)
        fault_points.reach("coordinator.after-metadata", checkpoint_id=checkpoint_id)
        if pointer and not outlived:
            try:
                self._recovery.add(checkpoint_id, pointer, owned=not kind.is_savepoint)
            except RecoveryStoreError as error:
                raise _NotPointedTo(pointer, error) from error
        return pointer

    def _recovery_failure(self, error: RecoveryStoreError) -> FailureCause:
        return failure_of(type(error), f"it cannot be made known to other masters: {error}")

    async def _settle(self, checkpoint_id: int) -> None:
        """Removes a pointer that may have been written; tried until it is known to be gone, or this master ends."""
        while True:
            try:
                await self._owner.run_blocking(self._recovery.discard, checkpoint_id)
            except RecoveryStoreError as error:
                _log.warning(
                    "%s: whether checkpoint %d can be found is not known: %s",
                    self._owner.name, checkpoint_id, error,
                )  # fmt: skip
                if self._over:
                    return
                await self._pause(_DOUBT_PAUSE)
            else:
                self.handle(DoubtSettled(checkpoint_id))
                return

    async def _pause(self, seconds: float) -> None:
        over = asyncio.Event()
        timer = self._services.timers.call_later(seconds, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()

    def _storage_failure(self, error: Exception, directory: str) -> FailureCause:
        if not isinstance(error, YarrowError | OSError):
            _log.error("%s: checkpoint storage failed", self._owner.name, exc_info=error)
        where = directory or self._settings.directory or "the JobManager's memory"
        return failure_of(
            type(error), f"checkpoint storage at {where} failed: {error or type(error).__name__}"
        )

    async def _delete(self, location: CheckpointLocation, shared: tuple[str, ...]) -> None:
        try:
            await self._owner.run_blocking(self._storage.discard, location, shared)
        except Exception as error:
            _log.warning("%s: %s was not deleted: %s", self._owner.name, location.directory, error)

    def _discard(self, dropped: Dropped) -> None:
        checkpoint = dropped.checkpoint
        self._spawn(self._delete_completed(dropped), f"discard checkpoint {checkpoint.checkpoint_id}")

    async def _delete_completed(self, dropped: Dropped) -> None:
        checkpoint = dropped.checkpoint
        try:
            if not self._over:
                await self._owner.run_blocking(self._recovery.discard, checkpoint.checkpoint_id)
            if checkpoint.claimed:
                snapshot = OpenedSnapshot(checkpoint.metadata, checkpoint.directory)
                await self._owner.run_blocking(self._storage.discard_claimed, snapshot, dropped.shared)
            else:
                location = CheckpointLocation(directory=checkpoint.pointer if checkpoint.owned else "")
                await self._owner.run_blocking(self._storage.discard, location, dropped.shared)
        except Exception as error:
            _log.warning("%s: %s was not deleted: %s", self._owner.name, checkpoint.pointer, error)

    def _trigger_coordinators(
        self,
        checkpoint_id: int,
        timestamp_ms: int,
        options: CheckpointOptions,
        coordinators: tuple[OperatorID, ...],
    ) -> None:
        at: dict[ResourceID, list[OperatorID]] = {}
        for vertex in self._graph.job.vertices:
            for operator_id in enumerator_of(vertex):
                execution = self._graph.subtask(vertex.id, 0)
                if operator_id in coordinators and execution is not None and execution.worker is not None:
                    at.setdefault(execution.worker.resource_id, []).append(operator_id)
        for resource_id, operators in at.items():
            self._send(resource_id, checkpoint_id, timestamp_ms, options, coordinators=tuple(operators))

    def _trigger_tasks(
        self,
        checkpoint_id: int,
        timestamp_ms: int,
        options: CheckpointOptions,
        attempts: tuple[ExecutionAttemptID, ...],
    ) -> None:
        at: dict[ResourceID, list[ExecutionAttemptID]] = {}
        for attempt_id in attempts:
            execution = self._graph.execution(attempt_id)
            if execution is not None and execution.worker is not None:
                at.setdefault(execution.worker.resource_id, []).append(attempt_id)
        for resource_id, there in at.items():
            self._send(resource_id, checkpoint_id, timestamp_ms, options, attempts=tuple(there))

    def _send(
        self,
        resource_id: ResourceID,
        checkpoint_id: int,
        timestamp_ms: int,
        options: CheckpointOptions,
        attempts: tuple[ExecutionAttemptID, ...] = (),
        coordinators: tuple[OperatorID, ...] = (),
    ) -> None:
        trigger = TriggerCheckpoint(
            job_id=self._graph.job.job_id,
            checkpoint_id=checkpoint_id,
            timestamp_ms=timestamp_ms,
            options=options,
            attempts=attempts,
            coordinators=coordinators,
        )
        link = self._services.links.get(resource_id)
        if link is not None:
            link.trigger_checkpoint(trigger, self.trigger_failed)

    def trigger_failed(self, trigger: TriggerCheckpoint, error: YarrowError) -> None:
        """A TaskExecutor did not take the trigger."""
        text = f"checkpoint {trigger.checkpoint_id} could not be triggered: {error}"
        self.handle(
            DeclineCheckpoint(
                job_id=trigger.job_id,
                checkpoint_id=trigger.checkpoint_id,
                attempt_id=ExecutionAttemptID(""),
                cause=failure_of(CheckpointFailedError, text),
            )
        )

    def _notify(self, action: Notify) -> None:
        if action.notice is CheckpointNotice.COMPLETED:
            fault_points.reach("coordinator.before-notify", checkpoint_id=action.checkpoint_id)
        message = NotifyCheckpoint(
            job_id=self._graph.job.job_id,
            checkpoint_id=action.checkpoint_id,
            notice=action.notice,
            latest_completed=action.latest_completed,
        )
        for link in self._services.links.values():
            link.notify_checkpoint(message)

    def _answer(self, request: Requested, checkpoint: CompletedCheckpoint) -> None:
        answer = self._answers.pop(request.request_id, None)
        if answer is not None and not answer.done():
            answer.set_result(checkpoint)

    def _refuse(self, request: Requested, cause: FailureCause) -> None:
        answer = self._answers.pop(request.request_id, None)
        if answer is not None and not answer.done():
            answer.set_exception(CheckpointFailedError(cause.message))
