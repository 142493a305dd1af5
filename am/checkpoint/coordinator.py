"""CheckpointCoordinator: when checkpoints begin, which parts they wait for, and how they end.

Owner: the JobMaster's loop. Pure: `handle` takes in one event and returns actions; the clock is injected.
request_decider.py decides which checkpoint begins next, and pending.py knows which parts it lacks. cleaner.py
removes aborted ones, and failure_manager.py counts failures. A failed savepoint does not count as a failure.
Jobs do not restart from an intermediate savepoint, and sinks do not commit because of it (as in Flink since
1.15). Both happen with a savepoint that stops the job.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from yarrow.am.checkpoint.cleaner import CheckpointsCleaner
from yarrow.am.checkpoint.completed import CompletedCheckpoint, CompletedCheckpointStore, Dropped
from yarrow.am.checkpoint.events import (
    Action,
    Discard,
    DoubtSettled,
    Event,
    FailJob,
    JobEndEvent,
    LocationFailed,
    LocationReady,
    MetadataFailed,
    MetadataStored,
    Notify,
    PrepareLocation,
    Refused,
    Requested,
    StoreMetadata,
    Succeeded,
    TasksFinished,
    TasksRestart,
    TriggerCoordinators,
    TriggerTasks,
    Wake,
)
from yarrow.am.checkpoint.failure_manager import CheckpointFailureManager
from yarrow.am.checkpoint.failures import (
    expired_cause,
    restart_cause,
    unavailable_cause,
    union_cause,
)
from yarrow.am.checkpoint.pending import (
    CheckpointState,
    PendingCheckpoint,
)
from yarrow.am.checkpoint.plan import FINISHED_TASKS, Participants
from yarrow.am.checkpoint.request_decider import CheckpointRequestDecider
from yarrow.am.checkpoint.settings import CheckpointSettings
from yarrow.am.checkpoint.shared_state import SharedStateRegistry
from yarrow.am.checkpoint.statistics import CheckpointStatisticsTracker
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.ids import ExecutionAttemptID
from yarrow.runtime.data.checkpoint_options import (
    CheckpointLocation,
    CheckpointOptions,
    CheckpointType,
    SnapshotKind,
)
from yarrow.runtime.rpc.messages import (
    AcknowledgeCheckpoint,
    AcknowledgeCoordinator,
    CheckpointNotice,
    DeclineCheckpoint,
    FailureCause,
)


class CheckpointCoordinator:
    """The pure core of checkpoints of one job."""

    def __init__(
        self,
        settings: CheckpointSettings,
        participants: Participants,
        clock: Clock,
        next_id: int = 1,
        latest_savepoint_id: int = -1,
        retried_by_master: Callable[[int], str] = lambda checkpoint_id: "",
    ) -> None:
        """`retried_by_master`: why the write of a checkpoint's folder or metadata is being retried, "" = it is not."""
        self._settings = settings
        self._participants = participants
        self._clock = clock
        self._next_id = next_id
        self._retried_by_master = retried_by_master
        self.registry = SharedStateRegistry()
        self.store = CompletedCheckpointStore(settings.retained, self.registry)
        self.statistics = CheckpointStatisticsTracker(participants.job, settings, clock)
        self._failures = CheckpointFailureManager(settings.tolerable_failures)
        self._pending: dict[int, PendingCheckpoint] = {}
        self._decider = CheckpointRequestDecider(settings, participants, clock, self._pending)
        self._cleaner = CheckpointsCleaner(self.store, self.registry, self._pending)
        #: Requests whose checkpoint is pending, by its id.
        self._asked: dict[int, Requested] = {}
        #: A savepoint that ends the job is complete, and not all tasks have ended yet.
        self.ends_with_savepoint = False
        self._ended = False
        #: Id of the latest completed savepoint, -1 = none.
        self.latest_savepoint_id = latest_savepoint_id

    def restored(self, checkpoint: CompletedCheckpoint, older: Iterable[CompletedCheckpoint] = ()) -> None:
        """Sets the checkpoint from which the job begins; ids continue after it.

        `older`: others that a former master has kept.
        """
        for kept in older:
            self.store.restored(kept)
        self._next_id = max(self._next_id, checkpoint.checkpoint_id + 1)
        self.store.restored(checkpoint)
        self.statistics.restored(checkpoint)

    @property
    def pending(self) -> tuple[PendingCheckpoint, ...]:
        """Pending checkpoints, oldest first."""
        return tuple(self._pending.values())

    @property
    def in_doubt(self) -> bool:
        """True while the `_metadata` of an aborted checkpoint may exist.

        No task may be restored from an older one.
        """
        return self._cleaner.in_doubt

    @property
    def later_may_complete(self) -> bool:
        """True if `in_doubt`, or if a restart now would abort a checkpoint whose metadata are being written."""
        return self.in_doubt or any(pending.stored is not None for pending in self._pending.values())

    @property
    def next_id(self) -> int:
        """The id of the next checkpoint."""
        return self._next_id

    def next_wake(self) -> float | None:
        """Monotonic time in seconds at which the next `Wake` is needed; None = not before another event."""
        times = [pending.expires for pending in self._pending.values()]
        if (periodic := self._decider.next_time()) is not None:
            times.append(periodic)
        return min(times, default=None)

    def handle(self, event: Event) -> list[Action]:
        """Takes in an event; returns the resulting actions in their order."""
        actions = self._react(event)
        if not self._ended:
            actions += self._expire()
            actions += self._begin()
        return actions

    def _react(self, event: Event) -> list[Action]:
        match event:
            case Wake():
                return [action for pending in self._pending.values() for action in self._reach(pending)]
            case Requested():
                return self._request(event)
            case LocationReady(checkpoint_id, location):
                return self._located(checkpoint_id, location)
            case LocationFailed(checkpoint_id, cause, counts):
                actions = self._abort_id(checkpoint_id, cause, counts)
                self._cleaner.not_located(checkpoint_id)
                return actions
            case AcknowledgeCoordinator():
                return self._coordinator_acknowledged(event)
            case AcknowledgeCheckpoint():
                return self._task_acknowledged(event)
            case DeclineCheckpoint():
                return self._declined(event)
            case MetadataStored(checkpoint_id, pointer, size):
                return self._stored(checkpoint_id, pointer, size)
            case MetadataFailed(checkpoint_id, cause, counts, pointer, in_doubt):
                actions = self._abort_id(checkpoint_id, cause, counts)
                follows = self._cleaner.doubt if in_doubt else self._cleaner.not_stored
                return [*actions, *follows(checkpoint_id, pointer)]
            case DoubtSettled(checkpoint_id):
                return self._cleaner.settled(checkpoint_id)
            case TasksFinished(attempts):
                return self._finished(attempts)
            case TasksRestart(cause):
                self._decider.tasks_restart()
                self.ends_with_savepoint = False
                return self._abort_all(restart_cause(cause))
            case JobEndEvent(cause):
                return self._end(cause)

    # Begin.

    def _request(self, request: Requested) -> list[Action]:
        if problem := self._decider.problem():
            return [Refused(request, unavailable_cause(self._participants.job.name, problem))]
        actions: list[Action] = []
        if request.kind.stops_job or request.cancel_job:
            self._decider.job_is_to_end()
            actions = self._abort_all(restart_cause("a client asked for a savepoint that ends the job"))
        self._decider.request(request)
        return actions

    def _begin(self) -> list[Action]:
        begin = self._decider.decide()
        return [] if begin is None else self._start(begin.kind, begin.request)

    def _start(self, kind: SnapshotKind, request: Requested | None) -> list[Action]:
        checkpoint_id = self._next_id
        self._next_id += 1
        expires = self._clock.monotonic() + self._settings.timeout
        request_id = request.request_id if request else None
        pending = PendingCheckpoint(
            checkpoint_id,
            kind,
            self._clock,
            expires,
            request_id,
            native=request.native if request else False,
            checkpoint_type=request.checkpoint_type if request else CheckpointType.CONFIGURED,
        )
        self._pending[checkpoint_id] = pending
        if request is not None:
            self._asked[checkpoint_id] = request
        self.statistics.begun(pending, self._options_of(kind), self._participants.job)
        return [PrepareLocation(checkpoint_id, kind, request.directory if request else "")]

    def _located(self, checkpoint_id: int, location: CheckpointLocation) -> list[Action]:
        pending = self._pending.get(checkpoint_id)
        if pending is None:
            return self._cleaner.located(checkpoint_id, location)
        pending.location = location
        if problem := self._participants.problem():
            return self._abort(pending, unavailable_cause(self._participants.job.name, problem), counts=False)
        plan = pending.plan = self._participants.plan()
        self.statistics.planned(pending)
        if plan.coordinators:
            pending.machine.transition(CheckpointState.COORDINATORS)
            options = self._options(pending)
            return [TriggerCoordinators(checkpoint_id, pending.timestamp_ms, options, plan.coordinators)]
        return self._trigger_tasks(pending)

    def _trigger_tasks(self, pending: PendingCheckpoint) -> list[Action]:
        assert pending.plan is not None
        pending.machine.transition(CheckpointState.TASKS)
        return [*self._trigger(pending, pending.plan.trigger), *self._store_if_acknowledged(pending)]

    def _trigger(self, pending: PendingCheckpoint, attempts: tuple[ExecutionAttemptID, ...]) -> list[Action]:
        """Triggers these tasks; first for earlier checkpoints whose barriers may come to them behind an end of data."""
        actions: list[Action] = []
        for earlier in self._pending.values():
            if earlier.checkpoint_id < pending.checkpoint_id and earlier.state is CheckpointState.TASKS:
                missing = earlier.missing_tasks
                actions += self._triggered(
                    earlier, earlier.trigger_also([attempt for attempt in attempts if attempt in missing])
                )
        return [*actions, *self._triggered(pending, attempts)]

    def _triggered(
        self, pending: PendingCheckpoint, attempts: tuple[ExecutionAttemptID, ...]
    ) -> list[Action]:
        if not attempts:
            return []
        return [TriggerTasks(pending.checkpoint_id, pending.timestamp_ms, self._options(pending), attempts)]

    def _reach(self, pending: PendingCheckpoint) -> list[Action]:
        """Triggers the tasks to which no barrier comes any more."""
        if pending.plan is None or not pending.missing_tasks:
            return []
        more = pending.trigger_also(self._participants.cut_off(pending.missing_tasks, pending.plan))
        # The others get the trigger when the enumerators have answered.
        return self._trigger(pending, more) if pending.state is CheckpointState.TASKS else []

    def _options(self, pending: PendingCheckpoint) -> CheckpointOptions:
        assert pending.location is not None
        exactly_once, unaligned, timeout = self._options_of(pending.kind)
        return CheckpointOptions(
            kind=pending.kind,
            location=pending.location,
            exactly_once=exactly_once,
            unaligned=unaligned,
            aligned_timeout_ms=timeout,
            native=pending.native,
            checkpoint_type=pending.checkpoint_type,
            oldest_kept=self.store.oldest_id,
        )

    def _options_of(self, kind: SnapshotKind) -> tuple[bool, bool, int]:
        """Exactly once, unaligned, aligned timeout.

        Savepoints and checkpoints that stop tasks hold no records in flight.
        """
        settings = self._settings
        unaligned = settings.unaligned and settings.exactly_once and kind is SnapshotKind.CHECKPOINT
        return settings.exactly_once, unaligned, settings.aligned_timeout_ms if unaligned else 0

    # Acknowledgements.

    def _coordinator_acknowledged(self, message: AcknowledgeCoordinator) -> list[Action]:
        pending = self._pending.get(message.checkpoint_id)
        if pending is None:
            return self._cleaner.late(message)
        if (
            pending.state is not CheckpointState.COORDINATORS
            or message.operator_id not in pending.missing_coordinators
        ):
            return []
        pending.coordinator_states[message.operator_id] = message.state
        return [] if pending.missing_coordinators else self._trigger_tasks(pending)

    def _task_acknowledged(self, message: AcknowledgeCheckpoint) -> list[Action]:
        pending = self._pending.get(message.checkpoint_id)
        if pending is None:
            return self._cleaner.late(message)
        if pending.state is not CheckpointState.TASKS or message.attempt_id not in pending.missing_tasks:
            # Repeated, or from a task that takes no part: its files may be those of an accepted part.
            return []
        pending.acknowledgements[message.attempt_id] = message
        self.statistics.acknowledged(pending, message)
        return self._store_if_acknowledged(pending)

    def _store_if_acknowledged(self, pending: PendingCheckpoint) -> list[Action]:
        if pending.state is not CheckpointState.TASKS or pending.missing_tasks:
            return []
        if operator := pending.partly_ended_union(self._participants.job):
            return self._abort(pending, union_cause(operator))
        assert pending.location is not None
        pending.machine.transition(CheckpointState.STORING)
        pending.stored = pending.metadata(self._participants.job, self.latest_savepoint_id)
        return [StoreMetadata(pending.checkpoint_id, pending.location, pending.stored)]

    def _declined(self, message: DeclineCheckpoint) -> list[Action]:
        pending = self._pending.get(message.checkpoint_id)
        if message.still_tried:
            if pending is not None:
                pending.retried.pop(message.attempt_id, None)
                pending.retried[message.attempt_id] = message.cause.message
            return []
        if pending is None:
            return self._cleaner.late(message)
        if pending.state not in (CheckpointState.COORDINATORS, CheckpointState.TASKS):
            return []
        if message.attempt_id and message.attempt_id not in pending.missing_tasks:
            return []
        return (self._begin_anew if message.not_ready else self._abort)(pending, message.cause)

    def _finished(self, attempts: Mapping[ExecutionAttemptID, int]) -> list[Action]:
        """Takes the end of tasks: a pending checkpoint whose barrier had not come to a task counts it as ended."""
        actions: list[Action] = []
        for pending in list(self._pending.values()):
            ended = attempts.keys() & pending.missing_tasks
            if not ended:
                continue
            if not self._settings.after_tasks_finish:
                cause = unavailable_cause(self._participants.job.name, FINISHED_TASKS)
                actions += self._abort(pending, cause, counts=False)
            elif any(attempts[attempt_id] >= pending.checkpoint_id for attempt_id in ended):
                # It has sent a barrier, and its state at that barrier is missing.
                cause = restart_cause("a task finished before it acknowledged")
                actions += self._begin_anew(pending, cause)
            else:
                actions += self._without(pending, ended)
        return actions

    def _without(self, pending: PendingCheckpoint, ended: Collection[ExecutionAttemptID]) -> list[Action]:
        """Goes on without tasks that have ended: their consumers have all their rows before the end of data."""
        pending.tasks_ended(ended)
        self.statistics.planned(pending)
        return [*self._reach(pending), *self._store_if_acknowledged(pending)]

    # End.

    def _stored(self, checkpoint_id: int, pointer: str, size: int) -> list[Action]:
        pending = self._pending.get(checkpoint_id)
        if pending is None:
            return self._cleaner.stored(checkpoint_id, pointer)
        pending.machine.transition(CheckpointState.COMPLETED)
        del self._pending[checkpoint_id]
        self._decider.ended(pending)
        completed = pending.completed(pointer)
        self.statistics.completed(pending, completed, size)
        if pending.kind.is_savepoint:
            self.latest_savepoint_id = max(self.latest_savepoint_id, checkpoint_id)
        self.ends_with_savepoint |= pending.kind.stops_job
        actions: list[Action] = []
        if not pending.kind.is_savepoint or pending.kind.stops_job:
            self._failures.succeeded()
            actions += self._subsume(completed)
        actions += self._cleaner.no_longer_awaited(checkpoint_id)
        request = self._asked.pop(checkpoint_id, None)
        if request is not None:
            actions.append(Succeeded(request, completed))
        return actions

    def _subsume(self, completed: CompletedCheckpoint) -> list[Action]:
        """Aborts older pending checkpoints, which are useless now, and drops older completed ones."""
        checkpoint_id = completed.checkpoint_id
        dropped = self.store.add(completed, self._cleaner.under_way())
        latest = self.store.latest
        latest_id = latest.checkpoint_id if latest else checkpoint_id
        actions: list[Action] = [Notify(checkpoint_id, CheckpointNotice.COMPLETED, latest_id)]
        for older in [pending for pending in self._pending.values() if self._is_subsumed(pending, completed)]:
            cause = restart_cause(f"checkpoint {checkpoint_id} is complete and later")
            actions += self._abort(older, cause, counts=False)
        for drop in dropped:
            actions.append(Notify(drop.checkpoint.checkpoint_id, CheckpointNotice.SUBSUMED, latest_id))
            actions += self.dropped(drop)
        return actions

    def dropped(self, drop: Dropped) -> list[Action]:
        """The actions that delete a dropped checkpoint; files of other owners stay."""
        if drop.checkpoint.owned:
            self.statistics.discarded(drop.checkpoint.checkpoint_id)
        return [Discard(drop)] if drop.checkpoint.owned or drop.shared else []

    @staticmethod
    def _is_subsumed(pending: PendingCheckpoint, completed: CompletedCheckpoint) -> bool:
        return pending.checkpoint_id < completed.checkpoint_id and not pending.kind.is_savepoint

    def _expire(self) -> list[Action]:
        now = self._clock.monotonic()
        late = [pending for pending in self._pending.values() if pending.expires <= now]
        actions: list[Action] = []
        for pending in late:
            retried = pending.last_retry or self._retried_by_master(pending.checkpoint_id)
            cause = expired_cause(pending, self._participants.job, self._settings.timeout, retried)
            actions += self._abort(pending, cause)
        return actions

    def _abort_id(self, checkpoint_id: int, cause: FailureCause, counts: bool = True) -> list[Action]:
        pending = self._pending.get(checkpoint_id)
        return [] if pending is None else self._abort(pending, cause, counts)

    def _abort_all(self, cause: FailureCause) -> list[Action]:
        actions: list[Action] = []
        for pending in list(self._pending.values()):
            actions += self._abort(pending, cause, counts=False)
        return [*actions, *(Refused(request, cause) for request in self._decider.withdraw_requests())]

    def _abort(self, pending: PendingCheckpoint, cause: FailureCause, counts: bool = True) -> list[Action]:
        """Aborts a checkpoint. `counts` False: it was called off, which is no failure."""
        checkpoint_id = pending.checkpoint_id
        state = pending.state
        pending.machine.transition(CheckpointState.ABORTED, cause.message)
        del self._pending[checkpoint_id]
        self._decider.ended(pending)
        self.statistics.failed(pending, cause)
        actions = self._cleaner.aborted(pending, state)
        request = self._asked.pop(checkpoint_id, None)
        if request is not None:
            if request.kind.stops_job or request.cancel_job:
                self._decider.job_goes_on()
            actions.append(Refused(request, cause))
        if counts and not pending.kind.is_savepoint and (verdict := self._failures.failed(cause)):
            actions.append(FailJob(verdict))
        return actions

    def _begin_anew(self, pending: PendingCheckpoint, cause: FailureCause) -> list[Action]:
        """Repeats a requested checkpoint that met a task which was just ending."""
        request = self._asked.get(pending.checkpoint_id)
        if request is not None and self._decider.request_again(request):
            del self._asked[pending.checkpoint_id]
        return self._abort(pending, cause, counts=False)

    def _end(self, cause: str) -> list[Action]:
        self._decider.job_ends()
        actions = self._abort_all(unavailable_cause(self._participants.job.name, cause))
        self._ended = True
        return actions
