"""BatchRun: one execution of a job's plan on the driver's Spark, from submission to its end.

Owner: the driver's loop calls it; the Spark job runs in a thread of its own, and connections of tasks have theirs.
The first failure counts: it ends the Spark job at once. Must not end the driver.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.errors import PySparkException

from yarrow.common.values.rate_limit import RateLimit
from yarrow.container.batch.commits import commit, remove_leftovers, sinks_of
from yarrow.container.batch.driver.driver_run import RunEnd
from yarrow.container.batch.driver.executor_disks import ExecutorDisks
from yarrow.container.batch.driver.lost_task import lost_task_cause
from yarrow.container.batch.driver.newest_tokens import NewestTokens
from yarrow.container.batch.driver.run_results import ResultsReading, RunResults, joined
from yarrow.container.batch.driver.running_rates import RunningRates
from yarrow.container.batch.driver.shared_job import SharedJob
from yarrow.container.batch.driver.stage_progress import StageProgress
from yarrow.container.batch.driver.task_messages import (
    AttemptAt,
    AttemptEnded,
    AttemptFailed,
    AttemptKeyGroups,
    AttemptProgress,
    AttemptStarted,
    ResultChunk,
    ResultsStarted,
)
from yarrow.container.batch.full_disks import (
    full_disk,
    means_full,
    tells_of_full_disk,
)
from yarrow.container.batch.iteration_rounds import SubtaskResult
from yarrow.container.batch.parquet_scan import files_of
from yarrow.container.batch.spark.history_savepoint import HistorySavepoint
from yarrow.container.batch.spark.iteration_frames import IterationFrames
from yarrow.container.batch.spark.java.java_process import SparkLostError
from yarrow.container.batch.spark.session import SparkHost
from yarrow.container.batch.spark.sql_frames import unread_file
from yarrow.container.batch.spark.stage_frames import StageFrames
from yarrow.container.batch.spark.task_server import (
    EntranceForOtherHosts,
    EntranceOnThisHost,
    ResultsListener,
    TaskEntrance,
    TaskServer,
)
from yarrow.container.batch.spark.tasks.late_tasks import LATE_SECONDS
from yarrow.container.batch.split_assignment import assign, assign_history
from yarrow.container.protocol.failure import failure_cause
from yarrow.container.supervisor.job_files import JobFiles
from yarrow.container.worker.fault_plans import install_fault_plan
from yarrow.container.worker.job_code import install_user_code
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import FencingTokenError, YarrowError
from yarrow.runtime.common.ids import JobVertexID, OperatorID
from yarrow.runtime.config.options import batch, execution
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.batch.batch_iterations import BatchIteration
from yarrow.runtime.graph.batch.batch_plan import BatchPlan, decode_batch_plan, encode_batch_plan
from yarrow.runtime.graph.batch.batch_planner import plan as plan_of
from yarrow.runtime.graph.batch.batch_sql import sql_stages, with_sql
from yarrow.runtime.graph.job_graph import JobGraph, decode_job_graph, encode_job_graph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.batch_gateways import BatchJobMasterGateway, BatchRunError
from yarrow.runtime.rpc.errors import RpcUnavailableError
from yarrow.runtime.rpc.messages import (
    BatchCommittables,
    BatchResult,
    BatchSubmission,
    FailureCause,
    StageSubmission,
    StoredCommittables,
)
from yarrow.runtime.snapshot.writing.savepoint_folder import ForeignFiles

_log = logging.getLogger(__name__)
_REPORT_SECONDS: Final = 1.0
#: Seconds between two looks at whether the run has ended.
_CANCEL_SECONDS: Final = 0.2
#: Seconds that results which Spark has taken may still be on their way to this process.
_RESULT_SECONDS: Final = 60.0
#: Seconds within which a task's own word about its failure is read, after Spark's.
_TOLD_SECONDS: Final = 10.0
#: Seconds between a broken connection to Java and its end.
_JAVA_SECONDS: Final = 1.0
_ENGINE_FAILED: Final = "Spark could not run the job; this is no failure of the program's functions"


class FullDiskError(YarrowError):
    """The disk on which Spark and its driver work is full."""


class SqlReadError(YarrowError):
    """Spark SQL could not read a file; the message names it."""


class SparkJobError(YarrowError):
    """Spark has ended a job for a reason that no task has told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunServices:
    """What a run uses of its driver."""

    host: SparkHost
    master: BatchJobMasterGateway
    #: Configuration of the cluster.
    configuration: dict[str, str]
    result_key: bytes
    clock: Clock
    #: Bytes of a blob in one message.
    part_bytes: int
    #: What processes of executors get.
    tokens: NewestTokens


class BatchRun:
    """One run. `execute` runs it and tells the master all but its end."""

    def __init__(self, submission: BatchSubmission, services: RunServices, folder: Path) -> None:
        """`folder` is made for the run, and removed at its end."""
        self.submission = submission
        self._services = services
        self._folder = folder
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._cancelled = False
        self._failure: FailureCause | None = None
        #: Tasks whose processes died, with the cause; it counts if Spark gives up and no task has told more.
        self._lost: dict[tuple[int, int], FailureCause] = {}
        #: The Spark job has ended.
        self._over = threading.Event()
        self._plan: BatchPlan
        self._graph: JobGraph
        #: Files that Spark SQL reads, by source vertex.
        self._scans: Mapping[JobVertexID, Sequence[str]] = {}
        self._progress: StageProgress
        self._results: RunResults
        self._more_results = threading.Condition()
        #: The savepoint that the run leaves, and the states of the enumerators in it; None = the job keeps no state.
        self._savepoint: HistorySavepoint | None = None
        self._enumerators: dict[JobVertexID, bytes] = {}
        #: The running attempts of each stage share its rate limits.
        self._rates: RunningRates[AttemptStarted] = RunningRates()
        self._disks = ExecutorDisks()
        self._settings = Settings(services.configuration, "the job")
        #: Results may still have to be committed, by this run or a later one.
        self._commit_is_open = False
        #: Nothing more may be begun.
        self._has_ended = False
        #: Another run may execute already: this one has lost its master, or Java.
        self._is_cut_off = False
        #: What a former run has left to commit.
        self._stored = b""

    # ------------------------------------------------------------------ the driver's loop

    async def execute(self) -> tuple[RunEnd, FailureCause | None]:
        """Runs the plan to its end, however it ends."""
        reports = None
        try:
            shared = await self._prepare()
            reports = self._loop.create_task(self._report(), name=f"progress of run {self.submission.run}")
            commits_only = bool(self.submission.committables_blob_key)
            await asyncio.to_thread(self._commit_stored if commits_only else self._run, shared)
            if await self._may_remove_leftovers():
                await asyncio.to_thread(self._remove_leftovers)
        except Exception as error:
            self._fail(self._cause_of(error))
        finally:
            if reports is not None:
                reports.cancel()
                await asyncio.gather(reports, return_exceptions=True)
            self._has_ended = True
            if self._savepoint is not None:
                await asyncio.to_thread(self._savepoint.__exit__, None, None, None)
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        if self._cancelled:
            return RunEnd.CANCELED, None
        return (RunEnd.FAILED, self._failure) if self._failure else (RunEnd.FINISHED, None)

    def cancel(self) -> None:
        """Begins to end the run."""
        self._cancelled = True
        self._end_spark_job()

    def submit_stage(self, submission: StageSubmission) -> None:
        """Raises BatchRunError: a plan has no stages that begin by themselves."""
        raise BatchRunError(f"job {submission.job_id} is no pipeline")

    def change_rate_limits(self, limits: Mapping[OperatorID, RateLimit]) -> None:
        """Takes other rate limits; tasks ask for their shares once a second."""
        with self._lock:
            self._rates.change(limits)

    def java_ended(self, cause: FailureCause) -> None:
        """Ends the run, because Spark is gone."""
        self._is_cut_off = True
        self._fail(cause)

    def orphaned(self) -> None:
        """Gives up the savepoint of a history at once: its files have no name for the next run."""
        self._has_ended = True
        savepoint = self._savepoint
        if savepoint is not None:
            savepoint.__exit__(None, None, None)

    def result(self) -> BatchResult:
        """The message about a run that has finished."""
        return BatchResult(
            job_id=self.submission.job_id,
            run=self.submission.run,
            stages=self._progress.all(ExecutionState.FINISHED),
        )

    async def _prepare(self) -> SharedJob:
        submission, services = self.submission, self._services
        self._folder.mkdir(mode=0o700, parents=True)
        files = JobFiles(services.master, self._folder / "files", services.part_bytes, _in_thread)
        encoded = submission.job_graph or await files.read(submission.job_graph_blob_key)
        self._graph = graph = await asyncio.to_thread(decode_job_graph, encoded)
        self._plan = decode_batch_plan(submission.plan) if submission.plan else self._planned(graph)
        paths = await files.fetch(file.blob_key for file in graph.user_code.files)
        if submission.committables_blob_key:
            self._stored = await files.read(submission.committables_blob_key)
        splits = await asyncio.to_thread(self._assign, paths)
        await asyncio.to_thread(self._check_scans, splits)
        self._progress = StageProgress(self._plan)
        with self._lock:
            self._rates.plan(graph)
        self._results = RunResults(
            submission.run, graph, self._plan, services.master, self._wait_for, services.part_bytes
        )
        if sql_stages(self._plan):
            encoded = encode_job_graph(with_sql(graph, self._plan))
        tasks = self._folder / "tasks"
        tasks.mkdir(mode=0o700)
        return SharedJob(
            run=submission.run,
            job_graph=encoded,
            plan=encode_batch_plan(self._plan),
            configuration=services.configuration,
            file_paths=paths,
            splits=splits,
            task_folder=str(tasks),
            result_key=services.result_key,
            savepoint=await asyncio.to_thread(self._begin_savepoint),
        )

    def _begin_savepoint(self) -> ForeignFiles | None:
        """Where tasks write the state of a stream's history."""
        history = self._plan.history
        if history is None:
            return None
        self._savepoint = savepoint = HistorySavepoint(self._graph, history.savepoint, self._settings)
        if self._has_ended:
            # The run has ended meanwhile, and nobody has seen this savepoint.
            savepoint.__exit__(None, None, None)
        return savepoint.place

    def _planned(self, graph: JobGraph, in_python: Mapping[JobVertexID, str] | None = None) -> BatchPlan:
        settings = self._settings.overlay(graph.configuration, "the job")
        return plan_of(graph, combine=settings.get(execution.BATCH_COMBINE), in_python=in_python)

    def _assign(self, paths: dict[str, str]) -> dict[Any, list[list[bytes]]]:
        """The splits of all sources; their enumerators run here."""
        install_user_code(self._graph, paths, own_main=True)
        install_fault_plan(self._settings.overlay(self._graph.configuration, "the job"))
        if self.submission.committables_blob_key:
            # Nothing is read again.
            return {}
        found = {}
        for stage in self._plan.stages:
            if stage.is_source and self._plan.history is None:
                found[stage.vertex_id] = assign(self._graph, stage.vertex_id, stage.parallelism)
            elif stage.is_source:
                assigned = assign_history(self._graph, stage.vertex_id, stage.parallelism)
                found[stage.vertex_id] = assigned.splits
                self._enumerators[stage.vertex_id] = assigned.enumerator
        return found

    def _check_scans(self, splits: Mapping[JobVertexID, list[list[bytes]]]) -> None:
        """Leaves to Python what Spark SQL would not read exactly, and says why in the log."""
        found = {
            stage.vertex_id: files_of(stage.sql, splits[stage.vertex_id], self._services.host.why_unread)
            for stage in self._plan.stages
            if stage.sql is not None and stage.vertex_id in splits
        }
        reasons = {vertex_id: files.why_not for vertex_id, files in found.items() if files.why_not}
        for vertex_id, why in reasons.items():
            _log.info("the files of '%s' are read in Python: %s", self._graph.vertex(vertex_id).name, why)
        if reasons:
            self._plan = self._planned(self._graph, reasons)
        self._scans = {vertex_id: files.paths for vertex_id, files in found.items()}

    async def _report(self) -> None:
        while True:
            with self._lock:
                stages = self._progress.changed()
            if stages:
                await self._services.master.report_stages(self.submission.job_id, self.submission.run, stages)
            await asyncio.sleep(_REPORT_SECONDS)

    # ------------------------------------------------------------------ the run's thread

    def _run(self, shared: SharedJob) -> None:
        if self._savepoint is not None and self._savepoint.is_there:
            # The run that has left it was lost before it could say so.
            self._over.set()
            return
        session = self._services.host.session
        entrance = self._entrance(shared)
        server = TaskServer(entrance, self, self._services.tokens)
        server.start()
        iterations = IterationFrames(
            session, self._plan, self, has_executors=self._services.host.has_executors
        )
        frames = StageFrames(
            session, self._plan, entrance.address, self.submission.run, self._scans, iterations
        )
        try:
            session.sparkContext.setJobGroup(self._group, self._graph.name, interruptOnCancel=True)
            if self._cancelled or self._failure:
                return
            count = frames.execute()
            self._await_results(count)
            if not self._failure:
                self._results.flush()
                self._complete_savepoint()
                self._commit()
        except Exception as error:
            self._note_cut(error)
            self._fail(self._cause_of(error))
        finally:
            self._over.set()
            if not self._services.host.java.has_ended():
                frames.release()
            self._await_late_tasks(server)
            server.close()

    def _await_late_tasks(self, server: TaskServer) -> None:
        """Returns when no task can write any more: what tasks leave is removed next, or written again by another run.

        Spark ends its job before the processes of its tasks, also that of a slower copy of a task.
        """
        writes = self._savepoint is not None or bool(sinks_of(self._graph))
        if not writes or self._is_cut_off or self._services.host.java.has_ended():
            return
        if not server.await_tasks(LATE_SECONDS):
            _log.warning(
                "tasks of job %s still run %g s after its end: files of its sinks may be left",
                self.submission.job_id,
                LATE_SECONDS,
            )

    def _entrance(self, shared: SharedJob) -> TaskEntrance:
        """Where the run's tasks come in: from this host, or from executors that may be anywhere."""
        services = self._services
        if not services.host.has_executors:
            return EntranceOnThisHost(self._folder, shared)
        host, bind_host = services.host.addresses
        return EntranceForOtherHosts(host, bind_host, shared, services.clock)

    def _complete_savepoint(self) -> None:
        """Completes the savepoint of history, if the run may still do so. Raises RpcError, SnapshotStorageError."""
        if self._savepoint is None or self._cancelled:
            return
        submission = self.submission
        # A master that has been replaced, or has given this run up, refuses the call.
        self._wait_for(self._services.master.check_run(submission.job_id, submission.run))
        self._savepoint.complete(self._results.states, self._enumerators, self._services.clock.epoch_ms())

    def _commit(self) -> None:
        """Commits what the tasks have prepared, once the master has stored it."""
        if not self._results.committables:
            return
        submission = self.submission
        # From here on the stored results belong to the job, whatever becomes of this run.
        self._commit_is_open = True
        self._wait_for(self._services.master.begin_commit(submission.job_id, submission.run))
        self._commit_all(self._results.committables)

    def _commit_stored(self, shared: SharedJob) -> None:
        """Commits what a former run has left; the plan is not executed."""
        self._over.set()
        self._commit_is_open = True
        self._commit_all(msgspec.msgpack.decode(self._stored, type=StoredCommittables).messages)

    def _commit_all(self, messages: Sequence[BatchCommittables]) -> None:
        """Commits each sink's committables, in order of its subtasks. Raises CommitFailedError and OperatorFailure."""
        graph, clock = self._graph, self._services.clock
        for sink in sinks_of(graph):
            operator_id = graph.vertex(sink.vertex_id).operators[sink.operator].id
            payloads = joined(each for each in messages if each.operator_id == operator_id)
            commit(graph, sink, payloads, self._settings, clock)
        self._commit_is_open = False

    def _note_cut(self, error: Exception) -> None:
        self._is_cut_off = self._is_cut_off or isinstance(error, RpcUnavailableError | FencingTokenError)

    async def _may_remove_leftovers(self) -> bool:
        """Whether no other run can need what the job's sinks have begun; else a later run of the job ends it.

        A sink's unfinished results bear no run: those of the next run, on another host, look the same.
        """
        if self._cancelled:
            # The master cancels no run that it has allowed to commit.
            return True
        if self._commit_is_open or self._is_cut_off or self._services.host.java.has_ended():
            return False
        if self._failure is None:
            return True
        try:
            await self._services.master.check_run(self.submission.job_id, self.submission.run)
        except YarrowError as error:
            _log.warning("what attempts of the sinks have begun is left to the next run: %s", error)
            return False
        return True

    def _remove_leftovers(self) -> None:
        """Ends what attempts have begun and nobody commits; what cannot be ended is left, and told."""
        for sink in sinks_of(self._graph):
            try:
                remove_leftovers(
                    self._graph, sink, self._settings, self._services.clock, self._folder / "sinks"
                )
            except Exception:
                _log.exception("what attempts of a sink have begun is left as it is")

    @property
    def _group(self) -> str:
        return f"{self.submission.job_id}-{self.submission.run}"

    def _await_results(self, count: int) -> None:
        """Returns when the master has all results, or the run has failed."""
        while True:
            noticed = self._results.noticed
            with self._more_results:
                there = self._more_results.wait_for(
                    lambda: self._results.has_all(count) or self._failure is not None or self._cancelled,
                    _RESULT_SECONDS,
                )
            if there:
                return
            # A client may read slowly, for as long as it likes.
            if not self._results.is_taking and self._results.noticed == noticed:
                raise SparkJobError(f"not all of {count} results have arrived: run the job again")

    def _cause_of(self, error: Exception) -> FailureCause:
        spark_failed = isinstance(error, PySparkException | OSError) or type(error).__module__.startswith(
            "py4j."
        )
        if spark_failed and self._services.host.java.ends_within(_JAVA_SECONDS):
            return failure_cause(self._services.host.java.lost())
        if isinstance(error, PySparkException) or type(error).__module__.startswith("py4j."):
            _log.error("Spark has ended the job", exc_info=error)
            if lost := self._services.host.lost_application():
                return failure_cause(SparkLostError(lost))
            if tells_of_full_disk(str(error)):
                return self._full_disk_of_java(str(error))
            unread = unread_file(str(error))
            if unread is not None:
                return failure_cause(
                    SqlReadError(
                        f"Spark SQL could not read {unread}: repair the file, or set {batch.SPARK_SQL.key} to false,"
                        " so that the source reads it in Python"
                    )
                )
            told = self._told_failure()
            if told is not None:
                return told
            if self._lost:
                return next(iter(self._lost.values()))
            if refused := self._services.host.refused_setting(error):
                return msgspec.structs.replace(failure_cause(refused), is_final=True)
            return failure_cause(SparkJobError(f"{_ENGINE_FAILED}: {_in_short(error)}"))
        if means_full(error):
            where = full_disk(self._folder)
            return failure_cause(FullDiskError(f"the SparkDriver cannot write its files: {where}"))
        if isinstance(error, YarrowError):
            # Frames of the thread in which it was raised tell nothing.
            error = error.with_traceback(None)
        return failure_cause(error, "the driver of batch mode")

    def _full_disk_of_java(self, text: str) -> FailureCause:
        """The cause if Java of the driver, or of an executor that Spark's error names, has filled a disk."""
        host = self._services.host
        if host.has_executors:
            with self._lock:
                where = self._disks.full_disk(text)
        else:
            where = full_disk(host.local_folder)
        return failure_cause(FullDiskError(f"Java, which runs Spark, cannot write its files: {where}"))

    def _told_failure(self) -> FailureCause | None:
        """The failure that a task has told: Spark may be faster, because a thread here has to read it first."""
        with self._more_results:
            self._more_results.wait_for(
                lambda: self._failure is not None or self._cancelled or bool(self._lost), _TOLD_SECONDS
            )
        return self._failure

    def _fail(self, cause: FailureCause) -> None:
        """Notes the first failure and ends the Spark job; any thread may call it."""
        with self._lock:
            if self._failure is not None or self._cancelled:
                return
            self._failure = cause
        with self._more_results:
            self._more_results.notify_all()
        self._end_spark_job()

    def _end_spark_job(self) -> None:
        threading.Thread(
            target=self._services.host.cancel_jobs, args=(self._group, self._over), name="cancel", daemon=True
        ).start()

    def _wait_for(self, call: Coroutine[Any, Any, Any]) -> Any:
        """Runs a call on the driver's loop from another thread; gives up with the run."""
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        while True:
            try:
                return future.result(_CANCEL_SECONDS)
            except TimeoutError:
                if future.done():
                    raise
                if self._cancelled or self._failure is not None:
                    future.cancel()
                    raise SparkJobError("the run has ended") from None

    # ------------------------------------------------------------------ SuperstepListener: the run's thread

    def superstep_begins(self, iteration: BatchIteration, number: int) -> None:
        if self._cancelled or self._failure is not None:
            raise SparkJobError("the run has ended")
        with self._lock:
            self._progress.superstep_begins(iteration.body, number)

    def iteration_ended(self, iteration: BatchIteration, results: Iterable[SubtaskResult], why: str) -> None:
        _log.info("the iteration '%s' has ended: %s", iteration.control.name, why)
        self._results.iterated(results)
        with self._lock:
            self._progress.iteration_ended(iteration.body)

    # ------------------------------------------------------------------ AttemptListener: threads of connections

    def attempt_started(self, started: AttemptStarted) -> None:
        with self._lock:
            self._progress.started(started, self._services.clock.epoch_ms())
            self._disks.started(started)
            self._rates.started(self._vertex_of(started), started)

    def _vertex_of(self, started: AttemptStarted) -> JobVertexID:
        return self._plan.stages[started.stage].vertex_id

    def shares_of(self, started: AttemptStarted) -> dict[OperatorID, RateLimit]:
        with self._lock:
            return self._rates.shares_of(self._vertex_of(started))

    def attempt_progressed(self, started: AttemptStarted, progress: AttemptProgress | AttemptEnded) -> None:
        with self._lock:
            self._progress.progressed(started, progress, self._services.clock.epoch_ms())
            if isinstance(progress, AttemptEnded):
                self._rates.ended(self._vertex_of(started), started)
                # Another attempt of a lost task, which does not count any more.
                self._lost.pop((started.stage, started.subtask), None)

    def key_groups_read(self, started: AttemptStarted, groups: AttemptKeyGroups) -> None:
        with self._lock:
            self._progress.key_groups_read(started, groups.largest)

    def attempt_failed(self, started: AttemptStarted, failed: AttemptFailed) -> None:
        with self._lock:
            self._progress.failed(started)
        self._fail(failed.cause)

    def attempt_lost(self, started: AttemptStarted, last: AttemptAt | None) -> None:
        stage = self._plan.stages[started.stage]
        with self._lock:
            self._progress.failed(started)
            self._rates.ended(stage.vertex_id, started)
            # Spark ends the slower one of two attempts.
            if not self._progress.has_ended(started):
                self._lost.setdefault((started.stage, started.subtask), lost_task_cause(stage, started, last))
        with self._more_results:
            self._more_results.notify_all()

    def results_started(self, started: ResultsStarted) -> ResultsListener:
        return _TakenResults(self._results.begin(), self)

    def results_failed(self, error: Exception) -> None:
        """The master does not take them."""
        self._note_cut(error)
        self._fail(failure_cause(error, "the results of the job"))

    def results_ended(self) -> None:
        """An attempt of the last task has sent all results."""
        with self._more_results:
            self._more_results.notify_all()


class _TakenResults:
    """A reading of the results whose failure is that of the run."""

    def __init__(self, reading: ResultsReading, run: BatchRun) -> None:
        self._reading = reading
        self._run = run

    def take(self, chunk: ResultChunk) -> None:
        try:
            self._reading.take(chunk)
        except Exception as error:
            self._run.results_failed(error)
            raise OSError("the run has ended") from error

    def end(self) -> None:
        self._reading.end()
        self._run.results_ended()


async def _in_thread(work: Any) -> None:
    await asyncio.to_thread(work)


def _in_short(error: Exception) -> str:
    """What Spark says, without Java's traces."""
    lines = [line.strip() for line in str(error).split("\n")]
    said = [line for line in lines if line and not line.startswith(("at ", "\tat", "File ", "..."))]
    return " | ".join(said[:6])[:600]
