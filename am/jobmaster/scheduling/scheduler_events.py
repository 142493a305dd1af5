"""Events for a JobScheduler: plain values, each with the monotonic time at which it happened.

Owner: none (frozen values). The scheduler decides by these alone, so that stored events can be replayed
(replay.py). Any other input of a decision becomes an event, as CheckpointsChanged and ClientAwaited did.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from yarrow.runtime.common.ids import AllocationID, ExecutionAttemptID, ResourceID
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.messages import FailureCause, SlotOffer, TaskExecutionStateUpdate


class _Event(msgspec.Struct, frozen=True, tag=True, tag_field="event"):
    #: Seconds of the JobMaster's monotonic clock.
    now: float


class JobStarted(_Event, frozen=True):
    """The JobMaster is ready: the job goes INITIALIZING -> CREATED -> RUNNING, and asks for its first slots."""


class SlotsOffered(_Event, frozen=True):
    """A TaskExecutor offers slots; SlotsAccepted follows."""

    resource_id: ResourceID
    offers: tuple[SlotOffer, ...]


class TasksUpdated(_Event, frozen=True):
    """Workers report new states of tasks."""

    updates: tuple[TaskExecutionStateUpdate, ...]


class SlotLost(_Event, frozen=True):
    """A slot's worker is gone: all tasks in it have failed."""

    allocation_id: AllocationID
    cause: FailureCause


class TaskExecutorLost(_Event, frozen=True):
    """A TaskExecutor is gone with all its tasks."""

    resource_id: ResourceID
    cause: FailureCause


class TasksLost(_Event, frozen=True):
    """These attempts could not be deployed, or their TaskExecutor does not have them any more."""

    attempts: tuple[ExecutionAttemptID, ...]
    cause: FailureCause


class SlotRequestTimedOut(_Event, frozen=True):
    """Slots did not come in time (slot.request.timeout): the tasks that wait for them have failed."""

    cause: FailureCause


class JobFailed(_Event, frozen=True):
    """The job fails for good, because no restart could help."""

    cause: FailureCause


class FailedGlobally(_Event, frozen=True):
    """A failure of no single task: the whole job restarts, if the restart strategy allows it."""

    cause: FailureCause


class RescaleSlotsWanted(_Event, frozen=True):
    """The job is to hold the slots that it needs as `job`, and runs on meanwhile; RescaleSlotsAnswered follows."""

    job: JobGraph


class RescaleSlotsFailed(_Event, frozen=True):
    """The slots for a rescale do not come; no effect while no rescale waits."""

    why: str


class RescaleSlotsReleased(_Event, frozen=True):
    """A rescale is over: unused slots that were held for it are freed. May be repeated."""


class TasksStopForRescale(_Event, frozen=True):
    """Whether tasks that finish do so for a rescale; the job then does not end with them."""

    stops: bool


class RescaleBegun(_Event, frozen=True):
    """All live tasks are cancelled and start again as `job`, which has other parallelisms."""

    job: JobGraph


class JobCancelled(_Event, frozen=True):
    """The user cancels, or `reason` says why else; no effect on a job that is being cancelled or has ended."""

    reason: str = ""


class CancellationTimedOut(_Event, frozen=True):
    """Tasks of an ending job have not ended in time (task.cancellation.timeout): they are given up."""

    text: str


class RestartCancellationTimedOut(_Event, frozen=True):
    """Tasks of a restart have not ended in time: their workers are killed."""

    restart_id: int
    cause: FailureCause


class RestartDue(_Event, frozen=True):
    """The pause of a restart is over."""

    restart_id: int


class IdleSlotsChecked(_Event, frozen=True):
    """Time has passed: slots that were idle for too long go back."""


class JobSuspended(_Event, frozen=True):
    """The job ends on this master alone; another master continues it."""

    cause: str


class CheckpointsChanged(_Event, frozen=True):
    """Facts about checkpoints, on which restarts depend, have changed."""

    #: A checkpoint later than the latest may still complete: no task may begin from an older one.
    in_doubt: bool
    #: A savepoint that was to end the job is complete: some tasks have ended with it, and restart with the
    #: others.
    ends_with_savepoint: bool
    #: The job makes checkpoints, has none yet, and began from none.
    awaits_first: bool = False


class ClientAwaited(_Event, frozen=True):
    """Whether the job only waits for its client to fetch rows; its tasks are then told to end."""

    is_ending: bool


SchedulerEvent: TypeAlias = (
    JobStarted
    | SlotsOffered
    | TasksUpdated
    | SlotLost
    | TaskExecutorLost
    | TasksLost
    | SlotRequestTimedOut
    | JobFailed
    | FailedGlobally
    | RescaleSlotsWanted
    | RescaleSlotsFailed
    | RescaleSlotsReleased
    | TasksStopForRescale
    | RescaleBegun
    | JobCancelled
    | CancellationTimedOut
    | RestartCancellationTimedOut
    | RestartDue
    | IdleSlotsChecked
    | JobSuspended
    | CheckpointsChanged
    | ClientAwaited
)
