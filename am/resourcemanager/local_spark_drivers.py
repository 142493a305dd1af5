"""LocalSparkDrivers: SparkDrivers as child processes of this one, each in its own session.

Owner: the ResourceManager's loop. For embedded clusters, whose TaskExecutors are children of this process too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from yarrow.am.execution.errors import SparkDriverStartError
from yarrow.am.resourcemanager.local_process_driver import LocalProcessSettings
from yarrow.am.resourcemanager.spark_drivers import OnDriverDelayed, OnDriverEnded
from yarrow.runtime.common.ids import ResourceID
from yarrow.runtime.fs.client_folder import WORKING_DIRECTORY_PREFIX
from yarrow.runtime.rpc.bootstrap import PemIdentity, SparkDriverBootstrap
from yarrow.runtime.rpc.messages import SparkDriverRequest

if TYPE_CHECKING:
    from yarrow.runtime.rpc.spark_driver_process import SparkDriverProcess


class LocalSparkDrivers:
    """Starts SparkDrivers as children; a SparkDriverLauncher."""

    def __init__(self, settings: LocalProcessSettings, issue_identity: Callable[[str], PemIdentity]) -> None:
        """`issue_identity(name)` makes the certificates of a driver, in the role of SparkDrivers."""
        self._settings = settings
        self._issue_identity = issue_identity
        self._drivers: dict[ResourceID, tuple[SparkDriverProcess, asyncio.Task[None]]] = {}

    @property
    def processes(self) -> dict[ResourceID, int]:
        """Process id of each living driver."""
        return {name: process.pid for name, (process, _) in self._drivers.items()}

    async def start_spark_driver(
        self, request: SparkDriverRequest, on_ended: OnDriverEnded, on_delayed: OnDriverDelayed
    ) -> None:
        # Most programs start no driver.
        from yarrow.runtime.rpc.spark_driver_process import SparkDriverProcess

        settings, driver_id = self._settings, request.driver_id
        try:
            process = await SparkDriverProcess.start(
                partial(self._bootstrap, request),
                folder_prefix=WORKING_DIRECTORY_PREFIX,
                folder_parent=settings.tmp_directory,
                error_file=Path(settings.log_directory) / f"{driver_id}.err",
            )
        except OSError as error:
            raise SparkDriverStartError(f"cannot start the SparkDriver {driver_id}: {error}") from error
        watcher = asyncio.get_running_loop().create_task(self._watch(driver_id, process, on_ended))
        self._drivers[driver_id] = (process, watcher)

    async def end_spark_driver(self, driver_id: ResourceID) -> None:
        driver = self._drivers.get(driver_id)
        if driver is not None:
            process, watcher = driver
            await process.end()
            await asyncio.shield(watcher)

    async def _watch(
        self, driver_id: ResourceID, process: SparkDriverProcess, on_ended: OnDriverEnded
    ) -> None:
        cause = await process.wait()
        self._drivers.pop(driver_id, None)
        on_ended(driver_id, cause)

    def _bootstrap(self, request: SparkDriverRequest, working_directory: str) -> SparkDriverBootstrap:
        settings = self._settings
        return SparkDriverBootstrap(
            application_id=settings.application_id,
            driver_id=request.driver_id,
            job_id=request.job_id,
            job_master_address=request.job_master_address,
            job_master_id=request.job_master_id,
            host=settings.host,
            bind_host=settings.bind_host,
            identity=self._issue_identity(f"sparkdriver {request.driver_id}"),
            data_secret=settings.data_secret,
            configuration={**settings.configuration, **request.configuration},
            log_directory=settings.log_directory,
            working_directory=working_directory,
            slots=request.slots,
            max_message_bytes=settings.max_message_bytes,
        )
