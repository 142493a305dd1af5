"""StageFunction: what Spark calls in its Python processes: a task of a stage, from rows to rows.

Owner: the only thread of a Python process of Spark. Spark pickles these objects, which hold names alone: user code
comes with the SharedJob, as it comes to a worker. A failure goes to the driver first, because Spark would put its
own text around it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark import TaskContext

from yarrow.container.batch.batch_task import BatchAttempt, BatchTask
from yarrow.container.batch.chunk import FINISHED, Chunk, decode_task_result, numbers_column
from yarrow.container.batch.driver.shared_job import SharedJob
from yarrow.container.batch.driver.task_messages import (
    AttemptFailed,
    AttemptStarted,
    ResultChunk,
    ResultsEnded,
    ResultsStarted,
)
from yarrow.container.batch.full_disks import executor_disks, failure_of_task
from yarrow.container.batch.iteration_rounds import Superstep
from yarrow.container.batch.spark.tasks.driver_address import DriverAddress
from yarrow.container.batch.spark.tasks.executor_tokens import follow_tokens
from yarrow.container.batch.spark.tasks.stage_rows import RowWriter, divide, first_partition
from yarrow.container.batch.spark.tasks.task_reports import TaskReports
from yarrow.container.batch.spark.tasks.waiting_results import WaitingResults
from yarrow.container.worker.cached_files import with_cached_files
from yarrow.container.worker.fault_plans import install_fault_plan
from yarrow.container.worker.job_code import install_user_code
from yarrow.container.worker.last_words import LastWords
from yarrow.container.worker.present_call import RunningCode
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.config.options import execution
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.hdfs_settings import HdfsSettings, use_hdfs_settings
from yarrow.runtime.graph.batch.batch_plan import BatchPlan, decode_batch_plan
from yarrow.runtime.graph.job_graph import JobGraph, decode_job_graph

#: Most bytes of results of earlier stages in memory.
_WAITING_BYTES: Final = 16 << 20
#: Seconds between two questions for shares of rate limits.
_SHARE_SECONDS: Final = 1.0


class TaskFailedError(Exception):
    """Ends a task in Spark; its cause has gone to the driver."""


class InputLostError(Exception):
    """Spark gives an attempt no more input: another one was faster, or the run ends. This is no failure of the task."""


class _LoadedJob(NamedTuple):
    shared: SharedJob
    graph: JobGraph
    plan: BatchPlan
    settings: Settings


@cache
def _graph_of(encoded: bytes, files: tuple[tuple[str, str], ...]) -> JobGraph:
    """The graph, with its user code made loadable; once for all runs of a job."""
    graph = decode_job_graph(encoded)
    install_user_code(graph, dict(files), own_main=True)
    return with_cached_files(graph, dict(files))


@cache
def _load(driver: DriverAddress) -> _LoadedJob:
    """The run of that driver."""
    follow_tokens(driver)
    shared = driver.load()
    cluster = Settings(shared.configuration, "the cluster")
    use_hdfs_settings(HdfsSettings.of(cluster))
    graph = _graph_of(shared.job_graph, tuple(sorted(shared.file_paths.items())))
    settings = cluster.overlay(graph.configuration, "the job")
    install_fault_plan(settings)
    return _LoadedJob(shared, graph, decode_batch_plan(shared.plan), settings)


class StageFunction:
    """The task of one stage, for Spark's mapInArrow."""

    #: Whether the task runs to its end before its first row leaves.
    _ends_first = False

    def __init__(self, driver: DriverAddress, position: int, superstep: Superstep | None = None) -> None:
        """`driver` is that of the run; `position` is that of the stage in the plan.

        `superstep`: that of a stage in the body of an iteration.
        """
        self._driver = driver
        self._position = position
        self._superstep = superstep

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs the attempt whose rows these are."""
        subtask, arriving = self._placed(filter(len, _from_spark(batches)))
        reports = TaskReports(self._driver)
        try:
            yield from self._attempt(subtask, arriving, reports)
        finally:
            reports.close()

    def _placed(self, arriving: Iterator[pa.RecordBatch]) -> tuple[int, Iterator[pa.RecordBatch]]:
        """The subtask, and all of its batches."""
        first = next(arriving)
        if "partition" in first.schema.names:
            return first_partition(first), _chain(first, arriving)
        # Spark ends a process that has not read its input to the end, and starts the next task in a new one.
        for _ in arriving:
            pass
        return first.column(0)[0].as_py(), iter(())

    def _attempt(
        self, subtask: int, arriving: Iterator[pa.RecordBatch], reports: TaskReports
    ) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        attempt = context.attemptNumber()
        where = "the start of a task of batch mode"
        try:
            job = _load(self._driver)
            stage = job.plan.stages[self._position]
            where = f"task '{stage.name}' (subtask {subtask + 1}/{stage.parallelism})"
            if self._superstep is not None:
                where += f", superstep {self._superstep.number}"
            reports.send(
                AttemptStarted(
                    run=job.shared.run,
                    stage=self._position,
                    subtask=subtask,
                    attempt=attempt,
                    pid=os.getpid(),
                    superstep=self._superstep.number if self._superstep is not None else 0,
                    task_id=context.taskAttemptId(),
                    disks=executor_disks() if self._driver.is_elsewhere else "",
                )
            )
            attempts = _AttemptRows(job, self._position, (subtask, attempt), reports, self._superstep)
            rows = attempts.rows(arriving)
            if self._ends_first:
                held = attempts.held(rows)
                reports.ended()
                yield from held
            else:
                yield from rows
                reports.ended()
        except (GeneratorExit, InputLostError):
            raise
        except BaseException as error:  # also SystemExit of user code
            cause = failure_of_task(error, where)
            try:
                reports.send(AttemptFailed(cause=cause))
            except OSError:
                raise TaskFailedError(f"{where}, whose driver does not listen: {cause.stacktrace}") from None
            raise TaskFailedError(where) from None


def _from_spark(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The input; tells errors of the connection to Spark, or of the task before, from those of the task."""
    try:
        yield from batches
    except Exception as error:
        raise InputLostError("the connection to Spark has ended") from error


class SqlStageFunction(StageFunction):
    """The task of a stage whose rows Spark SQL has computed, and perhaps that of the next stage in the same process.

    One ends before the other one begins: a dying process was at work for one of them.
    """

    def __init__(self, driver: DriverAddress, position: int, following: StageFunction | None = None) -> None:
        """`following` reads the rows of the same partition."""
        super().__init__(driver, position)
        self._following = following
        self._ends_first = following is not None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = super().__call__(batches)
        return rows if self._following is None else self._following(rows)

    def _placed(self, arriving: Iterator[pa.RecordBatch]) -> tuple[int, Iterator[pa.RecordBatch]]:
        # Behind the exchange of the aggregates Spark's partitions are those of the stage, also without any row.
        context = TaskContext.get()
        assert context is not None
        return context.partitionId(), arriving


def _chain(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others


class _AttemptRows:
    """The rows that one attempt puts out."""

    def __init__(
        self,
        job: _LoadedJob,
        position: int,
        place: tuple[int, int],
        reports: TaskReports,
        superstep: Superstep | None,
    ) -> None:
        """`place`: subtask and attempt."""
        subtask, attempt = place
        self._job = job
        self._stage = stage = job.plan.stages[position]
        self._writer = RowWriter(job.plan, position, subtask, attempt)
        self._reports = reports
        self._max_bytes = job.settings.get(execution.BATCH_MAX_SIZE).bytes
        splits = job.shared.splits.get(stage.vertex_id)
        self._attempt = BatchAttempt(
            vertex_id=stage.vertex_id,
            subtask=subtask,
            attempt=attempt,
            splits=tuple(splits[subtask]) if splits else (),
            savepoint=job.shared.savepoint,
            result_key=job.shared.result_key,
            superstep=superstep,
        )
        self._budget = min(_WAITING_BYTES, job.settings.get(execution.SORT_MEMORY).bytes)
        #: Results of earlier stages that wait to be passed on.
        self._passing = WaitingResults(Path(job.shared.task_folder), self._budget)

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs the task."""
        job = self._job
        folder = Path(job.shared.task_folder)
        task = BatchTask(
            job.graph, job.plan, self._attempt, job.settings, SystemClock(), folder, self._reports.key_groups
        )
        on_step = self._asking(task)
        if self._stage.sql is not None:
            made = task.run((), batches, on_step)
        else:
            made = task.run(self._chunks(batches), on_step=on_step)
        code = RunningCode()
        names = [operator.name for operator in job.graph.vertex(self._stage.vertex_id).operators]
        task.note_code(lambda compiled: code.compiled(compiled, names))
        with LastWords(code, self._reports.at), contextlib.closing(_generator(made)) as chunks:
            try:
                yield from self._batches(chunks)
            finally:
                self._passing.close()

    def held(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs the task to its end, and gives its rows then."""
        held = WaitingResults(Path(self._job.shared.task_folder), self._budget)
        try:
            for batch in rows:
                held.add(batch)
        except BaseException:
            held.close()
            raise
        return held.take()

    def _asking(self, task: BatchTask) -> Callable[[], None]:
        """Asks for shares of rate limits before the first row, and then once a second, if the task has any."""
        vertex = self._job.graph.vertex(self._stage.vertex_id)
        if not any(operator.spec.takes_rate_limit for operator in vertex.operators):
            return lambda: None
        clock, due = SystemClock(), 0.0

        def on_step() -> None:
            nonlocal due
            now = clock.monotonic()
            if now >= due:
                due = now + _SHARE_SECONDS
                task.take_shares(self._reports.shares())

        return on_step

    def _chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Chunk]:
        """The input of the task."""
        reports = self._reports
        for batch in batches:
            arrived = divide(batch)
            if arrived.results is not None:
                self._passing.add(self._writer.passed_on(arrived.results))
            for chunk in arrived.chunks:
                reports.records_in += chunk.rows
                yield chunk
            reports.progress()

    def _batches(self, chunks: Iterator[Chunk]) -> Iterator[pa.RecordBatch]:
        reports = self._reports
        waiting = list(self._writer.markers())
        size = 0
        for chunk in chunks:
            if waiting and size + len(chunk.payload) > self._max_bytes:
                yield self._writer.batch(waiting)
                waiting, size = [], 0
                yield from self._passing.take()
                reports.progress()
            waiting.append(chunk)
            size += len(chunk.payload)
            if chunk.edge >= 0:
                reports.records_out += chunk.rows
            elif chunk.edge == FINISHED:
                result = decode_task_result(chunk.payload)
                reports.records_in, reports.records_out = result.records_in, result.records_out
        if waiting:
            yield self._writer.batch(waiting)
        yield from self._passing.take()


def _generator(chunks: Iterator[Chunk]) -> Generator[Chunk, None, None]:
    """Chunks as a generator, which can be closed."""
    yield from chunks


class ResultsFunction:
    """The last task of a run: sends all results to the driver, in their order."""

    def __init__(self, driver: DriverAddress, run: int) -> None:
        self._driver = driver
        self._run = run

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Sends them as fast as the driver takes them; puts out their number."""
        context = TaskContext.get()
        assert context is not None
        reports = TaskReports(self._driver)
        count = 0
        try:
            reports.send(ResultsStarted(run=self._run, attempt=context.attemptNumber()))
            for batch in batches:
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    edge, target, producer, sequence, rows, payload, stage, attempt, _ = row
                    reports.send(
                        ResultChunk(
                            stage=stage,
                            attempt=attempt,
                            edge=edge,
                            target=target,
                            producer=producer,
                            sequence=sequence,
                            rows=rows,
                            payload=payload,
                        )
                    )
                count += batch.num_rows
            reports.send(ResultsEnded())
        finally:
            reports.close()
        yield pa.RecordBatch.from_arrays([numbers_column([count], pa.int64())], names=["results"])
