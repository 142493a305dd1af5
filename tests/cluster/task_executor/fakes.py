"""A ResourceManager and a JobMaster that write down what they are told, served over real transports."""

from __future__ import annotations

import asyncio
import hashlib

from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import AllocationID, ExecutionAttemptID, JobID, JobMasterID, ResourceID
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.messages import (
    Acknowledge,
    AcknowledgeCheckpoint,
    AcknowledgeCoordinator,
    BlobPart,
    CollectConfirmation,
    CollectRows,
    DeclineCheckpoint,
    FailureCause,
    JobMasterRegistration,
    OperatorEvent,
    RegistrationRejection,
    RegistrationSuccess,
    ResourceRequirements,
    SlotOffer,
    SparkDriverRequest,
    TaskExecutionStateUpdate,
    TaskExecutorInfo,
    TaskExecutorRegistration,
    TaskExecutorToJobMasterHeartbeat,
    TaskExecutorToResourceManagerHeartbeat,
    WatermarkReport,
)


class FakeResourceManager(RpcEndpoint):
    """Takes registrations and notes of free slots."""

    def __init__(self, name: str = "rm", token: str = "rm-1") -> None:
        super().__init__(name, token)
        self.registrations: list[TaskExecutorRegistration] = []
        #: Why the SparkDriver of an allocation has ended.
        self.causes: dict[AllocationID, str] = {}
        self.freed: list[tuple[int, AllocationID]] = []
        self.disconnects: list[str] = []
        self.by_force: list[bool] = []
        self.rejection = ""

    async def register_task_executor(
        self, registration: TaskExecutorRegistration
    ) -> RegistrationSuccess | RegistrationRejection:
        if self.rejection:
            return RegistrationRejection(reason=self.rejection)
        self.registrations.append(registration)
        return RegistrationSuccess(leader_id=str(self.fencing_token), heartbeat_interval_ms=1000)

    async def notify_slot_available(
        self, resource_id: ResourceID, slot_index: int, allocation_id: AllocationID, cause: str = ""
    ) -> Acknowledge:
        self.freed.append((slot_index, allocation_id))
        self.causes[allocation_id] = cause
        return Acknowledge()

    async def disconnect_task_executor(
        self, resource_id: ResourceID, cause: str, by_force: bool = False
    ) -> Acknowledge:
        self.by_force.append(by_force)
        self.disconnects.append(cause)
        return Acknowledge()

    async def register_job_master(
        self, registration: JobMasterRegistration
    ) -> RegistrationSuccess | RegistrationRejection:
        raise AssertionError("not for a TaskExecutor")

    async def declare_required_resources(
        self, job_master_id: JobMasterID, requirements: ResourceRequirements
    ) -> Acknowledge:
        raise AssertionError("not for a TaskExecutor")

    async def heartbeat_from_job_master(self, job_id: JobID, job_master_id: JobMasterID) -> Acknowledge:
        raise AssertionError("not for a TaskExecutor")

    async def heartbeat_from_task_executor(
        self, payload: TaskExecutorToResourceManagerHeartbeat
    ) -> Acknowledge:
        return Acknowledge()

    async def disconnect_job_master(
        self, job_id: JobID, job_master_id: JobMasterID, status: JobStatus
    ) -> Acknowledge:
        raise AssertionError("not for a TaskExecutor")

    async def request_spark_driver(self, request: SparkDriverRequest) -> Acknowledge:
        raise AssertionError("not for a TaskExecutor")

    async def release_spark_driver(self, job_master_id: JobMasterID, driver_id: ResourceID) -> Acknowledge:
        raise AssertionError("not for a TaskExecutor")

    async def request_task_executors(self) -> tuple[TaskExecutorInfo, ...]:
        return ()


class FakeJobMaster(RpcEndpoint):
    """Takes slots and reports; `refuse` makes it refuse offers, `forget` its registrations."""

    def __init__(self, job_id: JobID, token: str = "jm-1", name: str = "jm") -> None:
        super().__init__(name, token)
        self.job_id = job_id
        self.refuse = False
        self.registered: list[ResourceID] = []
        self.offers: dict[AllocationID, SlotOffer] = {}
        self.failed_slots: dict[AllocationID, FailureCause] = {}
        self.updates: list[TaskExecutionStateUpdate] = []
        self.events: list[OperatorEvent] = []
        self.collected: list[CollectRows] = []
        self.disconnects: list[str] = []
        self.acknowledged: list[AcknowledgeCheckpoint | AcknowledgeCoordinator] = []
        self.declined: list[DeclineCheckpoint] = []
        self.ended: list[ExecutionAttemptID] = []
        self.blobs: dict[str, bytes] = {}
        self.room = asyncio.Event()
        self.room.set()

    def add_blob(self, data: bytes) -> str:
        """Stores a blob and returns its key."""
        key = hashlib.sha256(data).hexdigest()
        self.blobs[key] = data
        return key

    def state_of(self, attempt: ExecutionAttemptID) -> ExecutionState | None:
        """The newest state of an attempt."""
        states = [update.state for update in self.updates if update.attempt_id == attempt]
        return states[-1] if states else None

    def forget(self) -> None:
        """As after a heartbeat timeout on this side."""
        self.registered.clear()

    async def register_task_executor(
        self, resource_id: ResourceID, address: str, host: str
    ) -> RegistrationSuccess | RegistrationRejection:
        self.registered.append(resource_id)
        return RegistrationSuccess(leader_id=str(self.fencing_token), heartbeat_interval_ms=1000)

    async def offer_slots(
        self, resource_id: ResourceID, offers: tuple[SlotOffer, ...]
    ) -> tuple[AllocationID, ...]:
        if resource_id not in self.registered:
            raise YarrowError("register first")
        if self.refuse:
            return ()
        self.offers.update({offer.allocation_id: offer for offer in offers})
        return tuple(offer.allocation_id for offer in offers)

    async def fail_slot(
        self, resource_id: ResourceID, allocation_id: AllocationID, cause: FailureCause
    ) -> Acknowledge:
        self.failed_slots[allocation_id] = cause
        return Acknowledge()

    async def update_task_execution_states(
        self, updates: tuple[TaskExecutionStateUpdate, ...]
    ) -> Acknowledge:
        self.updates += updates
        return Acknowledge()

    async def heartbeat_from_task_executor(self, payload: TaskExecutorToJobMasterHeartbeat) -> Acknowledge:
        return Acknowledge()

    async def disconnect_task_executor(self, resource_id: ResourceID, cause: str) -> Acknowledge:
        self.disconnects.append(cause)
        return Acknowledge()

    async def send_operator_event(self, event: OperatorEvent) -> Acknowledge:
        self.events.append(event)
        return Acknowledge()

    async def report_watermark(self, report: WatermarkReport) -> Acknowledge:
        return Acknowledge()

    async def acknowledge_checkpoint(self, acknowledgement: AcknowledgeCheckpoint) -> Acknowledge:
        self.acknowledged.append(acknowledgement)
        return Acknowledge()

    async def acknowledge_coordinator(self, acknowledgement: AcknowledgeCoordinator) -> Acknowledge:
        self.acknowledged.append(acknowledgement)
        return Acknowledge()

    async def decline_checkpoint(self, decline: DeclineCheckpoint) -> Acknowledge:
        self.declined.append(decline)
        return Acknowledge()

    async def notify_end_of_data(
        self, job_id: JobID, attempts: tuple[ExecutionAttemptID, ...]
    ) -> Acknowledge:
        self.ended += attempts
        return Acknowledge()

    async def push_collected(self, rows: CollectRows) -> CollectConfirmation:
        await self.room.wait()
        self.collected.append(rows)
        return CollectConfirmation()

    async def read_blob(self, key: str, offset: int, length: int) -> BlobPart:
        data = self.blobs[key]
        # Parts far smaller than asked for: the reader has to come again.
        return BlobPart(data=data[offset : offset + min(length, 3)], total_size=len(data))

    async def notify_not_enough_resources(
        self, explanation: str, most_slots: int | None = None
    ) -> Acknowledge:
        raise AssertionError("not from a TaskExecutor")
