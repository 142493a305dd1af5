"""Events and actions of the SlotManager: plain values without behaviour.

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
    """A TaskExecutor registered, for the first time or again; its report is complete."""

    resource_id: ResourceID
    report: SlotReport


@dataclass(frozen=True, slots=True)
class TaskExecutorGone:
    """A TaskExecutor ended, was silent too long or disconnected; or a requested one never came."""

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
    """The TaskExecutor refused, or did not answer: the content of its slot is unknown."""

    request: SlotRequest
    cause: str


@dataclass(frozen=True, slots=True)
class SlotFreed:
    """The TaskExecutor reports that an allocation ended."""

    resource_id: ResourceID
    index: int
    allocation_id: AllocationID


@dataclass(frozen=True, slots=True)
class RequirementsDeclared:
    """The complete requirements of a job from now on."""

    job_id: JobID
    job_master_id: JobMasterID
    job_master_address: str
    requirements: tuple[ResourceRequirement, ...]
    #: The interpreter of the job's workers, if the job brings one.
    interpreter: JobInterpreter | None = None


@dataclass(frozen=True, slots=True)
class JobGone:
    """A job needs nothing any more."""

    job_id: JobID


@dataclass(frozen=True, slots=True)
class TaskExecutorAllocated:
    """The driver got a requested process: a TaskExecutor of this name will register."""

    resource_id: ResourceID


@dataclass(frozen=True, slots=True)
class TaskExecutorsLiving:
    """Still running processes of an earlier leadership of this process; they will register again."""

    resource_ids: tuple[ResourceID, ...]


@dataclass(frozen=True, slots=True)
class TaskExecutorRequestFailed:
    """The driver could not get a TaskExecutor."""

    cause: str


@dataclass(frozen=True, slots=True)
class TaskExecutorsDelayed:
    """The driver's reason for the delay of requested TaskExecutors; "" = none."""

    explanation: str


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Time has passed: returns the actions that are due."""


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
    """Ask the TaskExecutor now for the content of its slots; answer with SlotReportReceived."""

    resource_id: ResourceID


@dataclass(frozen=True, slots=True)
class RequestTaskExecutor:
    """Tell the driver to start a TaskExecutor; answer with TaskExecutorAllocated or TaskExecutorRequestFailed."""

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
    #: The number of slots that there can be in the cluster; None = unknown.
    most_slots: int | None = None


SlotManagerAction = (
    RequestSlot | AskForSlotReport | RequestTaskExecutor | ReleaseTaskExecutor | NotifyNotEnoughResources
)
