"""Events and actions of the SlotManager: plain values without behaviour.

Owner: none (frozen values).
"""

from __future__ import annotations

import msgspec

from yarrow.runtime.common.ids import AllocationID, JobID, JobMasterID, ResourceID
from yarrow.runtime.rpc.messages import (
    JobInterpreter,
    ResourceProfile,
    ResourceRequirement,
    SlotReport,
    SlotRequest,
)


class TaskExecutorRegistered(msgspec.Struct, frozen=True):
    """A TaskExecutor registered, for the first time or again; its report is complete."""

    resource_id: ResourceID
    report: SlotReport


class TaskExecutorGone(msgspec.Struct, frozen=True):
    """A TaskExecutor ended, was silent too long or disconnected; or a requested one never came."""

    resource_id: ResourceID
    cause: str


class SlotReportReceived(msgspec.Struct, frozen=True):
    """A later report of a registered TaskExecutor."""

    resource_id: ResourceID
    report: SlotReport


class SlotRequestAcknowledged(msgspec.Struct, frozen=True):
    """The TaskExecutor gave the slot to the job."""

    request: SlotRequest


class SlotRequestFailed(msgspec.Struct, frozen=True):
    """The TaskExecutor refused, or did not answer: the content of its slot is unknown."""

    request: SlotRequest
    cause: str


class SlotFreed(msgspec.Struct, frozen=True):
    """The TaskExecutor reports that an allocation ended."""

    resource_id: ResourceID
    index: int
    allocation_id: AllocationID


class RequirementsDeclared(msgspec.Struct, frozen=True):
    """The complete requirements of a job from now on."""

    job_id: JobID
    job_master_id: JobMasterID
    job_master_address: str
    requirements: tuple[ResourceRequirement, ...]
    #: The interpreter of the job's workers, if the job brings one.
    interpreter: JobInterpreter | None = None


class JobGone(msgspec.Struct, frozen=True):
    """A job needs nothing any more."""

    job_id: JobID


class TaskExecutorAllocated(msgspec.Struct, frozen=True):
    """The driver got a requested process: a TaskExecutor of this name will register."""

    resource_id: ResourceID


class TaskExecutorsLiving(msgspec.Struct, frozen=True):
    """Still running processes of an earlier leadership of this process; they will register again."""

    resource_ids: tuple[ResourceID, ...]


class TaskExecutorRequestFailed(msgspec.Struct, frozen=True):
    """The driver could not get a TaskExecutor."""

    cause: str


class TaskExecutorsDelayed(msgspec.Struct, frozen=True):
    """The driver's reason for the delay of requested TaskExecutors; "" = none."""

    explanation: str


class TimePassed(msgspec.Struct, frozen=True):
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


class RequestSlot(msgspec.Struct, frozen=True):
    """Send this request to its TaskExecutor; answer with SlotRequestAcknowledged or SlotRequestFailed."""

    request: SlotRequest


class AskForSlotReport(msgspec.Struct, frozen=True):
    """Ask the TaskExecutor now for the content of its slots; answer with SlotReportReceived."""

    resource_id: ResourceID


class RequestTaskExecutor(msgspec.Struct, frozen=True):
    """Tell the driver to start a TaskExecutor; answer with TaskExecutorAllocated or TaskExecutorRequestFailed."""

    profile: ResourceProfile


class ReleaseTaskExecutor(msgspec.Struct, frozen=True):
    """End this TaskExecutor; the SlotManager has forgotten it."""

    resource_id: ResourceID
    cause: str


class NotifyNotEnoughResources(msgspec.Struct, frozen=True):
    """Tell the job's master why it does not get its slots."""

    job_id: JobID
    explanation: str
    #: The number of slots that there can be in the cluster; None = unknown.
    most_slots: int | None = None


SlotManagerAction = (
    RequestSlot | AskForSlotReport | RequestTaskExecutor | ReleaseTaskExecutor | NotifyNotEnoughResources
)
