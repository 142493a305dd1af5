"""LocalRun: one execution of a bounded job's plan in workers of a TaskExecutor, from submission to its end.

Owner: the TaskExecutor's event loop. User code, and all that knows rows, runs in the workers: split enumerators, tasks,
results, commits. The first failure counts. Must not import what makes a TaskExecutor large: arrays, or user code.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from yarrow.common.values.rate_limit import RateLimit
from yarrow.container.batch.driver.driver_run import RunEnd
from yarrow.container.batch.driver.running_rates import RunningRates
from yarrow.container.batch.driver.shared_job import SharedJob
from yarrow.container.batch.driver.stage_progress import StageProgress
from yarrow.container.batch.driver.task_messages import (
    AttemptEnded,
    AttemptKeyGroups,
    AttemptProgress,
    AttemptStarted,
)
from yarrow.container.batch.local.local_protocol import (
    AssignSplits,
    CommitResults,
    FinishedOutput,
    RemoveLeftovers,
    ResultsSent,
    RunTask,
    SendResults,
    SplitsAssigned,
    TakeResult,
    WorkDone,
)
from yarrow.container.batch.local.local_workers import (
    LocalWorker,
    LocalWorkers,
    WorkerPlace,
    WorkFailedError,
)
from yarrow.container.batch.local.stage_schedule import StageSchedule, StageTask
from yarrow.container.launch.worker_launcher import WorkerLauncher
from yarrow.container.protocol.failure import failure_cause
from yarrow.container.supervisor.job_files import JobFiles
from yarrow.container.supervisor.output_files import OutputFiles
from yarrow.container.supervisor.slot_table import SubtaskName
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import FencingTokenError, YarrowError
from yarrow.runtime.common.ids import JobVertexID, OperatorID, execution_attempt_id
from yarrow.runtime.config.options import execution
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.batch.batch_plan import BatchPlan, encode_batch_plan
from yarrow.runtime.graph.batch.batch_planner import plan as plan_of
from yarrow.runtime.graph.job_graph import JobGraph, decode_job_graph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.batch_gateways import BatchJobMasterGateway, BatchRunError
from yarrow.runtime.rpc.errors import RpcUnavailableError
from yarrow.runtime.rpc.messages import BatchResult, BatchSubmission, FailureCause, StageSubmission

_log = logging.getLogger(__name__)
_REPORT_SECONDS: Final = 1.0
#: Seconds without the end of a task after which another worker starts.
_PATIENCE_SECONDS: Final = 0.1
#: Seconds in which a worker ends work that nobody needs any more, before its process is killed.
_SETTLE_SECONDS: Final = 1.0

A = TypeVar("A")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalServices:
    """What a run uses of its TaskExecutor."""

    master: BatchJobMasterGateway
    launcher: WorkerLauncher
    files: OutputFiles
    clock: Clock
    #: Configuration of the TaskExecutor's cluster.
    configuration: dict[str, str]
    result_key: bytes
    #: Bytes of a blob, or of results, in one message.
    part_bytes: int
    #: The slot of the driver, and the number of slots of its TaskExecutor.
    slot: int
    slots: int
    forward_logs: bool


class LocalRun:
    """One run. `execute` runs it and tells the master all but its end."""

    def __init__(self, submission: BatchSubmission, services: LocalServices, folder: Path) -> None:
        """`folder` is made for the run, and removed at its end."""
        self.submission = submission
        self._services = services
        self._folder = folder
        self._graph: JobGraph
        self._plan: BatchPlan
        self._progress: StageProgress
        place = WorkerPlace(
            slot=services.slot,
            folder=folder / "workers",
            job_folder=str(folder),
            forward_logs=services.forward_logs,
        )
        self._workers = LocalWorkers(services.launcher, services.files, place)
        #: Workers without a task, while stages run.
        self._free: list[LocalWorker] = []
        #: The running tasks, by their workers.
        self._rates: RunningRates[LocalWorker] = RunningRates()
        self._work: asyncio.Task[None] | None = None
        self._cancelled = False
        self._failure: FailureCause | None = None
        #: Results may still have to be committed, by this run or a later one.
        self._commit_is_open = False
        #: Another run may execute already: this one has lost its master.
        self._is_cut_off = False

    async def execute(self) -> tuple[RunEnd, FailureCause | None]:
        """Runs the plan to its end, however it ends."""
        try:
            await self._prepare()
            await self._until_worked()
            if await self._may_remove_leftovers():
                await self._remove_leftovers()
        except Exception as error:
            self._note(error)
        finally:
            await self._clean_up()
        if self._cancelled:
            return RunEnd.CANCELED, None
        return (RunEnd.FAILED, self._failure) if self._failure else (RunEnd.FINISHED, None)

    @property
    def processes(self) -> list[int]:
        """Process ids of the living workers; that of this process for those in threads."""
        return self._workers.processes

    def cancel(self) -> None:
        """Begins to end the run."""
        self._cancelled = True
        if self._work is not None:
            self._work.cancel()

    def submit_stage(self, submission: StageSubmission) -> None:
        """Raises BatchRunError: pipelines run on Spark."""
        raise BatchRunError(f"job {submission.job_id} is no pipeline")

    def change_rate_limits(self, limits: Mapping[OperatorID, RateLimit]) -> None:
        """Takes other rate limits; running tasks hear of their shares at once."""
        self._rates.change(limits)
        for vertex_id in self._rates.limited_vertices():
            self._tell_shares(vertex_id)

    def java_ended(self, cause: FailureCause) -> None:
        """Has no effect: the run needs no Java."""

    def orphaned(self) -> None:
        """Has no effect: the run writes into its own folder alone."""

    def result(self) -> BatchResult:
        """The message about a run that has finished."""
        return BatchResult(
            job_id=self.submission.job_id,
            run=self.submission.run,
            stages=self._progress.all(ExecutionState.FINISHED),
        )

    # ------------------------------------------------------------------ preparation

    async def _prepare(self) -> None:
        submission, services = self.submission, self._services
        await asyncio.to_thread(_make_folders, (self._folder, self._folder / "workers", self._outputs))
        # It forks while the files come; it reads the job when it is asked for something.
        starting = asyncio.ensure_future(self._workers.start())
        try:
            files = JobFiles(services.master, self._folder / "files", services.part_bytes, _in_thread)
            encoded = submission.job_graph or await files.read(submission.job_graph_blob_key)
            self._graph = graph = await asyncio.to_thread(decode_job_graph, encoded)
            settings = Settings(services.configuration, "the job").overlay(graph.configuration, "the job")
            self._plan = plan_of(graph, combine=settings.get(execution.BATCH_COMBINE))
            self._progress = StageProgress(self._plan)
            self._rates.plan(graph)
            shared = SharedJob(
                run=submission.run,
                job_graph=encoded,
                plan=encode_batch_plan(self._plan),
                configuration=services.configuration,
                file_paths=await files.fetch(file.blob_key for file in graph.user_code.files),
                splits={},
                task_folder=str(self._outputs),
                result_key=services.result_key,
            )
            await asyncio.to_thread(shared.write, self._folder)
        finally:
            worker = await starting
        self._free.append(worker)

    @property
    def _outputs(self) -> Path:
        return self._folder / "tasks"

    # ------------------------------------------------------------------ work

    async def _until_worked(self) -> None:
        """Returns when the work has ended, in whatever way."""
        loop = asyncio.get_running_loop()
        reports = loop.create_task(self._report(), name=f"progress of run {self.submission.run}")
        self._work = loop.create_task(
            self._commit_stored() if self.submission.committables_blob_key else self._run(),
            name=f"run {self.submission.run}",
        )
        if self._cancelled:
            self._work.cancel()
        try:
            await asyncio.wait([self._work])
        finally:
            # Also if the driver ends.
            self._work.cancel()
            reports.cancel()
            await asyncio.gather(self._work, reports, return_exceptions=True)
            await self._workers.settle(_SETTLE_SECONDS)
        if not self._work.cancelled() and (error := self._work.exception()) is not None:
            self._note(error)

    def _note(self, error: BaseException) -> None:
        """Notes the first failure."""
        self._is_cut_off = self._is_cut_off or isinstance(error, RpcUnavailableError | FencingTokenError)
        if self._failure is not None or self._cancelled:
            return
        if isinstance(error, WorkFailedError):
            # Another worker may live, and another commit may succeed.
            is_final = error.cause.is_final and not error.is_lost and not self._commit_is_open
            self._failure = msgspec.structs.replace(error.cause, is_final=is_final)
        else:
            self._failure = failure_cause(error, "the driver of the job's workers")

    async def _run(self) -> None:
        """Executes the plan, hands its results over, and commits."""
        finished = await self._run_stages(await self._splits())
        first = self._free[0]
        work = SendResults(outputs=tuple(finished), part_bytes=self._services.part_bytes)
        sent = _only(await first.ask(work, take=self._take), ResultsSent)
        if sent.commits:
            # From here on the stored results belong to the job, whatever becomes of this run.
            self._commit_is_open = True
            await self._services.master.begin_commit(self.submission.job_id, self.submission.run)
            _only(await first.ask(CommitResults()), WorkDone)
            self._commit_is_open = False

    async def _commit_stored(self) -> None:
        """Commits what a former run has left; the plan is not executed."""
        self._commit_is_open = True
        files = JobFiles(
            self._services.master, self._folder / "stored", self._services.part_bytes, _in_thread
        )
        stored = await files.read(self.submission.committables_blob_key)
        _only(await self._free[0].ask(CommitResults(stored=stored)), WorkDone)
        self._commit_is_open = False

    async def _splits(self) -> Mapping[JobVertexID, list[list[bytes]]]:
        sources = tuple(stage.vertex_id for stage in self._plan.stages if stage.is_source)
        return _only(await self._free[0].ask(AssignSplits(vertices=sources)), SplitsAssigned).splits

    async def _take(self, result: TakeResult) -> None:
        master, submission = self._services.master, self.submission
        if result.rows is not None:
            await master.push_collected(result.rows)
        if result.output is not None:
            await master.push_output(result.output)
        if result.committables is not None:
            await master.store_committables(result.committables)
        if result.subtasks:
            await master.report_subtasks(submission.job_id, submission.run, result.subtasks)

    # ------------------------------------------------------------------ stages

    async def _run_stages(self, splits: Mapping[JobVertexID, list[list[bytes]]]) -> list[FinishedOutput]:
        """Runs all tasks, as many at a time as the TaskExecutor has slots; the files that they leave.

        Another worker starts when no task has ended for a while: the start of one takes longer than a small task.
        """
        schedule = StageSchedule(self._plan)
        running: dict[asyncio.Task[None], StageTask] = {}
        waiting: StageTask | None = None
        needs_worker = False
        try:
            while True:
                while len(running) < self._services.slots:
                    waiting = waiting or schedule.next_task()
                    if waiting is None or not (self._free or needs_worker):
                        break
                    worker = self._free.pop() if self._free else None
                    own = asyncio.get_running_loop().create_task(
                        self._run_task(worker, waiting, schedule.inputs_of(waiting), splits),
                        name=f"task {waiting}",
                    )
                    running[own] = waiting
                    waiting, needs_worker = None, False
                if not running:
                    break
                done, _ = await asyncio.wait(
                    running,
                    timeout=None if waiting is None else _PATIENCE_SECONDS,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                needs_worker = not done
                for own in done:
                    own.result()
                    schedule.has_finished(running.pop(own))
        finally:
            for own in running:
                own.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return [
            FinishedOutput(task.stage, task.subtask, str(self._output(task))) for task in schedule.finished
        ]

    def _output(self, task: StageTask) -> Path:
        return self._outputs / f"{task.stage}-{task.subtask}"

    async def _run_task(
        self,
        worker: LocalWorker | None,
        task: StageTask,
        inputs: Sequence[StageTask],
        splits: Mapping[JobVertexID, list[list[bytes]]],
    ) -> None:
        """Runs a task in that worker; None = in a new one."""
        stage = self._plan.stages[task.stage]
        worker = worker or await self._workers.start()
        self._rates.started(stage.vertex_id, worker)
        self._tell_shares(stage.vertex_id, but=worker)
        own = splits.get(stage.vertex_id)
        work = RunTask(
            stage=task.stage,
            subtask=task.subtask,
            splits=tuple(own[task.subtask]) if own else (),
            inputs=tuple(str(self._output(each)) for each in inputs),
            output=str(self._output(task)),
            shares=self._rates.shares_of(stage.vertex_id),
        )
        started = AttemptStarted(
            run=self.submission.run, stage=task.stage, subtask=task.subtask, attempt=0, pid=worker.pid
        )
        self._progress.started(started, self._now())
        name = SubtaskName(stage.vertex_id, stage.name, task.subtask, stage.parallelism)
        attempt_id = execution_attempt_id(self._graph.job_id, stage.vertex_id, task.subtask, 0)
        try:
            answer = await worker.ask(
                work, task=(attempt_id, name), on_progress=lambda progress: self._went_on(started, progress)
            )
        except WorkFailedError:
            self._progress.failed(started)
            raise
        finally:
            self._rates.ended(stage.vertex_id, worker)
            self._tell_shares(stage.vertex_id)
        self._progress.progressed(started, _only(answer, AttemptEnded), self._now())
        self._free.append(worker)

    def _tell_shares(self, vertex_id: JobVertexID, but: LocalWorker | None = None) -> None:
        """Tells the running tasks of a vertex their shares of its rate limits."""
        if shares := self._rates.shares_of(vertex_id):
            for worker in self._rates.running(vertex_id):
                if worker is not but:
                    worker.send_shares(shares)

    def _went_on(self, started: AttemptStarted, progress: AttemptProgress | AttemptKeyGroups) -> None:
        if isinstance(progress, AttemptKeyGroups):
            self._progress.key_groups_read(started, progress.largest)
        else:
            self._progress.progressed(started, progress, self._now())

    def _now(self) -> int:
        return self._services.clock.epoch_ms()

    async def _report(self) -> None:
        submission = self.submission
        while True:
            await asyncio.sleep(_REPORT_SECONDS)
            if stages := self._progress.changed():
                with contextlib.suppress(RpcUnavailableError):
                    await self._services.master.report_stages(submission.job_id, submission.run, stages)

    # ------------------------------------------------------------------ the end

    async def _may_remove_leftovers(self) -> bool:
        """Whether no other run can need what the job's sinks have begun; else a later run of the job ends it.

        A sink's unfinished results bear no run: those of the next run, on another host, look the same.
        """
        has_sinks = any(
            operator.spec.writes_for_sink for vertex in self._graph.vertices for operator in vertex.operators
        )
        if not has_sinks or self._commit_is_open or self._is_cut_off:
            # The master cancels no run that it has allowed to commit.
            return has_sinks and self._cancelled
        if self._failure is None or self._cancelled:
            return True
        try:
            await self._services.master.check_run(self.submission.job_id, self.submission.run)
        except YarrowError as error:
            _log.warning("what attempts of the sinks have begun is left to the next run: %s", error)
            return False
        return True

    async def _remove_leftovers(self) -> None:
        """What cannot be ended is left, and told in the log."""
        try:
            worker = await self._workers.idle_one()
            await worker.ask(RemoveLeftovers())
        except Exception as error:
            _log.warning("what attempts of the sinks have begun is left as it is: %s", error)

    async def _clean_up(self) -> None:
        await self._workers.close()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)


def _only(answer: Any, kind: type[A]) -> A:
    """The answer, which is of that kind."""
    assert isinstance(answer, kind), answer
    return answer


def _make_folders(folders: Sequence[Path]) -> None:
    for folder in folders:
        folder.mkdir(mode=0o700, parents=True)


async def _in_thread(work: Any) -> None:
    await asyncio.to_thread(work)
