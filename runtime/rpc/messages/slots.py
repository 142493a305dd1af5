"""Messages about slots: what they offer, who asks for them, who has them, and how their workers are reached.

Owner: none (frozen values). Reports tell what their sender believes; nothing here decides who is right.
"""

from __future__ import annotations

from yarrow.runtime.common.ids import (
    AllocationID,
    JobID,
    JobMasterID,
    ResourceID,
    ResourceManagerID,
    WorkerID,
)
from yarrow.runtime.rpc.messages.base import Message


class ResourceProfile(Message, frozen=True, kw_only=True):
    """What a slot offers or a request asks for; -1 = unspecified."""

    cpu_cores: float = -1.0
    memory_bytes: int = -1


class WorkerAddress(Message, frozen=True, kw_only=True):
    """Where a slot's worker accepts data connections."""

    worker_id: WorkerID
    resource_id: ResourceID
    host: str
    #: TCP port (mutual TLS); 0 where the worker is reachable on its host only.
    port: int
    #: Path of the Unix socket, usable by workers of the same `host_key`.
    unix_path: str
    #: Equal for processes that share a kernel (boot id + network namespace).
    host_key: str


class SlotID(Message, frozen=True, kw_only=True):
    """A slot of a TaskExecutor."""

    resource_id: ResourceID
    index: int


class SlotStatus(Message, frozen=True, kw_only=True):
    """One line of a slot report."""

    slot_id: SlotID
    profile: ResourceProfile
    allocation_id: AllocationID | None = None
    job_id: JobID | None = None


class SlotReport(Message, frozen=True, kw_only=True):
    """All slots of a TaskExecutor as it sees them."""

    slots: tuple[SlotStatus, ...]
    #: Grows with each report of one TaskExecutor: an older one that arrives late is ignored.
    sequence: int = 0


class ResourceRequirement(Message, frozen=True, kw_only=True):
    """So many slots of one profile."""

    profile: ResourceProfile
    number_of_slots: int


class JobInterpreter(Message, frozen=True, kw_only=True):
    """The interpreter of a job's workers, where the job brings it in an archive."""

    #: Relative to the folder in which the job's archives are unpacked, each under its own folder.
    executable: str
    #: The archive's name, for texts, and where it is to be had.
    archive: str
    blob_key: str
    #: Where the archive is unpacked; `executable` lies below it.
    folder: str


class ResourceRequirements(Message, frozen=True, kw_only=True):
    """All that a job needs at present; the newest declaration replaces the former."""

    job_id: JobID
    job_master_address: str
    requirements: tuple[ResourceRequirement, ...]
    #: None = workers of the job run in the interpreter of their TaskExecutor.
    interpreter: JobInterpreter | None = None


class SlotRequest(Message, frozen=True, kw_only=True):
    """ResourceManager -> TaskExecutor: give this slot to that job and offer it to its JobMaster."""

    slot_id: SlotID
    job_id: JobID
    allocation_id: AllocationID
    profile: ResourceProfile
    job_master_address: str
    #: Token with which the TaskExecutor connects to the JobMaster.
    job_master_id: JobMasterID
    resource_manager_id: ResourceManagerID
    #: As in ResourceRequirements.
    interpreter: JobInterpreter | None = None


class SlotOffer(Message, frozen=True, kw_only=True):
    """TaskExecutor -> JobMaster: a slot allocated for its job, with the worker that serves it."""

    allocation_id: AllocationID
    slot_index: int
    profile: ResourceProfile
    worker: WorkerAddress


class AllocatedSlotReport(Message, frozen=True, kw_only=True):
    """What the JobMaster believes a TaskExecutor has for it: heals lost messages."""

    job_id: JobID
    allocations: tuple[tuple[int, AllocationID], ...]
