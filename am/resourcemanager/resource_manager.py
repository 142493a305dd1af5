"""ResourceManager: knows TaskExecutors and jobs, and carries out the SlotManager's actions.

Owner: its endpoint loop. Must not decide about slots (slot_manager.py) nor start processes (the driver).
task_executor_connections.py and job_master_connections.py keep registrations and heartbeats.
"""

from __future__ import annotations

import logging

import msgspec

from yarrow.am.execution.errors import UnknownTaskExecutorError
from yarrow.am.resourcemanager.driver import ResourceManagerDriver
from yarrow.am.resourcemanager.job_master_connections import JobMasterConnections
from yarrow.am.resourcemanager.settings import ResourceManagerSettings
from yarrow.am.resourcemanager.slot_events import (
    AskForSlotReport,
    JobGone,
    NotifyNotEnoughResources,
    ReleaseTaskExecutor,
    RequestSlot,
    RequestTaskExecutor,
    RequirementsDeclared,
    SlotFreed,
    SlotManagerAction,
    SlotManagerEvent,
    SlotReportReceived,
    SlotRequestAcknowledged,
    SlotRequestFailed,
    TaskExecutorAllocated,
    TaskExecutorGone,
    TaskExecutorRegistered,
    TaskExecutorRequestFailed,
    TaskExecutorsDelayed,
    TaskExecutorsLiving,
    TimePassed,
)
from yarrow.am.resourcemanager.slot_manager import SlotManager
from yarrow.am.resourcemanager.slot_spark_drivers import DriversInSlots, SlotSparkDrivers
from yarrow.am.resourcemanager.spark_drivers import (
    NO_SPARK_DRIVERS,
    LaunchersByRunner,
    SparkDriverLauncher,
    SparkDrivers,
)
from yarrow.am.resourcemanager.task_executor_connections import (
    TaskExecutorConnection,
    TaskExecutorConnections,
)
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import (
    AllocationID,
    IdFactory,
    JobID,
    JobMasterID,
    ResourceID,
    ResourceManagerID,
)
from yarrow.runtime.common.timers import TimerHandle, Timers
from yarrow.runtime.ha.services import token_of_epoch
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.gateway_type import RESOURCE_MANAGER
from yarrow.runtime.rpc.leader import LeaderInformation
from yarrow.runtime.rpc.messages import (
    Acknowledge,
    JobMasterRegistration,
    RegistrationRejection,
    RegistrationSuccess,
    ResourceProfile,
    ResourceRequirements,
    SlotReport,
    SlotRequest,
    SlotStatus,
    SparkDriverRequest,
    SparkDriverStart,
    TaskExecutorInfo,
    TaskExecutorRegistration,
    TaskExecutorToResourceManagerHeartbeat,
)
from yarrow.runtime.rpc.service import RpcService

#: Seconds.
_TIMER_RESOLUTION = 0.001
_log = logging.getLogger(__name__)

ENDPOINT_NAME = "resourcemanager"


class ResourceManager(RpcEndpoint):
    """The ResourceManager of one leadership; implements ResourceManagerGateway."""

    def __init__(
        self,
        service: RpcService,
        driver: ResourceManagerDriver,
        settings: ResourceManagerSettings,
        clock: Clock,
        timers: Timers,
        ids: IdFactory,
        epoch: int = 0,
        spark_drivers: SparkDriverLauncher | DriversInSlots = NO_SPARK_DRIVERS,
    ) -> None:
        """`epoch` is that of the leadership under which it works; its fencing token begins with it."""
        self.leader_id = ResourceManagerID(token_of_epoch(epoch, ids.hex_id()))
        super().__init__(ENDPOINT_NAME, self.leader_id)
        self._service = service
        self._driver = driver
        self._settings = settings
        self._clock = clock
        self._timers = timers
        self._slots = SlotManager(self.leader_id, settings.slots, ids)
        self._executors = TaskExecutorConnections(
            service, self.leader_id, settings.heartbeat, clock, self.spawn, self, lambda: driver.tokens
        )
        self._jobs = JobMasterConnections(service, settings.heartbeat, clock, self.spawn)
        drivers = spark_drivers if isinstance(spark_drivers, DriversInSlots) else DriversInSlots()
        self._slot_drivers = SlotSparkDrivers(drivers, self._slots, self._executors, self._handle, self.spawn)
        launcher: SparkDriverLauncher = self._slot_drivers
        if not isinstance(spark_drivers, DriversInSlots):
            launcher = LaunchersByRunner(spark_drivers, self._slot_drivers)
        self._spark_drivers = SparkDrivers(launcher, service, self.spawn)
        self._ticks: list[TimerHandle] = []
        #: Checks requirements slotmanager.requirement-check.delay after a job has declared some.
        self._requirement_check: TimerHandle | None = None
        self.address = ""

    async def on_start(self) -> None:
        self.address = self._service.serve(RESOURCE_MANAGER, self)
        leader = LeaderInformation(address=self.address, leader_id=self.leader_id)
        await self._driver.initialize(self, leader)
        if living := self._driver.living:
            self._handle(TaskExecutorsLiving(living))
        self._ticks = [
            self._timers.call_later(self._settings.heartbeat.interval, self._beat),
            self._timers.call_later(self._settings.check_interval, self._check),
        ]

    async def on_stop(self) -> None:
        for tick in (*self._ticks, self._requirement_check):
            if tick is not None:
                tick.cancel()
        self._service.stop_serving(self.name)
        self._slot_drivers.close()
        await self._spark_drivers.close()
        await self._driver.terminate()

    @property
    def leader(self) -> LeaderInformation:
        """The address and fencing token for registrations."""
        return LeaderInformation(address=self.address, leader_id=self.leader_id)

    @property
    def slot_manager(self) -> SlotManager:
        """The SlotManager, for its numbers (read only)."""
        return self._slots

    # The gateway: TaskExecutors.

    async def register_task_executor(
        self, registration: TaskExecutorRegistration
    ) -> RegistrationSuccess | RegistrationRejection:
        if refusal := self._driver.refusal(registration.resource_id):
            _log.warning("TaskExecutor %s is refused, and must end: %s", registration.resource_id, refusal)
            return RegistrationRejection(reason=refusal)
        self._executors.register(registration)
        _log.info("TaskExecutor %s registered from %s", registration.resource_id, registration.address)
        self._handle(TaskExecutorRegistered(registration.resource_id, registration.slot_report))
        return msgspec.structs.replace(self._success(), tokens=self._driver.tokens)

    async def notify_slot_available(
        self, resource_id: ResourceID, slot_index: int, allocation_id: AllocationID, cause: str = ""
    ) -> Acknowledge:
        self._slot_drivers.freed(allocation_id, cause)
        self._handle(SlotFreed(resource_id, slot_index, allocation_id))
        return Acknowledge()

    async def heartbeat_from_task_executor(
        self, payload: TaskExecutorToResourceManagerHeartbeat
    ) -> Acknowledge:
        if self._executors.find(payload.resource_id) is None:
            raise UnknownTaskExecutorError(
                f"TaskExecutor {payload.resource_id} is not registered with this ResourceManager: register "
                "again"
            )
        self._executors.heard(payload)
        return Acknowledge()

    async def disconnect_task_executor(
        self, resource_id: ResourceID, cause: str, by_force: bool = False
    ) -> Acknowledge:
        executor = self._executors.find(resource_id)
        if by_force and executor is not None:
            _log.info("TaskExecutor %s is killed: %s", resource_id, cause)
            executor.last_words = cause
            self.spawn(self._lose_when_explained(executor), "end by force")
        else:
            self._lose_task_executor(resource_id, cause)
        return Acknowledge()

    async def _lose_when_explained(self, executor: TaskExecutorConnection) -> None:
        """Waits briefly for the cause from whoever ended the TaskExecutor, so that jobs hear it as well."""
        resource_id = executor.resource_id
        await self._driver.await_end(resource_id)
        if self._executors.find(resource_id) is executor:
            self._lose_task_executor(resource_id, executor.last_words)

    async def request_task_executors(self) -> tuple[TaskExecutorInfo, ...]:
        return tuple(self._info(executor) for executor in self._executors)

    # The gateway: JobMasters.

    async def register_job_master(
        self, registration: JobMasterRegistration
    ) -> RegistrationSuccess | RegistrationRejection:
        self._jobs.register(registration)
        return self._success()

    async def declare_required_resources(
        self, job_master_id: JobMasterID, requirements: ResourceRequirements
    ) -> Acknowledge:
        self._jobs.check(requirements.job_id, job_master_id)
        event = RequirementsDeclared(
            requirements.job_id,
            job_master_id,
            requirements.job_master_address,
            requirements.requirements,
            requirements.interpreter,
        )
        self._handle(event)
        if (delay := self._settings.slots.requirement_check_delay) > 0:
            if self._requirement_check is not None:
                self._requirement_check.cancel()
            # A little later, because timers may be early by the resolution of their clock.
            self._requirement_check = self._timers.call_later(delay + _TIMER_RESOLUTION, self._look_again)
        return Acknowledge()

    def _look_again(self) -> None:
        self._handle(TimePassed())

    async def heartbeat_from_job_master(self, job_id: JobID, job_master_id: JobMasterID) -> Acknowledge:
        self._jobs.check(job_id, job_master_id)
        self._jobs.heard(job_id)
        return Acknowledge()

    async def disconnect_job_master(
        self, job_id: JobID, job_master_id: JobMasterID, status: JobStatus
    ) -> Acknowledge:
        self._jobs.check(job_id, job_master_id)
        self._lose_job(job_id)
        return Acknowledge()

    def _success(self) -> RegistrationSuccess:
        interval = int(self._settings.heartbeat.interval * 1000)
        return RegistrationSuccess(leader_id=self.leader_id, heartbeat_interval_ms=interval)

    # The gateway: SparkDrivers.

    async def request_spark_driver(self, request: SparkDriverRequest) -> Acknowledge:
        await self._spark_drivers.request(request)
        return Acknowledge()

    async def release_spark_driver(self, job_master_id: JobMasterID, driver_id: ResourceID) -> Acknowledge:
        await self._spark_drivers.release(job_master_id, driver_id)
        return Acknowledge()

    # The driver's events.

    def on_task_executor_terminated(self, resource_id: ResourceID, cause: str) -> None:
        executor = self._executors.find(resource_id)
        said = executor.last_words if executor is not None else ""
        self._lose_task_executor(resource_id, f"{said}; {cause}" if said else cause)

    def on_task_executors_delayed(self, explanation: str) -> None:
        self._handle(TaskExecutorsDelayed(explanation))

    # Events of its connections.

    def on_slot_report(self, resource_id: ResourceID, report: SlotReport) -> None:
        self._handle(SlotReportReceived(resource_id, report))

    def on_task_executor_unreachable(self, resource_id: ResourceID, cause: str) -> None:
        """Treats it as lost; tells it so, because it may be alive, and ends its process if that is ours."""
        executor = self._executors.find(resource_id)
        self._lose_task_executor(resource_id, cause)
        if executor is not None:
            self.spawn(self._say_goodbye(executor, cause), "goodbye")

    async def _say_goodbye(self, executor: TaskExecutorConnection, cause: str) -> None:
        resource_id = executor.resource_id
        try:
            await executor.gateway.disconnect_resource_manager(self.leader_id, cause)
        except YarrowError as error:
            _log.debug("TaskExecutor %s does not answer: %s", resource_id, error)
        await self._driver.release_task_executor(resource_id)

    # Actions.

    def _handle(self, event: SlotManagerEvent) -> None:
        self.assert_main_thread()
        for action in self._slots.handle(event, self._clock.monotonic()):
            self._carry_out(action)
        self._slot_drivers.look()

    def _carry_out(self, action: SlotManagerAction) -> None:
        match action:
            case RequestSlot(request):
                start = self._slot_drivers.take(request)
                self.spawn(self._request_slot(request, start), f"request slot {request.slot_id.index}")
            case AskForSlotReport(resource_id):
                self.spawn(self._ask_for_report(resource_id), "slot report")
            case RequestTaskExecutor(profile):
                self.spawn(self._request_task_executor(profile), "request TaskExecutor")
            case ReleaseTaskExecutor(resource_id, cause):
                self.spawn(self._release_task_executor(resource_id, cause), "release TaskExecutor")
            case NotifyNotEnoughResources(job_id, explanation, most_slots):
                if not self._slot_drivers.explain(job_id, explanation):
                    self._jobs.explain(job_id, explanation, most_slots)

    async def _request_slot(self, request: SlotRequest, start: SparkDriverStart | None) -> None:
        executor = self._executors.find(request.slot_id.resource_id)
        if executor is None:
            return
        try:
            if start is None:
                await executor.gateway.request_slot(request)
            else:
                await executor.gateway.start_spark_driver(start)
        except YarrowError as error:
            _log.info("a slot request to TaskExecutor %s failed: %s", request.slot_id.resource_id, error)
            self._slot_drivers.failed(request)
            self._handle(SlotRequestFailed(request, str(error)))
        else:
            self._slot_drivers.acknowledged(request)
            self._handle(SlotRequestAcknowledged(request))

    async def _ask_for_report(self, resource_id: ResourceID) -> None:
        executor = self._executors.find(resource_id)
        if executor is None:
            return
        try:
            report = await executor.gateway.request_slot_report()
        except YarrowError as error:
            # The next heartbeat brings a report; or none does, and the TaskExecutor is lost.
            _log.info("TaskExecutor %s sent no slot report: %s", resource_id, error)
        else:
            self._handle(SlotReportReceived(resource_id, report))

    async def _request_task_executor(self, profile: ResourceProfile) -> None:
        try:
            resource_id = await self._driver.request_task_executor(profile)
        except YarrowError as error:
            _log.warning("no TaskExecutor could be requested: %s", error)
            self._handle(TaskExecutorRequestFailed(str(error)))
        else:
            self._handle(TaskExecutorAllocated(resource_id))

    async def _release_task_executor(self, resource_id: ResourceID, cause: str) -> None:
        _log.info("TaskExecutor %s is released: %s", resource_id, cause)
        executor = self._executors.drop(resource_id)
        if executor is not None:
            try:
                await executor.gateway.release(self.leader_id, cause)
            except YarrowError as error:
                _log.debug("TaskExecutor %s did not answer its release: %s", resource_id, error)
        await self._driver.release_task_executor(resource_id)

    def _lose_task_executor(self, resource_id: ResourceID, cause: str) -> None:
        self.assert_main_thread()
        if self._executors.drop(resource_id) is not None:
            _log.info("TaskExecutor %s is gone: %s", resource_id, cause)
            self._jobs.tell_lost(resource_id, cause)
        self._slot_drivers.executor_gone(resource_id, cause)
        self._handle(TaskExecutorGone(resource_id, cause))

    def _lose_job(self, job_id: JobID) -> None:
        self._jobs.drop(job_id)
        self._handle(JobGone(job_id))

    # Time.

    def _check(self) -> None:
        self._handle(TimePassed())
        self._ticks[1] = self._timers.call_later(self._settings.check_interval, self._check)

    def _beat(self) -> None:
        self._executors.beat()
        for job_id in self._jobs.silent():
            _log.warning("the JobMaster of job %s is silent and was disconnected", job_id)
            self._lose_job(job_id)
        self._ticks[0] = self._timers.call_later(self._settings.heartbeat.interval, self._beat)

    def _info(self, executor: TaskExecutorConnection) -> TaskExecutorInfo:
        resource_id = executor.resource_id
        known = self._slots.task_executors.get(resource_id)
        slots = known.slots.values() if known is not None else ()
        allocated = [
            SlotStatus(
                slot_id=slot.slot_id,
                profile=slot.profile,
                allocation_id=slot.allocation_id,
                job_id=slot.job_id,
            )
            for slot in slots
            if slot.job_id is not None
        ]
        return TaskExecutorInfo(
            registration=executor.registration,
            milliseconds_since_heartbeat=self._executors.milliseconds_since_heartbeat(resource_id),
            free_slots=known.free if known is not None else 0,
            allocated=tuple(allocated),
            metrics=executor.metrics,
            data_port=executor.data_port,
        )
