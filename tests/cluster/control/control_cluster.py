"""A control plane with fake TaskExecutors in one process: real messages, time moved by hand, faults on
demand."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from tests.support.counting_ids import CountingIdFactory
from tests.support.fake_spark_driver import FakeSparkDriver, FakeSparkDrivers
from tests.support.fake_task_executor import FakeBehaviour, FakeTaskExecutor
from tests.support.faulty_network import FaultyNetwork
from tests.support.manual_timers import ManualTimers
from tests.support.scripted_fault import ScriptedFault
from tests.unit.runtime.rpc.loops import settled
from yarrow.am.control_plane import ControlPlane, ControlPlaneServices, ControlPlaneSettings
from yarrow.am.dispatcher.job_archive import JobArchive
from yarrow.am.dispatcher.settings import DispatcherSettings
from yarrow.am.jobmaster.scheduling.settings import JobMasterSettings
from yarrow.am.resourcemanager.driver import (
    ResourceEventHandler,
    ResourceManagerDriver,
    StandaloneDriver,
    TaskExecutorStartError,
)
from yarrow.am.resourcemanager.settings import ResourceManagerSettings, SlotManagerSettings
from yarrow.am.resourcemanager.slot_spark_drivers import DriversInSlots
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.ids import JobID, ResourceID
from yarrow.runtime.graph.job_graph import JobGraph, encode_job_graph
from yarrow.runtime.rpc.gateways import DispatcherGateway
from yarrow.runtime.rpc.in_process import InProcessTransport
from yarrow.runtime.rpc.leader import AnnouncedLeader, LeaderInformation
from yarrow.runtime.rpc.messages import DelegationTokens, JobResult, ResourceProfile
from yarrow.runtime.rpc.service import RpcService

#: Real seconds after which a condition that does not come true fails the test.
DEADLINE = 180.0


class FakeDriver:
    """A ResourceManagerDriver whose TaskExecutors are FakeTaskExecutors."""

    def __init__(self, cluster: ControlCluster) -> None:
        self._cluster = cluster
        self._handler: ResourceEventHandler | None = None
        self.released: list[ResourceID] = []
        self.started: list[ResourceID] = []
        self.requests = 0
        #: Why some may not serve.
        self.refused: dict[ResourceID, str] = {}
        #: What the next requests fail with.
        self.failures: list[str] = []
        #: Slots of what it starts.
        self.slots = 1
        self.tokens: DelegationTokens | None = None
        #: Not set = whoever ends by force has an end that may still be explained.
        self.explained = asyncio.Event()
        self.explained.set()

    @property
    def can_request(self) -> bool:
        return True

    @property
    def living(self) -> tuple[ResourceID, ...]:
        return tuple(name for name in self.started if name not in self.released)

    async def initialize(self, handler: ResourceEventHandler, leader: LeaderInformation) -> None:
        self._handler = handler

    async def request_task_executor(self, profile: ResourceProfile) -> ResourceID:
        self.requests += 1
        if self.failures:
            raise TaskExecutorStartError(self.failures.pop(0))
        executor = await self._cluster.add(slots=self.slots)
        self.started.append(executor.resource_id)
        return executor.resource_id

    async def release_task_executor(self, resource_id: ResourceID) -> None:
        self.released.append(resource_id)

    def refusal(self, resource_id: ResourceID) -> str:
        """What a test says of one."""
        return self.refused.get(resource_id, "")

    async def await_end(self, resource_id: ResourceID) -> None:
        """Until a test says why it ended."""
        await self.explained.wait()

    async def terminate(self) -> None:
        """The cluster ends its TaskExecutors."""

    def crash(self, resource_id: ResourceID, cause: str) -> None:
        """Tells that a process ended."""
        assert self._handler is not None
        self._handler.on_task_executor_terminated(resource_id, cause)


class ControlCluster:
    """The parts, for a test to reach into."""

    def __init__(
        self,
        directory: Path,
        jobs: JobMasterSettings | None = None,
        slots: SlotManagerSettings | None = None,
        standalone: bool = True,
        check_job: Callable[[JobGraph], None] = lambda graph: None,
        archive: JobArchive | None = None,
        drivers_in_slots: bool = False,
    ) -> None:
        """`drivers_in_slots`: the TaskExecutors start SparkDrivers, else `spark_drivers` does."""
        #: Text that functions of bounded jobs have printed.
        self.printed: list[str] = []
        self.fault = ScriptedFault()
        self.network = FaultyNetwork(self.fault)
        self.clock = ManualClock(1_000_000)
        self.timers = ManualTimers(self.clock)
        self.ids = CountingIdFactory()
        self.driver = FakeDriver(self)
        self.executors: list[FakeTaskExecutor] = []
        self.behaviour = FakeBehaviour()
        driver: ResourceManagerDriver = StandaloneDriver() if standalone else self.driver
        slot_settings = msgspec.structs.replace(
            slots or SlotManagerSettings(), can_request=driver.can_request
        )
        self.settings = ControlPlaneSettings(
            blob_directory=str(directory / "blobs"),
            dispatcher=DispatcherSettings(
                check_job=check_job,
                archive=archive,
                job_master=lambda graph: jobs or JobMasterSettings(),
            ),
            resource_manager=ResourceManagerSettings(slots=slot_settings),
        )
        #: Where JobMasters that fail write their last decisions.
        self.logs = directory / "log"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.spark_drivers = FakeSparkDrivers(self.service)
        self.drivers_in_slots = drivers_in_slots
        self.plane = self.new_plane(driver)
        self.leader = AnnouncedLeader()

    def new_plane(self, driver: ResourceManagerDriver) -> ControlPlane:
        """Another master of the same cluster."""
        services = ControlPlaneServices(
            clock=self.clock,
            timers=self.timers,
            ids=self.ids,
            log_directory=self.logs,
            spark_drivers=DriversInSlots() if self.drivers_in_slots else self.spark_drivers,
            print_output=self.printed.append,
        )
        return ControlPlane(self.service(), driver, self.settings, services)

    def service(self) -> RpcService:
        """Another process of the same network."""
        return RpcService([InProcessTransport(self.network)])

    @property
    def dispatcher(self) -> DispatcherGateway:
        return self.plane.dispatcher_gateway()

    async def add(self, slots: int = 1, behaviour: FakeBehaviour | None = None) -> FakeTaskExecutor:
        """One more TaskExecutor; it registers in its own time."""
        executor = FakeTaskExecutor(
            self.service(),
            f"te-{len(self.executors) + 1}",
            slots,
            self.leader,
            self.clock,
            self.timers,
            behaviour or self.behaviour,
        )
        self.executors.append(executor)
        await executor.start()
        return executor

    async def submit(self, graph: JobGraph) -> JobID:
        return await self.dispatcher.submit_job(encode_job_graph(graph))

    async def next_spark_driver(self, number: int = 1) -> FakeSparkDriver:
        """The driver with that number, from 1, once it was asked for."""
        await eventually(lambda: len(self.spark_drivers.drivers) >= number)
        return self.spark_drivers.drivers[number - 1]

    async def result(self, job_id: JobID) -> JobResult:
        return await asyncio.wait_for(self.dispatcher.request_job_result(job_id), DEADLINE)

    async def until_status(self, job_id: JobID, status: JobStatus) -> None:
        async def reached() -> bool:
            return await self.dispatcher.request_job_status(job_id) is status

        await eventually(reached)

    async def until_running(self, job_id: JobID, tasks: int) -> None:
        """Returns when so many tasks of the job run."""

        async def reached() -> bool:
            overviews = {overview.job_id: overview for overview in await self.dispatcher.list_jobs()}
            return overviews[job_id].tasks["running"] == tasks

        await eventually(reached)

    async def until_free(self, slots: int) -> None:
        """Returns when the ResourceManager counts so many free slots."""
        await eventually(lambda: self.plane.resource_manager.slot_manager.slots_free == slots)

    async def pass_time(self, seconds: float) -> None:
        """Moves time in steps of a heartbeat, each with its messages."""
        while seconds > 0:
            self.timers.advance(min(10.0, seconds))
            await settled()
            seconds -= 10

    def slots_agree(self) -> bool:
        """True when ResourceManager and TaskExecutors believe the same of every slot."""
        known = self.plane.resource_manager.slot_manager.task_executors
        believed = {
            (executor.resource_id, index): slot.allocation_id
            for executor in known.values()
            for index, slot in executor.slots.items()
            if slot.allocation_id is not None
        }
        held = {
            (executor.resource_id, index): allocation
            for executor in self.executors
            for index, allocation in executor.allocations.items()
        }
        return believed == held


async def eventually(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Returns when the condition holds; fails after DEADLINE."""

    async def wait() -> None:
        while True:
            answer = condition()
            if inspect.isawaitable(answer):
                answer = await answer
            if answer:
                return
            await asyncio.sleep(0)

    await asyncio.wait_for(wait(), DEADLINE)


@asynccontextmanager
async def control_cluster(
    directory: Path,
    *executors: int,
    jobs: JobMasterSettings | None = None,
    slots: SlotManagerSettings | None = None,
    standalone: bool = True,
    behaviour: FakeBehaviour | None = None,
    check_job: Callable[[JobGraph], None] = lambda graph: None,
    archive: JobArchive | None = None,
    drivers_in_slots: bool = False,
) -> AsyncIterator[ControlCluster]:
    """A started cluster with a TaskExecutor for each number of slots, all registered."""
    cluster = ControlCluster(directory, jobs, slots, standalone, check_job, archive, drivers_in_slots)
    cluster.behaviour = behaviour or cluster.behaviour
    await cluster.plane.start()
    cluster.leader.announce(cluster.plane.resource_manager_leader)
    for number in executors:
        await cluster.add(number)
    await eventually(lambda: all(executor.registrations for executor in cluster.executors))
    try:
        yield cluster
    finally:
        for executor in cluster.executors:
            await executor.stop()
        await cluster.plane.stop()
