"""Messages by which components register with each other, and the answers.

Owner: none (frozen values). The token of an answer fences all later messages; no secret is sent here.
"""

from __future__ import annotations

from yarrow.runtime.common.ids import JobID, JobMasterID, ResourceID
from yarrow.runtime.rpc.messages.base import Message
from yarrow.runtime.rpc.messages.slots import SlotReport


class HardwareDescription(Message, frozen=True, kw_only=True):
    """The machine of a TaskExecutor in REST's form (bytes)."""

    cpu_cores: int
    physical_memory: int
    free_memory: int
    #: Bytes of all slots together.
    managed_memory: int = 0


class TaskExecutorRegistration(Message, frozen=True, kw_only=True):
    """A TaskExecutor's registration with the ResourceManager."""

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
    """Refused for good, with the reason."""

    reason: str


class JobMasterRegistration(Message, frozen=True, kw_only=True):
    """A JobMaster's registration with the ResourceManager."""

    job_id: JobID
    job_master_id: JobMasterID
    address: str
