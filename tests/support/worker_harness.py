"""Workers without a control plane: runs a JobGraph on worker processes or threads and gathers what they report.

For tests of the data plane and for profiling; a job runs as in a cluster from the deployment message on. Owner: the
calling thread; one reader thread a worker puts messages into a queue.
"""

from __future__ import annotations

import os
import queue
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

import msgspec

from yarrow.container.protocol.framing import FramedSocket
from yarrow.container.protocol.worker_protocol import (
    CancelTasks,
    CollectCredit,
    DeliverOperatorEvent,
    EmitCollectRows,
    EmitOperatorEvent,
    MessageFromWorker,
    MetricsReport,
    OutputLines,
    StartWorker,
    StopWorker,
    SubmitTasks,
    TaskStateChanged,
    WorkerReady,
    WorkerSettings,
)
from yarrow.container.worker.worker import WorkerThread
from yarrow.runtime.common.clock import SystemClock, perf_counter
from yarrow.runtime.common.ids import AllocationID, JobMasterID, WorkerID
from yarrow.runtime.graph.job_graph import JobGraph, encode_job_graph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import (
    CollectRows,
    Deployment,
    FailureCause,
    TaskDeploymentDescriptor,
    VertexPlacement,
    WorkerAddress,
)
from yarrow.runtime.security.certificates import CertificateAuthority

#: Seconds that a test waits for workers, also on a machine with much else to do.
DEADLINE: Final = 180.0


class JobFailedInHarness(Exception):
    """A task failed; `cause` is what the worker reported first."""

    def __init__(self, cause: FailureCause) -> None:
        super().__init__(cause.stacktrace)
        self.cause = cause


class WorkerHarness:
    """So many workers; subtask i of each vertex runs in worker i modulo their number.

    `processes` False makes them threads of this process; `tcp` has them exchange by TCP with mutual TLS, as workers of
    several TaskExecutors do.
    """

    def __init__(
        self,
        workers: int = 1,
        *,
        processes: bool = True,
        configuration: dict[str, str] | None = None,
        tcp: bool = False,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="yarrow-harness-")
        self._messages: queue.SimpleQueue[tuple[int, MessageFromWorker | None]] = queue.SimpleQueue()
        self._sockets: list[FramedSocket[MessageFromWorker]] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._threads: list[threading.Thread] = []
        self.addresses: list[WorkerAddress] = []
        self.output: list[str] = []
        self.collected: list[CollectRows] = []
        self.metrics: list[tuple[float, MetricsReport]] = []
        self.final_metrics: dict[str, dict[str, float]] = {}
        self._configuration = dict(configuration or {})
        self._authority = CertificateAuthority("harness", SystemClock()) if tcp else None
        if tcp:
            self._configuration["taskmanager.data.transport"] = "tcp"
        for index in range(workers):
            self._start(index, processes)

    def _start(self, index: int, processes: bool) -> None:
        ours, theirs = socket.socketpair()
        if processes:
            command = [
                sys.executable, "-m", "yarrow.container.launch.worker_process",
                "--fd", str(theirs.fileno()), "--parent", str(os.getpid()),
            ]  # fmt: skip
            environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
            process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], start_new_session=True, env=environment
            )
            self._processes.append(process)
            theirs.close()
        else:
            worker = WorkerThread(theirs)
            worker.start()
            self._threads.append(worker)
        framed: FramedSocket[MessageFromWorker] = FramedSocket(
            ours, msgspec.msgpack.Decoder(MessageFromWorker)
        )
        self._sockets.append(framed)
        folder = os.path.join(self._folder.name, str(index))
        os.mkdir(folder, 0o700)
        identity = self._authority.issue(f"worker {index}") if self._authority is not None else None
        settings = WorkerSettings(
            ca_certificate=identity.ca_certificate if identity is not None else b"",
            certificate=identity.certificate if identity is not None else b"",
            private_key=identity.private_key if identity is not None else b"",
            worker_id=WorkerID(f"harness/{index}"),
            resource_id=f"harness-{index}" if self._authority is not None else "harness",
            host="127.0.0.1",
            host_key="harness",
            working_directory=folder,
            configuration=self._configuration,
            data_secret=b"s" * 32,
        )
        framed.send(StartWorker(settings=settings))
        ready = framed.receive()
        assert isinstance(ready, WorkerReady), ready
        self.addresses.append(ready.address)
        reader = threading.Thread(target=self._read, args=(index, framed), daemon=True)
        reader.start()
        self._threads.append(reader)

    def _read(self, index: int, framed: FramedSocket[MessageFromWorker]) -> None:
        while True:
            try:
                message = framed.receive()
            except OSError:
                message = None
            self._messages.put((index, message))
            if message is None:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for framed in self._sockets:
            try:
                framed.send(StopWorker())
            except OSError:
                continue
        for process in self._processes:
            process.wait(120)
        for thread in self._threads:
            thread.join(120)
        for framed in self._sockets:
            framed.close()
        self._folder.cleanup()

    # ------------------------------------------------------------------ jobs

    def deploy(self, graph: JobGraph) -> int:
        """Sends the tasks to the workers; the number of tasks."""
        count = len(self.addresses)
        self._job_id = graph.job_id
        self._placements = placements = tuple(
            VertexPlacement(
                vertex_id=vertex.id,
                graph_id=graph.job_id,
                workers=tuple(i % count for i in range(vertex.parallelism)),
                attempts=(0,) * vertex.parallelism,
            )
            for vertex in graph.vertices
        )
        total = 0
        for index in range(count):
            tasks = tuple(
                TaskDeploymentDescriptor(
                    attempt_id=subtask.attempt_id,
                    vertex_id=placement.vertex_id,
                    subtask=number,
                    attempt_number=0,
                    allocation_id=AllocationID(f"{index:032x}"),
                )
                for placement in placements
                for number, subtask in enumerate(placement.subtasks)
                if subtask.worker == index
            )
            total += len(tasks)
            deployment = Deployment(
                job_id=graph.job_id,
                job_master_id=JobMasterID("0" * 32),
                job_graph=encode_job_graph(graph),
                workers=tuple(self.addresses),
                placements=placements,
                tasks=tasks,
            )
            self._sockets[index].send(SubmitTasks(deployment=deployment))
        return total

    def run(self, graph: JobGraph, timeout: float = DEADLINE) -> float:
        """Runs the job to its end; seconds taken. Raises JobFailedInHarness."""
        started = perf_counter()
        self.deploy(graph)
        self.finish(timeout)
        return perf_counter() - started

    def finish(self, timeout: float = DEADLINE) -> None:
        """Waits until all tasks that were deployed have ended. Raises JobFailedInHarness."""
        left = {subtask.attempt_id for placement in self._placements for subtask in placement.subtasks}
        failure: FailureCause | None = None
        deadline = perf_counter() + timeout
        while left:
            message = self.next_message(deadline)
            if (
                isinstance(message, TaskStateChanged)
                and message.update.state.is_terminal
                and message.update.attempt_id in left
            ):
                left.remove(message.update.attempt_id)
                self.final_metrics[message.update.attempt_id] = message.update.metrics
                if message.update.state is ExecutionState.FAILED and failure is None:
                    failure = message.update.cause
                    self.cancel()
        if failure is not None:
            raise JobFailedInHarness(failure)

    def cancel(self) -> None:
        """Cancels all tasks."""
        attempts = tuple(
            subtask.attempt_id for placement in self._placements for subtask in placement.subtasks
        )
        for framed in self._sockets:
            framed.send(CancelTasks(attempts=attempts))

    def next_message(self, deadline: float) -> MessageFromWorker:
        """The next message, after routing operator events and collected rows; TimeoutError past the deadline."""
        try:
            index, message = self._messages.get(timeout=max(0.0, deadline - perf_counter()))
        except queue.Empty:
            raise TimeoutError("no message from the workers before the deadline") from None
        if message is None:
            raise ConnectionError(f"worker {index} has ended")
        if isinstance(message, EmitOperatorEvent):
            if message.event.job_id != self._job_id:
                return message  # A coordinator spoke while its job, an earlier one, was ending.
            placement = next(p for p in self._placements if p.vertex_id == message.event.vertex_id)
            worker = placement.subtasks[max(0, message.event.target_subtask)].worker
            self._sockets[worker].send(DeliverOperatorEvent(event=message.event))
        elif isinstance(message, EmitCollectRows):
            rows = message.rows
            self.collected.append(rows)
            credit = CollectCredit(
                job_id=rows.job_id,
                attempt_id=rows.attempt_id,
                collect_id=rows.collect_id,
                sequence=rows.sequence,
            )
            self._sockets[index].send(credit)
        elif isinstance(message, OutputLines):
            self.output += message.text.splitlines()
        elif isinstance(message, MetricsReport):
            self.metrics.append((perf_counter(), message))
        return message


def lines(harness: WorkerHarness) -> Sequence[str]:
    """What the job printed, sorted."""
    return sorted(harness.output)
