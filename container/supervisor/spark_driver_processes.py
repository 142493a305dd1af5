"""SparkDriverProcesses: starts SparkDrivers as children of their TaskExecutor.

Owner: the TaskExecutor's event loop. Imported with the first driver alone: a TaskExecutor without bounded jobs does
without. Must not put a secret into arguments, environment or logs.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import msgspec

from yarrow.container.supervisor.hosted_spark_drivers import DriverProcess, driver_bootstrap
from yarrow.container.supervisor.output_files import safe_name
from yarrow.runtime.common.ids import ResourceID
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.interpreters.interpreter import worker_interpreter
from yarrow.runtime.rpc.bootstrap import PemIdentity, ProcessBootstrap, SparkDriverBootstrap
from yarrow.runtime.rpc.messages import SparkDriverStart
from yarrow.runtime.rpc.spark_driver_process import SparkDriverProcess

#: Short: the paths of its sockets have a limit.
_FOLDER_PREFIX: Final = "sd-"


class SparkDriverProcesses:
    """Starts drivers as children of this process, with the settings of its own bootstrap."""

    def __init__(self, own: ProcessBootstrap, resource_id: ResourceID, slots: int, log_stem: str) -> None:
        """`slots` is the number of slots here, `log_stem` the prefix of the TaskExecutor's log files."""
        self._own = own
        self._resource_id = resource_id
        self._slots = slots
        self._log_stem = log_stem

    async def start(self, start: SparkDriverStart) -> DriverProcess:
        """Starts the driver in the interpreter of the workers. Raises OSError, and InvalidOptionValue for that one."""
        own = self._own
        config = Settings(own.configuration, "the bootstrap of the TaskExecutor")
        interpreter = await asyncio.to_thread(worker_interpreter, config)
        log_name = f"{self._log_stem}-{safe_name(start.driver_id)}"
        return await SparkDriverProcess.start(
            lambda folder: self._bootstrap(start, log_name, folder),
            folder_prefix=_FOLDER_PREFIX,
            folder_parent=own.working_directory,
            error_file=Path(own.log_directory) / f"{log_name}.err",
            interpreter=interpreter,
        )

    def _bootstrap(self, start: SparkDriverStart, log_name: str, folder: str) -> SparkDriverBootstrap:
        return msgspec.structs.replace(
            driver_bootstrap(self._own, start, self._resource_id, self._slots, folder),
            identity=msgspec.msgpack.decode(start.identity, type=PemIdentity),
            log_name=log_name,
        )
