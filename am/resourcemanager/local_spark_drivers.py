"""LocalSparkDrivers: SparkDrivers as child processes of this one, each in its own session.

Owner: the ResourceManager's loop. A driver gets its settings through a pipe as a TaskExecutor does; its end takes
its JVM and Python workers with it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from yarrow.am.execution.errors import SparkDriverStartError
from yarrow.am.resourcemanager.child_process import ChildProcess
from yarrow.am.resourcemanager.local_process_driver import LocalProcessSettings
from yarrow.am.resourcemanager.spark_drivers import OnDriverEnded
from yarrow.runtime.common.ids import IdFactory, ResourceID
from yarrow.runtime.fs.client_folder import WORKING_DIRECTORY_PREFIX
from yarrow.runtime.rpc.bootstrap import PemIdentity, SparkDriverBootstrap, encode_bootstrap
from yarrow.runtime.rpc.messages import SparkDriverRequest

_log = logging.getLogger(__name__)

_COMMAND = (sys.executable, "-m", "yarrow.container.batch.spark.driver_main")
#: Seconds in which Spark may end in order before all of the session is killed.
_GRACE = 10.0


class LocalSparkDrivers:
    """Starts `python -m yarrow.container.batch.spark.driver_main` children; a SparkDriverLauncher."""

    def __init__(
        self, settings: LocalProcessSettings, issue_identity: Callable[[str], PemIdentity], ids: IdFactory
    ) -> None:
        """`issue_identity(name)` makes the certificates of a driver, in the role of SparkDrivers."""
        self._settings = settings
        self._issue_identity = issue_identity
        self._ids = ids
        self._drivers: dict[ResourceID, tuple[ChildProcess, asyncio.Task[None]]] = {}

    @property
    def processes(self) -> dict[ResourceID, int]:
        """Process id of each living driver."""
        return {name: process.pid for name, (process, _) in self._drivers.items()}

    async def start_spark_driver(self, request: SparkDriverRequest, on_ended: OnDriverEnded) -> ResourceID:
        settings = self._settings
        driver_id = ResourceID(f"sparkdriver-{self._ids.hex_id()[-12:]}")
        error_file = Path(settings.log_directory) / f"{driver_id}.err"
        working_directory = await asyncio.to_thread(
            tempfile.mkdtemp, prefix=WORKING_DIRECTORY_PREFIX, dir=settings.tmp_directory
        )
        try:
            process = await ChildProcess.start(_COMMAND, error_file)
        except OSError as error:
            await asyncio.to_thread(os.rmdir, working_directory)
            raise SparkDriverStartError(
                f"cannot start a SparkDriver with {' '.join(_COMMAND)!r}: {error}"
            ) from error
        watcher = asyncio.get_running_loop().create_task(
            self._watch(driver_id, process, working_directory, on_ended)
        )
        self._drivers[driver_id] = (process, watcher)
        try:
            await process.give(encode_bootstrap(self._bootstrap(driver_id, request, working_directory)))
        except BaseException:
            # Nobody else knows its name yet.
            await self.end_spark_driver(driver_id)
            raise
        return driver_id

    async def end_spark_driver(self, driver_id: ResourceID) -> None:
        driver = self._drivers.get(driver_id)
        if driver is not None:
            process, watcher = driver
            await process.end(_GRACE)
            await asyncio.shield(watcher)

    async def _watch(
        self, driver_id: ResourceID, process: ChildProcess, working_directory: str, on_ended: OnDriverEnded
    ) -> None:
        cause = await process.wait()
        await asyncio.to_thread(shutil.rmtree, working_directory, ignore_errors=True)
        self._drivers.pop(driver_id, None)
        on_ended(driver_id, cause)

    def _bootstrap(
        self, driver_id: ResourceID, request: SparkDriverRequest, working_directory: str
    ) -> SparkDriverBootstrap:
        settings = self._settings
        return SparkDriverBootstrap(
            application_id=settings.application_id,
            driver_id=driver_id,
            job_id=request.job_id,
            job_master_address=request.job_master_address,
            job_master_id=request.job_master_id,
            host=settings.host,
            bind_host=settings.bind_host,
            identity=self._issue_identity(f"sparkdriver {driver_id}"),
            data_secret=settings.data_secret,
            configuration={**settings.configuration, **request.configuration},
            log_directory=settings.log_directory,
            working_directory=working_directory,
            slots=request.slots,
            max_message_bytes=settings.max_message_bytes,
        )
