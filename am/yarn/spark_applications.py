"""SparkApplications: Spark's own applications on YARN, which end when the SparkDrivers that have asked for them do.

Owner: the ResourceManager's loop; questions to YARN go to threads. A SparkDriverLauncher around another one. Spark ends
its application itself, except where its driver was killed before YARN had started it. Must not know what a driver runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final, Protocol

from yarrow.am.resourcemanager.spark_drivers import OnDriverDelayed, OnDriverEnded, SparkDriverLauncher
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import ResourceID
from yarrow.runtime.config.options import batch
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.rpc.messages import SparkDriverRequest
from yarrow.runtime.yarn.spark_containers import TAG, driver_tag

_log = logging.getLogger(__name__)
#: Seconds in which YARN is to end an application, and seconds between two looks.
_ENDING: Final = 15.0
_LOOK: Final = 0.3
#: Seconds in which a driver may end its application in order.
_GRACE: Final = 10.0


class TaggedApplications(Protocol):
    """YARN's applications by their tags; both methods block and raise YarnError."""

    def living(self, tag: str) -> list[tuple[str, frozenset[str]]]:
        """Id and tags of each application with a tag that has not ended."""
        ...

    def kill(self, application_id: str) -> None:
        """Has YARN end an application."""
        ...


class SparkApplications:
    """Ends the Spark application of each driver with it."""

    def __init__(
        self,
        launcher: SparkDriverLauncher,
        connect: Callable[[], TaggedApplications],
        config: Settings,
        clock: Clock,
        grace: float = _GRACE,
    ) -> None:
        """`connect` finds the ResourceManager; it may raise YarnError.

        `grace`: seconds in which a driver may end its application in order.
        """
        self._launcher = launcher
        self._connect = connect
        self._config = config
        self._clock = clock
        self._grace = grace
        #: Drivers whose Spark runs on YARN.
        self._on_yarn: set[ResourceID] = set()

    async def start_spark_driver(
        self, request: SparkDriverRequest, on_ended: OnDriverEnded, on_delayed: OnDriverDelayed
    ) -> None:
        """Starts the driver; see SparkDriverLauncher."""
        if self._config.overlay(Settings(request.configuration, "the job")).get(batch.SPARK_MASTER) == batch.YARN:
            self._on_yarn.add(request.driver_id)
        await self._launcher.start_spark_driver(request, on_ended, on_delayed)

    async def end_spark_driver(self, driver_id: ResourceID) -> None:
        """Ends the driver and its application; returns when YARN has ended it, or says nothing of it.

        The driver has been told to end by its BatchJobMaster. It ends its application in order, which takes longer
        than YARN lets a container live.
        """
        is_on_yarn = driver_id in self._on_yarn
        self._on_yarn.discard(driver_id)
        if is_on_yarn:
            await self._end_in_order(driver_tag(driver_id))
        await self._launcher.end_spark_driver(driver_id)
        if is_on_yarn:
            await self.end_tagged(driver_tag(driver_id))

    async def _end_in_order(self, tag: str) -> None:
        """Returns when the application has ended, or has had its time."""
        deadline = self._clock.monotonic() + self._grace
        with contextlib.suppress(YarrowError):  # what follows tells it
            applications = await asyncio.to_thread(self._connect)
            while await self._living(applications, tag):
                if self._clock.monotonic() >= deadline:
                    return
                await asyncio.sleep(_LOOK)

    async def end_tagged(self, tag: str) -> None:
        """Ends every Spark application of ours with that tag; what fails is told in the log."""
        deadline = self._clock.monotonic() + _ENDING
        killed: set[str] = set()
        try:
            applications = await asyncio.to_thread(self._connect)
            while left := await self._living(applications, tag):
                for application_id in left:
                    if application_id not in killed:
                        killed.add(application_id)
                        await asyncio.to_thread(applications.kill, application_id)
                        _log.info("YARN ends Spark's application %s (%s)", application_id, tag)
                if self._clock.monotonic() > deadline:
                    _log.warning("YARN has not ended %s within %g s", ", ".join(left), _ENDING)
                    return
                await asyncio.sleep(_LOOK)
        except YarrowError as error:
            _log.warning("Spark's application of %s may still be on YARN: %s", tag, error)

    @staticmethod
    async def _living(applications: TaggedApplications, tag: str) -> list[str]:
        found = await asyncio.to_thread(applications.living, tag)
        return [application_id for application_id, tags in found if TAG in tags]
