"""SparkDrivers: the drivers of bounded jobs, each asked for by a BatchJobMaster and ended with it.

Owner: the ResourceManager's loop. A launcher starts the processes; this module remembers whose each one is. It
tells a BatchJobMaster why its driver waits, and that its driver has ended. Must not know what a driver runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

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
from yarrow.runtime.graph.states import BatchRunner
from yarrow.runtime.rpc.batch_gateways import BatchJobMasterGateway
from yarrow.runtime.rpc.gateway_type import BATCH_JOB_MASTER
from yarrow.runtime.rpc.messages import SparkDriverRequest
from yarrow.runtime.rpc.service import RpcService

_log = logging.getLogger(__name__)

#: Called on the ResourceManager's loop with the end of a driver: its id, and how it ended.
OnDriverEnded = Callable[[ResourceID, str], None]
#: Called on the ResourceManager's loop with the reason why a driver has not started yet; "" = it waits for nothing.
OnDriverDelayed = Callable[[str], None]

#: Drivers that have ended and are remembered, so that a message that comes late starts none of them again.
_REMEMBERED: Final = 1000


class SparkDriverLauncher(Protocol):
    """Starts and ends the processes of SparkDrivers."""

    async def start_spark_driver(
        self, request: SparkDriverRequest, on_ended: OnDriverEnded, on_delayed: OnDriverDelayed
    ) -> None:
        """Starts the driver that the request names; returns when its process has started.

        It may wait for room, and then tells `on_delayed` why. `on_ended` is called once for a driver that has started.
        Raises SparkDriverStartError, also when `end_spark_driver` has come first.
        """
        ...

    async def end_spark_driver(self, driver_id: ResourceID) -> None:
        """Ends a driver, or its start; returns when nothing of it is left. No effect if it has ended already."""
        ...


class NoSparkDrivers:
    """The launcher of a cluster that cannot start SparkDrivers."""

    def __init__(self, why: str) -> None:
        """`why` says what the cluster lacks, and what to do."""
        self._why = why

    async def start_spark_driver(
        self, request: SparkDriverRequest, on_ended: OnDriverEnded, on_delayed: OnDriverDelayed
    ) -> None:
        raise NoSparkDriversError(self._why)

    async def end_spark_driver(self, driver_id: ResourceID) -> None:
        """There is none."""


NO_SPARK_DRIVERS = NoSparkDrivers(
    "this cluster starts no Spark drivers yet: run the program with `python`, which makes a cluster of its own, or in"
    " STREAMING mode"
)


class LaunchersByRunner:
    """A launcher for each kind of driver: those of workers take slots, whatever starts SparkDrivers."""

    def __init__(self, spark: SparkDriverLauncher, local: SparkDriverLauncher) -> None:
        self._spark = spark
        self._local = local
        self._local_ids: set[ResourceID] = set()

    async def start_spark_driver(
        self, request: SparkDriverRequest, on_ended: OnDriverEnded, on_delayed: OnDriverDelayed
    ) -> None:
        if request.runner is BatchRunner.SPARK:
            await self._spark.start_spark_driver(request, on_ended, on_delayed)
            return
        self._local_ids.add(request.driver_id)
        await self._local.start_spark_driver(request, on_ended, on_delayed)

    async def end_spark_driver(self, driver_id: ResourceID) -> None:
        if driver_id in self._local_ids:
            self._local_ids.discard(driver_id)
            await self._local.end_spark_driver(driver_id)
        else:
            await self._spark.end_spark_driver(driver_id)


class _Driver(msgspec.Struct):
    request: SparkDriverRequest
    gateway: BatchJobMasterGateway
    #: Its start, which may wait.
    starting: asyncio.Task[None] | None = None
    #: Why it waits; to be told to its BatchJobMaster.
    explanation: str = ""
    #: An explanation is being told.
    telling: bool = False


class SparkDrivers:
    """The drivers of one leadership."""

    def __init__(self, launcher: SparkDriverLauncher, service: RpcService, spawn: Spawn) -> None:
        self._launcher = launcher
        self._service = service
        self._spawn = spawn
        self._drivers: dict[ResourceID, _Driver] = {}
        self._ended_ids: deque[ResourceID] = deque(maxlen=_REMEMBERED)
        self._is_closed = False

    async def request(self, request: SparkDriverRequest) -> None:
        """Starts a driver for a job; no effect if it is starting or has started. Raises SparkDriverStartError."""
        driver_id = request.driver_id
        if self._is_closed:
            raise SparkDriverStartError("this ResourceManager leads no more: it starts no SparkDriver")
        if driver_id in self._ended_ids:
            raise SparkDriverStartError(f"SparkDriver {driver_id} has ended: ask for another one")
        driver = self._drivers.get(driver_id)
        if driver is None:
            connect = self._service.connect
            gateway = connect(request.job_master_address, BATCH_JOB_MASTER, request.job_master_id)
            driver = self._drivers[driver_id] = _Driver(request, gateway)
            driver.starting = asyncio.get_running_loop().create_task(self._start(driver))
        assert driver.starting is not None
        # A caller that gives up ends the driver by its name.
        await asyncio.shield(driver.starting)

    async def _start(self, driver: _Driver) -> None:
        request = driver.request
        try:
            await self._launcher.start_spark_driver(
                request, self._ended, lambda explanation: self._explain(driver, explanation)
            )
        except BaseException:
            self._forget(request.driver_id)
            raise
        if request.driver_id not in self._drivers:
            await self._launcher.end_spark_driver(request.driver_id)
            raise SparkDriverStartError(
                f"SparkDriver {request.driver_id} was ended while it started"
                if not self._is_closed
                else "this ResourceManager leads no more: it starts no SparkDriver"
            )
        _log.info("%s %s starts for job %s", request.runner.driver_noun, request.driver_id, request.job_id)

    async def release(self, job_master_id: JobMasterID, driver_id: ResourceID) -> None:
        """Ends the driver of a job; returns when nothing of it is left.

        Raises FencingTokenError for another BatchJobMaster's driver.
        """
        driver = self._drivers.get(driver_id)
        if driver is None:
            # The request may still come, or its process be ending.
            self._ended_ids.append(driver_id)
            await self._launcher.end_spark_driver(driver_id)
            return
        if driver.request.job_master_id != job_master_id:
            raise FencingTokenError(
                f"SparkDriver {driver_id} belongs to the BatchJobMaster {driver.request.job_master_id}, not to"
                f" {job_master_id}"
            )
        await self._end(driver)

    async def close(self) -> None:
        """Ends all drivers: their BatchJobMasters end with this leadership."""
        self._is_closed = True
        await asyncio.gather(*map(self._end, list(self._drivers.values())))

    async def _end(self, driver: _Driver) -> None:
        driver_id, starting = driver.request.driver_id, driver.starting
        assert starting is not None
        self._forget(driver_id)
        await self._launcher.end_spark_driver(driver_id)
        if not self._is_closed:
            # A process that is just being started ends with its start.
            await asyncio.gather(starting, return_exceptions=True)

    def _forget(self, driver_id: ResourceID) -> None:
        if self._drivers.pop(driver_id, None) is not None:
            self._ended_ids.append(driver_id)

    def _ended(self, driver_id: ResourceID, cause: str) -> None:
        driver = self._drivers.get(driver_id)
        if driver is not None:
            self._forget(driver_id)
            _log.warning("%s %s ended: %s", driver.request.runner.driver_noun, driver_id, cause)
            self._spawn(self._tell_end(driver, cause), "tell of a SparkDriver's end")

    async def _tell_end(self, driver: _Driver, cause: str) -> None:
        driver_id = driver.request.driver_id
        noun = driver.request.runner.driver_noun
        failure = failure_of(SparkDriverLostError, f"{noun} {driver_id} is gone: {cause}")
        try:
            await driver.gateway.disconnect_spark_driver(driver_id, failure)
        except YarrowError as error:
            # It has ended meanwhile, or finds the driver silent.
            _log.info(
                "the BatchJobMaster of job %s did not hear the end of a SparkDriver: %s",
                driver.request.job_id,
                error,
            )

    def _explain(self, driver: _Driver, explanation: str) -> None:
        driver.explanation = explanation
        if not driver.telling:
            driver.telling = True
            self._spawn(self._tell_explanation(driver), "tell why a SparkDriver waits")

    async def _tell_explanation(self, driver: _Driver) -> None:
        """Sends one message at a time, so that the last explanation arrives last."""
        told = None
        try:
            while told != driver.explanation:
                told = driver.explanation
                try:
                    await driver.gateway.notify_not_enough_resources(driver.request.driver_id, told)
                except YarrowError as error:
                    _log.info(
                        "job %s did not hear why its SparkDriver waits: %s", driver.request.job_id, error
                    )
        finally:
            driver.telling = False
