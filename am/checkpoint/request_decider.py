"""CheckpointRequestDecider: which checkpoint begins next, and when.

Owner: the CheckpointCoordinator. Pure; the clock is injected. Savepoints come first, then other requests,
then the interval. Only one checkpoint at a time is between its decision and its barriers, so that barriers
start in the order of ids. After that, savepoints run beside checkpoints and do not count against the number
of concurrent ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

import msgspec

from yarrow.am.checkpoint.events import Requested
from yarrow.am.checkpoint.pending import CheckpointState, PendingCheckpoint
from yarrow.am.checkpoint.plan import Participants
from yarrow.am.checkpoint.settings import CheckpointSettings
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.data.checkpoint_options import SnapshotKind

#: How often a request is repeated because its checkpoint met a task that was just ending.
_TRIES = 10


class Begin(msgspec.Struct, frozen=True):
    """The decision to begin a checkpoint."""

    kind: SnapshotKind
    #: None = the interval began it.
    request: Requested | None


class CheckpointRequestDecider:
    """The requests that have not begun, and the time of the next periodic checkpoint."""

    def __init__(
        self,
        settings: CheckpointSettings,
        participants: Participants,
        clock: Clock,
        pending: Mapping[int, PendingCheckpoint],
    ) -> None:
        """`pending`: the pending checkpoints; the mapping is always current."""
        self._settings = settings
        self._participants = participants
        self._clock = clock
        self._pending = pending
        self._requests: deque[Requested] = deque()
        #: Monotonic time of the next periodic checkpoint; None while tasks are not all running.
        self._due: float | None = None
        self._last_end = float("-inf")
        #: A savepoint that ends the job is pending or complete: no other checkpoint begins.
        self._stopping: str | None = None
        #: Participants of the last final checkpoint, which is not taken twice for the same tasks.
        self._final_for: frozenset[str] = frozenset()

    # Events.

    def problem(self) -> str:
        """Why a request cannot be served now; "" = it can."""
        problem = self._participants.problem()
        if not problem and self._stopping is not None:
            problem = f"{self._stopping} is under way"
        return problem

    def request(self, request: Requested) -> None:
        """Queues a request. Call it only if there is no problem."""
        self._requests.append(request)

    def request_again(self, request: Requested) -> bool:
        """Queues a request again, as the first one; False if it was repeated too often."""
        if request.tries >= _TRIES:
            return False
        self._requests.appendleft(msgspec.structs.replace(request, tries=request.tries + 1))
        return True

    def withdraw_requests(self) -> list[Requested]:
        """Removes and returns all queued requests."""
        withdrawn = list(self._requests)
        self._requests.clear()
        return withdrawn

    def job_is_to_end(self) -> None:
        """Begins no other checkpoint, because a requested savepoint ends the job."""
        self._stopping = "a savepoint that ends the job"

    def job_goes_on(self) -> None:
        """Begins checkpoints again, because the savepoint that was to end the job, or a task, has failed."""
        self._stopping = None

    def tasks_restart(self) -> None:
        """Restarts the interval when all tasks run again."""
        self._due = None
        self._stopping = None

    def job_ends(self) -> None:
        """Stops the interval."""
        self._due = None

    def ended(self, pending: PendingCheckpoint) -> None:
        """Takes the end of a pending checkpoint: the minimum pause before the next one begins."""
        if not pending.kind.is_savepoint:
            self._last_end = self._clock.monotonic()

    # Decisions.

    def next_time(self) -> float | None:
        """Monotonic time at which the interval needs a checkpoint; None = not before another event."""
        if self._may_be_due() and not self._is_triggering():
            return self._periodic_time()
        return None

    def decide(self) -> Begin | None:
        """The checkpoint to begin now; None = none. Call it once for each checkpoint."""
        if self._participants.problem():
            self._due = None
            return None
        self._schedule()
        if self._is_triggering():
            return None
        request = self._take_request()
        if request is not None:
            return Begin(request.kind, request)
        now = self._clock.monotonic()
        if self._may_be_due() and self._periodic_time() <= now:
            assert self._due is not None
            self._due = max(self._due + (self._settings.interval or 0.0), now)
            self._final_for = self._participants.all_await_end()
            return Begin(SnapshotKind.CHECKPOINT, None)
        return None

    def _schedule(self) -> None:
        interval = self._settings.interval
        if interval is None:
            return
        now = self._clock.monotonic()
        if self._due is None:
            self._due = now + interval
        waiting = self._participants.all_await_end()
        if waiting and waiting != self._final_for:
            # All tasks wait for this checkpoint: the interval would only delay the end of the job.
            self._due = min(self._due, now)

    def _is_triggering(self) -> bool:
        early = (CheckpointState.LOCATING, CheckpointState.COORDINATORS)
        return any(pending.state in early for pending in self._under_way())

    def _may_be_due(self) -> bool:
        return self._due is not None and self._stopping is None and self._has_room()

    def _periodic_time(self) -> float:
        assert self._due is not None
        return max(self._due, self._last_end + self._settings.min_pause)

    def _has_room(self) -> bool:
        if self._settings.unaligned and any(pending.kind.is_savepoint for pending in self._under_way()):
            # Its barriers would overtake those of the savepoint, which keep their places.
            return False
        running = sum(pending.kind is SnapshotKind.CHECKPOINT for pending in self._under_way())
        return running < self._settings.max_concurrent

    def _take_request(self) -> Requested | None:
        for request in self._requests:
            if request.kind.is_savepoint or self._has_room():
                self._requests.remove(request)
                return request
        return None

    def _under_way(self) -> Iterable[PendingCheckpoint]:
        return self._pending.values()
