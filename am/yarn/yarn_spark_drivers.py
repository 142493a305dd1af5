"""YarnSparkDrivers: SparkDrivers of bounded jobs, each in a container of its own that YARN grants.

Owner: the ResourceManager's loop. A SparkDriverLauncher. The containers themselves are `ServiceContainers`; their shape
was declared when the application was submitted. Must not know what a driver runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from yarrow.am.execution.errors import NoSparkDriversError, SparkDriverStartError
from yarrow.am.resourcemanager.spark_drivers import OnDriverDelayed, OnDriverEnded
from yarrow.am.yarn.requested_containers import EndedContainer
from yarrow.am.yarn.service_containers import (
    ContainerEvents,
    ContainerKind,
    ExplainWaiting,
    PublishedDelays,
    ReadOutput,
    ServiceContainers,
    YarnDriverSettings,
)
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import ResourceID
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.rpc.messages import SparkDriverRequest
from yarrow.runtime.yarn.gateways import ContainerShape, YarnError, YarnMasterGateway
from yarrow.runtime.yarn.layout import (
    JOB_ID,
    JOB_MASTER_ADDRESS,
    JOB_MASTER_ID,
    SPARK_DRIVER_ID,
    SPARK_DRIVER_SERVICE,
)
from yarrow.runtime.yarn.spark_driver_shape import too_large_for

_KIND: Final = ContainerKind(
    SPARK_DRIVER_SERVICE,
    "SparkDriver",
    "Start the application with a larger yarn.spark-driver.memory, or with fewer yarn.spark-driver.vcores.",
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Listener:
    """Who hears of one driver."""

    on_ended: OnDriverEnded
    on_delayed: OnDriverDelayed


class YarnSparkDrivers(ContainerEvents):
    """Asks YARN for a container for each SparkDriver."""

    def __init__(
        self,
        gateway: YarnMasterGateway,
        settings: YarnDriverSettings,
        config: Settings,
        clock: Clock,
        delays: PublishedDelays,
        explain_waiting: ExplainWaiting | None = None,
        refusal: Callable[[ContainerShape], str] | None = None,
        read_output: ReadOutput | None = None,
    ) -> None:
        """`refusal` says why the queue never gives such a container, "" = it may; blocking, raises YarnError."""
        self._settings = settings
        self._config = config
        self._refusal = refusal
        self._containers = ServiceContainers(
            _KIND, gateway, settings, clock, self, explain_waiting, read_output, delays
        )
        self._listeners: dict[ResourceID, _Listener] = {}

    async def start_spark_driver(
        self, request: SparkDriverRequest, on_ended: OnDriverEnded, on_delayed: OnDriverDelayed
    ) -> None:
        """Returns when YARN has taken the request; `on_delayed` hears why the container does not come.

        Raises SparkDriverStartError; NoSparkDriversError if YARN never gives such a container.
        """
        driver_id = request.driver_id
        job = self._config.overlay(Settings(request.configuration, "the job"))
        # Skein's ApplicationMaster would end with a request that YARN refuses, and all jobs with it.
        if problem := too_large_for(self._settings.shape, job) or await self._too_large_for_queue():
            raise NoSparkDriversError(problem)
        self._containers.start()
        self._listeners[driver_id] = _Listener(on_ended, on_delayed)
        try:
            await self._containers.request(
                driver_id,
                {
                    SPARK_DRIVER_ID: driver_id,
                    JOB_ID: request.job_id,
                    JOB_MASTER_ADDRESS: request.job_master_address,
                    JOB_MASTER_ID: request.job_master_id,
                },
            )
        except YarnError as error:
            self._listeners.pop(driver_id, None)
            raise SparkDriverStartError(
                f"YARN refused the request for the container of a SparkDriver: {error}"
            ) from error

    async def end_spark_driver(self, driver_id: ResourceID) -> None:
        await self._containers.release(driver_id)
        if not await self._containers.await_end(driver_id, self._settings.grace):
            _log.warning("YARN has not said yet that the container of SparkDriver %s has ended", driver_id)

    async def terminate(self) -> None:
        """Gives all containers back; returns when they have ended, or the grace is over."""
        await self._containers.terminate()

    async def _too_large_for_queue(self) -> str:
        if self._refusal is None:
            return ""
        try:
            return await self._containers.call(partial(self._refusal, self._settings.shape))
        except YarrowError as error:
            raise SparkDriverStartError(
                "it is unknown whether the application's queue gives containers of SparkDrivers, and a request that is"
                f" too large would end the application: {error}"
            ) from error

    # ContainerEvents.

    def on_container_ended(self, ended: EndedContainer) -> None:
        listener = self._listeners.pop(ended.resource_id, None)
        if listener is not None:
            listener.on_ended(ended.resource_id, ended.cause)

    def on_containers_delayed(self, explanation: str) -> None:
        for driver_id, listener in tuple(self._listeners.items()):
            # A driver that has its container waits for nothing.
            if not self._containers.container_of(driver_id):
                listener.on_delayed(explanation)
