"""SparkDrivers: the drivers of bounded jobs, each asked for by a BatchJobMaster and ended with it.

Owner: the ResourceManager's loop. A launcher starts the processes; this module remembers whose each one is, and tells
a BatchJobMaster whose driver has ended. Must not know what a driver runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

import msgspec

from yarrow.am.execution.errors import (
    NoSparkDriversError,
    SparkDriverLostError,
    SparkDriverStartError,
    failure_of,
)
from yarrow.am.resourcemanager.task_executor_connections import Spawn
from yarrow.runtime.common.errors import FencingTokenError, YarrowError
from yarrow.runtime.common.ids import JobMasterID, ResourceID
from yarrow.runtime.rpc.gateway_type import BATCH_JOB_MASTER
from yarrow.runtime.rpc.messages import SparkDriverRequest
from yarrow.runtime.rpc.service import RpcService

_log = logging.getLogger(__name__)

#: Called on the ResourceManager's loop with the end of a driver: its id, and how it ended.
OnDriverEnded = Callable[[ResourceID, str], None]


class SparkDriverLauncher(Protocol):
    """Starts and ends the processes of SparkDrivers."""

    async def start_spark_driver(self, request: SparkDriverRequest, on_ended: OnDriverEnded) -> ResourceID:
        """Starts a driver, and returns its name. Raises SparkDriverStartError."""
        ...

    async def end_spark_driver(self, driver_id: ResourceID) -> None:
        """Ends a driver; returns when nothing of it is left. No effect if it has ended already."""
        ...


class NoSparkDrivers:
    """The launcher of a cluster that cannot start SparkDrivers."""

    def __init__(self, why: str) -> None:
        """`why` says what the cluster lacks, and what to do."""
        self._why = why

    async def start_spark_driver(self, request: SparkDriverRequest, on_ended: OnDriverEnded) -> ResourceID:
        raise NoSparkDriversError(self._why)

    async def end_spark_driver(self, driver_id: ResourceID) -> None:
        """There is none."""


NO_SPARK_DRIVERS = NoSparkDrivers(
    "this cluster starts no Spark drivers yet: run the program with `python`, which makes a cluster of its own, or in"
    " STREAMING mode"
)


class _Started(msgspec.Struct, frozen=True):
    request: SparkDriverRequest
    driver_id: ResourceID


class SparkDrivers:
    """The drivers of one leadership."""

    def __init__(self, launcher: SparkDriverLauncher, service: RpcService, spawn: Spawn) -> None:
        self._launcher = launcher
        self._service = service
        self._spawn = spawn
        self._started: dict[ResourceID, _Started] = {}
        self._is_closed = False

    async def request(self, request: SparkDriverRequest) -> ResourceID:
        """Starts a driver for a job. Raises SparkDriverStartError."""
        early: dict[ResourceID, str] = {}

        def ended(driver_id: ResourceID, cause: str) -> None:
            early[driver_id] = cause
            self._ended(driver_id, cause)

        driver_id = await self._launcher.start_spark_driver(request, ended)
        if self._is_closed:
            await self._launcher.end_spark_driver(driver_id)
            raise SparkDriverStartError("this ResourceManager leads no more: it starts no SparkDriver")
        self._started[driver_id] = _Started(request, driver_id)
        # A driver may end before the launcher has named it.
        if driver_id in early:
            self._ended(driver_id, early[driver_id])
        _log.info("SparkDriver %s starts for job %s", driver_id, request.job_id)
        return driver_id

    async def release(self, job_master_id: JobMasterID, driver_id: ResourceID) -> None:
        """Ends the driver of a job; returns when nothing of it is left.

        Raises FencingTokenError for another BatchJobMaster's driver.
        """
        started = self._started.get(driver_id)
        if started is not None and started.request.job_master_id != job_master_id:
            raise FencingTokenError(
                f"SparkDriver {driver_id} belongs to the BatchJobMaster {started.request.job_master_id}, not to"
                f" {job_master_id}"
            )
        self._started.pop(driver_id, None)
        await self._launcher.end_spark_driver(driver_id)

    async def close(self) -> None:
        """Ends all drivers: their BatchJobMasters end with this leadership."""
        self._is_closed = True
        started, self._started = list(self._started), {}
        await asyncio.gather(*map(self._launcher.end_spark_driver, started))

    def _ended(self, driver_id: ResourceID, cause: str) -> None:
        started = self._started.pop(driver_id, None)
        if started is not None:
            _log.warning("SparkDriver %s ended: %s", driver_id, cause)
            self._spawn(self._tell(started, cause), "tell of a SparkDriver's end")

    async def _tell(self, started: _Started, cause: str) -> None:
        request = started.request
        gateway = self._service.connect(request.job_master_address, BATCH_JOB_MASTER, request.job_master_id)
        failure = failure_of(SparkDriverLostError, f"SparkDriver {started.driver_id} is gone: {cause}")
        try:
            await gateway.disconnect_spark_driver(started.driver_id, failure)
        except YarrowError as error:
            # It has ended meanwhile, or finds the driver silent.
            _log.info(
                "the BatchJobMaster of job %s did not hear the end of a SparkDriver: %s",
                request.job_id,
                error,
            )
