"""CheckpointCoordinator: when checkpoints begin, what they wait for and how they end.

Owner: the JobMaster's loop. Pure: `handle` takes in one event and returns actions; the clock is injected. One
checkpoint at a time is between its decision and its barriers, so that barriers start in the order of ids. Savepoints
run beside checkpoints: they count neither against the number of concurrent ones nor as failures. Intermediate
savepoints are no point of return and nobody commits because of them (as in Flink since 1.15); one that stops the job
is both.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import replace

from yarrow.am.checkpoint.completed import CompletedCheckpoint, CompletedCheckpointStore, Dropped
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
from yarrow.am.checkpoint.failures import (
    FailureCounter,
    expired_cause,
    restart_cause,
    unavailable_cause,
    union_cause,
)
from yarrow.am.checkpoint.pending import (
    CheckpointState,
    PendingCheckpoint,
    absolute,
    shared_paths,
)
from yarrow.am.checkpoint.plan import Participants
from yarrow.am.checkpoint.settings import CheckpointSettings
from yarrow.am.checkpoint.shared_state import SharedStateRegistry
from yarrow.am.checkpoint.statistics import CheckpointStatisticsTracker
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.ids import ExecutionAttemptID
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.messages import (
    AcknowledgeCheckpoint,
    AcknowledgeCoordinator,
    CheckpointNotice,
    DeclineCheckpoint,
    FailureCause,
)
from yarrow.runtime.snapshot.options import (
    CheckpointLocation,
    CheckpointOptions,
    CheckpointType,
    SnapshotKind,
)

#: Ended checkpoints whose late messages are still known by their folder.
_REMEMBERED = 64
#: How often a request begins anew whose checkpoint met a task that was just ending.
_TRIES = 10


class CheckpointCoordinator:
    """The pure core of checkpoints of one job."""

    def __init__(
        self,
        job: JobGraph,
        settings: CheckpointSettings,
        participants: Participants,
        clock: Clock,
        next_id: int = 1,
        latest_savepoint_id: int = -1,
    ) -> None:
        self._job = job
        self._settings = settings
        self._participants = participants
        self._clock = clock
        self._next_id = next_id
        self.registry = SharedStateRegistry()
        self.store = CompletedCheckpointStore(settings.retained, self.registry)
        self.statistics = CheckpointStatisticsTracker(job, settings, clock)
        self._failures = FailureCounter(settings.tolerable_failures)
        self._pending: dict[int, PendingCheckpoint] = {}
        #: Aborted while their folder or metadata was being written: discarded when that is over.
        self._writing: dict[int, PendingCheckpoint] = {}
        #: Folders of ended checkpoints that did not complete, by id; newest last.
        self._aborted: OrderedDict[int, CheckpointLocation | None] = OrderedDict()
        self._requests: deque[Requested] = deque()
        self._asked: dict[int, Requested] = {}
        #: Monotonic time of the next periodic checkpoint; None while tasks are not all running.
        self._due: float | None = None
        self._last_end = float("-inf")
        #: A savepoint that ends the job is under way or done: no other checkpoint begins.
        self._stopping: str | None = None
        #: A savepoint with which the job ends is complete, and not all tasks have ended with it.
        self.ends_with_savepoint = False
        self._ended = False
        #: Id of the latest completed savepoint, -1 = none.
        self.latest_savepoint_id = latest_savepoint_id
        #: Aborted, and perhaps to be found by another master all the same.
        self._doubtful: dict[int, CompletedCheckpoint] = {}
        #: Participants of the last final checkpoint: it is not taken twice for the same tasks.
        self._final_for: frozenset[str] = frozenset()

    def job_replaced(self, job: JobGraph) -> None:
        """The job goes on at another parallelism: checkpoints from now on are of that."""
        self._job = job

    def restored(self, checkpoint: CompletedCheckpoint, older: Iterable[CompletedCheckpoint] = ()) -> None:
        """The job begins from this one: ids go on behind it. `older`: what else an earlier master has kept."""
        for kept in older:
            self.store.restored(kept)
        self._next_id = max(self._next_id, checkpoint.checkpoint_id + 1)
        self.store.restored(checkpoint)
        self.statistics.restored(checkpoint)

    @property
    def pending(self) -> tuple[PendingCheckpoint, ...]:
        """Those under way, oldest first."""
        return tuple(self._pending.values())

    @property
    def in_doubt(self) -> bool:
        """True while another master might find an aborted checkpoint: no task may begin from an older one."""
        return bool(self._doubtful) or any(aborted.stored is not None for aborted in self._writing.values())

    @property
    def later_may_complete(self) -> bool:
        """As `in_doubt`, or about to be: one that is just being stored is aborted by tasks that restart."""
        return self.in_doubt or any(pending.stored is not None for pending in self._pending.values())

    @property
    def next_id(self) -> int:
        """The id of the next one."""
        return self._next_id

    def next_wake(self) -> float | None:
        """Monotonic time at which `Wake` is wanted; None = only when something happens."""
        times = [pending.expires for pending in self._pending.values()]
        if self._may_be_due() and not self._is_triggering():
            times.append(self._periodic_time())
        return min(times, default=None)

    def handle(self, event: Event) -> list[Action]:
        """What is to be done now that this has happened."""
        actions = self._react(event)
        if not self._ended:
            actions += self._expire()
            actions += self._begin()
        return actions

    def _react(self, event: Event) -> list[Action]:
        match event:
            case Wake():
                return []
            case Requested():
                return self._request(event)
            case LocationReady(checkpoint_id, location):
                return self._located(checkpoint_id, location)
            case LocationFailed(checkpoint_id, cause, counts):
                actions = self._abort_id(checkpoint_id, cause, counts)
                self._writing.pop(checkpoint_id, None)
                return actions
            case AcknowledgeCoordinator():
                return self._coordinator_acknowledged(event)
            case AcknowledgeCheckpoint():
                return self._task_acknowledged(event)
            case DeclineCheckpoint():
                return self._declined(event)
            case MetadataStored(checkpoint_id, pointer):
                return self._stored(checkpoint_id, pointer)
            case MetadataFailed(in_doubt=True):
                return self._doubted(event)
            case MetadataFailed(checkpoint_id, cause, counts, pointer):
                actions = self._abort_id(checkpoint_id, cause, counts)
                return [*actions, *self._discard_written(checkpoint_id, pointer)]
            case DoubtSettled(checkpoint_id):
                return self._settled(checkpoint_id)
            case TasksFinished(attempts):
                return self._finished(attempts)
            case TasksRestart(cause):
                self._due = None
                self._stopping = None
                self.ends_with_savepoint = False
                return self._abort_all(restart_cause(cause))
            case JobEnds(cause):
                return self._end(cause)

    # Beginning.

    def _request(self, request: Requested) -> list[Action]:
        problem = self._participants.problem()
        if not problem and self._stopping is not None:
            problem = f"{self._stopping} is under way"
        if problem:
            return [Refused(request, unavailable_cause(self._job.name, problem))]
        actions: list[Action] = []
        if request.kind.stops_job or request.cancel_job:
            self._stopping = "a savepoint that ends the job"
            actions = self._abort_all(restart_cause("a savepoint that ends the job was asked for"))
        self._requests.append(request)
        return actions

    def _begin(self) -> list[Action]:
        """Starts what is due: a savepoint first, then what was asked for, then what the interval asks for."""
        if self._participants.problem():
            self._due = None
            return []
        self._schedule()
        if self._is_triggering():
            return []
        request = self._take_request()
        if request is not None:
            return self._start(request.kind, request)
        now = self._clock.monotonic()
        if self._may_be_due() and self._periodic_time() <= now:
            assert self._due is not None
            self._due = max(self._due + (self._settings.interval or 0.0), now)
            self._final_for = self._participants.all_await_end()
            return self._start(SnapshotKind.CHECKPOINT, None)
        return []

    def _schedule(self) -> None:
        interval = self._settings.interval
        if interval is None:
            return
        now = self._clock.monotonic()
        if self._due is None:
            self._due = now + interval
        waiting = self._participants.all_await_end()
        if waiting and waiting != self._final_for:
            # Everybody waits for it: the interval would only delay the end of the job.
            self._due = min(self._due, now)

    def _is_triggering(self) -> bool:
        early = (CheckpointState.LOCATING, CheckpointState.COORDINATORS)
        return any(pending.state in early for pending in self._pending.values())

    def _may_be_due(self) -> bool:
        return self._due is not None and self._stopping is None and self._has_room()

    def _periodic_time(self) -> float:
        assert self._due is not None
        return max(self._due, self._last_end + self._settings.min_pause)

    def _has_room(self) -> bool:
        if self._settings.unaligned and any(pending.kind.is_savepoint for pending in self._pending.values()):
            # Its barriers would overtake those of the savepoint, which keep their places.
            return False
        running = sum(pending.kind is SnapshotKind.CHECKPOINT for pending in self._pending.values())
        return running < self._settings.max_concurrent

    def _take_request(self) -> Requested | None:
        for request in self._requests:
            if request.kind.is_savepoint or self._has_room():
                self._requests.remove(request)
                return request
        return None

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
        self.statistics.begun(pending, self._options_of(kind))
        return [PrepareLocation(checkpoint_id, kind, request.directory if request else "")]

    def _located(self, checkpoint_id: int, location: CheckpointLocation) -> list[Action]:
        pending = self._pending.get(checkpoint_id)
        if pending is None:
            aborted = self._writing.pop(checkpoint_id, None)
            if aborted is None:
                return []
            aborted.location = location
            return self._discard(aborted)
        pending.location = location
        if problem := self._participants.problem():
            return self._abort(pending, unavailable_cause(self._job.name, problem), counts=False)
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
        return [
            TriggerTasks(
                pending.checkpoint_id, pending.timestamp_ms, self._options(pending), pending.plan.trigger
            )
        ]

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
        """Exactly once, unaligned, aligned timeout; what stops tasks and savepoints hold no records in flight."""
        settings = self._settings
        unaligned = settings.unaligned and settings.exactly_once and kind is SnapshotKind.CHECKPOINT
        return settings.exactly_once, unaligned, settings.aligned_timeout_ms if unaligned else 0

    # Parts that come in.

    def _coordinator_acknowledged(self, message: AcknowledgeCoordinator) -> list[Action]:
        pending = self._pending.get(message.checkpoint_id)
        if pending is None:
            return self._late(message)
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
            return self._late(message)
        if pending.state is not CheckpointState.TASKS or message.attempt_id not in pending.missing_tasks:
            # Repeated, or of a task that takes no part: its files may be those of an accepted part.
            return []
        pending.acknowledgements[message.attempt_id] = message
        self.statistics.acknowledged(pending, message)
        if pending.missing_tasks:
            return []
        if operator := pending.partly_ended_union(self._job):
            return self._abort(pending, union_cause(operator))
        assert pending.location is not None
        pending.machine.transition(CheckpointState.STORING)
        pending.stored = pending.metadata(self._job, self.latest_savepoint_id)
        return [StoreMetadata(pending.checkpoint_id, pending.location, pending.stored)]

    def _late(
        self, message: AcknowledgeCheckpoint | AcknowledgeCoordinator | DeclineCheckpoint
    ) -> list[Action]:
        """Files of a checkpoint that did not complete are deleted, whenever they come; one who declines may have begun
        some.
        """
        location = self._aborted.get(message.checkpoint_id)
        if location is None or message.checkpoint_id in self._writing:
            return []
        shared: tuple[str, ...] = ()
        if isinstance(message, AcknowledgeCheckpoint):
            shared = self._unneeded(shared_paths(message, location.directory))
        return [DiscardLocation(message.checkpoint_id, location, shared)]

    def _declined(self, message: DeclineCheckpoint) -> list[Action]:
        pending = self._pending.get(message.checkpoint_id)
        if pending is None:
            return self._late(message)
        if pending.state not in (CheckpointState.COORDINATORS, CheckpointState.TASKS):
            return []
        if message.attempt_id and message.attempt_id not in pending.missing_tasks:
            return []
        return (self._begin_anew if message.not_ready else self._abort)(pending, message.cause)

    def _finished(self, attempts: frozenset[ExecutionAttemptID]) -> list[Action]:
        actions: list[Action] = []
        for pending in list(self._pending.values()):
            if attempts & pending.missing_tasks:
                cause = restart_cause("a task finished before it acknowledged")
                actions += self._begin_anew(pending, cause)
        return actions

    # Ends.

    def _stored(self, checkpoint_id: int, pointer: str) -> list[Action]:
        pending = self._pending.get(checkpoint_id)
        if pending is None:
            if pointer and checkpoint_id in self._writing:
                # Another master may find it by now: its files go when its pointer is gone.
                return self._doubt(self._writing[checkpoint_id], pointer)
            return self._discard_written(checkpoint_id, pointer)
        pending.machine.transition(CheckpointState.COMPLETED)
        del self._pending[checkpoint_id]
        if not pending.kind.is_savepoint:
            self._last_end = self._clock.monotonic()
        completed = _completed(pending, pointer)
        self.statistics.completed(pending, completed)
        if pending.kind.is_savepoint:
            self.latest_savepoint_id = max(self.latest_savepoint_id, checkpoint_id)
        self.ends_with_savepoint |= pending.kind.stops_job
        actions: list[Action] = []
        if not pending.kind.is_savepoint or pending.kind.stops_job:
            self._failures.succeeded()
            actions += self._subsume(completed)
        actions += self._no_longer_awaited(checkpoint_id)
        request = self._asked.pop(checkpoint_id, None)
        if request is not None:
            actions.append(Succeeded(request, completed))
        return actions

    def _doubted(self, failed: MetadataFailed) -> list[Action]:
        """Given up, and kept as if it were complete until nobody can find it any more."""
        pending = self._pending.get(failed.checkpoint_id) or self._writing[failed.checkpoint_id]
        actions = self._abort_id(failed.checkpoint_id, failed.cause, failed.counts)
        return [*actions, *self._doubt(pending, failed.pointer)]

    def _doubt(self, aborted: PendingCheckpoint, pointer: str) -> list[Action]:
        del self._writing[aborted.checkpoint_id]
        self._aborted[aborted.checkpoint_id] = None
        doubtful = _completed(aborted, pointer)
        self._doubtful[aborted.checkpoint_id] = doubtful
        self.registry.register(aborted.checkpoint_id, doubtful.shared)
        return [SettleDoubt(aborted.checkpoint_id)]

    def _settled(self, checkpoint_id: int) -> list[Action]:
        under_way = [other.checkpoint_id for other in self._pending.values() if not other.kind.is_savepoint]
        location = CheckpointLocation(directory=self._doubtful.pop(checkpoint_id).pointer)
        shared = self.registry.release(checkpoint_id, under_way)
        return [self._tell_aborted(checkpoint_id), DiscardLocation(checkpoint_id, location, shared)]

    def _subsume(self, completed: CompletedCheckpoint) -> list[Action]:
        """Older ones under way are of no use any more; older completed ones make room."""
        checkpoint_id = completed.checkpoint_id
        under_way = [other.checkpoint_id for other in self._pending.values() if not other.kind.is_savepoint]
        dropped = self.store.add(completed, under_way)
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
        """What one that is not kept any more leaves to delete: the files of others stay."""
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
            actions += self._abort(pending, expired_cause(pending, self._job, self._settings.timeout))
        return actions

    def _abort_id(self, checkpoint_id: int, cause: FailureCause, counts: bool = True) -> list[Action]:
        pending = self._pending.get(checkpoint_id)
        return [] if pending is None else self._abort(pending, cause, counts)

    def _abort_all(self, cause: FailureCause) -> list[Action]:
        actions: list[Action] = []
        for pending in list(self._pending.values()):
            actions += self._abort(pending, cause, counts=False)
        refused = list(self._requests)
        self._requests.clear()
        return [*actions, *(Refused(request, cause) for request in refused)]

    def _abort(self, pending: PendingCheckpoint, cause: FailureCause, counts: bool = True) -> list[Action]:
        """`counts` False: called off, no failure of a checkpoint."""
        checkpoint_id = pending.checkpoint_id
        state = pending.state
        pending.machine.transition(CheckpointState.ABORTED, cause.message)
        del self._pending[checkpoint_id]
        if not pending.kind.is_savepoint:
            self._last_end = self._clock.monotonic()
        self._aborted[checkpoint_id] = pending.location
        while len(self._aborted) > _REMEMBERED:
            self._aborted.popitem(last=False)
        self.statistics.failed(pending, cause)
        actions: list[Action] = []
        if pending.plan is not None and state is not CheckpointState.STORING:
            actions.append(self._tell_aborted(checkpoint_id))
        if state is CheckpointState.STORING or (
            state is CheckpointState.LOCATING and pending.location is None
        ):
            self._writing[checkpoint_id] = pending
        else:
            actions += self._discard(pending)
        actions += self._no_longer_awaited(checkpoint_id)
        request = self._asked.pop(checkpoint_id, None)
        if request is not None:
            if request.kind.stops_job or request.cancel_job:
                self._stopping = None
            actions.append(Refused(request, cause))
        if counts and not pending.kind.is_savepoint and self._failures.failed(cause):
            actions.append(FailJob(self._failures.verdict(cause)))
        return actions

    def _tell_aborted(self, checkpoint_id: int) -> Action:
        """Only when no master can find it any more: sinks give up what they have prepared for it."""
        latest = self.store.latest
        return Notify(checkpoint_id, CheckpointNotice.ABORTED, latest.checkpoint_id if latest else -1)

    def _begin_anew(self, pending: PendingCheckpoint, cause: FailureCause) -> list[Action]:
        """Nothing went wrong but the moment: somebody was just ending, and what was asked for is not lost."""
        request = self._asked.get(pending.checkpoint_id)
        if request is not None and request.tries < _TRIES:
            del self._asked[pending.checkpoint_id]
            self._requests.appendleft(replace(request, tries=request.tries + 1))
        return self._abort(pending, cause, counts=False)

    def _discard_written(self, checkpoint_id: int, pointer: str = "") -> list[Action]:
        aborted = self._writing.pop(checkpoint_id, None)
        if aborted is None:
            return []
        if pointer:
            # Where all state is inline the metadata alone may have a folder.
            aborted.location = CheckpointLocation(directory=pointer)
        return [self._tell_aborted(checkpoint_id), *self._discard(aborted)]

    def _discard(self, aborted: PendingCheckpoint) -> list[Action]:
        self._aborted[aborted.checkpoint_id] = aborted.location
        if aborted.location is None:
            return []
        shared = self._unneeded(aborted.shared_paths())
        return [DiscardLocation(aborted.checkpoint_id, aborted.location, shared)]

    def _no_longer_awaited(self, checkpoint_id: int) -> list[Action]:
        """Shared files of dropped checkpoints that were kept for this one, which has ended."""
        shared = self._unneeded(self.registry.ended(checkpoint_id))
        return [DiscardLocation(checkpoint_id, CheckpointLocation(directory=""), shared)] if shared else []

    def _unneeded(self, paths: Iterable[str]) -> tuple[str, ...]:
        needed = {path for pending in self._pending.values() for path in pending.shared_paths()}
        return tuple(path for path in self.registry.unneeded(paths) if path not in needed)

    def _end(self, cause: str) -> list[Action]:
        self._due = None
        actions = self._abort_all(unavailable_cause(self._job.name, cause))
        self._ended = True
        return actions


def _completed(pending: PendingCheckpoint, pointer: str) -> CompletedCheckpoint:
    """One whose metadata are written."""
    metadata, location = pending.stored, pending.location
    assert metadata is not None and location is not None
    return CompletedCheckpoint(
        checkpoint_id=pending.checkpoint_id,
        kind=pending.kind,
        metadata=metadata,
        directory=location.directory,
        pointer=pointer,
        shared=tuple(sorted({absolute(file.path, location.directory) for file in metadata.shared_files()})),
        owned=not pending.kind.is_savepoint,
    )
