"""Messages about slots: profiles, requests, owners, and the addresses of their workers.

Owner: none (frozen values). Reports tell the sender's belief; nothing here decides who is right.
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
    """The resources that a slot offers or a request needs; -1 = unspecified."""

    cpu_cores: float = -1.0
    memory_bytes: int = -1


class WorkerAddress(Message, frozen=True, kw_only=True):
    """The address of a slot's worker for data connections."""

    worker_id: WorkerID
    resource_id: ResourceID
    host: str
    #: TCP port (mutual TLS); 0 if the worker can be reached on its host only.
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
    """One slot in a slot report."""

    slot_id: SlotID
    profile: ResourceProfile
    allocation_id: AllocationID | None = None
    job_id: JobID | None = None


class SlotReport(Message, frozen=True, kw_only=True):
    """All slots of a TaskExecutor as it sees them."""

    slots: tuple[SlotStatus, ...]
    #: Rises with each report of one TaskExecutor: an older one that arrives late is ignored.
    sequence: int = 0


class ResourceRequirement(Message, frozen=True, kw_only=True):
    """A number of slots of one profile."""

    profile: ResourceProfile
    number_of_slots: int


class JobInterpreter(Message, frozen=True, kw_only=True):
    """The interpreter of a job's workers, in an archive of the job."""

    #: Relative to the folder of the job's unpacked archives, each of which has its own folder there.
    executable: str
    #: The archive's name, for texts, and its place.
    archive: str
    blob_key: str
    #: Folder of the unpacked archive; `executable` lies below it.
    folder: str


class ResourceRequirements(Message, frozen=True, kw_only=True):
    """The complete present requirements of a job; the newest declaration replaces the former."""

    job_id: JobID
    job_master_address: str
    requirements: tuple[ResourceRequirement, ...]
    #: None = workers of the job use the interpreter of their TaskExecutor.
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
    """The JobMaster's belief about a TaskExecutor's slots: it repairs the effects of lost messages."""

    job_id: JobID
    allocations: tuple[tuple[int, AllocationID], ...]
