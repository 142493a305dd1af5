"""The TaskExecutor: registers with the ResourceManager, and runs tasks of jobs in workers.

Owner: the event loop on which it was started. Must not import pyarrow, numpy or user code, and must not run a
task: workers do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from yarrow.container.launch.worker_launcher import WorkerLauncher
from yarrow.container.protocol.errors import SlotNotAvailableError
from yarrow.container.supervisor.hosted_spark_drivers import (
    HostedSparkDrivers,
    StartProcess,
    start_no_process,
)
from yarrow.container.supervisor.job_connection import (
    ConnectionServices,
    JobConnection,
    JobOfSlots,
    Registrant,
)
from yarrow.container.supervisor.job_files import JobFiles
from yarrow.container.supervisor.job_interpreter import OwnInterpreter
from yarrow.container.supervisor.job_slots import JobSlots, SlotTimeouts
from yarrow.container.supervisor.newest_leader import NewestLeader
from yarrow.container.supervisor.output_files import OutputFiles
from yarrow.container.supervisor.output_forwarder import NoForwarding, OutputGate
from yarrow.container.supervisor.process_watch import ProcessWatch
from yarrow.container.supervisor.slot_table import SlotTable
from yarrow.container.supervisor.slot_workers import SlotWorker, SlotWorkers
from yarrow.container.supervisor.task_executor_settings import TaskExecutorSettings
from yarrow.container.supervisor.worker_handle import WorkerListener
from yarrow.runtime.common.clock import Clock, SystemClock
from yarrow.runtime.common.errors import FencingTokenError, YarrowError
from yarrow.runtime.common.ids import (
    AllocationID,
    ExecutionAttemptID,
    JobID,
    JobMasterID,
    ResourceID,
    ResourceManagerID,
)
from yarrow.runtime.common.timers import LoopTimers, TimerHandle, Timers
from yarrow.runtime.ha.services import epoch_of_token
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.gateway_type import RESOURCE_MANAGER, TASK_EXECUTOR
from yarrow.runtime.rpc.gateways import ResourceManagerGateway
from yarrow.runtime.rpc.heartbeat import HeartbeatMonitor
from yarrow.runtime.rpc.leader import LeaderInformation, LeaderRetrieval
from yarrow.runtime.rpc.messages import (
    Acknowledge,
    AllocatedSlotReport,
    DelegationTokens,
    Deployment,
    FileInfo,
    NotifyCheckpoint,
    OperatorEvent,
    RegistrationRejection,
    RegistrationSuccess,
    ResetSubtask,
    SlotReport,
    SlotRequest,
    SparkDriverStart,
    TaskExecutorRegistration,
    TaskExecutorToJobMasterHeartbeat,
    TaskExecutorToResourceManagerHeartbeat,
    TaskTimeReport,
    TriggerCheckpoint,
    WatermarkBounds,
)
from yarrow.runtime.rpc.registration import LeaderConnection, Registration
from yarrow.runtime.rpc.service import RpcService

#: Key of the ResourceManager among the peers whose heartbeats are watched; job ids are hexadecimal.
_RESOURCE_MANAGER = "resource manager"
_SAMPLE_INTERVAL = 1.0
_THREAD_DUMP_TIMEOUT = 5.0
_EVENT_TIME_TIMEOUT = 3.0
_log = logging.getLogger(__name__)


class TaskExecutorServices(msgspec.Struct, frozen=True, kw_only=True):
    """The services that a TaskExecutor uses."""

    rpc: RpcService
    resource_manager: LeaderRetrieval
    launcher: WorkerLauncher
    files: OutputFiles
    output: OutputGate = msgspec.field(default_factory=NoForwarding)
    clock: Clock = msgspec.field(default_factory=SystemClock)
    timers: Timers = msgspec.field(default_factory=LoopTimers)
    start_spark_driver: StartProcess = start_no_process


class TaskExecutor(RpcEndpoint):
    """The endpoint of one TaskExecutor; implements TaskExecutorGateway."""

    def __init__(self, settings: TaskExecutorSettings, services: TaskExecutorServices) -> None:
        super().__init__(f"taskexecutor-{settings.resource_id}")
        self._settings = settings
        self._services = services
        self._timers = services.timers
        self.resource_id: ResourceID = settings.resource_id
        #: Address at which the gateway is served; "" before `start`.
        self.address = ""
        #: Done, with the cause, when this TaskExecutor wants its process to end; True = an orderly end.
        self.finished: asyncio.Future[tuple[bool, str]] = asyncio.get_running_loop().create_future()
        self._heartbeats: HeartbeatMonitor[str] = HeartbeatMonitor(settings.heartbeat, services.clock)
        self._sampling: asyncio.Task[None] | None = None
        self._watch = ProcessWatch(settings.process_memory, services.clock, settings.memory_warning_threshold)
        self.slots = JobSlots(
            self,
            SlotTable(settings.resource_id, settings.slots, settings.profile, services.clock),
            self,
            services.files,
            services.clock,
            services.timers,
            SlotTimeouts(settings.slot_timeout, settings.cancellation_timeout, settings.release_grace),
            self._slot_workers,
        )
        self.workers = self.slots.workers
        #: The SparkDrivers in its slots.
        self.spark_drivers = HostedSparkDrivers(
            self.slots.table, services.start_spark_driver, self._free_for_all
        )
        self._resource_manager: LeaderConnection[ResourceManagerGateway] = LeaderConnection(
            self,
            services.rpc,
            RESOURCE_MANAGER,
            NewestLeader(services.resource_manager, self._new_epoch),
            Registration(
                register=self._register,
                on_registered=self._registered,
                on_rejected=self._rejected,
                on_lost=self._resource_manager_lost,
            ),
            services.timers,
            settings.registration,
        )
        self._registration_deadline: TimerHandle | None = None
        self._ticks: dict[str, TimerHandle] = {}
        self._stop_grace = settings.release_grace
        self._ends_by_force = False

    # Life

    async def on_start(self) -> None:
        """Serves the gateway, warms the launcher up and registers; returns without waiting for either."""
        self.address = self._services.rpc.serve(TASK_EXECUTOR, self)
        await self._services.launcher.start()
        self._resource_manager_lost()
        self._resource_manager.start()
        self._tick("heartbeat", self._settings.heartbeat.interval, self._check_heartbeats)
        self._tick("memory", _SAMPLE_INTERVAL, self.sample_memory)

    async def on_stop(self) -> None:
        """Disconnects, ends the workers, and returns when no process of ours is left."""
        for timer in (*self._ticks.values(), self._registration_deadline):
            if timer is not None:
                timer.cancel()
        gateway = self._resource_manager.gateway
        self._resource_manager.stop()
        cause = self.finished.result()[1] if self.finished.done() else "the TaskExecutor was stopped"
        await asyncio.gather(
            self._say_goodbye(gateway, cause),
            self.workers.close(cause, self._stop_grace),
            self.spark_drivers.close(cause, self._stop_grace),
        )
        jobs = self.slots.jobs()
        for job in jobs:
            self.slots.close_job(job.job_id, cause)
        await asyncio.gather(*(job.files.close() for job in jobs))
        self._services.rpc.stop_serving(self.name)
        self._services.files.close()

    async def _say_goodbye(self, gateway: ResourceManagerGateway | None, cause: str) -> None:
        """Disconnects from a gateway. Best effort: silence tells the others the same, later.

        The ResourceManager may know why the process is ended by force. It then tells the jobs, and this
        process does not.
        """
        by_force = self._ends_by_force and gateway is not None
        calls = []
        if not by_force:
            calls = [
                job.gateway.disconnect_task_executor(self.resource_id, cause) for job in self.slots.jobs()
            ]
        if gateway is not None:
            calls.append(gateway.disconnect_task_executor(self.resource_id, cause, by_force))
        try:
            await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 1.0)
        except TimeoutError:
            _log.info(
                "the ResourceManager or a JobMaster did not hear within 1 s that this TaskExecutor"
                " disconnects"
            )

    def finish_by_force(self, cause: str, grace: float | None = None) -> None:
        """Like `finish`, for an end from outside: a lack of memory is named as the likely reason.

        The same signal ends workers. Their ends are no causes of their own, and jobs do not hear of them.
        """
        if not self.finished.done():
            self._ends_by_force = True
            for job in self.slots.jobs():
                job.close()
        shortage = self._watch.shortage(self._processes())
        self.finish(f"{cause}; {shortage}" if shortage else cause, grace=grace)

    def finish(self, cause: str, *, orderly: bool = True, grace: float | None = None) -> None:
        """Asks the owner of the process to stop this TaskExecutor; workers then have `grace` seconds."""
        if grace is not None:
            self._stop_grace = grace
        if not self.finished.done():
            _log.log(logging.INFO if orderly else logging.ERROR, "this TaskExecutor ends: %s", cause)
            self.finished.set_result((orderly, cause))

    def _tick(self, name: str, seconds: float, work: Callable[[], None]) -> None:
        def run() -> None:
            work()
            self._ticks[name] = self._timers.call_later(seconds, run)

        self._ticks[name] = self._timers.call_later(seconds, run)

    # ResourceManager

    async def _register(self, gateway: ResourceManagerGateway) -> RegistrationSuccess | RegistrationRejection:
        settings = self._settings
        return await gateway.register_task_executor(
            TaskExecutorRegistration(
                resource_id=self.resource_id,
                address=self.address,
                host=settings.host,
                hardware=settings.hardware,
                process_memory=settings.process_memory,
                supervisor_memory=settings.supervisor_memory,
                slot_report=self.slots.table.report(),
            )
        )

    def _registered(self, gateway: ResourceManagerGateway, success: RegistrationSuccess) -> None:
        _log.info("registered at the ResourceManager %s", success.leader_id)
        if self._registration_deadline is not None:
            self._registration_deadline.cancel()
            self._registration_deadline = None
        if success.tokens is not None:
            # Imported late: only clusters with Kerberos send tokens.
            from yarrow.runtime.fs.token_files import take_tokens_or_tell

            # Before any task reads from HDFS, hence at once: it is a small file.
            take_tokens_or_tell(success.tokens.content)
        self._heartbeats.monitor(_RESOURCE_MANAGER)

    def _rejected(self, reason: str) -> None:
        self.finish(f"the ResourceManager refused the TaskExecutor: {reason}", orderly=False)

    def _resource_manager_lost(self) -> None:
        self._heartbeats.unmonitor(_RESOURCE_MANAGER)
        # It has given them up, or their JobMasters have ended with it.
        self.spark_drivers.end_all("the ResourceManager that has asked for it is lost")
        timeout = self._settings.registration_timeout
        if self._registration_deadline is None:
            self._registration_deadline = self._timers.call_later(
                timeout,
                lambda: self.finish(
                    f"no ResourceManager accepted the registration within {timeout:g} s"
                    " (taskmanager.registration.timeout)",
                    orderly=False,
                ),
            )

    def _new_epoch(self, epoch: int) -> None:
        """Reacts to a new leadership: JobMasters of former ones are gone, or must not act any more."""
        self.spark_drivers.end_older_than(epoch)
        for job in self.slots.jobs():
            if epoch_of_token(job.job_master_id) < epoch:
                self.slots.close_job(
                    job.job_id, (f"the JobMaster does not lead any more: epoch {epoch} has begun")
                )

    def _check_resource_manager(self, resource_manager_id: ResourceManagerID) -> None:
        leader: LeaderInformation | None = self._resource_manager.leader
        if leader is None or leader.leader_id != resource_manager_id:
            present = "none" if leader is None else leader.leader_id
            raise FencingTokenError(
                f"{self.name} refuses a message of the ResourceManager {resource_manager_id}: the leader is"
                f" {present}"
            )

    def _check_heartbeats(self) -> None:
        for peer in self._heartbeats.tick().silent:
            cause = f"no heartbeat for {self._settings.heartbeat.timeout:g} s (heartbeat.timeout)"
            if peer == _RESOURCE_MANAGER:
                _log.warning("the ResourceManager is lost: %s", cause)
                self._resource_manager.reconnect()
            else:
                self.slots.close_job(JobID(peer), cause)

    def sample_memory(self) -> None:
        """Samples the memory of all processes in another thread; heartbeats report it. One sample at a time."""
        if self._sampling is None or self._sampling.done():
            work = self.run_blocking(self._watch.sample, self._processes())
            self._sampling = self.spawn(work, "memory")

    def _processes(self) -> list[tuple[str, int]]:
        """(name, pid) of every process that uses the memory of this TaskExecutor."""
        return self.workers.processes() + self.spark_drivers.workers()

    def _slot_workers(self, listener: WorkerListener) -> SlotWorkers:
        settings, services = self._settings, self._services
        return SlotWorkers(settings.workers, services.launcher, services.files, listener, services.timers)

    # SlotObserver

    def connect_job(self, request: SlotRequest) -> JobConnection:
        settings, services = self._settings, self._services
        leader = LeaderInformation(address=request.job_master_address, leader_id=request.job_master_id)
        gateway = JobConnection.gateway_of(services.rpc, leader)
        files = JobFiles(
            gateway,
            settings.working_directory / f"job-{request.job_id}",
            settings.max_message_bytes // 2,
            self.run_blocking,
        )
        interpreter = None
        if request.interpreter is not None:
            interpreter = OwnInterpreter(request.interpreter, files, self.workers.environment())
        return JobConnection(
            self,
            ConnectionServices(services.rpc, services.timers, settings.registration, services.output),
            self.slots,
            Registrant(self.resource_id, self.address, settings.host),
            JobOfSlots(request.job_id, leader, files, interpreter),
        )

    def on_job_opened(self, job_id: JobID) -> None:
        self._heartbeats.monitor(job_id)

    def on_job_closed(self, job_id: JobID) -> None:
        self._heartbeats.unmonitor(job_id)

    def on_slot_freed(self, slot_index: int, allocation_id: AllocationID) -> None:
        self._free_for_all(slot_index, allocation_id, "")

    def _free_for_all(self, slot_index: int, allocation_id: AllocationID, cause: str) -> None:
        """Tells the ResourceManager that a slot is free; `cause` is the end of the SparkDriver that had it."""
        gateway = self._resource_manager.gateway
        if gateway is not None and self.is_running:
            self.spawn(self._tell_free(gateway, slot_index, allocation_id, cause), f"slot-{slot_index}-free")

    def on_files_gone(self, error: FileNotFoundError) -> None:
        """Ends this TaskExecutor, because no task can ever run in its slots: others are requested instead."""
        self.finish(f"a folder or program that the workers need was removed: {error}", orderly=False)

    async def _tell_free(
        self, gateway: ResourceManagerGateway, slot_index: int, allocation_id: AllocationID, cause: str
    ) -> None:
        try:
            await gateway.notify_slot_available(self.resource_id, slot_index, allocation_id, cause)
        except YarrowError as error:
            # The next slot report says the same.
            _log.info("slot %d is free, but the ResourceManager did not hear of it: %s", slot_index, error)

    # TaskExecutorGateway

    async def request_slot(self, request: SlotRequest) -> Acknowledge:
        self._check_slot_request(request)
        self.slots.request(request)
        return Acknowledge()

    async def start_spark_driver(self, start: SparkDriverStart) -> Acknowledge:
        self._check_slot_request(start.slot)
        self.spark_drivers.start(start)
        return Acknowledge()

    def _check_slot_request(self, request: SlotRequest) -> None:
        self._check_resource_manager(request.resource_manager_id)
        if request.slot_id.resource_id != self.resource_id:
            raise SlotNotAvailableError(
                f"the request is for a slot of {request.slot_id.resource_id}, and reached {self.resource_id}"
            )

    async def submit_tasks(self, deployment: Deployment) -> Acknowledge:
        await self.slots.tasks.submit(deployment)
        return Acknowledge()

    async def cancel_tasks(
        self, job_id: JobID, job_master_id: JobMasterID, attempts: tuple[ExecutionAttemptID, ...]
    ) -> Acknowledge:
        self.slots.tasks.cancel(self.slots.job(job_id, job_master_id), attempts)
        return Acknowledge()

    async def free_slot(self, allocation_id: AllocationID, cause: str) -> Acknowledge:
        if not self.spark_drivers.free(allocation_id, cause):
            self.slots.free(allocation_id, cause)
        return Acknowledge()

    async def heartbeat_from_job_master(
        self, job_master_id: JobMasterID, slots: AllocatedSlotReport
    ) -> TaskExecutorToJobMasterHeartbeat:
        job = self.slots.job(slots.job_id, job_master_id)
        self._heartbeats.heard(slots.job_id)
        self.slots.compare(job, {allocation_id: index for index, allocation_id in slots.allocations})
        own = self.slots.table.of_job(slots.job_id)
        return TaskExecutorToJobMasterHeartbeat(
            resource_id=self.resource_id,
            running=self.slots.running(slots.job_id),
            metrics=self.slots.reports.task_metrics(own),
            accumulators=self.slots.reports.accumulators(own),
        )

    async def heartbeat_from_resource_manager(
        self, resource_manager_id: ResourceManagerID
    ) -> TaskExecutorToResourceManagerHeartbeat:
        self._check_resource_manager(resource_manager_id)
        self._heartbeats.heard(_RESOURCE_MANAGER)
        self._resource_manager.confirm()
        return TaskExecutorToResourceManagerHeartbeat(
            resource_id=self.resource_id,
            slot_report=self.slots.table.report(),
            metrics=self._watch.metrics(self.slots.reports.process_metrics()),
            data_port=self.workers.data_port(),
        )

    async def update_delegation_tokens(
        self, resource_manager_id: ResourceManagerID, tokens: DelegationTokens
    ) -> Acknowledge:
        from yarrow.runtime.fs.token_files import take_tokens

        self._check_resource_manager(resource_manager_id)
        await self.run_blocking(take_tokens, tokens.content)
        _log.info("new delegation tokens (%d) are in use", tokens.number)
        return Acknowledge()

    async def send_operator_event(self, job_master_id: JobMasterID, event: OperatorEvent) -> Acknowledge:
        self.slots.job(event.job_id, job_master_id)
        self.slots.tasks.deliver(event)
        return Acknowledge()

    async def send_watermark_bounds(self, job_master_id: JobMasterID, bounds: WatermarkBounds) -> Acknowledge:
        self.slots.job(bounds.job_id, job_master_id)
        self.slots.tasks.bound(bounds)
        return Acknowledge()

    async def trigger_checkpoint(self, job_master_id: JobMasterID, trigger: TriggerCheckpoint) -> Acknowledge:
        job = self.slots.job(trigger.job_id, job_master_id)
        self.slots.checkpoints.trigger(job, self.workers, trigger)
        return Acknowledge()

    async def notify_checkpoint(
        self, job_master_id: JobMasterID, notification: NotifyCheckpoint
    ) -> Acknowledge:
        job = self.slots.job(notification.job_id, job_master_id)
        self.slots.checkpoints.notify(job, self.workers, notification)
        return Acknowledge()

    async def reset_subtask(self, job_master_id: JobMasterID, reset: ResetSubtask) -> Acknowledge:
        job = self.slots.job(reset.job_id, job_master_id)
        self.slots.checkpoints.reset(job, self.workers, reset)
        return Acknowledge()

    async def disconnect_job_master(
        self, job_id: JobID, job_master_id: JobMasterID, cause: str
    ) -> Acknowledge:
        job = self.slots.find_job(job_id)
        if job is not None and job.job_master_id == job_master_id:
            self.slots.close_job(job_id, cause)
        return Acknowledge()

    async def disconnect_resource_manager(
        self, resource_manager_id: ResourceManagerID, cause: str
    ) -> Acknowledge:
        self._check_resource_manager(resource_manager_id)
        _log.info("the ResourceManager has disconnected: %s", cause)
        self._resource_manager.reconnect()
        return Acknowledge()

    async def request_log_list(self) -> tuple[FileInfo, ...]:
        return await self.run_blocking(self._services.files.list)

    async def request_log(self, name: str, offset: int, length: int) -> bytes:
        limit = min(length, self._settings.max_message_bytes // 2)
        return await self.run_blocking(self._services.files.read, name, offset, limit)

    async def request_thread_dump(self) -> tuple[tuple[str, str], ...]:
        # Imported late: most TaskExecutors are never asked.
        from yarrow.runtime.common.thread_dump import thread_stacks

        own = [(f"supervisor: {name}", stack) for name, stack in thread_stacks()]
        for worker in self.workers:
            index = worker.handle.slot_index
            try:
                threads = await asyncio.wait_for(worker.handle.thread_dump(), _THREAD_DUMP_TIMEOUT)
            except TimeoutError:
                threads = (("all threads", f"the worker did not answer within {_THREAD_DUMP_TIMEOUT:g} s"),)
            own += [(f"slot {index}: {name}", stack) for name, stack in threads]
        return tuple(own)

    async def request_event_times(self, job_id: JobID) -> tuple[TaskTimeReport, ...]:
        workers = [self.workers.get(slot.index) for slot in self.slots.table.of_job(job_id)]
        answers = await asyncio.gather(
            *(self._event_times(worker, job_id) for worker in workers if worker is not None)
        )
        return tuple(report for answer in answers for report in answer)

    @staticmethod
    async def _event_times(worker: SlotWorker, job_id: JobID) -> tuple[TaskTimeReport, ...]:
        try:
            return await asyncio.wait_for(worker.handle.event_times(job_id), _EVENT_TIME_TIMEOUT)
        except TimeoutError:
            _log.info(
                "the worker %s has not told the event times of its tasks within %g s",
                worker.handle.worker_id,
                _EVENT_TIME_TIMEOUT,
            )
            return ()

    async def request_slot_report(self) -> SlotReport:
        return self.slots.table.report()

    async def release(self, resource_manager_id: ResourceManagerID, cause: str) -> Acknowledge:
        self._check_resource_manager(resource_manager_id)
        self.finish(f"the TaskExecutor was released: {cause}")
        return Acknowledge()
