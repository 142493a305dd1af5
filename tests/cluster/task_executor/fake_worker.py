"""A worker that plays tasks instead of running them: each behaves as the name of its vertex says.

Used as the main of real worker processes and, in a thread, of in-process workers.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import threading
from pathlib import Path
from typing import NoReturn

import msgspec

from yarrow.container.protocol.framing import FramedSocket
from yarrow.container.protocol.worker_protocol import (
    BeginCheckpoint,
    CancelTasks,
    CheckpointAcknowledged,
    CheckpointNotification,
    CollectCredit,
    CoordinatorAcknowledged,
    CurrentUserCall,
    DeliverOperatorEvent,
    EmitCollectRows,
    EmitOperatorEvent,
    EndOfDataReached,
    MessageToWorker,
    MetricsReport,
    OutputLines,
    RequestThreadDump,
    ResetReader,
    StartWorker,
    StopWorker,
    SubmitTasks,
    TaskStateChanged,
    ThreadDump,
    WorkerFailed,
    WorkerReady,
)
from yarrow.container.worker.current_call import CurrentCallWriter
from yarrow.runtime.common.ids import ExecutionAttemptID, JobID
from yarrow.runtime.graph.job_graph import JobVertex, decode_job_graph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import (
    AcknowledgeCheckpoint,
    AcknowledgeCoordinator,
    CheckpointMetrics,
    CollectRows,
    FailureCause,
    TaskExecutionStateUpdate,
    TaskMetrics,
    TriggerCheckpoint,
    WorkerAddress,
)
from yarrow.runtime.snapshot.handles import InlineStateHandle

PRINTED_LINES = 2000
#: Where it would take data from other hosts.
DATA_PORT = 41001
#: As launchers name the main of workers.
ENTRY = f"{__name__}:run_worker"


class PlayedWorker:
    """One worker."""

    def __init__(self, sock: socket.socket, in_thread: bool) -> None:
        self._framed: FramedSocket[MessageToWorker] = FramedSocket(
            sock, msgspec.msgpack.Decoder(MessageToWorker)
        )
        self._in_thread = in_thread
        self._tasks: dict[ExecutionAttemptID, str] = {}
        self._calls: CurrentCallWriter | None = None

    def run(self) -> int:
        """Serves until told to stop."""
        while True:
            message = self._framed.receive()
            if message is None:
                if self._in_thread:
                    return 0
                os._exit(0)
            if isinstance(message, StopWorker):
                for attempt in list(self._tasks):
                    self._end(attempt, ExecutionState.CANCELED)
                return 0
            self._handle(message)

    def _handle(self, message: MessageToWorker) -> None:
        match message:
            case StartWorker():
                self._start(message)
            case SubmitTasks():
                self._submit(message)
            case CancelTasks():
                for attempt in message.attempts:
                    if self._tasks.get(attempt) != "stuck":
                        self._end(attempt, ExecutionState.CANCELED)
            case RequestThreadDump():
                self._framed.send(ThreadDump(threads=(("task thread", "at rest"),)))
            case DeliverOperatorEvent():
                self._framed.send(EmitOperatorEvent(event=message.event))
            case BeginCheckpoint():
                self._checkpoint(message.trigger)
            case CheckpointNotification():
                self._print(f"checkpoint {message.notification.checkpoint_id} {message.notification.notice}")
            case ResetReader():
                self._print(f"reader {message.reset.subtask} goes back to {message.reset.checkpoint_id}")
            case CollectCredit():
                self._end(next(iter(self._tasks)), ExecutionState.FINISHED)

    def _checkpoint(self, trigger: TriggerCheckpoint) -> None:
        for operator in trigger.coordinators:
            coordinator = AcknowledgeCoordinator(
                job_id=trigger.job_id,
                checkpoint_id=trigger.checkpoint_id,
                operator_id=operator,
                state=InlineStateHandle(data=b"splits"),
            )
            self._framed.send(CoordinatorAcknowledged(acknowledgement=coordinator))
        for attempt in trigger.attempts:
            acknowledgement = AcknowledgeCheckpoint(
                job_id=trigger.job_id,
                checkpoint_id=trigger.checkpoint_id,
                attempt_id=attempt,
                states={},
                metrics=CheckpointMetrics(),
            )
            self._framed.send(CheckpointAcknowledged(acknowledgement=acknowledgement))
            self._framed.send(EndOfDataReached(job_id=trigger.job_id, attempt_id=attempt))

    def _start(self, message: StartWorker) -> None:
        settings = message.settings
        if settings.configuration.get("test.start") == "fail":
            cause = FailureCause(exception_name="E", message="no module named 'x'", stacktrace="E: no x")
            self._framed.send(WorkerFailed(cause=cause))
            return
        if settings.configuration.get("test.start") == "die":
            os._exit(9)
        self._calls = CurrentCallWriter(Path(settings.working_directory))
        address = WorkerAddress(
            worker_id=settings.worker_id,
            resource_id=settings.resource_id,  # type: ignore[arg-type]
            host=settings.host,
            port=DATA_PORT if settings.listen_tcp else 0,
            unix_path=f"{settings.working_directory}/data",
            host_key=settings.host_key,
        )
        self._framed.send(WorkerReady(address=address, pid=os.getpid()))

    def _submit(self, message: SubmitTasks) -> None:
        deployment = message.deployment
        graph = decode_job_graph(deployment.job_graph)
        for path in message.file_paths.values():
            self._print(f"file {Path(path).read_text()}")
        for task in deployment.tasks:
            vertex = graph.vertex(task.vertex_id)
            self._tasks[task.attempt_id] = vertex.name
            self._state(task.attempt_id, ExecutionState.RUNNING)
            self._play(deployment.job_id, vertex, task.attempt_id)

    def _play(self, job_id: JobID, vertex: JobVertex, attempt: ExecutionAttemptID) -> None:
        match vertex.name:
            case "finish":
                self._end(attempt, ExecutionState.FINISHED)
            case "print":
                for number in range(PRINTED_LINES):
                    self._print(f"line {number} of {attempt}")
                self._end(attempt, ExecutionState.FINISHED)
            case "metrics":
                tasks = (TaskMetrics(attempt_id=attempt, values={"numRecordsIn": 3.0}),)
                process = {"arrow": 5.0}
                self._framed.send(
                    MetricsReport(tasks=tasks, accumulators={attempt: {"count": 1}}, process=process)
                )
            case "collect":
                rows = CollectRows(
                    job_id=job_id,
                    collect_id="c",
                    subtask=0,
                    sequence=1,
                    payload=b"rows",
                    row_count=1,
                    last=True,
                )
                self._framed.send(EmitCollectRows(rows=rows))
            case "segfault" | "sys.exit":
                self._crash(vertex, attempt)

    def _crash(self, vertex: JobVertex, attempt: ExecutionAttemptID) -> NoReturn:
        operator = vertex.operators[0]
        call = CurrentUserCall(attempt_id=attempt, operator_id=operator.id, operator_name=operator.name)
        assert self._calls is not None
        self._calls.running[0] = self._calls.define(call)
        if vertex.name == "segfault":
            ctypes.string_at(0)
        sys.exit(5)

    def _print(self, line: str) -> None:
        self._framed.send(OutputLines(stream="stdout", text=line + "\n"))

    def _end(self, attempt: ExecutionAttemptID, state: ExecutionState) -> None:
        if self._tasks.pop(attempt, None) is not None:
            self._state(attempt, state)

    def _state(self, attempt: ExecutionAttemptID, state: ExecutionState) -> None:
        self._framed.send(
            TaskStateChanged(update=TaskExecutionStateUpdate(attempt_id=attempt, state=state, timestamp_ms=1))
        )


def run_worker(sock: socket.socket) -> int:
    """Main of a worker process."""
    return PlayedWorker(sock, in_thread=False).run()


class PlayedThread(threading.Thread):
    """The same in a thread."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(name="played worker", daemon=True)
        self._sock = sock

    def run(self) -> None:
        with self._sock:
            PlayedWorker(self._sock, in_thread=True).run()
