"""LocalWorkers: the workers of one local batch job, as its driver sees them: started, asked, cancelled, ended.

Owner: the TaskExecutor's event loop. A worker does one thing at a time. A worker that dies fails what it was asked for,
with whose code it ran. Must not know stages.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from yarrow.common.values.rate_limit import RateLimit
from yarrow.container.batch.driver.task_messages import AttemptKeyGroups, AttemptProgress
from yarrow.container.batch.local.local_protocol import (
    Answer,
    CancelWork,
    EndBatchWorker,
    MessageFromBatchWorker,
    ResultTaken,
    TakeResult,
    TakeShares,
    ToBatchWorker,
    WorkFailed,
)
from yarrow.container.launch.worker_launcher import RunningWorker, WorkerExit, WorkerLauncher
from yarrow.container.protocol.errors import FrameError
from yarrow.container.protocol.frame_channel import FrameChannel
from yarrow.container.protocol.worker_protocol import LogLines, OutputLines, StartBatchWorker, UserLogRecord
from yarrow.container.supervisor.last_call import last_call
from yarrow.container.supervisor.lost_worker import lost_worker_cause
from yarrow.container.supervisor.output_files import OutputFiles, read_tail
from yarrow.container.supervisor.slot_table import SubtaskName
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import ExecutionAttemptID, OperatorID, WorkerID
from yarrow.runtime.rpc.messages import FailureCause

_log = logging.getLogger(__name__)
#: Seconds in which the last frames of a dead worker are read.
_DRAIN_SECONDS: Final = 0.5
#: Seconds in which a worker ends that has nothing to do.
_END_SECONDS: Final = 2.0

#: Hears of the work between request and answer.
OnProgress = Callable[[AttemptProgress | AttemptKeyGroups], None]
#: Takes a result to the master; returns when the master has taken it.
TakeToMaster = Callable[[TakeResult], Awaitable[None]]


class WorkFailedError(YarrowError):
    """A worker has failed in what it was asked for, or has died; `cause` is for people."""

    def __init__(self, cause: FailureCause, *, is_lost: bool) -> None:
        super().__init__(cause.message)
        self.cause = cause
        #: The worker has died; another one might do better.
        self.is_lost = is_lost


class WorkerPlace(msgspec.Struct, frozen=True, kw_only=True):
    """What all workers of a job have in common."""

    #: The slot of the job's driver, after which the files of raw output are named.
    slot: int
    #: Folder in which each worker gets one of its own.
    folder: Path
    #: Folder of the SharedJob.
    job_folder: str
    forward_logs: bool


class LocalWorker:
    """One worker that was launched."""

    def __init__(self, name: str, process: RunningWorker, place: WorkerPlace, files: OutputFiles) -> None:
        self._name = name
        self._process = process
        self._place = place
        self._files = files
        self.directory = place.folder / name
        self._raw_path = raw_path(files, place.slot, name)
        self._raw_start = 0
        self._channel: FrameChannel[MessageFromBatchWorker] = FrameChannel(
            MessageFromBatchWorker,  # type: ignore[arg-type]  # a union is no class, but decodes like one
            self._on_message,
            self._on_closed,
        )
        self._answer: asyncio.Future[Answer] | None = None
        self._asked = 0
        self._on_progress: OnProgress = lambda progress: None
        self._take: TakeToMaster | None = None
        self._takes: set[asyncio.Task[None]] = set()
        #: Why the master did not take a result of the present work.
        self._refusal: Exception | None = None
        #: What the present task is called, for the words about its death.
        self._tasks: dict[ExecutionAttemptID, SubtaskName] = {}
        self._closed = asyncio.Event()

    @property
    def pid(self) -> int:
        """Its process id; that of this process for a worker in a thread."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return not self._closed.is_set() and not self._process.exited.done()

    @property
    def is_idle(self) -> bool:
        """Whether nothing that it was asked for is left."""
        return self._answer is None or self._answer.done()

    async def open(self, sock: socket.socket, raw_start: int) -> None:
        """Takes the control socket over."""
        self._raw_start = raw_start
        await self._channel.open(sock)
        self._process.exited.add_done_callback(self._on_exit)
        self._channel.send(
            StartBatchWorker(
                job_folder=self._place.job_folder,
                working_directory=str(self.directory),
                forward_logs=self._place.forward_logs,
            )
        )

    async def ask(
        self,
        work: ToBatchWorker,
        *,
        task: tuple[ExecutionAttemptID, SubtaskName] | None = None,
        on_progress: OnProgress = lambda progress: None,
        take: TakeToMaster | None = None,
    ) -> Answer:
        """Lets the worker do something, and returns its answer. Raises WorkFailedError, and what `take` raises.

        A caller that gives up leaves the worker at work: `settle` it.
        """
        assert self.is_idle, "a worker does one thing at a time"
        self._answer = answer = asyncio.get_running_loop().create_future()
        self._asked += 1
        self._on_progress, self._take, self._refusal = on_progress, take, None
        self._tasks = {} if task is None else {task[0]: task[1]}
        if not self.is_alive:
            self._lose()
        else:
            self._channel.send(work)
        found: Answer = await asyncio.shield(answer)
        if self._refusal is not None:
            raise self._refusal
        if isinstance(found, WorkFailed):
            raise WorkFailedError(found.cause, is_lost=not self.is_alive)
        return found

    def send_shares(self, shares: dict[OperatorID, RateLimit]) -> None:
        """Gives the present task other shares of rate limits; a worker that has died hears nothing."""
        if self.is_alive:
            self._channel.send(TakeShares(shares=shares))

    async def settle(self, seconds: float) -> None:
        """Ends what the worker does, by force after so many seconds; returns when it does nothing any more."""
        if self.is_idle:
            return
        assert self._answer is not None
        self._channel.send(CancelWork(number=self._asked))
        done, _ = await asyncio.wait([self._answer], timeout=seconds)
        if not done:
            await self.end(0)

    async def end(self, seconds: float = _END_SECONDS) -> None:
        """Ends the worker, by force after so many seconds; returns when it has ended."""
        if not self._process.exited.done():
            self._channel.send(EndBatchWorker())
            if seconds:
                await asyncio.wait([self._process.exited], timeout=seconds)
            if not self._process.exited.done():
                self._process.kill()
            await asyncio.wait([self._process.exited])
        self._channel.close()
        await self._closed.wait()
        for task in self._takes:
            task.cancel()

    # ------------------------------------------------------------------ messages

    def _on_message(self, message: MessageFromBatchWorker) -> None:
        match message:
            case OutputLines() | LogLines() | UserLogRecord():
                self._files.write(message)
            case AttemptProgress() | AttemptKeyGroups():
                self._on_progress(message)
            case TakeResult():
                task = asyncio.get_running_loop().create_task(self._pass_on(message))
                self._takes.add(task)
                task.add_done_callback(self._takes.discard)
            case _:
                self._settle_with(message)

    async def _pass_on(self, result: TakeResult) -> None:
        assert self._take is not None, "only the sending of results brings results"
        try:
            await self._take(result)
        except Exception as error:
            # The worker waits for the master: it has nothing to do when it has answered, not before.
            self._refusal = error
            self._channel.send(CancelWork(number=self._asked))
            return
        self._channel.send(ResultTaken())

    def _settle_with(self, answer: Answer) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def _on_exit(self, exited: asyncio.Future[WorkerExit]) -> None:
        if not self._closed.is_set():
            # Its last messages may still be in the socket; a child of the user's may hold a copy of that.
            asyncio.get_running_loop().call_later(_DRAIN_SECONDS, self._channel.close)

    def _on_closed(self, error: FrameError | None) -> None:
        if error is not None:
            _log.error("the connection to worker %s broke: %s", self._name, error)
        self._closed.set()
        if self._process.exited.done():
            self._lose()
        else:
            self._process.exited.add_done_callback(lambda exited: self._lose())
            asyncio.get_running_loop().call_later(_END_SECONDS, self._process.kill)

    def _lose(self) -> None:
        """Fails the present work: the worker has died."""
        if self._answer is None or self._answer.done():
            return
        end = self._process.exited.result() if self._process.exited.done() else WorkerExit()
        tail = read_tail(self._raw_path, self._raw_start)
        call = last_call(self.directory, tail)
        self._answer.set_result(
            WorkFailed(cause=lost_worker_cause(self._place.slot, end, self._tasks, call, tail))
        )


class LocalWorkers:
    """The workers of one driver."""

    def __init__(self, launcher: WorkerLauncher, files: OutputFiles, place: WorkerPlace) -> None:
        self._launcher = launcher
        self._files = files
        self._place = place
        self._started = 0
        self._workers: list[LocalWorker] = []

    @property
    def processes(self) -> list[int]:
        """Process ids of the living workers."""
        return [worker.pid for worker in self._workers if worker.is_alive]

    async def start(self) -> LocalWorker:
        """Launches one more. Raises WorkerStartError and OSError."""
        self._started += 1
        place, name = self._place, f"b{self._started}"
        (place.folder / name).mkdir(mode=0o700)
        raw = self._files.open_raw(raw_path(self._files, place.slot, name))
        try:
            raw_start = os.fstat(raw).st_size
            # The launcher is that of all jobs here, so the whole path names a worker.
            worker_id = WorkerID(str(place.folder / name))
            process, sock = await self._launcher.launch(worker_id, f"yarrow-batch-{place.slot}", raw)
        finally:
            os.close(raw)
        worker = LocalWorker(name, process, place, self._files)
        self._workers.append(worker)
        await worker.open(sock, raw_start)
        return worker

    async def settle(self, seconds: float) -> None:
        """Ends what all workers do, by force after so many seconds."""
        await asyncio.gather(*(worker.settle(seconds) for worker in self._workers))

    async def idle_one(self) -> LocalWorker:
        """A worker that lives and has nothing to do; a new one if there is none."""
        for worker in self._workers:
            if worker.is_alive and worker.is_idle:
                return worker
        return await self.start()

    async def close(self, seconds: float = _END_SECONDS) -> None:
        """Ends all; returns when no process of theirs is left."""
        await asyncio.gather(*(worker.end(seconds) for worker in self._workers))
        folders = [worker.directory for worker in self._workers]
        self._workers.clear()
        await asyncio.to_thread(_remove, folders)


def raw_path(files: OutputFiles, slot: int, name: str) -> Path:
    """The file for what a worker writes past Python."""
    path = files.raw_path(slot)
    return path.with_name(f"{path.stem}-{name}{path.suffix}")


def _remove(folders: list[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
