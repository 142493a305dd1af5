"""BatchWorker: a worker that runs tasks of one bounded job, one after the other, as its driver asks.

Owner: the worker's main thread works; the control thread reads the driver's messages. User code runs here alone:
functions, split enumerators and committers. Must not know other workers: tasks exchange rows by files.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import socket
import sys
import threading
from collections.abc import Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, cast

import msgspec

from yarrow.common.values.rate_limit import RateLimit
from yarrow.container.batch.batch_task import BatchAttempt, BatchTask
from yarrow.container.batch.chunk import FINISHED, Chunk, decode_task_result
from yarrow.container.batch.commits import commit, remove_leftovers, sinks_of
from yarrow.container.batch.driver.run_results import RunResults, joined
from yarrow.container.batch.driver.shared_job import SharedJob, read_shared_job
from yarrow.container.batch.driver.task_messages import (
    AttemptEnded,
    AttemptKeyGroups,
    AttemptProgress,
    ResultChunk,
)
from yarrow.container.batch.full_disks import failure_of_task
from yarrow.container.batch.largest_key_group import LargestKeyGroup
from yarrow.container.batch.local.exchange_files import RESULTS, ExchangeWriter, read_chunks
from yarrow.container.batch.local.local_protocol import (
    Answer,
    AssignSplits,
    CancelWork,
    CommitResults,
    EndBatchWorker,
    FinishedOutput,
    MessageToBatchWorker,
    RemoveLeftovers,
    ResultsSent,
    ResultTaken,
    RunTask,
    SendResults,
    SplitsAssigned,
    TakeResult,
    TakeShares,
    WorkDone,
    WorkFailed,
)
from yarrow.container.batch.split_assignment import assign
from yarrow.container.codegen.code_writer import CompiledCode
from yarrow.container.protocol.errors import FrameError
from yarrow.container.protocol.framing import FramedSocket
from yarrow.container.protocol.worker_protocol import CurrentUserCall, StartBatchWorker
from yarrow.container.worker.cached_files import with_cached_files
from yarrow.container.worker.current_call import ChainLines, CurrentCallWriter
from yarrow.container.worker.fault_plans import install_fault_plan
from yarrow.container.worker.job_code import install_user_code
from yarrow.container.worker.last_words import LastWords
from yarrow.container.worker.present_call import RunningCode
from yarrow.container.worker.user_logs import use_client_levels
from yarrow.container.worker.worker_words import noted
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import OperatorID, execution_attempt_id
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.hdfs_settings import HdfsSettings, use_hdfs_settings
from yarrow.runtime.graph.batch.batch_plan import BatchPlan, BatchStage, decode_batch_plan
from yarrow.runtime.graph.job_graph import JobGraph, decode_job_graph
from yarrow.runtime.rpc.batch_gateways import BatchJobMasterGateway
from yarrow.runtime.rpc.messages import (
    BatchCommittables,
    BatchOutput,
    BatchSubtaskResult,
    CollectRows,
    StoredCommittables,
)

_log = logging.getLogger(__name__)
#: Seconds between two reports of progress.
_REPORT_SECONDS: Final = 1.0
_DECODER: Final[msgspec.msgpack.Decoder[MessageToBatchWorker]] = msgspec.msgpack.Decoder(MessageToBatchWorker)


class WorkCancelledError(YarrowError):
    """The driver does not need the present work any more."""


class WorkerOutput(Protocol):
    """What user code prints and logs in this worker."""

    def end_lines(self) -> None:
        """Completes unfinished lines, and hands everything on."""
        ...


class _Job(NamedTuple):
    shared: SharedJob
    graph: JobGraph
    plan: BatchPlan
    settings: Settings


class BatchWorker:
    """One worker; `run` is its main after the first message."""

    def __init__(
        self, sock: socket.socket, start: StartBatchWorker, output: WorkerOutput, *, own_process: bool
    ) -> None:
        """`own_process`: False for a worker in a thread, whose `__main__` is the client's."""
        self._control: FramedSocket[MessageToBatchWorker] = FramedSocket(sock, _DECODER)
        self._start = start
        self._output = output
        self._own_process = own_process
        self._wanted: queue.SimpleQueue[MessageToBatchWorker] = queue.SimpleQueue()
        self._taken: queue.SimpleQueue[None] = queue.SimpleQueue()
        #: The work that was cancelled last, and the present one; counted from 1.
        self._cancelled = 0
        self._present = 0
        #: The latest shares of rate limits for the present task, as the driver has sent them.
        self._shares: dict[OperatorID, RateLimit] = {}
        self._clock = SystemClock()
        self._job: _Job | None = None
        self._results: RunResults | None = None
        self._calls = CurrentCallWriter(Path(start.working_directory)) if own_process else None

    def run(self) -> int:
        """Serves until told to end; the exit status."""
        threading.Thread(target=self._read_control, name="yarrow-control", daemon=True).start()
        while not isinstance(wanted := self._wanted.get(), EndBatchWorker):
            self._work(wanted)
        self._output.end_lines()
        self._control.close()
        return 0

    # ------------------------------------------------------------------ control thread

    def _read_control(self) -> None:
        while True:
            try:
                message = self._control.receive()
            except (FrameError, OSError) as error:
                _log.error("the connection to the driver of the job broke: %s", error)
                message = None
            if message is None:
                if self._own_process:
                    os._exit(1)
                self._cancel(sys.maxsize)
                message = EndBatchWorker()
            if isinstance(message, CancelWork):
                self._cancel(message.number)
            elif isinstance(message, ResultTaken):
                self._taken.put(None)
            elif isinstance(message, TakeShares):
                self._shares = message.shares
            else:
                if isinstance(message, RunTask):
                    self._shares = message.shares
                self._wanted.put(message)
                if isinstance(message, EndBatchWorker):
                    return

    def _cancel(self, number: int) -> None:
        self._cancelled = number
        # It may wait for the master.
        self._taken.put(None)

    # ------------------------------------------------------------------ main thread

    def _work(self, wanted: MessageToBatchWorker) -> None:
        where = "a worker of batch mode"
        self._present += 1
        try:
            job = self._loaded()
            if isinstance(wanted, RunTask):
                stage = job.plan.stages[wanted.stage]
                where = f"task '{stage.name}' (subtask {wanted.subtask + 1}/{stage.parallelism})"
            answer = self._answer(job, wanted)
        except BaseException as error:  # also SystemExit of user code
            answer = WorkFailed(cause=failure_of_task(error, where))
        self._output.end_lines()
        with contextlib.suppress(OSError):  # the driver is gone: the control thread ends this worker
            self._control.send(answer)

    def _answer(self, job: _Job, wanted: MessageToBatchWorker) -> Answer:
        self._check()
        match wanted:
            case AssignSplits(vertices=vertices):
                return SplitsAssigned(
                    splits={
                        vertex: assign(job.graph, vertex, job.plan.stage(vertex).parallelism)
                        for vertex in vertices
                    }
                )
            case RunTask():
                return self._run_task(job, wanted)
            case SendResults():
                return self._send_results(job, wanted)
            case CommitResults(stored=stored):
                self._commit(job, stored)
            case RemoveLeftovers():
                self._remove_leftovers(job)
        return WorkDone()

    def _loaded(self) -> _Job:
        """The job, whose user code is installed once."""
        if self._job is None:
            shared = read_shared_job(self._start.job_folder)
            graph = decode_job_graph(shared.job_graph)
            if self._start.forward_logs:
                use_client_levels(graph.client_log_levels)
            install_user_code(graph, shared.file_paths, own_main=self._own_process)
            graph = with_cached_files(graph, shared.file_paths)
            cluster = Settings(shared.configuration, "the cluster")
            if self._own_process:
                use_hdfs_settings(HdfsSettings.of(cluster))
            settings = cluster.overlay(graph.configuration, "the job")
            install_fault_plan(settings)
            self._job = _Job(shared, graph, decode_batch_plan(shared.plan), settings)
        return self._job

    def _check(self) -> None:
        """Raises WorkCancelledError if the driver does not need the present work any more."""
        if self._cancelled >= self._present:
            raise WorkCancelledError("the driver has cancelled this work")

    # ------------------------------------------------------------------ tasks

    def _run_task(self, job: _Job, wanted: RunTask) -> AttemptEnded:
        shared, stage = job.shared, job.plan.stages[wanted.stage]
        counts = _Counts(self._control, self._clock)
        attempt = BatchAttempt(
            vertex_id=stage.vertex_id,
            subtask=wanted.subtask,
            splits=wanted.splits,
            result_key=shared.result_key,
        )
        folder = Path(shared.task_folder)
        task = BatchTask(
            job.graph, job.plan, attempt, job.settings, self._clock, folder, self._tell_key_groups
        )
        inputs = counts.counted_in(_inputs(stage, wanted))
        known: dict[OperatorID, RateLimit] | None = None

        def on_step() -> None:
            nonlocal known
            self._check()
            if (shares := self._shares) is not known:
                known = shares
                task.take_shares(shares)

        with self._noted(job, task, attempt), ExchangeWriter(Path(wanted.output), job.plan, stage) as output:
            for chunk in task.run(inputs, on_step=on_step):
                output.add(chunk)
                counts.count_out(chunk)
        return AttemptEnded(records_in=counts.records_in, records_out=counts.records_out)

    def _tell_key_groups(self, largest: LargestKeyGroup) -> None:
        self._control.send(AttemptKeyGroups(largest=largest))

    @contextlib.contextmanager
    def _noted(self, job: _Job, task: BatchTask, attempt: BatchAttempt) -> Iterator[None]:
        """Notes on the page that outlives a crash which chain runs, and what its generated code is."""
        calls = self._calls
        if calls is None:
            yield
            return
        vertex = job.graph.vertex(attempt.vertex_id)
        attempt_id = execution_attempt_id(job.graph.job_id, vertex.id, attempt.subtask, attempt.attempt)
        operators = tuple((operator.id, operator.name) for operator in vertex.operators)
        running = RunningCode()

        def compiled(code: CompiledCode) -> None:
            running.compiled(code, [operator.name for operator in vertex.operators], attempt_id)
            calls.define_chain(
                ChainLines(
                    attempt_id=attempt_id,
                    file_name=code.file_name,
                    operators=operators,
                    lines=tuple(code.owner_lines),
                )
            )

        task.note_code(compiled)
        calls.running[0] = calls.define(
            CurrentUserCall(
                attempt_id=attempt_id, operator_id=vertex.operators[0].id, operator_name=vertex.name
            )
        )
        try:
            with LastWords(running, lambda call, end: noted(calls, call, end, attempt_id)):
                yield
        finally:
            calls.running[0] = 0
            # Else a worker that dies before its next task would blame this one.
            calls.note_last(None)

    # ------------------------------------------------------------------ results and commits

    def _send_results(self, job: _Job, wanted: SendResults) -> ResultsSent:
        master = cast(BatchJobMasterGateway, _MasterBehindDriver(self))
        self._results = results = RunResults(
            job.shared.run, job.graph, job.plan, master, _wait_for, wanted.part_bytes
        )
        reading = results.begin()
        for chunk in _results_in(wanted.outputs):
            reading.take(chunk)
        results.flush()
        return ResultsSent(commits=bool(results.committables))

    def hand_over(self, result: TakeResult) -> None:
        """Sends a result, and returns when the master has taken it. Raises WorkCancelledError."""
        self._control.send(result)
        self._taken.get()
        self._check()

    def _commit(self, job: _Job, stored: bytes) -> None:
        """Commits each sink's committables, in order of its subtasks. Raises CommitFailedError and OperatorFailure."""
        if stored:
            messages = list(msgspec.msgpack.decode(stored, type=StoredCommittables).messages)
        else:
            assert self._results is not None, "the worker that has sent the results commits them"
            messages = self._results.committables
        for sink in sinks_of(job.graph):
            operator_id = job.graph.vertex(sink.vertex_id).operators[sink.operator].id
            payloads = joined(each for each in messages if each.operator_id == operator_id)
            commit(job.graph, sink, payloads, job.settings, self._clock)

    def _remove_leftovers(self, job: _Job) -> None:
        """What cannot be ended is left, and told in the log."""
        for sink in sinks_of(job.graph):
            folder = Path(job.shared.task_folder) / "sinks"
            try:
                remove_leftovers(job.graph, sink, job.settings, self._clock, folder)
            except Exception:
                _log.exception("what attempts of a sink have begun is left as it is")


class _Counts:
    """Records of the present task, told about once a second."""

    def __init__(self, control: FramedSocket[MessageToBatchWorker], clock: SystemClock) -> None:
        self._control = control
        self._clock = clock
        self._due = clock.monotonic() + _REPORT_SECONDS
        self.records_in = 0
        self.records_out = 0

    def counted_in(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """The same chunks, counted."""
        for chunk in chunks:
            self.records_in += chunk.rows
            self._tell()
            yield chunk

    def count_out(self, chunk: Chunk) -> None:
        """Counts a chunk that leaves the task; the last one says how many there were."""
        if chunk.edge >= 0:
            self.records_out += chunk.rows
        elif chunk.edge == FINISHED:
            result = decode_task_result(chunk.payload)
            self.records_in, self.records_out = result.records_in, result.records_out
        self._tell()

    def _tell(self) -> None:
        now = self._clock.monotonic()
        if now >= self._due:
            self._due = now + _REPORT_SECONDS
            self._control.send(AttemptProgress(records_in=self.records_in, records_out=self.records_out))


class _MasterBehindDriver:
    """The BatchJobMaster as RunResults calls it: each result goes to the driver, which passes it on."""

    def __init__(self, worker: BatchWorker) -> None:
        self._worker = worker

    async def push_collected(self, rows: CollectRows) -> None:
        self._worker.hand_over(TakeResult(rows=rows))

    async def push_output(self, output: BatchOutput) -> None:
        self._worker.hand_over(TakeResult(output=output))

    async def store_committables(self, committables: BatchCommittables) -> None:
        self._worker.hand_over(TakeResult(committables=committables))

    async def report_subtasks(self, job_id: str, run: int, subtasks: tuple[BatchSubtaskResult, ...]) -> None:
        self._worker.hand_over(TakeResult(subtasks=subtasks))


def _wait_for(call: Coroutine[Any, Any, Any]) -> Any:
    """Runs a call that blocks instead of waiting for a loop."""
    try:
        call.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("the call waits for a loop")


def _inputs(stage: BatchStage, wanted: RunTask) -> Iterator[Chunk]:
    """The chunks of a task's partition, producer by producer."""
    readers = {(exchange.edge, wanted.subtask) for exchange in stage.inputs}
    for path in wanted.inputs:
        yield from read_chunks(Path(path), readers)


def _results_in(outputs: Iterable[FinishedOutput]) -> Iterator[ResultChunk]:
    """The results of all tasks, in order of stages, subtasks and positions."""
    for output in sorted(outputs, key=lambda each: (each.stage, each.subtask)):
        for chunk in read_chunks(Path(output.path), (RESULTS,)):
            yield ResultChunk(stage=output.stage, attempt=0, **chunk._asdict())


def run_batch_worker(
    sock: socket.socket, start: StartBatchWorker, output: WorkerOutput, own_process: bool
) -> int:
    """The main of a worker whose first message is StartBatchWorker; returns its exit status."""
    return BatchWorker(sock, start, output, own_process=own_process).run()
