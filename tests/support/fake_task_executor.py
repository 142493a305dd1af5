"""FakeTaskExecutor: a TaskExecutor without workers, for tests and benchmarks of the control plane.

Owner: its endpoint loop. It keeps the slot protocol with real messages; its tasks do nothing but change
state, by themselves up to RUNNING and then as a test says. Must not be used where user code is to run.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from tests.support.fake_spark_driver import FakeSparkDriver
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import FencingTokenError, YarrowError
from yarrow.runtime.common.ids import (
    AllocationID,
    ExecutionAttemptID,
    JobID,
    JobMasterID,
    ResourceID,
    ResourceManagerID,
    WorkerID,
)
from yarrow.runtime.common.timers import Timers
from yarrow.runtime.graph.states import BatchRunner, ExecutionState
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.gateway_type import JOB_MASTER, RESOURCE_MANAGER, TASK_EXECUTOR
from yarrow.runtime.rpc.gateways import JobMasterGateway, ResourceManagerGateway
from yarrow.runtime.rpc.leader import LeaderRetrieval
from yarrow.runtime.rpc.messages import (
    Acknowledge,
    AllocatedSlotReport,
    DelegationTokens,
    Deployment,
    FailureCause,
    FileInfo,
    HardwareDescription,
    NotifyCheckpoint,
    OperatorEvent,
    RegistrationRejection,
    RegistrationSuccess,
    ResetSubtask,
    ResourceProfile,
    SlotID,
    SlotOffer,
    SlotReport,
    SlotRequest,
    SlotStatus,
    SparkDriverRequest,
    SparkDriverStart,
    TaskExecutionStateUpdate,
    TaskExecutorRegistration,
    TaskExecutorToJobMasterHeartbeat,
    TaskExecutorToResourceManagerHeartbeat,
    TaskTimeReport,
    TriggerCheckpoint,
    WatermarkBounds,
    WorkerAddress,
)
from yarrow.runtime.rpc.registration import LeaderConnection, Registration
from yarrow.runtime.rpc.service import RpcService

_log = logging.getLogger(__name__)


#: Offers without an answer after which an allocated slot is given up.
OFFER_ATTEMPTS = 4


class SlotOccupiedError(YarrowError):
    """The slot belongs to another allocation."""


@dataclass(frozen=True, slots=True)
class FakeBehaviour:
    """What tasks do by themselves."""

    #: Report INITIALIZING and RUNNING at once; else a test drives them with `report`.
    run: bool = True
    #: Then report FINISHED.
    finish: bool = False
    #: Answer cancels with CANCELED; else a test does, or nobody.
    obey_cancel: bool = True


@dataclass(slots=True)
class _Job:
    job_id: JobID
    address: str
    leader_id: JobMasterID
    gateway: JobMasterGateway
    registered: bool = False
    #: Allocated for the job and not yet taken by its JobMaster.
    unoffered: dict[AllocationID, int] = field(default_factory=dict)
    #: Offers in a row that nobody answered.
    failed_offers: int = 0
    offering: asyncio.Task[None] | None = None


class FakeTaskExecutor(RpcEndpoint):
    """Implements TaskExecutorGateway."""

    def __init__(
        self,
        service: RpcService,
        resource_id: str,
        slots: int,
        resource_manager: LeaderRetrieval,
        clock: Clock,
        timers: Timers,
        behaviour: FakeBehaviour | None = None,
    ) -> None:
        super().__init__(f"taskexecutor_{resource_id}")
        self.resource_id = ResourceID(resource_id)
        self.behaviour = behaviour or FakeBehaviour()
        self._service = service
        self._clock = clock
        self._slots: dict[int, SlotRequest | None] = dict.fromkeys(range(slots))
        self._jobs: dict[JobID, _Job] = {}
        self._sequence = 0
        #: Live tasks and the job of each.
        self.tasks: dict[ExecutionAttemptID, JobID] = {}
        self.deployments: list[Deployment] = []
        self.events: list[OperatorEvent] = []
        #: Delegation tokens that it has received.
        self.tokens: list[DelegationTokens] = []
        self.cancelled: list[ExecutionAttemptID] = []
        self.triggers: list[TriggerCheckpoint] = []
        self.notifications: list[NotifyCheckpoint] = []
        self.resets: list[ResetSubtask] = []
        #: Living SparkDrivers by allocation, and all that it has ever started.
        self.spark_drivers: dict[AllocationID, FakeSparkDriver] = {}
        self.started_drivers: list[FakeSparkDriver] = []
        self._ended_drivers: set[AllocationID] = set()
        #: Set when the ResourceManager released it.
        self.released = asyncio.Event()
        #: Number of accepted registrations with a ResourceManager.
        self.registrations = 0
        self.address = ""
        self._connection: LeaderConnection[ResourceManagerGateway] = LeaderConnection(
            self,
            service,
            RESOURCE_MANAGER,
            resource_manager,
            Registration(register=self._register, on_registered=self._registered),
            timers,
        )

    async def on_start(self) -> None:
        self.address = self._service.serve(TASK_EXECUTOR, self)
        self._connection.start()

    async def on_stop(self) -> None:
        self._connection.stop()
        self._service.stop_serving(self.name)

    def _registered(self, gateway: ResourceManagerGateway, success: RegistrationSuccess) -> None:
        self.registrations += 1
        if success.tokens is not None:
            self.tokens.append(success.tokens)

    async def _register(self, gateway: ResourceManagerGateway) -> RegistrationSuccess | RegistrationRejection:
        registration = TaskExecutorRegistration(
            resource_id=self.resource_id,
            address=self.address,
            host="localhost",
            hardware=HardwareDescription(cpu_cores=1, physical_memory=0, free_memory=0),
            process_memory=0,
            supervisor_memory=0,
            slot_report=self.slot_report(),
        )
        return await gateway.register_task_executor(registration)

    # What a test looks at and does.

    @property
    def allocations(self) -> dict[int, AllocationID]:
        """Allocated slots by index."""
        return {index: request.allocation_id for index, request in self._slots.items() if request is not None}

    def slot_report(self) -> SlotReport:
        """All slots as they are now."""
        self._sequence += 1
        return SlotReport(slots=tuple(self._status(index) for index in self._slots), sequence=self._sequence)

    def _status(self, index: int) -> SlotStatus:
        request = self._slots[index]
        return SlotStatus(
            slot_id=SlotID(resource_id=self.resource_id, index=index),
            profile=ResourceProfile(),
            allocation_id=request.allocation_id if request is not None else None,
            job_id=request.job_id if request is not None else None,
        )

    async def report(
        self, state: ExecutionState, *attempts: ExecutionAttemptID, cause: FailureCause | None = None
    ) -> None:
        """Reports that these tasks (all, when none is named) entered a state."""
        jobs: dict[JobID, list[TaskExecutionStateUpdate]] = {}
        for attempt in attempts or tuple(self.tasks):
            update = TaskExecutionStateUpdate(
                attempt_id=attempt, state=state, timestamp_ms=self._clock.epoch_ms(), cause=cause
            )
            job_id = self.tasks.pop(attempt) if state.is_terminal else self.tasks[attempt]
            jobs.setdefault(job_id, []).append(update)
        for job_id, updates in jobs.items():
            await self._jobs[job_id].gateway.update_task_execution_states(tuple(updates))

    # The gateway.

    async def request_slot(self, request: SlotRequest) -> Acknowledge:
        self._check_leader(request.resource_manager_id)
        self._occupy(request)
        job = self._job_of(request)
        job.unoffered[request.allocation_id] = request.slot_id.index
        self._offer(job)
        return Acknowledge()

    def _check_leader(self, resource_manager_id: ResourceManagerID) -> None:
        leader = self._connection.leader
        if leader is None or resource_manager_id != leader.leader_id:
            raise FencingTokenError(
                f"{self.name} refuses the slot request of the ResourceManager {resource_manager_id}"
            )

    def _occupy(self, request: SlotRequest) -> bool:
        """Allocates the slot; False if it has that allocation already."""
        present = self._slots[request.slot_id.index]
        if present is not None and present.allocation_id != request.allocation_id:
            raise SlotOccupiedError(
                f"slot {request.slot_id.index} of {self.resource_id} is allocated as {present.allocation_id}"
            )
        self._slots[request.slot_id.index] = request
        return present is None

    async def start_spark_driver(self, start: SparkDriverStart) -> Acknowledge:
        self._check_leader(start.slot.resource_manager_id)
        allocation_id, index = start.slot.allocation_id, start.slot.slot_id.index
        if allocation_id in self._ended_drivers:
            raise SlotOccupiedError(f"the driver of {allocation_id} has ended")
        if not self._occupy(start.slot):
            return Acknowledge()
        assert bool(start.identity) == (start.runner is BatchRunner.SPARK)
        request = SparkDriverRequest(
            driver_id=start.driver_id,
            job_id=start.slot.job_id,
            job_master_id=start.slot.job_master_id,
            job_master_address=start.slot.job_master_address,
            configuration=start.configuration,
            slots=len(self._slots),
            runner=start.runner,
        )
        name = f"{self.resource_id}-{index}"
        driver = FakeSparkDriver(start.driver_id, request, self._service, self.resource_id, name)
        self.spark_drivers[allocation_id] = driver
        self.started_drivers.append(driver)
        await driver.start()
        return Acknowledge()

    async def end_driver(self, driver: FakeSparkDriver, cause: str) -> None:
        """The process of a driver ends."""
        allocation_id = next(key for key, value in self.spark_drivers.items() if value is driver)
        await self.free_slot(allocation_id, cause)

    def _job_of(self, request: SlotRequest) -> _Job:
        job = self._jobs.get(request.job_id)
        if job is None or job.leader_id != request.job_master_id:
            gateway = self._service.connect(request.job_master_address, JOB_MASTER, request.job_master_id)
            job = _Job(request.job_id, request.job_master_address, request.job_master_id, gateway)
            self._jobs[request.job_id] = job
        return job

    def _offer(self, job: _Job) -> None:
        if job.unoffered and (job.offering is None or job.offering.done()):
            job.offering = self.spawn(self._offer_all(job), f"offer to {job.job_id}")

    async def _offer_all(self, job: _Job) -> None:
        """Offers until the JobMaster has taken or refused everything; a lost message is tried at a
        heartbeat."""
        try:
            if not job.registered:
                await job.gateway.register_task_executor(self.resource_id, self.address, "localhost")
                job.registered = True
            while job.unoffered:
                offered = dict(job.unoffered)
                offers = tuple(self._slot_offer(*item) for item in offered.items())
                taken = await job.gateway.offer_slots(self.resource_id, offers)
                for allocation_id, index in offered.items():
                    job.unoffered.pop(allocation_id, None)
                    if allocation_id not in taken:
                        await self._free(index, "the JobMaster does not need it")
            job.failed_offers = 0
        except YarrowError as error:
            _log.info("%s: offer failed: %s", self.name, error)
            job.failed_offers += 1
            if job.failed_offers >= OFFER_ATTEMPTS:
                for index in list(job.unoffered.values()):
                    await self._free(index, "the JobMaster does not answer (taskmanager.slot.timeout)")

    def _slot_offer(self, allocation_id: AllocationID, index: int) -> SlotOffer:
        worker = WorkerAddress(
            worker_id=WorkerID(f"{self.resource_id}/{index}"),
            resource_id=self.resource_id,
            host="localhost",
            port=0,
            unix_path="",
            host_key="",
        )
        return SlotOffer(
            allocation_id=allocation_id, slot_index=index, profile=ResourceProfile(), worker=worker
        )

    async def submit_tasks(self, deployment: Deployment) -> Acknowledge:
        self._check_job_master(deployment.job_id, deployment.job_master_id)
        self.deployments.append(deployment)
        attempts = tuple(task.attempt_id for task in deployment.tasks)
        self.tasks.update(dict.fromkeys(attempts, deployment.job_id))
        if self.behaviour.run:
            self.spawn(self._run(attempts), "run tasks")
        return Acknowledge()

    async def _run(self, attempts: tuple[ExecutionAttemptID, ...]) -> None:
        states = [ExecutionState.INITIALIZING, ExecutionState.RUNNING]
        if self.behaviour.finish:
            states.append(ExecutionState.FINISHED)
        for state in states:
            live = [attempt for attempt in attempts if attempt in self.tasks]
            if live:
                await self.report(state, *live)

    async def cancel_tasks(
        self, job_id: JobID, job_master_id: JobMasterID, attempts: tuple[ExecutionAttemptID, ...]
    ) -> Acknowledge:
        self._check_job_master(job_id, job_master_id)
        self.cancelled += attempts
        live = [attempt for attempt in attempts if attempt in self.tasks]
        if live and self.behaviour.obey_cancel:
            self.spawn(self.report(ExecutionState.CANCELED, *live), "report cancel")
        return Acknowledge()

    async def free_slot(self, allocation_id: AllocationID, cause: str) -> Acknowledge:
        for index, request in self._slots.items():
            if request is not None and request.allocation_id == allocation_id:
                await self._free(index, cause)
        return Acknowledge()

    async def _free(self, index: int, cause: str) -> None:
        request = self._slots[index]
        if request is None:
            return
        self._slots[index] = None
        if (job := self._jobs.get(request.job_id)) is not None:
            job.unoffered.pop(request.allocation_id, None)
        driver = self.spark_drivers.pop(request.allocation_id, None)
        if driver is not None:
            self._ended_drivers.add(request.allocation_id)
            await driver.stop()
        end = cause if driver is not None else ""
        self.spawn(self._notify_free(index, request.allocation_id, end), f"slot {index} is free")

    async def _notify_free(self, index: int, allocation_id: AllocationID, end: str) -> None:
        gateway = self._connection.gateway
        if gateway is None:
            return
        try:
            await gateway.notify_slot_available(self.resource_id, index, allocation_id, end)
        except YarrowError as error:
            # The slot report of the next heartbeat says it again.
            _log.info("%s: the ResourceManager was not told: %s", self.name, error)

    async def heartbeat_from_job_master(
        self, job_master_id: JobMasterID, slots: AllocatedSlotReport
    ) -> TaskExecutorToJobMasterHeartbeat:
        job = self._check_job_master(slots.job_id, job_master_id)
        wanted = {allocation for _, allocation in slots.allocations}
        for index, request in self._slots.items():
            if request is None or request.job_id != slots.job_id:
                continue
            if request.allocation_id not in wanted and request.allocation_id not in job.unoffered:
                job.unoffered[request.allocation_id] = index
        self._offer(job)
        running = tuple(attempt for attempt, job_id in self.tasks.items() if job_id == slots.job_id)
        return TaskExecutorToJobMasterHeartbeat(
            resource_id=self.resource_id, running=running, metrics=(), accumulators=()
        )

    async def heartbeat_from_resource_manager(
        self, resource_manager_id: ResourceManagerID
    ) -> TaskExecutorToResourceManagerHeartbeat:
        leader = self._connection.leader
        if leader is None or resource_manager_id != leader.leader_id:
            raise FencingTokenError(f"{self.name}: {resource_manager_id} is not my ResourceManager")
        self._connection.confirm()
        for job in self._jobs.values():
            self._offer(job)
        return TaskExecutorToResourceManagerHeartbeat(
            resource_id=self.resource_id, slot_report=self.slot_report(), metrics={}
        )

    async def update_delegation_tokens(
        self, resource_manager_id: ResourceManagerID, tokens: DelegationTokens
    ) -> Acknowledge:
        self.tokens.append(tokens)
        return Acknowledge()

    async def send_operator_event(self, job_master_id: JobMasterID, event: OperatorEvent) -> Acknowledge:
        self._check_job_master(event.job_id, job_master_id)
        self.events.append(event)
        return Acknowledge()

    async def send_watermark_bounds(self, job_master_id: JobMasterID, bounds: WatermarkBounds) -> Acknowledge:
        self._check_job_master(bounds.job_id, job_master_id)
        return Acknowledge()

    async def trigger_checkpoint(self, job_master_id: JobMasterID, trigger: TriggerCheckpoint) -> Acknowledge:
        self._check_job_master(trigger.job_id, job_master_id)
        self.triggers.append(trigger)
        return Acknowledge()

    async def notify_checkpoint(
        self, job_master_id: JobMasterID, notification: NotifyCheckpoint
    ) -> Acknowledge:
        self._check_job_master(notification.job_id, job_master_id)
        self.notifications.append(notification)
        return Acknowledge()

    async def reset_subtask(self, job_master_id: JobMasterID, reset: ResetSubtask) -> Acknowledge:
        self._check_job_master(reset.job_id, job_master_id)
        self.resets.append(reset)
        return Acknowledge()

    async def disconnect_job_master(
        self, job_id: JobID, job_master_id: JobMasterID, cause: str
    ) -> Acknowledge:
        self._check_job_master(job_id, job_master_id)
        for index, request in self._slots.items():
            if request is not None and request.job_id == job_id:
                await self._free(index, cause)
        del self._jobs[job_id]
        self.tasks = {attempt: owner for attempt, owner in self.tasks.items() if owner != job_id}
        return Acknowledge()

    async def disconnect_resource_manager(
        self, resource_manager_id: ResourceManagerID, cause: str
    ) -> Acknowledge:
        self._connection.reconnect()
        return Acknowledge()

    async def request_log_list(self) -> tuple[FileInfo, ...]:
        return ()

    async def request_log(self, name: str, offset: int, length: int) -> bytes:
        return b""

    async def request_thread_dump(self) -> tuple[tuple[str, str], ...]:
        return ()

    async def request_event_times(self, job_id: JobID) -> tuple[TaskTimeReport, ...]:
        return ()

    async def request_slot_report(self) -> SlotReport:
        return self.slot_report()

    async def release(self, resource_manager_id: ResourceManagerID, cause: str) -> Acknowledge:
        self._connection.stop()
        self.released.set()
        return Acknowledge()

    def _check_job_master(self, job_id: JobID, job_master_id: JobMasterID) -> _Job:
        job = self._jobs.get(job_id)
        if job is None or job.leader_id != job_master_id:
            raise FencingTokenError(
                f"{self.name} knows no JobMaster {job_master_id} of job {job_id}: the message is stale"
            )
        return job
