"""Messages with which components introduce themselves to each other, and the answers.

Owner: none (frozen values). The token of an answer fences all later messages; no secret travels here.
"""

from __future__ import annotations

from yarrow.runtime.common.ids import JobID, JobMasterID, ResourceID
from yarrow.runtime.rpc.messages.base import Message
from yarrow.runtime.rpc.messages.slots import SlotReport


class HardwareDescription(Message, frozen=True, kw_only=True):
    """The machine of a TaskExecutor, as REST shows it (bytes)."""

    cpu_cores: int
    physical_memory: int
    free_memory: int
    #: Of all slots together.
    managed_memory: int = 0


class TaskExecutorRegistration(Message, frozen=True, kw_only=True):
    """How a TaskExecutor introduces itself to the ResourceManager."""

    resource_id: ResourceID
    address: str
    host: str
    hardware: HardwareDescription
    process_memory: int
    supervisor_memory: int
    slot_report: SlotReport


class RegistrationSuccess(Message, frozen=True, kw_only=True, tag="success"):
    """Accepted; `leader_id` is the token for all later messages."""

    leader_id: str
    heartbeat_interval_ms: int


class RegistrationRejection(Message, frozen=True, kw_only=True, tag="rejection"):
    """Refused for good; the reason says why."""

    reason: str


class JobMasterRegistration(Message, frozen=True, kw_only=True):
    """How a JobMaster introduces itself to the ResourceManager."""

    job_id: JobID
    job_master_id: JobMasterID
    address: str
