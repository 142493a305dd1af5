"""A TaskExecutor hosts SparkDrivers whose processes are played: who may ask for them, who hears of their end."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.cluster.task_executor.conftest import RESOURCE, Cluster, cluster
from tests.unit.container.supervisor.conftest import eventually
from tests.unit.container.supervisor.test_hosted_spark_drivers import PlayedProcess, start_of
from tests.unit.runtime.rpc.loops import run
from yarrow.container.protocol.errors import SlotNotAvailableError
from yarrow.container.supervisor.hosted_spark_drivers import DriverProcess
from yarrow.container.supervisor.slot_table import TaskExecutorSlotState
from yarrow.runtime.common.errors import FencingTokenError
from yarrow.runtime.common.ids import AllocationID, ResourceID, ResourceManagerID
from yarrow.runtime.rpc.leader import LeaderInformation
from yarrow.runtime.rpc.messages import SlotID, SparkDriverStart


class Played:
    """Processes that were started."""

    def __init__(self) -> None:
        self.processes: list[PlayedProcess] = []

    async def start(self, start: SparkDriverStart) -> DriverProcess:
        self.processes.append(PlayedProcess())
        return self.processes[-1]


def message(
    index: int = 0, allocation: str = "a", rm: str = "rm-1", resource: ResourceID = RESOURCE
) -> SparkDriverStart:
    start = start_of(allocation, index)
    slot = replace(
        start.slot,
        slot_id=SlotID(resource_id=resource, index=index),
        resource_manager_id=ResourceManagerID(rm),
    )
    return replace(start, slot=slot)


async def started(cluster: Cluster) -> None:
    await cluster.gateway.start_spark_driver(message())
    await eventually(lambda: cluster.state_of(0) is TaskExecutorSlotState.ACTIVE, "the driver runs")


def test_only_the_present_resource_manager_starts_drivers_here(tmp_path: Path) -> None:
    async def body() -> None:
        played = Played()
        async with cluster("in-process", tmp_path, start_spark_driver=played.start) as it:
            with pytest.raises(FencingTokenError, match="refuses a message of the ResourceManager rm-0"):
                await it.gateway.start_spark_driver(message(rm="rm-0"))
            with pytest.raises(SlotNotAvailableError, match="reached te-1"):
                await it.gateway.start_spark_driver(message(resource=ResourceID("te-2")))
            taken = await it.active_slot(1)
            with pytest.raises(SlotNotAvailableError, match="slot 1"):
                await it.gateway.start_spark_driver(message(index=1))
            assert played.processes == []
            # Beside the slot of a stream, as a slot of its own.
            await started(it)
            report = await it.gateway.request_slot_report()
            assert [status.allocation_id for status in report.slots] == ["a", taken]

    run(body())


def test_the_end_of_a_driver_is_told_with_its_cause(tmp_path: Path) -> None:
    async def body() -> None:
        played = Played()
        async with cluster("in-process", tmp_path, start_spark_driver=played.start) as it:
            await started(it)
            played.processes[0].dies("the process ended: killed by SIGKILL")
            await eventually(lambda: bool(it.resource_manager.freed), "the ResourceManager hears of it")
            assert it.resource_manager.freed == [(0, "a")]
            assert it.resource_manager.causes == {"a": "the process ended: killed by SIGKILL"}
            await it.gateway.start_spark_driver(message(allocation="b"))
            await eventually(lambda: len(played.processes) == 2, "the slot serves another driver")
            await it.gateway.free_slot(AllocationID("b"), "the job has ended")
            await eventually(lambda: len(it.resource_manager.freed) == 2, "its slot is free")
            assert it.resource_manager.causes[AllocationID("b")] == "the job has ended"

    run(body())


def test_a_lost_resource_manager_ends_its_drivers(tmp_path: Path) -> None:
    async def body() -> None:
        played = Played()
        async with cluster("in-process", tmp_path, start_spark_driver=played.start) as it:
            await started(it)
            it.leader.announce(None)
            await eventually(lambda: bool(played.processes[0].graces), "the driver is ended")
            await eventually(lambda: it.state_of(0) is TaskExecutorSlotState.FREE, "its slot is free")
            address = it.executor.address
            assert address
            it.leader.announce(LeaderInformation(address="inproc://rm", leader_id="rm-1"))
            await eventually(lambda: len(it.resource_manager.registrations) == 2, "it registers again")
            slots = it.resource_manager.registrations[-1].slot_report.slots
            assert [status.allocation_id for status in slots] == [None, None]

    run(body())
