"""Messages by which components register with each other, and the answers.

Owner: none (frozen values). The leader's id in an answer fences all later messages. Hadoop's tokens are secrets.
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


class DelegationTokens(Message, frozen=True, kw_only=True):
    """Hadoop's tokens for the processes of an application. They are a secret: no text shows them."""

    #: Counts renewals from 1, in one attempt of the application.
    number: int
    #: The content of a token file.
    content: bytes

    def __repr__(self) -> str:
        return f"DelegationTokens(number={self.number})"


class RegistrationSuccess(Message, frozen=True, kw_only=True, tag="success"):
    """Accepted; `leader_id` is the token for all later messages."""

    leader_id: str
    heartbeat_interval_ms: int
    #: Delegation tokens newer than those in the container of the registering process.
    #: None = it has the newest, or needs none.
    tokens: DelegationTokens | None = None


class RegistrationRejection(Message, frozen=True, kw_only=True, tag="rejection"):
    """Refused for good, with the reason."""

    reason: str


class JobMasterRegistration(Message, frozen=True, kw_only=True):
    """A JobMaster's registration with the ResourceManager."""

    job_id: JobID
    job_master_id: JobMasterID
    address: str
