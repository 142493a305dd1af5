"""The TaskExecutor process: reads its bootstrap from standard input, runs until released, killed or orphaned.

Owner: its main thread, which runs the event loop; one more thread waits for the end of standard input. Must
not import pyarrow, numpy, pandas or user code, nor put a secret into its arguments, environment or logs.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from yarrow.container.errors import RegistrationRefusedError
from yarrow.container.output_files import OutputFiles
from yarrow.container.output_forwarder import NoForwarding, OutputForwarder
from yarrow.container.task_executor import TaskExecutor, TaskExecutorServices
from yarrow.container.task_executor_settings import settings_of
from yarrow.container.template_client import TemplateLauncher
from yarrow.container.worker_launcher import LaunchSettings, SpawnLauncher, WorkerLauncher, worker_environment
from yarrow.container.worker_process import DEFAULT_ENTRY, set_process_name
from yarrow.runtime.config.interpreter import worker_interpreter
from yarrow.runtime.config.options import rpc, taskmanager
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.value_types import PortRange
from yarrow.runtime.fs.client_folder import remove_orphaned
from yarrow.runtime.rpc.bootstrap import BootstrapError, TaskExecutorBootstrap, read_bootstrap
from yarrow.runtime.rpc.grpc_transport import GrpcSettings, GrpcTransport
from yarrow.runtime.rpc.leader import AnnouncedLeader, LeaderInformation
from yarrow.runtime.rpc.service import AddressError, RpcService

#: Seconds from the parent's end to ours, whatever hangs.
ORPHAN_LIMIT = 1.8
#: Seconds workers have then.
ORPHAN_GRACE = 0.5
_log = logging.getLogger(__name__)


class ParentWatch:
    """A thread that reads standard input: its end means that the parent is gone."""

    def __init__(self, working_directory: Path) -> None:
        self._working_directory = working_directory
        self._stopped = threading.Event()
        #: True once the parent is gone: nobody else will remove our folder then.
        self.orphaned = False

    def start(self, executor: TaskExecutor) -> None:
        """Begins to watch; `executor` is asked to finish on its own loop."""
        threading.Thread(target=self._watch, args=(executor,), name="parent watch", daemon=True).start()

    def stop(self) -> None:
        """The process ends by itself: it is not ended by force any more."""
        self._stopped.set()

    def _watch(self, executor: TaskExecutor) -> None:
        try:
            while os.read(0, 4096):
                pass
        except OSError:
            pass  # As good as its end.
        self.orphaned = True
        cause = "the process that started it has ended"
        try:
            executor.loop.call_soon_threadsafe(lambda: executor.finish(cause, grace=ORPHAN_GRACE))
        except RuntimeError:
            return  # The loop has closed: the process is ending.
        if not self._stopped.wait(ORPHAN_LIMIT):
            remove_orphaned(self._working_directory)
            # The template sees the end of its socket, and the kernel ends what does not look.
            os._exit(1)


def ports_of(ports: PortRange) -> Iterator[int]:
    """The ports to try, in order; 0 lets the system choose."""
    for first, last in ports.intervals:
        yield from range(first, last + 1)


async def start_rpc(bootstrap: TaskExecutorBootstrap, config: Settings) -> RpcService:
    """A started service on the first free port of taskmanager.rpc.port; AddressError when there is none."""
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
                    )
                )
            ]
        )
        try:
            await service.start()
            return service
        except AddressError as error:
            failure = error
    raise failure or AddressError("taskmanager.rpc.port names no port")


class EarlyTemplate:
    """A template started before the bootstrap has come, on the guess of one core a slot and start by fork.

    A process that is started ahead of its use has imported everything by then.
    """

    def __init__(self, worker_entry: str) -> None:
        self._guess = LaunchSettings(cpu_cores=1.0, entry=worker_entry)
        # What a template prints goes where this process's own errors go.
        self._launcher: TemplateLauncher | None = TemplateLauncher(self._guess, 2)

    async def start(self) -> None:
        """Executes the template."""
        if self._launcher is not None:
            await self._launcher.start()

    async def launcher_for(self, config: Settings, cores_per_slot: float) -> WorkerLauncher:
        """A started launcher as taskmanager.worker.start says: the early one when the guess was right."""
        executable = await asyncio.to_thread(worker_interpreter, config)
        settings = replace(self._guess, cpu_cores=cores_per_slot, executable=executable)
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
        """Ends the template, unless it was handed out."""
        launcher, self._launcher = self._launcher, None
        if launcher is not None:
            await launcher.close()


async def run_task_executor(bootstrap: TaskExecutorBootstrap, early: EarlyTemplate) -> None:
    """Runs a TaskExecutor until it has finished; RegistrationRefusedError when it ended against its will."""
    config = Settings(bootstrap.configuration, "the bootstrap of the TaskExecutor")
    settings = settings_of(bootstrap)
    output: OutputForwarder | NoForwarding = NoForwarding()
    sink = None
    if bootstrap.forward_output:
        output = OutputForwarder(lambda congested: executor.workers.pause_reading(congested))
        # Frames have the pipe for themselves: a stray print goes where errors go.
        pipe = os.dup(1)
        os.dup2(2, 1)
        await output.open(pipe)
        sink = output.write
    files = OutputFiles(Path(bootstrap.log_directory), bootstrap.resource_id, sink)
    launcher = await early.launcher_for(config, settings.workers.cores_per_slot)
    service = await start_rpc(bootstrap, config)
    leader = LeaderInformation(
        address=bootstrap.resource_manager_address, leader_id=bootstrap.resource_manager_id
    )
    executor = TaskExecutor(
        settings,
        TaskExecutorServices(
            rpc=service,
            resource_manager=AnnouncedLeader(leader),
            launcher=launcher,
            files=files,
            output=output,
        ),
    )
    watch = ParentWatch(settings.working_directory)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, executor.finish, f"it got the signal {number.name}")
    try:
        await executor.start()
        watch.start(executor)
        orderly, cause = await executor.finished
    finally:
        await executor.stop()
        await launcher.close()
        await service.stop()
        if isinstance(output, OutputForwarder):
            await output.drained()
            output.close()
        watch.stop()
    if watch.orphaned:
        remove_orphaned(settings.working_directory)
    if not orderly:
        raise RegistrationRefusedError(cause)


def configure_logging(path: Path) -> None:
    """Everything of this process goes to its log file."""
    logging.basicConfig(
        filename=path,
        level=logging.INFO,
        format="%(asctime)s %(levelname)-5s %(name)s - %(message)s",
        encoding="utf-8",
    )


def main(worker_entry: str = DEFAULT_ENTRY) -> int:
    """The process; its exit status is 0 when it was released, 1 when it failed."""
    set_process_name("yarrow-taskexec")
    try:
        asyncio.run(_main(worker_entry))
    except BootstrapError as error:
        print(error, file=sys.stderr)
        return 1
    except Exception as error:
        _log.critical("the TaskExecutor failed", exc_info=error)
        print(f"the TaskExecutor failed: {error}", file=sys.stderr)
        return 1
    return 0


async def _main(worker_entry: str) -> None:
    early = EarlyTemplate(worker_entry)
    await early.start()
    # Costs a moment; better now, while the bootstrap is on its way.
    importlib.import_module("grpc.aio")
    try:
        bootstrap = await asyncio.to_thread(read_bootstrap, sys.stdin.buffer)
        files = OutputFiles(Path(bootstrap.log_directory), bootstrap.resource_id)
        configure_logging(files.log_path)
        _log.info("the TaskExecutor %s starts, pid %d", bootstrap.resource_id, os.getpid())
        await run_task_executor(bootstrap, early)
        _log.info("the TaskExecutor %s has ended", bootstrap.resource_id)
    finally:
        await early.close()


if __name__ == "__main__":
    sys.exit(main())
