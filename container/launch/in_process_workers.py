"""Workers as threads of this process: `execution.in-process`, so that a breakpoint in a user function works.

Owner: the TaskExecutor's event loop. Must not be used where user code may crash: a crash ends the whole
process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import Protocol

from yarrow.container.launch.worker_launcher import RunningWorker, WorkerExit, WorkerLauncher
from yarrow.container.protocol.errors import UnfitInterpreterError
from yarrow.runtime.common.ids import WorkerID

_log = logging.getLogger(__name__)


class ServingThread(Protocol):
    """A thread that serves a control socket: `threading.Thread` has these methods."""

    def start(self) -> None: ...

    def join(self) -> None: ...


#: Makes the thread that serves the socket. The thread ends at StopWorker or at the socket's end, and closes
#: the socket.
WorkerThreadFactory = Callable[[socket.socket], ServingThread]


class ThreadWorker:
    """A worker that is a thread."""

    def __init__(self, thread: ServingThread, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self.pid = os.getpid()
        self.exited: asyncio.Future[WorkerExit] = loop.create_future()
        self._thread = thread
        self._name = name
        self._loop = loop
        thread.start()
        threading.Thread(target=self._wait, name=f"{name}-end", daemon=True).start()

    def kill(self) -> None:
        """Gives the thread up, because it cannot be ended from outside; its slot becomes free."""
        if not self.exited.done():
            _log.error("%s does not end: its thread stays behind in this process", self._name)
            self._ended(WorkerExit(explanation="its thread did not end and was left behind"))

    def _wait(self) -> None:
        self._thread.join()
        try:
            self._loop.call_soon_threadsafe(self._ended, WorkerExit(status=0))
        except RuntimeError:
            return  # The loop has closed: nobody listens any more.

    def _ended(self, end: WorkerExit) -> None:
        if not self.exited.done():
            self.exited.set_result(end)


class InProcessLauncher:
    """Starts worker threads instead of processes."""

    def __init__(self, factory: WorkerThreadFactory) -> None:
        self._factory = factory
        self._workers: list[ThreadWorker] = []

    async def start(self) -> None:
        """Does nothing: threads need no warm-up."""

    async def launch(
        self, worker_id: WorkerID, process_name: str, raw_output: int
    ) -> tuple[RunningWorker, socket.socket]:
        """Starts a thread at the other end of a socket pair; nothing writes to `raw_output`."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        worker = ThreadWorker(self._factory(theirs), process_name, asyncio.get_running_loop())
        self._workers = [other for other in self._workers if not other.exited.done()] + [worker]
        return worker, ours

    def for_interpreter(self, executable: str) -> WorkerLauncher:
        """Returns itself: threads have the interpreter of their process."""
        raise UnfitInterpreterError(
            f"workers in {executable} are processes: set execution.in-process to false, or leave python.executable out"
        )

    def environment(self) -> dict[str, str]:
        """The environment of this process."""
        return dict(os.environ)

    async def close(self) -> None:
        """Waits for the threads, which have been told to end."""
        await asyncio.gather(*(worker.exited for worker in self._workers))

    def processes(self) -> tuple[tuple[str, int], ...]:
        """Returns none: threads are no processes."""
        return ()
