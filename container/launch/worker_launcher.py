"""WorkerLauncher: starts worker processes. Here are the interface, the worker's end, and the start by exec.

Owner: the TaskExecutor's event loop. Must not speak the worker protocol: a launcher only returns a connected
socket, and reports how the process ended.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import threading
from typing import Protocol

import msgspec

from yarrow.container.launch.process_start import LaunchSettings, python_command, worker_environment
from yarrow.container.protocol.errors import WorkerStartError
from yarrow.runtime.common.ids import WorkerID


class WorkerExit(msgspec.Struct, frozen=True):
    """How a worker process ended; without status and signal if nobody could reap it."""

    status: int | None = None
    signal: int | None = None
    #: The explanation without them, e.g. that the template died.
    explanation: str = ""

    def __str__(self) -> str:
        """A verb phrase: "was ended by signal 11 (SIGSEGV)"."""
        if self.signal is not None:
            return f"was ended by signal {self.signal} ({signal_name(self.signal)})"
        if self.status is not None:
            return f"ended with exit status {self.status}"
        return f"ended ({self.explanation or 'its exit status is not known'})"


def signal_name(number: int) -> str:
    """SIGSEGV for 11; the number itself if the system has no name for it."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


class RunningWorker(Protocol):
    """A started worker."""

    @property
    def pid(self) -> int: ...

    @property
    def exited(self) -> asyncio.Future[WorkerExit]:
        """Done when the process has ended; never fails."""
        ...

    def kill(self) -> None:
        """Ends it at once; no effect if it has ended."""
        ...


class WorkerLauncher(Protocol):
    """Starts workers in one particular way."""

    async def start(self) -> None:
        """Warms up; returns at once."""
        ...

    async def launch(
        self, worker_id: WorkerID, process_name: str, raw_output: int
    ) -> tuple[RunningWorker, socket.socket]:
        """The worker and the supervisor's end of its socket. Raises WorkerStartError if the start fails.

        `raw_output` is the descriptor of the slot's raw output file; it stays the caller's.
        """
        ...

    def for_interpreter(self, executable: str) -> WorkerLauncher:
        """A launcher for another interpreter. Raises UnfitInterpreterError if workers cannot run in it."""
        ...

    def environment(self) -> dict[str, str]:
        """The workers' environment, without variables that another interpreter must not see."""
        ...

    async def close(self) -> None:
        """Kills the remaining workers."""
        ...

    def processes(self) -> tuple[tuple[str, int], ...]:
        """(name, pid) of the processes that serve the launcher itself."""
        ...


class SpawnedWorker:
    """A worker process that this process executed; a thread waits for its end."""

    def __init__(self, process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop) -> None:
        self._process = process
        self._loop = loop
        self.exited: asyncio.Future[WorkerExit] = loop.create_future()
        threading.Thread(target=self._wait, name=f"wait-{process.pid}", daemon=True).start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def kill(self) -> None:
        """Sends SIGKILL; Popen sends nothing to an ended process."""
        self._process.kill()

    def _wait(self) -> None:
        code = self._process.wait()
        end = WorkerExit(signal=-code) if code < 0 else WorkerExit(status=code)
        try:
            self._loop.call_soon_threadsafe(self._ended, end)
        except RuntimeError:
            return  # The loop has closed: nobody listens any more.

    def _ended(self, end: WorkerExit) -> None:
        if not self.exited.done():
            self.exited.set_result(end)


class SpawnLauncher:
    """`taskmanager.worker.start: spawn`: one exec a worker."""

    def __init__(self, settings: LaunchSettings) -> None:
        self._settings = settings
        self._workers: list[SpawnedWorker] = []

    async def start(self) -> None:
        """Does nothing: exec needs no warm-up."""

    async def launch(
        self, worker_id: WorkerID, process_name: str, raw_output: int
    ) -> tuple[RunningWorker, socket.socket]:
        """Executes an interpreter with the other end of a new socket pair."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        command = python_command(self._settings, "yarrow.container.launch.worker_process", theirs.fileno())
        with theirs:
            try:
                # Takes about a millisecond: the child is executed without copying this process.
                process = subprocess.Popen(  # noqa: ASYNC220
                    [*command, "--name", process_name],
                    stdin=subprocess.DEVNULL,
                    stdout=raw_output,
                    stderr=raw_output,
                    pass_fds=[theirs.fileno()],
                    env=worker_environment(self._settings),
                )
            except OSError as error:
                ours.close()
                raise WorkerStartError(f"the worker {worker_id} could not be executed: {error}") from error
        worker = SpawnedWorker(process, asyncio.get_running_loop())
        self._workers = [other for other in self._workers if not other.exited.done()] + [worker]
        return worker, ours

    def for_interpreter(self, executable: str) -> WorkerLauncher:
        """A launcher of the same kind."""
        return SpawnLauncher(self._settings._replace(executable=executable))

    def environment(self) -> dict[str, str]:
        """The environment of each worker."""
        return worker_environment(self._settings)

    async def close(self) -> None:
        """Kills the workers that still run and waits until they are reaped."""
        for worker in self._workers:
            worker.kill()
        await asyncio.gather(*(worker.exited for worker in self._workers))
        self._workers.clear()

    def processes(self) -> tuple[tuple[str, int], ...]:
        """Returns none: this launcher has no processes of its own."""
        return ()
