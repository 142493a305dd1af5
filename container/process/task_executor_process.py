"""The work of every TaskExecutor process after its bootstrap: RPC, template, endpoint, end.

Owner: the main thread, which runs the event loop. Must not import pyarrow, numpy, pandas or user code, nor
log secrets. Two modules bring the bootstrap and watch over the process: child_task_executor (a child with a
pipe) and container_task_executor (of YARN).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from yarrow.common.values.value_types import PortRange
from yarrow.container.launch.process_start import LaunchSettings, StartedTemplate, worker_environment
from yarrow.container.launch.template_client import TemplateLauncher
from yarrow.container.launch.worker_launcher import SpawnLauncher, WorkerLauncher
from yarrow.container.process.leader_lookup import resource_manager_leader
from yarrow.container.protocol.errors import RegistrationRefusedError
from yarrow.container.supervisor.hosted_spark_drivers import DriverProcess
from yarrow.container.supervisor.output_files import OutputFiles, OutputSink
from yarrow.container.supervisor.output_forwarder import NoForwarding, OutputForwarder
from yarrow.container.supervisor.task_executor import TaskExecutor, TaskExecutorServices
from yarrow.container.supervisor.task_executor_settings import settings_of
from yarrow.container.supervisor.unfit_launcher import UnfitLauncher
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.private_files import PrivateFileHandler
from yarrow.runtime.config.options import rpc, taskmanager
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import InvalidOptionValue
from yarrow.runtime.fs.hdfs_settings import HdfsSettings, use_hdfs_settings
from yarrow.runtime.graph.states import BatchRunner
from yarrow.runtime.interpreters.interpreter import worker_interpreter
from yarrow.runtime.rpc.bootstrap import TaskExecutorBootstrap
from yarrow.runtime.rpc.grpc_transport import GrpcSettings, GrpcTransport
from yarrow.runtime.rpc.leader import LeaderRetrieval
from yarrow.runtime.rpc.messages import SparkDriverStart
from yarrow.runtime.rpc.service import AddressError, RpcService

_log = logging.getLogger(__name__)


def ports_of(ports: PortRange) -> Iterator[int]:
    """The ports to try, in order; 0 lets the system choose."""
    for first, last in ports.intervals:
        yield from range(first, last + 1)


async def start_rpc(bootstrap: TaskExecutorBootstrap, config: Settings) -> RpcService:
    """A started service on the first free port of taskmanager.rpc.port. Raises AddressError if there is none."""
    failure: AddressError | None = None
    for port in ports_of(config.get(taskmanager.RPC_PORT)):
        service = RpcService(
            [
                GrpcTransport(
                    GrpcSettings(
                        application_id=bootstrap.application_id,
                        bind_host=bootstrap.bind_host,
                        host=bootstrap.host,
                        port=port,
                        identity=bootstrap.identity,
                        max_message_bytes=bootstrap.max_message_bytes,
                        ask_timeout=config.get(rpc.ASK_TIMEOUT).seconds,
                        connect_timeout=config.get(rpc.CONNECT_TIMEOUT).seconds,
                    )
                )
            ]
        )
        try:
            await service.start()
            return service
        except AddressError as error:
            failure = error
    raise failure or AddressError("taskmanager.rpc.port names no port: set a port or a range of ports")


class EarlyTemplate:
    """A template that starts before the bootstrap has come, assuming one core a slot and start by fork.

    A process that starts ahead of its use has imported everything by then.
    """

    def __init__(
        self, worker_entry: str, jobs_hear_of_unfit: bool = False, started: StartedTemplate | None = None
    ) -> None:
        """Takes over the `started` template; without one `start` executes it.

        With `jobs_hear_of_unfit`, jobs fail with the reason if workers cannot run in python.executable.
        Without it `launcher_for` raises, and the process ends.
        """
        self._jobs_hear = jobs_hear_of_unfit
        self._guess = LaunchSettings(cpu_cores=1.0, entry=worker_entry)
        # The template's output goes where this process's own errors go.
        self._launcher: TemplateLauncher | None = TemplateLauncher(self._guess, 2, started)

    async def start(self) -> None:
        """Takes over or executes the template, if that has not happened yet."""
        if self._launcher is not None:
            await self._launcher.start()

    async def launcher_for(self, config: Settings, cores_per_slot: float) -> WorkerLauncher:
        """A started launcher according to taskmanager.worker.start: the early one if the assumptions were right.

        Raises InvalidOptionValue for an unsuitable interpreter, unless jobs hear of it.
        """
        try:
            executable = await asyncio.to_thread(worker_interpreter, config)
        except InvalidOptionValue as error:
            if not self._jobs_hear:
                raise
            _log.error("workers cannot be started: %s", error)
            await self.close()
            return UnfitLauncher(self._guess._replace(cpu_cores=cores_per_slot), str(error))
        settings = self._guess._replace(cpu_cores=cores_per_slot, executable=executable)
        fork = config.get(taskmanager.WORKER_START) is taskmanager.WorkerStart.FORK
        guessed = executable == self._guess.executable and (
            worker_environment(settings) == worker_environment(self._guess)
        )
        if fork and self._launcher and guessed:
            launcher, self._launcher = self._launcher, None
            return launcher
        await self.close()
        other = TemplateLauncher(settings, 2) if fork else SpawnLauncher(settings)
        await other.start()
        return other

    async def close(self) -> None:
        """Ends the template, unless `launcher_for` returned it."""
        launcher, self._launcher = self._launcher, None
        if launcher is not None:
            await launcher.close()


class LifeWatch(Protocol):
    """Notices when the owner of this process is gone.

    It watches from the time when the process knows what to remove. Before there is a TaskExecutor it ends the
    process at once. Nothing needs an orderly end then, and the start may wait long for something that is
    away.
    """

    def follow(self, executor: TaskExecutor) -> None:
        """Asks `executor` to finish on its own loop, and ends the process by force if that takes too long."""
        ...


async def run_task_executor(bootstrap: TaskExecutorBootstrap, early: EarlyTemplate, watch: LifeWatch) -> None:
    """Runs a TaskExecutor until it has finished. Raises RegistrationRefusedError if it was refused."""
    config = Settings(bootstrap.configuration, "the bootstrap of the TaskExecutor")
    use_hdfs_settings(HdfsSettings.of(config))
    async with resource_manager_leader(bootstrap, config) as leader:
        await _run_with(leader, bootstrap, config, early, watch)


async def _run_with(
    leader: LeaderRetrieval,
    bootstrap: TaskExecutorBootstrap,
    config: Settings,
    early: EarlyTemplate,
    watch: LifeWatch,
) -> None:
    settings = settings_of(bootstrap)
    output: OutputForwarder | NoForwarding = NoForwarding()
    sink = None
    if bootstrap.forward_output:
        output = OutputForwarder(lambda congested: executor.workers.pause_reading(congested))
        # The socket carries only frames: stray output goes where errors go.
        connection = os.dup(1)
        os.dup2(2, 1)
        await output.open(connection)
        sink = output
    files = output_files(bootstrap, sink)
    launcher = await early.launcher_for(config, settings.workers.cores_per_slot)
    service = await start_rpc(bootstrap, config)
    executor = TaskExecutor(
        settings,
        TaskExecutorServices(
            rpc=service,
            resource_manager=leader,
            launcher=launcher,
            files=files,
            output=output,
            start_spark_driver=_DriverStarter(bootstrap, settings.slots, service, launcher, files).start,
        ),
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(
            number, executor.finish_by_force, (f"the TaskExecutor got the signal {number.name}")
        )
    try:
        await executor.start()
        watch.follow(executor)
        orderly, cause = await executor.finished
    finally:
        await executor.stop()
        await launcher.close()
        await service.stop()
        if isinstance(output, OutputForwarder):
            await output.drained()
            output.close()
    if not orderly:
        raise RegistrationRefusedError(cause)


class _DriverStarter:
    """Starts drivers of bounded jobs: SparkDrivers as processes, those of workers in this one."""

    def __init__(
        self,
        bootstrap: TaskExecutorBootstrap,
        slots: int,
        service: RpcService,
        launcher: WorkerLauncher,
        files: OutputFiles,
    ) -> None:
        self._bootstrap = bootstrap
        self._slots = slots
        self._service = service
        self._launcher = launcher
        self._files = files

    async def start(self, start: SparkDriverStart) -> DriverProcess:
        """Starts a driver. Raises OSError, and InvalidOptionValue for an interpreter."""
        # Modules of both are loaded for bounded jobs alone.
        own, slots = self._bootstrap, self._slots
        if start.runner is BatchRunner.LOCAL:
            from yarrow.container.batch.local.local_drivers import LocalDrivers

            local = LocalDrivers(own, slots, self._service, self._launcher, self._files, SystemClock())
            return await local.start(start)
        from yarrow.container.supervisor.spark_driver_processes import SparkDriverProcesses

        stem = self._files.log_path.stem
        return await SparkDriverProcesses(own, own.resource_id, slots, stem).start(start)


def output_files(bootstrap: TaskExecutorBootstrap, sink: OutputSink | None = None) -> OutputFiles:
    """The files of the TaskExecutor's log folder."""
    return OutputFiles(Path(bootstrap.log_directory), bootstrap.resource_id, sink, stem=bootstrap.log_name)


def configure_logging(path: Path) -> None:
    """Sends all log records of this process to its log file."""
    logging.basicConfig(
        handlers=[PrivateFileHandler(path, encoding="utf-8")],
        level=logging.INFO,
        format="%(asctime)s %(levelname)-5s %(name)s - %(message)s",
    )
