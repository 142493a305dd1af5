"""SlotWorkers: the worker processes of a TaskExecutor's slots: folders, raw output, start, evidence of a crash.

Owner: the TaskExecutor's event loop. Must not decide when a worker starts or ends; the slot table does not
know it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from yarrow.container.launch.worker_launcher import WorkerLauncher
from yarrow.container.protocol.errors import WorkerStartError
from yarrow.container.protocol.worker_protocol import CurrentUserCall, WorkerSettings
from yarrow.container.supervisor.output_files import OutputFiles, read_tail
from yarrow.container.supervisor.worker_handle import EXIT_GRACE, WorkerHandle, WorkerListener
from yarrow.runtime.common.ids import ResourceID, WorkerID
from yarrow.runtime.common.timers import Timers
from yarrow.runtime.rpc.bootstrap import PemIdentity
from yarrow.runtime.rpc.messages import WorkerAddress

#: Seconds between a worker's launch and its WorkerReady.
START_TIMEOUT = 60.0


class SlotWorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the workers of all slots."""

    resource_id: ResourceID
    host: str
    host_key: str
    working_directory: Path
    cores_per_slot: float
    configuration: dict[str, str]
    data_secret: bytes
    identity: PemIdentity
    listen_tcp: bool
    #: See WorkerSettings.
    forward_logs: bool = False


class SlotWorker(msgspec.Struct):
    """A worker with its files on disk."""

    handle: WorkerHandle
    directory: Path
    raw_path: Path
    #: Size of the raw file at its start: earlier bytes are its predecessors'.
    raw_start: int
    launcher: WorkerLauncher
    #: Its last report of the running operator.
    last_call: CurrentUserCall | None = None

    def evidence(self) -> tuple[CurrentUserCall | None, str]:
        """The operator that it ran, and the end of its raw output; call it after the worker's end."""
        # Imported late: workers rarely die.
        from yarrow.container.supervisor.last_call import last_call

        tail = read_tail(self.raw_path, self.raw_start)
        return last_call(self.directory, tail) or self.last_call, tail


class SlotWorkers:
    """Starts workers, and knows the worker of each slot."""

    def __init__(
        self,
        settings: SlotWorkerSettings,
        launcher: WorkerLauncher,
        files: OutputFiles,
        listener: WorkerListener,
        timers: Timers,
    ) -> None:
        self._settings = settings
        self._launcher = launcher
        self._files = files
        self._listener = listener
        self._timers = timers
        self._started = 0
        self._by_slot: dict[int, SlotWorker] = {}
        self._removals: set[asyncio.Future[None]] = set()

    def get(self, slot_index: int) -> SlotWorker | None:
        """The slot's worker, from its launch to `forget`."""
        return self._by_slot.get(slot_index)

    def __iter__(self) -> Iterator[SlotWorker]:
        return iter(tuple(self._by_slot.values()))

    @property
    def are_of_one_client(self) -> bool:
        """Whether they belong to a cluster in a client's process, whose TaskExecutors share its environment."""
        return self._settings.forward_logs

    def data_port(self) -> int:
        """The lowest TCP port on which a worker accepts data connections; -1 = none does."""
        ports = [worker.handle.data_port for worker in self]
        return min((port for port in ports if port > 0), default=-1)

    def environment(self) -> dict[str, str]:
        """The environment of workers."""
        return self._launcher.environment()

    async def start(self, slot_index: int, interpreter: str = "") -> WorkerAddress:
        """Launches a worker for a slot without one, in its job's `interpreter` or in the common one.

        Raises WorkerStartError if the worker does not become ready.

        After an error the listener still hears of its end, unless it was never launched: `get` then finds
        nothing.
        """
        launcher = self._launcher.for_interpreter(interpreter) if interpreter else self._launcher
        self._started += 1
        worker_id = WorkerID(f"{self._settings.resource_id}/{self._started}")
        directory = self._settings.working_directory / f"w{self._started}"
        directory.mkdir(mode=0o700)
        raw_path = self._files.raw_path(slot_index)
        raw = self._files.open_raw(raw_path)
        try:
            raw_start = os.fstat(raw).st_size
            process, sock = await launcher.launch(worker_id, f"yarrow-slot-{slot_index}", raw)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        finally:
            os.close(raw)
        handle = WorkerHandle(worker_id, slot_index, process, self._listener, self._timers)
        self._by_slot[slot_index] = SlotWorker(handle, directory, raw_path, raw_start, launcher)
        try:
            return await asyncio.wait_for(
                handle.start(sock, self._worker_settings(worker_id, directory)), START_TIMEOUT
            )
        except TimeoutError:
            reason = f"the worker was not ready after {START_TIMEOUT:g} s"
            handle.kill(reason)
            raise WorkerStartError(f"the worker {worker_id} did not start: {reason}") from None
        except WorkerStartError:
            handle.stop("the worker did not start", EXIT_GRACE)
            raise

    def _worker_settings(self, worker_id: WorkerID, directory: Path) -> WorkerSettings:
        settings = self._settings
        return WorkerSettings(
            worker_id=worker_id,
            resource_id=settings.resource_id,
            host=settings.host,
            host_key=settings.host_key,
            working_directory=str(directory),
            configuration=settings.configuration,
            data_secret=settings.data_secret,
            ca_certificate=settings.identity.ca_certificate,
            certificate=settings.identity.certificate,
            private_key=settings.identity.private_key,
            server_name=settings.identity.server_name,
            listen_tcp=settings.listen_tcp,
            forward_logs=settings.forward_logs,
        )

    def forget(self, slot_index: int) -> None:
        """Removes the files of an ended worker; the slot may get another."""
        worker = self._by_slot.pop(slot_index, None)
        if worker is not None:
            removal = asyncio.get_running_loop().run_in_executor(None, shutil.rmtree, worker.directory, True)
            self._removals.add(removal)
            removal.add_done_callback(self._removals.discard)

    def pause_reading(self, paused: bool) -> None:
        """Stops or resumes reading from workers: those that print have to wait."""
        for worker in self:
            if paused:
                worker.handle.pause()
            else:
                worker.handle.resume()

    def processes(self) -> list[tuple[str, int]]:
        """(name, pid) of every process of this TaskExecutor, the supervisor first."""
        own = os.getpid()
        found = [("supervisor", own), *self._launcher.processes()]
        workers = ((f"worker of slot {index}", worker.handle.pid) for index, worker in self._by_slot.items())
        return found + [(name, pid) for name, pid in workers if pid != own]

    async def close(self, cause: str, grace: float) -> None:
        """Stops all workers, kills the rest after `grace` seconds, and ends the launcher."""
        handles = [worker.handle for worker in self]
        launchers = [worker.launcher for worker in self if worker.launcher is not self._launcher]
        for handle in handles:
            handle.stop(cause, grace)
        await asyncio.gather(*(handle.ended for handle in handles))
        for launcher in (*launchers, self._launcher):
            await launcher.close()
        await asyncio.gather(*self._removals)
