"""What a supervisor sends to one worker, and when."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.unit.container.supervisor.conftest import eventually, run, within
from tests.unit.container.supervisor.test_worker_start import start_message
from yarrow.container.launch.worker_launcher import WorkerExit
from yarrow.container.protocol.frame_channel import FrameChannel
from yarrow.container.protocol.worker_protocol import (
    CheckpointNotification,
    MessageFromWorker,
    MessageToWorker,
    StartWorker,
    StopWorker,
    WorkerReady,
)
from yarrow.container.supervisor.worker_handle import WorkerHandle
from yarrow.runtime.common.ids import JobID, ResourceID, WorkerID
from yarrow.runtime.rpc.messages import CheckpointNotice, NotifyCheckpoint, WorkerAddress

NOTIFICATION = CheckpointNotification(
    notification=NotifyCheckpoint(job_id=JobID("0" * 32), checkpoint_id=1, notice=CheckpointNotice.COMPLETED)
)
ADDRESS = WorkerAddress(
    worker_id=WorkerID("te/0"),
    resource_id=ResourceID("te"),
    host="localhost",
    port=0,
    unix_path="",
    host_key="here",
)


class Listener:
    def on_worker_message(self, worker: WorkerHandle, message: MessageFromWorker) -> None:
        raise AssertionError(message)

    def on_worker_ended(self, worker: WorkerHandle, end: WorkerExit) -> None:
        raise AssertionError(end)


class Process:
    """A worker's process that runs until the test ends."""

    pid = 1

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.exited: asyncio.Future[WorkerExit] = loop.create_future()

    def kill(self) -> None:
        raise AssertionError("the worker ends by itself")


def test_a_worker_gets_nothing_before_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rescale gives a job a slot whose worker starts, while a checkpoint is completed."""

    async def body() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        received: list[MessageToWorker] = []
        worker: FrameChannel[MessageToWorker] = FrameChannel(
            MessageToWorker,  # type: ignore[arg-type]  # a union is no class, but decodes like one
            received.append,
            lambda _: None,
        )
        await worker.open(theirs)
        handle = WorkerHandle(WorkerID("te/0"), 0, Process(loop), Listener(), loop)
        open_ = FrameChannel.open

        async def opened(channel: FrameChannel[MessageFromWorker], sock: socket.socket) -> None:
            await open_(channel, sock)
            handle.send(NOTIFICATION)
            assert await handle.thread_dump() == ()
            assert await handle.event_times(JobID("0" * 32)) == ()

        monkeypatch.setattr(FrameChannel, "open", opened)
        starting = asyncio.ensure_future(handle.start(ours, start_message().settings))
        await eventually(lambda: bool(received), "the worker has its first message")
        worker.send(WorkerReady(address=ADDRESS, pid=1))
        await within(starting)
        handle.send(NOTIFICATION)
        handle.stop("done", 60)
        await eventually(lambda: len(received) >= 3, "the worker has three messages")
        assert [type(message) for message in received] == [StartWorker, CheckpointNotification, StopWorker]
        worker.close()

    run(body())
