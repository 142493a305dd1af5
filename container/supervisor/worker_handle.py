"""WorkerHandle: the supervisor's view of one worker: its control channel and its process.

Owner: the TaskExecutor's event loop, on which the listener is called. Must not know slots, jobs or RPC. It
forwards the worker's messages and, once and last, how the worker ended.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Protocol

import msgspec

from yarrow.container.launch.worker_launcher import RunningWorker, WorkerExit
from yarrow.container.protocol.errors import FrameError, WorkerStartError
from yarrow.container.protocol.frame_channel import FrameChannel
from yarrow.container.protocol.worker_protocol import (
    MessageFromWorker,
    RequestThreadDump,
    StartWorker,
    StopWorker,
    ThreadDump,
    WorkerFailed,
    WorkerReady,
    WorkerSettings,
)
from yarrow.runtime.common.ids import WorkerID
from yarrow.runtime.common.timers import TimerHandle, Timers
from yarrow.runtime.rpc.messages import WorkerAddress

#: Seconds between the end of the control socket and SIGKILL: a worker ends when it sees that end, or never.
EXIT_GRACE = 2.0
#: Seconds between the process's end and that of its socket; after that, a child of the user's holds a copy.
DRAIN_GRACE = 0.5
_log = logging.getLogger(__name__)


class WorkerListener(Protocol):
    """Hears a worker's messages."""

    def on_worker_message(self, worker: WorkerHandle, message: MessageFromWorker) -> None: ...

    def on_worker_ended(self, worker: WorkerHandle, end: WorkerExit) -> None:
        """Called once, after the last message."""
        ...


class WorkerHandle:
    """One worker that was launched."""

    def __init__(
        self,
        worker_id: WorkerID,
        slot_index: int,
        process: RunningWorker,
        listener: WorkerListener,
        timers: Timers,
    ) -> None:
        self.worker_id = worker_id
        self.slot_index = slot_index
        self._process = process
        self._listener = listener
        self._timers = timers
        loop = asyncio.get_running_loop()
        self._channel: FrameChannel[MessageFromWorker] = FrameChannel(
            MessageFromWorker,  # type: ignore[arg-type]  # a union is no class, but decodes like one
            self._on_message,
            self._on_closed,
        )
        self._ready: asyncio.Future[WorkerAddress] = loop.create_future()
        self._dumps: list[asyncio.Future[tuple[tuple[str, str], ...]]] = []
        self._closed = False
        self._start_sent = False
        self._killer: TimerHandle | None = None
        #: Done when the worker has ended and the listener knows.
        self.ended: asyncio.Future[WorkerExit] = loop.create_future()
        #: Why the supervisor ended the worker itself; "" = it did not.
        self.end_cause = ""
        #: It was told to end: no other is wanted in its place.
        self.stopped = False

    @property
    def pid(self) -> int:
        """Its process id; that of the supervisor itself for a worker in a thread."""
        return self._process.pid

    @property
    def is_ready(self) -> bool:
        """True from WorkerReady on: before that it takes no tasks."""
        return self._ready.done() and self._ready.exception() is None

    @property
    def data_port(self) -> int:
        """Its TCP port for data connections; 0 if it accepts none from other hosts, or not yet."""
        return self._ready.result().port if self.is_ready else 0

    async def start(self, sock: socket.socket, settings: WorkerSettings) -> WorkerAddress:
        """Takes the socket over and starts the worker. Raises WorkerStartError if it fails or ends first."""
        await self._channel.open(sock)
        self._process.exited.add_done_callback(self._on_exit)
        if self.end_cause:
            # Stopped before it began: the end of its socket tells it enough.
            self._fail_start(self.end_cause)
            self._channel.close()
        else:
            self._start_sent = True
            self._channel.send(StartWorker(settings=settings))
        return await self._ready

    def send(self, message: msgspec.Struct) -> None:
        """Sends a message; an ended worker gets nothing, and the listener hears of its end."""
        self._channel.send(message)

    def pause(self) -> None:
        """Stops reading for now: a worker that prints faster than we write has to wait."""
        self._channel.pause()

    def resume(self) -> None:
        """Reads again."""
        self._channel.resume()

    async def thread_dump(self) -> tuple[tuple[str, str], ...]:
        """Pairs (thread name, stack); empty when the worker has ended."""
        if self._closed:
            return ()
        answer: asyncio.Future[tuple[tuple[str, str], ...]] = asyncio.get_running_loop().create_future()
        self._dumps.append(answer)
        self._channel.send(RequestThreadDump())
        return await answer

    def stop(self, cause: str, grace: float) -> None:
        """Tells the worker to end, and kills it after `grace` seconds; `ended` is done when it has."""
        self.stopped = True
        if not self.end_cause:
            self.end_cause = cause
            if self._start_sent:
                self._channel.send(StopWorker())
        self._kill_later(grace)

    def kill(self, cause: str) -> None:
        """Ends the process at once."""
        self.end_cause = self.end_cause or cause
        self._process.kill()

    def _kill_later(self, grace: float) -> None:
        if self._killer is not None:
            self._killer.cancel()
        self._killer = self._timers.call_later(grace, self._process.kill)

    def _on_message(self, message: MessageFromWorker) -> None:
        if isinstance(message, WorkerReady):
            if not self._ready.done():
                self._ready.set_result(message.address)
        elif isinstance(message, WorkerFailed):
            self._fail_start(f"{message.cause.message}\n{message.cause.stacktrace}".strip())
        elif isinstance(message, ThreadDump):
            if self._dumps:
                self._answer(self._dumps.pop(0), message.threads)
        else:
            try:
                self._listener.on_worker_message(self, message)
            except Exception:
                # An error of ours must not close the connection to a worker without fault.
                _log.exception(
                    "worker %s: the TaskExecutor failed to handle its message %s",
                    self.worker_id,
                    type(message).__name__,
                )

    @staticmethod
    def _answer(
        answer: asyncio.Future[tuple[tuple[str, str], ...]], threads: tuple[tuple[str, str], ...]
    ) -> None:
        if not answer.done():
            answer.set_result(threads)

    def _fail_start(self, reason: str) -> None:
        if not self._ready.done():
            self._ready.set_exception(
                WorkerStartError(f"the worker {self.worker_id} did not start: {reason}")
            )
            # Nobody waits for this result any more.
            self._ready.exception()

    def _on_closed(self, error: FrameError | None) -> None:
        self._closed = True
        if error is not None:
            _log.error("worker %s: the control connection broke: %s", self.worker_id, error)
            self.end_cause = self.end_cause or str(error)
        for answer in self._dumps:
            self._answer(answer, ())
        if self._process.exited.done():
            self._end()
        else:
            self._kill_later(EXIT_GRACE)

    def _on_exit(self, exited: asyncio.Future[WorkerExit]) -> None:
        if self._closed:
            self._end()
        else:
            # Its last messages may still be in the socket, also in one that we had stopped reading.
            self._channel.resume()
            self._timers.call_later(DRAIN_GRACE, self._channel.close)

    def _end(self) -> None:
        if self.ended.done():
            return
        if self._killer is not None:
            self._killer.cancel()
        end = self._process.exited.result()
        self._fail_start(f"the worker {end}")
        self.ended.set_result(end)
        self._listener.on_worker_ended(self, end)
