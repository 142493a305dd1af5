"""Worker: receives tasks of one slot from its supervisor, runs them, and reports their states.

Owner: several threads. The task thread (a worker process's main thread) builds and runs all tasks but
blocking ones. The control thread reads the supervisor's messages, answers thread dumps and posts the rest.
The I/O thread moves data frames. The snapshot thread reads and writes state. The report thread sends metrics
once a second. The end of the control socket ends the worker, and its process if it has its own: a worker
never outlives its parent.
"""

from __future__ import annotations

import importlib
import logging
import os
import socket
import sys
import threading
from pathlib import Path

import msgspec

from yarrow.container.network.io_thread import IoThread
from yarrow.container.network.network_environment import NetworkEnvironment
from yarrow.container.protocol.errors import FrameError
from yarrow.container.protocol.failure import failure_cause
from yarrow.container.protocol.framing import FramedSocket
from yarrow.container.protocol.worker_protocol import (
    BeginCheckpoint,
    CancelTasks,
    CheckpointNotification,
    CollectCredit,
    DeliverOperatorEvent,
    DeliverWatermarkBounds,
    EventTimes,
    MessageToWorker,
    MetricsReport,
    OutputLines,
    RequestEventTimes,
    RequestThreadDump,
    ResetReader,
    StartBatchWorker,
    StartWorker,
    StopWorker,
    SubmitTasks,
    ThreadDump,
    WorkerFailed,
    WorkerReady,
)
from yarrow.container.task.garbage_collection import GarbageCollection
from yarrow.container.task.task_thread import TaskThread
from yarrow.container.worker.current_call import CurrentCallWriter
from yarrow.container.worker.job_tasks import JobTasks
from yarrow.container.worker.output_capture import CapturedOutput
from yarrow.container.worker.user_logs import ClientLogHandler, LogLinesHandler, use_client_levels
from yarrow.container.worker.worker_metrics import WorkerMetrics
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.hdfs_settings import HdfsSettings, use_hdfs_settings

_log = logging.getLogger(__name__)
#: Made at import: forked workers share it with their template. Built anew it would take 4 ms and 2 MB in each of them.
_DECODER: msgspec.msgpack.Decoder[MessageToWorker] = msgspec.msgpack.Decoder(MessageToWorker)
_REPORT_SECONDS = 1.0
#: `module:function` of the main of a worker that runs tasks of a bounded job.
_BATCH_ENTRY = "yarrow.container.batch.local.batch_worker:run_batch_worker"
#: Seconds that the end of a worker waits for a running write; the job does not know the written files.
_STOP_SECONDS = 1.0
#: Switch interval of the interpreter in seconds: with the default of 5 ms the I/O thread would wait that long
#: for the task thread.
_SWITCH_SECONDS = 0.0005


class Worker:
    """The worker of one slot; `run` is its main."""

    def __init__(self, sock: socket.socket, *, own_process: bool) -> None:
        self._socket = sock
        self._control = FramedSocket(sock, _DECODER)
        self._own_process = own_process
        self._garbage = GarbageCollection() if own_process else None
        self._thread = TaskThread(self._garbage)
        self._io = IoThread()
        self._stopping = threading.Event()
        self._output = CapturedOutput(self._send_output, self._flush_logs)
        #: None in the one-process mode, where the client's handlers already get all records.
        self._logs: logging.Handler | None = None

    # ------------------------------------------------------------------ life

    def run(self) -> int:
        """Serves until told to stop; returns the exit status."""
        first = self._control.receive()
        if first is None:
            return 1
        if isinstance(first, StartBatchWorker):
            return self._run_batch(first)
        if not isinstance(first, StartWorker):
            raise FrameError(f"a worker's first message must be StartWorker, not {type(first).__name__}")
        try:
            self._start(first)
        except Exception as error:
            self._control.send(WorkerFailed(cause=failure_cause(error, "the start of a worker")))
            return 1
        threading.Thread(target=self._read_control, name="yarrow-control", daemon=True).start()
        threading.Thread(target=self._report, name="yarrow-reports", daemon=True).start()
        self._thread.run()
        self._shut_down()
        return 0

    def _run_batch(self, first: StartBatchWorker) -> int:
        """Serves a bounded job instead; its modules are named, because only such workers load them."""
        if self._own_process:
            self._output.install()
            self._handle_logs(first.forward_logs)
        module, _, name = _BATCH_ENTRY.partition(":")
        run = getattr(importlib.import_module(module), name)
        return int(run(self._socket, first, self._output, self._own_process))

    def _start(self, start: StartWorker) -> None:
        settings = start.settings
        config = Settings(settings.configuration, "the TaskExecutor")
        if self._own_process:
            sys.setswitchinterval(_SWITCH_SECONDS)
            self._output.install()
            use_hdfs_settings(HdfsSettings.of(config))
            self._handle_logs(settings.forward_logs)
        calls = CurrentCallWriter(Path(settings.working_directory)) if self._own_process else None
        self._network = NetworkEnvironment(settings, self._io)
        address = self._network.start()
        self._io.start()
        self._jobs = JobTasks(
            settings,
            config,
            self._network,
            self._thread,
            self._control.send,
            self._output,
            calls,
            SystemClock(),
        )
        if self._garbage is not None:
            self._garbage.take_over()
        self._control.send(WorkerReady(address=address, pid=os.getpid()))

    def _handle_logs(self, forward: bool) -> None:
        if forward:
            self._logs = ClientLogHandler(self._control.send, SystemClock())
            use_client_levels({})
        else:
            self._logs = LogLinesHandler(self._control.send)
        logging.getLogger().addHandler(self._logs)

    def _flush_logs(self) -> None:
        if self._logs is not None:
            self._logs.flush()

    def _shut_down(self) -> None:
        self._stopping.set()
        self._jobs.checkpoints.end()
        self._jobs.snapshot_thread.stop(_STOP_SECONDS)
        self._network.stop()
        self._io.stop()
        self._io.join(2)
        self._control.close()

    # ------------------------------------------------------------------ control thread

    def _read_control(self) -> None:
        while True:
            try:
                message = self._control.receive()
            except (FrameError, OSError) as error:
                _log.error("the control connection to the TaskExecutor broke: %s", error)
                message = None
            if message is None:
                self._parent_gone()
                return
            if isinstance(message, StopWorker):
                self._thread.post(self._jobs.cancel_all)
                self._thread.stop()
                return
            self._dispatch(message)

    def _parent_gone(self) -> None:
        if self._own_process:
            os._exit(1)
        self._thread.post(self._jobs.cancel_all)
        self._thread.stop()

    def _dispatch(self, message: MessageToWorker) -> None:
        jobs = self._jobs
        if isinstance(message, SubmitTasks):
            self._thread.post(lambda: jobs.submit(message))
        elif isinstance(message, CancelTasks):
            self._thread.post(lambda: jobs.cancel(message.attempts))
        elif isinstance(message, DeliverOperatorEvent):
            self._thread.post(lambda: jobs.sources.deliver(message.event))
        elif isinstance(message, DeliverWatermarkBounds):
            self._thread.post(lambda: jobs.bound(message.bounds))
        elif isinstance(message, BeginCheckpoint):
            self._thread.post(lambda: jobs.begin_checkpoint(message.trigger))
        elif isinstance(message, CheckpointNotification):
            self._thread.post(lambda: jobs.notify_checkpoint(message.notification))
        elif isinstance(message, ResetReader):
            self._thread.post(lambda: jobs.sources.reset(message.reset))
        elif isinstance(message, CollectCredit):
            self._thread.post(
                lambda: jobs.collect_credit(
                    message.attempt_id, message.collect_id, message.sequence, message.confirmed
                )
            )
        elif isinstance(message, RequestThreadDump):
            # Imported late: most workers are never asked.
            from yarrow.runtime.common.thread_dump import thread_stacks

            self._control.send(ThreadDump(threads=thread_stacks()))
        elif isinstance(message, RequestEventTimes):
            # On this thread: a slow slice of a task must not keep the answer back.
            self._control.send(EventTimes(tasks=jobs.event_times(message.job_id)))

    # ------------------------------------------------------------------ reports

    def _report(self) -> None:
        own = WorkerMetrics(self._garbage, self._jobs.gates)
        while not self._stopping.wait(_REPORT_SECONDS):
            tasks, accumulators = self._jobs.reports()
            try:
                self._flush_logs()
                if not tasks:
                    continue
                self._control.send(
                    MetricsReport(tasks=tasks, accumulators=accumulators, process=own.values())
                )
            except OSError:
                return

    def _send_output(self, stream: str, text: str) -> None:
        self._control.send(OutputLines(stream=stream, text=text))


def run_worker(sock: socket.socket) -> int:
    """The main of a worker process; returns its exit status."""
    return Worker(sock, own_process=True).run()


class WorkerThread(threading.Thread):
    """A worker in the TaskExecutor's process: the one-process mode."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(name="yarrow-worker", daemon=True)
        self._worker = Worker(sock, own_process=False)

    def run(self) -> None:
        self._worker.run()
