"""What the SlotManager is told, and what it answers: plain values, no behaviour.

Owner: none (frozen values).
"""

from __future__ import annotations

from dataclasses import dataclass

from yarrow.runtime.common.ids import AllocationID, JobID, JobMasterID, ResourceID
from yarrow.runtime.rpc.messages import (
    JobInterpreter,
    ResourceProfile,
    ResourceRequirement,
    SlotReport,
    SlotRequest,
)


@dataclass(frozen=True, slots=True)
class TaskExecutorRegistered:
    """A TaskExecutor registered, for the first time or again: the report is the whole truth about it."""

    resource_id: ResourceID
    report: SlotReport


@dataclass(frozen=True, slots=True)
class TaskExecutorGone:
    """A TaskExecutor ended, was silent too long or took its leave; or one that was requested never came."""

    resource_id: ResourceID
    cause: str


@dataclass(frozen=True, slots=True)
class SlotReportReceived:
    """A later report of a registered TaskExecutor."""

    resource_id: ResourceID
    report: SlotReport


@dataclass(frozen=True, slots=True)
class SlotRequestAcknowledged:
    """The TaskExecutor gave the slot to the job."""

    request: SlotRequest


@dataclass(frozen=True, slots=True)
class SlotRequestFailed:
    """The TaskExecutor refused, or did not answer: what its slot holds is unknown."""

    request: SlotRequest
    cause: str


@dataclass(frozen=True, slots=True)
class SlotFreed:
    """The TaskExecutor says that an allocation ended."""

    resource_id: ResourceID
    index: int
    allocation_id: AllocationID


@dataclass(frozen=True, slots=True)
class RequirementsDeclared:
    """All that a job needs from now on."""

    job_id: JobID
    job_master_id: JobMasterID
    job_master_address: str
    requirements: tuple[ResourceRequirement, ...]
    #: That of the job's workers, where the job brings it.
    interpreter: JobInterpreter | None = None


@dataclass(frozen=True, slots=True)
class JobGone:
    """A job needs nothing any more."""

    job_id: JobID


@dataclass(frozen=True, slots=True)
class TaskExecutorAllocated:
    """The driver got what was requested: a process of this name will register."""

    resource_id: ResourceID


@dataclass(frozen=True, slots=True)
class TaskExecutorsLiving:
    """Started under an earlier leadership of this process, and still there: they will register again."""

    resource_ids: tuple[ResourceID, ...]


@dataclass(frozen=True, slots=True)
class TaskExecutorRequestFailed:
    """The driver could not get a TaskExecutor."""

    cause: str


@dataclass(frozen=True, slots=True)
class TaskExecutorsDelayed:
    """The driver says why those that were requested do not come; "" = they do."""

    explanation: str


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Asks for what is due."""


SlotManagerEvent = (
    TaskExecutorRegistered
    | TaskExecutorGone
    | SlotReportReceived
    | SlotRequestAcknowledged
    | SlotRequestFailed
    | SlotFreed
    | RequirementsDeclared
    | JobGone
    | TaskExecutorAllocated
    | TaskExecutorRequestFailed
    | TaskExecutorsDelayed
    | TaskExecutorsLiving
    | TimePassed
)


@dataclass(frozen=True, slots=True)
class RequestSlot:
    """Send this request to its TaskExecutor; answer with SlotRequestAcknowledged or SlotRequestFailed."""

    request: SlotRequest


@dataclass(frozen=True, slots=True)
class AskForSlotReport:
    """Ask the TaskExecutor what its slots hold, now; answer with SlotReportReceived."""

    resource_id: ResourceID


@dataclass(frozen=True, slots=True)
class RequestTaskExecutor:
    """Have the driver start one; answer with TaskExecutorAllocated or TaskExecutorRequestFailed."""

    profile: ResourceProfile


@dataclass(frozen=True, slots=True)
class ReleaseTaskExecutor:
    """End this TaskExecutor; the SlotManager has forgotten it."""

    resource_id: ResourceID
    cause: str


@dataclass(frozen=True, slots=True)
class NotifyNotEnoughResources:
    """Tell the job's master why it does not get its slots."""

    job_id: JobID
    explanation: str
    #: How many slots there can be in the cluster; None = not known.
    most_slots: int | None = None


SlotManagerAction = (
    RequestSlot | AskForSlotReport | RequestTaskExecutor | ReleaseTaskExecutor | NotifyNotEnoughResources
)
