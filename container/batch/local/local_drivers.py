"""LocalDrivers: drivers of bounded jobs inside a TaskExecutor, whose tasks run in workers of its launcher.

Owner: the TaskExecutor's event loop. A driver speaks with its BatchJobMaster as a SparkDriver does, under the name of
its TaskExecutor. Loaded with the first such job alone. Must not run user code.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from yarrow.container.batch.driver.batch_driver import BatchDriver
from yarrow.container.batch.local.local_run import LocalRun, LocalServices
from yarrow.container.launch.worker_launcher import WorkerLauncher
from yarrow.container.protocol.errors import RegistrationRefusedError
from yarrow.container.supervisor.hosted_spark_drivers import driver_bootstrap
from yarrow.container.supervisor.output_files import OutputFiles
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.config.options import rpc as rpc_options
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.rpc.bootstrap import SparkDriverBootstrap, TaskExecutorBootstrap
from yarrow.runtime.rpc.gateway_type import BATCH_JOB_MASTER, LOCAL_DRIVER
from yarrow.runtime.rpc.messages import BatchSubmission, SparkApplication, SparkDriverStart
from yarrow.runtime.rpc.service import RpcService
from yarrow.runtime.security.result_proof import result_key

_log = logging.getLogger(__name__)
_FOLDER_PREFIX: Final = "batch-"
_NO_SPARK: Final = SparkApplication(application_id="", has_pages=False, spark_master="", spark_version="")


class LocalDrivers:
    """Starts drivers in this process."""

    def __init__(
        self,
        own: TaskExecutorBootstrap,
        slots: int,
        rpc: RpcService,
        launcher: WorkerLauncher,
        files: OutputFiles,
        clock: Clock,
    ) -> None:
        """`slots` is the number of slots here."""
        self._own = own
        self._slots = slots
        self._rpc = rpc
        self._launcher = launcher
        self._files = files
        self._clock = clock

    async def start(self, start: SparkDriverStart) -> LocalDriver:
        """Starts a driver; it has no process of its own. Raises OSError."""
        folder = await asyncio.to_thread(
            tempfile.mkdtemp, prefix=_FOLDER_PREFIX, dir=self._own.working_directory
        )
        bootstrap = driver_bootstrap(self._own, start, self._own.resource_id, self._slots, folder)
        return LocalDriver(bootstrap, self._services_of(start), self._rpc)

    def _services_of(self, start: SparkDriverStart) -> LocalServices:
        own, slot = self._own, start.slot
        return LocalServices(
            master=self._rpc.connect(slot.job_master_address, BATCH_JOB_MASTER, slot.job_master_id),
            launcher=self._launcher,
            files=self._files,
            clock=self._clock,
            configuration=own.configuration,
            result_key=result_key(own.data_secret),
            part_bytes=own.max_message_bytes // 2,
            slot=slot.slot_id.index,
            slots=self._slots,
            forward_logs=own.forward_output,
        )


class LocalDriver:
    """A running driver; a DriverProcess."""

    def __init__(self, bootstrap: SparkDriverBootstrap, services: LocalServices, rpc: RpcService) -> None:
        self._bootstrap = bootstrap
        self._services = services
        self._rpc = rpc
        #: The present or last run.
        self._run: LocalRun | None = None
        config = Settings(bootstrap.configuration, "the TaskExecutor and the job")
        timeout = config.get(rpc_options.HEARTBEAT_TIMEOUT).seconds
        self._driver = BatchDriver(bootstrap, services.master, services.clock, timeout)
        self._life = asyncio.get_running_loop().create_task(self._live(), name=bootstrap.driver_id)

    @property
    def pid(self) -> int:
        """That of the TaskExecutor."""
        return os.getpid()

    def workers(self) -> list[tuple[str, int]]:
        """(name, pid) of the workers; none for those in threads of this process."""
        slot = self._services.slot
        pids = self._run.processes if self._run is not None else []
        return [(f"batch worker of slot {slot}", pid) for pid in pids if pid != os.getpid()]

    async def wait(self) -> str:
        """Returns when nothing of it is left, with a description of its end."""
        return await asyncio.shield(self._life)

    async def end(self, grace: float | None = None) -> None:
        """Ends it; returns when nothing of it is left."""
        self._driver.finish("its slot was freed")
        await self.wait()

    async def _live(self) -> str:
        driver = self._driver
        await driver.start()
        address = self._rpc.serve(LOCAL_DRIVER, driver)
        try:
            await driver.register(address, os.getpid())
            await driver.session_started(_NO_SPARK, self._make_run)
            return (await driver.finished).cause
        except RegistrationRefusedError as error:
            return str(error)
        except Exception as error:
            _log.exception("the driver %s of a bounded job has failed", self._bootstrap.driver_id)
            return f"its driver has failed: {error}"
        finally:
            # Its run ends with it, and takes its workers along.
            await driver.stop()
            self._rpc.stop_serving(driver.name)
            await asyncio.to_thread(shutil.rmtree, self._bootstrap.working_directory, ignore_errors=True)

    def _make_run(self, submission: BatchSubmission, folder: Path) -> LocalRun:
        self._run = LocalRun(submission, self._services, folder)
        return self._run
