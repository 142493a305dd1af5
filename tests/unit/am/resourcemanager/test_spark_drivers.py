"""SparkDrivers: a driver is ended by the BatchJobMaster that has asked for it, and by nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from yarrow.am.resourcemanager.spark_drivers import OnDriverDelayed, OnDriverEnded, SparkDrivers
from yarrow.runtime.common.errors import FencingTokenError
from yarrow.runtime.common.ids import JobID, JobMasterID, ResourceID
from yarrow.runtime.rpc.in_process import InProcessTransport
from yarrow.runtime.rpc.messages import SparkDriverRequest
from yarrow.runtime.rpc.service import RpcService

DRIVER = ResourceID("sparkdriver-1")
OWNER, OTHER = JobMasterID("b" * 32), JobMasterID("c" * 32)


class Launcher:
    """Notes the drivers that it ends."""

    def __init__(self) -> None:
        self.ended: list[ResourceID] = []

    async def start_spark_driver(
        self, request: SparkDriverRequest, on_ended: OnDriverEnded, on_delayed: OnDriverDelayed
    ) -> None:
        """It has started at once."""

    async def end_spark_driver(self, driver_id: ResourceID) -> None:
        self.ended.append(driver_id)


def spawn(coroutine: Coroutine[Any, Any, None], name: str) -> object:
    return asyncio.get_running_loop().create_task(coroutine, name=name)


def test_another_batch_job_master_cannot_end_a_driver() -> None:
    async def body() -> None:
        launcher = Launcher()
        drivers = SparkDrivers(launcher, RpcService([InProcessTransport()]), spawn)
        await drivers.request(
            SparkDriverRequest(
                driver_id=DRIVER,
                job_id=JobID("a" * 32),
                job_master_id=OWNER,
                job_master_address="inproc://master/batch",
                configuration={},
                slots=1,
            )
        )
        with pytest.raises(FencingTokenError, match=f"belongs to the BatchJobMaster {OWNER}, not to {OTHER}"):
            await drivers.release(OTHER, DRIVER)
        assert launcher.ended == []
        await drivers.release(OWNER, DRIVER)
        assert launcher.ended == [DRIVER]

    asyncio.run(body())
