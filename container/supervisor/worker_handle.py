"""WorkerHandle: the supervisor's view of one worker: its control channel and its process.

Owner: the TaskExecutor's event loop, on which the listener is called. Must not know slots, jobs or RPC. It
forwards the worker's messages and, once and last, how the worker ended.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Generic, Protocol, TypeVar

import msgspec

from yarrow.container.launch.worker_launcher import RunningWorker, WorkerExit
from yarrow.container.protocol.errors import FrameError, WorkerStartError
from yarrow.container.protocol.frame_channel import FrameChannel
from yarrow.container.protocol.worker_protocol import (
    EventTimes,
    MessageFromWorker,
    RequestEventTimes,
    RequestThreadDump,
    StartWorker,
    StopWorker,
    ThreadDump,
    WorkerFailed,
    WorkerReady,
    WorkerSettings,
)
from yarrow.runtime.common.ids import JobID, WorkerID
from yarrow.runtime.common.timers import TimerHandle, Timers
from yarrow.runtime.rpc.messages import TaskTimeReport, WorkerAddress

T = TypeVar("T")

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


class _Questions(Generic[T]):
    """Questions of one kind to a worker, which answers them in their order."""

    def __init__(self, without: T) -> None:
        """`without` is the answer of a worker that has ended."""
        self._without = without
        self._open: list[asyncio.Future[T]] = []

    async def ask(self) -> T:
        """Waits for the answer to a question that was sent."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._open.append(answer)
        return await answer

    def answer(self, value: T) -> None:
        """Answers the oldest question; nobody may wait for it any more."""
        if self._open and not (first := self._open.pop(0)).done():
            first.set_result(value)

    def close(self) -> None:
        """Answers all questions, because the worker has ended."""
        while self._open:
            self.answer(self._without)


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
        self._dumps: _Questions[tuple[tuple[str, str], ...]] = _Questions(())
        self._event_times: _Questions[tuple[TaskTimeReport, ...]] = _Questions(())
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
        """Sends a message; a worker that has ended or not begun gets nothing.

        The listener hears of the end. A worker that has not begun has no task that the message could concern, and its
        first message has to be StartWorker.
        """
        if self._start_sent:
            self._channel.send(message)

    def pause(self) -> None:
        """Stops reading for now: a worker that prints faster than we write has to wait."""
        self._channel.pause()

    def resume(self) -> None:
        """Reads again."""
        self._channel.resume()

    async def thread_dump(self) -> tuple[tuple[str, str], ...]:
        """Pairs (thread name, stack); empty when the worker has ended or not begun."""
        if self._closed or not self._start_sent:
            return ()
        self._channel.send(RequestThreadDump())
        return await self._dumps.ask()

    async def event_times(self, job_id: JobID) -> tuple[TaskTimeReport, ...]:
        """Event time in the tasks of a job; empty when the worker has ended or not begun."""
        if self._closed or not self._start_sent:
            return ()
        self._channel.send(RequestEventTimes(job_id=job_id))
        return await self._event_times.ask()

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
            self._dumps.answer(message.threads)
        elif isinstance(message, EventTimes):
            self._event_times.answer(message.tasks)
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
        self._dumps.close()
        self._event_times.close()
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
