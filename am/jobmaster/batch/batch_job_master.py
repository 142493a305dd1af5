"""BatchJobMaster: runs one bounded job on Spark, from its start to its end, and takes messages of its SparkDriver.

Owner: its endpoint loop. It carries out what the BatchScheduler decides, and hands rows on to the client. Must not
look into user code or rows, nor know Spark.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import msgspec

from yarrow.am.checkpoint.statistics import CheckpointStatisticsTracker
from yarrow.am.execution.errors import failure_of
from yarrow.am.execution.execution_graph import ExecutionGraph
from yarrow.am.jobmaster.batch.batch_answers import BatchAnswers, NoCheckpoints
from yarrow.am.jobmaster.batch.batch_scheduler import (
    BatchEvent,
    BatchJobCancelled,
    BatchJobFailed,
    BatchJobStarted,
    BatchScheduler,
    CommitBegun,
    ConcludeJob,
    Pause,
    PausePassed,
    ReleaseSparkDriver,
    RequestSparkDriver,
    RunFailed,
    RunFinished,
    SparkDriverEnded,
    SparkDriverLost,
    SparkSessionStarted,
    StagesReported,
    SubmitPlan,
    SubtasksReported,
)
from yarrow.am.jobmaster.batch.collected_positions import CollectedPositions
from yarrow.am.jobmaster.batch.commits_to_make import CommitsToMake
from yarrow.am.jobmaster.batch.iteration_progress import IterationProgress
from yarrow.am.jobmaster.batch.large_key_groups import LargeKeyGroups
from yarrow.am.jobmaster.batch.pipeline_scheduler import (
    PipelineAction,
    PipelineEvent,
    PipelineScheduler,
    StartStage,
)
from yarrow.am.jobmaster.batch.printed_text import PrintedText
from yarrow.am.jobmaster.batch.running_pipeline import RunningPipeline
from yarrow.am.jobmaster.batch.spark_driver_link import SparkDriverLink
from yarrow.am.jobmaster.batch.stage_commits import StageCommits
from yarrow.am.jobmaster.batch.unfinished_savepoint import remove_unfinished_savepoint
from yarrow.am.jobmaster.collecting.collect_buffer import CollectBuffer
from yarrow.am.jobmaster.collecting.collect_buffers import CollectBuffers
from yarrow.am.jobmaster.encoded_graphs import EncodedGraphs
from yarrow.am.jobmaster.links.named_timers import NamedTimers
from yarrow.am.jobmaster.rescaling import RescaleRefusedError
from yarrow.am.jobmaster.running_job import RunningJob
from yarrow.am.jobmaster.scheduling.settings import JobMasterSettings
from yarrow.am.jobmaster.services import JobMasterServices
from yarrow.common.job_status import JobStatus
from yarrow.common.values.rate_limit import RateLimit
from yarrow.runtime.common import fault_points
from yarrow.runtime.common.backoff import Backoff
from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.common.ids import JobID, JobMasterID, OperatorID, ResourceID
from yarrow.runtime.graph.batch.batch_sql import driver_configuration
from yarrow.runtime.graph.batch.pipeline_plan import is_pipeline
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.ha.records import LeadershipLostError, RecordsError
from yarrow.runtime.ha.services import token_of_epoch
from yarrow.runtime.rpc.batch_gateways import BatchRunError
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.errors import EndpointStoppedError
from yarrow.runtime.rpc.gateway_type import BATCH_JOB_MASTER
from yarrow.runtime.rpc.messages import (
    Acknowledge,
    BatchCommittables,
    BatchOutput,
    BatchResult,
    BatchStageProgress,
    BatchSubtaskResult,
    BlobPart,
    CollectConfirmation,
    CollectRows,
    EventTimeDetails,
    FailureCause,
    RateLimitDetails,
    RegistrationRejection,
    RegistrationSuccess,
    RescaleRequest,
    SparkApplication,
    SparkConfiguration,
    SparkDriverRegistration,
    SparkPage,
    SparkPageRequest,
    StageCommit,
    StageEnd,
)

if TYPE_CHECKING:
    from yarrow.am.jobmaster.batch.batch_rate_limits import BatchRateLimits

_log = logging.getLogger(__name__)
#: Seconds in which a cancelled run has to end its tasks, and what its sinks have begun.
_CANCEL_SECONDS = 30.0
#: Seconds between tries to store what is to be committed.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
#: Events that are kept for `scheduler_decisions`.
_EVENTS_KEPT = 100


class _Decisions(Protocol):
    """The scheduler of a bounded job, as its BatchJobMaster uses it."""

    @property
    def run(self) -> int: ...

    def handle(self, event: BatchEvent) -> Sequence[PipelineAction]: ...

    def suspend(self, cause: str) -> None: ...


class BatchJobMaster(RpcEndpoint):
    """The JobMaster of one bounded job; implements BatchJobMasterGateway and RunningJob."""

    def __init__(
        self,
        job: JobGraph,
        services: JobMasterServices,
        settings: JobMasterSettings,
        on_ending: Callable[[RunningJob], Awaitable[None]],
        on_ended: Callable[[RunningJob], None],
    ) -> None:
        """Runs one job.

        `on_ending` is awaited when nothing of the job executes any more, `on_ended` is called once after that.
        """
        self.leader_id = JobMasterID(token_of_epoch(services.epoch, services.ids.hex_id()))
        super().__init__(f"jobmanager_{job.job_id}", self.leader_id)
        self._services = services
        self._on_ending = on_ending
        self._on_ended = on_ended
        self._ended = asyncio.Event()
        self._timers = NamedTimers(services.timers)
        self.graph = ExecutionGraph(
            job, services.clock, services.ids, settings.exception_history_size, settings.attempts_history_size
        )
        self._scheduler: _Decisions = BatchScheduler(self.graph, settings.restart_backoff(), services.clock)
        self._events: deque[bytes] = deque(maxlen=_EVENTS_KEPT)
        self._collects = CollectBuffers(self.graph, self.leader_id, settings.collect_buffer_rows)
        self._encoded = EncodedGraphs(self, self.graph, services.blobs, settings.inline_graph_bytes)
        self._cancel_confirmed = asyncio.Event()
        self._collected = CollectedPositions(self.leader_id)
        self._printed = PrintedText()
        self._commits = CommitsToMake(job.job_id, services.blobs, services.commit_records, self.run_blocking)
        self._driver = SparkDriverLink(self, job, self.leader_id, services, settings, self._run_ended_badly)
        #: The stages of a pipeline; None = the job is a plan.
        self._pipeline: RunningPipeline | None = None
        if is_pipeline(job):
            self._scheduler = stages = PipelineScheduler(
                self.graph, settings.restart_backoff(), services.clock
            )
            stored = StageCommits(job.job_id, services.commit_records, self.run_blocking)
            self._pipeline = RunningPipeline(job.job_id, stages, self._driver, stored, services, self._follow)
        self._large_key_groups = LargeKeyGroups(f"job {job.name!r} ({job.job_id})")
        self._iterations = IterationProgress(job)
        #: Answers questions about the job.
        self.queries = BatchAnswers(self.graph, self._driver, self._large_key_groups, self._iterations)
        #: Refuses checkpoints.
        self.checkpoint_api = NoCheckpoints(
            self.graph, CheckpointStatisticsTracker(job, settings.checkpoints, services.clock)
        )

    # Life cycle.

    async def on_start(self) -> None:
        job = self.graph.job
        _log.info(
            "job %s (%s) runs on %s: %s", job.name, job.job_id, job.batch_runner, job.batch_runner_reason
        )
        await self._encoded.prepare(self.graph.job)
        self._check_starts()
        await (self._commits if self._pipeline is None else self._pipeline).recover()
        self._check_starts()
        self._driver.start(self._services.rpc.serve(BATCH_JOB_MASTER, self))
        self._decide(BatchJobStarted(self._now(), commits=bool(self._commits.blob_key)))

    def _check_starts(self) -> None:
        """Raises EndpointStoppedError if the job was cancelled, or the leadership lost, while the master started."""
        if self.graph.status is not JobStatus.INITIALIZING or not self.is_running:
            raise EndpointStoppedError(
                f"{self.name} was stopped before it had started: the job is {self.graph.status.value}"
            )

    async def on_stop(self) -> None:
        self._timers.cancel_all()
        self._driver.stop()
        self._services.rpc.stop_serving(self.name)
        await self._collects.close()

    def on_background_failure(self, error: BaseException) -> None:
        """Fails the job after a bug of the control plane, so that the job does not hang."""
        super().on_background_failure(error)
        cause = failure_of(type(error), f"internal error of the BatchJobMaster: {error!r}")
        self._decide(BatchJobFailed(self._now(), cause))

    def _now(self) -> float:
        return self._services.clock.monotonic()

    # Decisions.

    def _decide(self, event: BatchEvent) -> None:
        self.assert_main_thread()
        self._follow(event, self._scheduler.handle(event))

    def _follow(self, event: PipelineEvent, actions: Sequence[PipelineAction]) -> None:
        self._events.append(msgspec.json.encode({"event": event, "actions": actions}))
        for action in actions:
            self._carry_out(action)

    def _carry_out(self, action: PipelineAction) -> None:
        match action:
            case RequestSparkDriver(run):
                self.spawn(self._driver.request(run, self._driver_configuration()), "request SparkDriver")
            case SubmitPlan(run):
                in_place = () if self._pipeline is None else self._pipeline.stages_in_place
                self.spawn(
                    self._driver.submit(run, self._encoded.present, self._commits.blob_key, in_place),
                    "submit plan",
                )
            case StartStage():
                assert self._pipeline is not None, "only a pipeline starts stages"
                self.spawn(self._pipeline.start(action), "start stage")
            case ReleaseSparkDriver(run, in_order):
                self.spawn(self._release(run, in_order), "release SparkDriver")
            case Pause(seconds):
                self._timers.after("pause", seconds, lambda: self._decide(PausePassed(self._now())))
            case ConcludeJob():
                self.spawn(self._conclude(), "conclude")

    async def _release(self, run: int, in_order: bool) -> None:
        if in_order:
            await self._end_in_order(run)
        await self._driver.release()
        self._decide(SparkDriverEnded(self._now(), run))

    async def _end_in_order(self, run: int) -> None:
        """Lets the driver end what its sinks have begun; a driver that takes too long is ended as it is."""
        if await self._driver.cancel(run):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._cancel_confirmed.wait(), _CANCEL_SECONDS)

    async def _conclude(self) -> None:
        self._timers.cancel_all()
        self._driver.stop()
        await self._collects.close()
        await self._on_ending(self)
        await self.run_blocking(remove_unfinished_savepoint, self.graph.job)
        await self._commits.remove()
        if self._pipeline is not None:
            await self._pipeline.remove_temporary()
        self._ended.set()
        self._on_ended(self)

    def _run_ended_badly(self, run: int, cause: FailureCause) -> None:
        """Fails the job at once for a final cause: the same records would fail again."""
        if cause.is_final:
            self._decide(RunFailed(self._now(), run, cause))
        else:
            self._decide(SparkDriverLost(self._now(), run, cause))

    def _driver_configuration(self) -> dict[str, str]:
        """The configuration of the next driver, which may have to commit alone."""
        return driver_configuration(self.graph.job, commits_only=bool(self._commits.blob_key))

    # For the Dispatcher.

    async def wait_until_ended(self) -> JobStatus:
        """Returns when the job has ended."""
        await self._ended.wait()
        return self.graph.status

    def cancel(self, reason: str = "") -> None:
        """Starts cancelling. `reason` is set if no user has asked for it."""
        self._decide(BatchJobCancelled(self._now(), reason))

    def suspend(self, cause: str) -> None:
        """Ends the job on this master alone, because another master begins it again. Call `stop` afterwards."""
        self.assert_main_thread()
        self._scheduler.suspend(cause)

    async def rescale(self, request: RescaleRequest) -> None:
        """Raises RescaleRefusedError: a bounded job keeps its parallelism."""
        raise RescaleRefusedError(
            f"job {self.graph.job.job_id} runs in BATCH mode and keeps its parallelism: cancel it, and run it with"
            " another one"
        )

    def rate_limits(self) -> RateLimitDetails:
        """The rate limits of the job's sources and sinks."""
        return self._rate_limits.details()

    @cached_property
    def _rate_limits(self) -> BatchRateLimits:
        # Imported late: most jobs have no limits.
        from yarrow.am.jobmaster.batch.batch_rate_limits import BatchRateLimits

        return BatchRateLimits(self.graph, self._encoded, self._driver)

    async def change_rate_limits(self, limits: Mapping[OperatorID, RateLimit]) -> None:
        """Sets other limits. Raises RateLimitRefusedError."""
        self.assert_main_thread()
        await self._rate_limits.change(limits)

    async def event_time(self) -> EventTimeDetails:
        """No event time: in bounded input it ends with the input, and nobody holds it back."""
        now_ms = self._services.clock.epoch_ms()
        return EventTimeDetails(job_id=self.graph.job.job_id, status=self.graph.status, now_ms=now_ms)

    async def spark_page(self, request: SparkPageRequest) -> SparkPage:
        """One of Spark's own pages. Raises NoSparkPagesError."""
        return await self._driver.read_page(request)

    def scheduler_decisions(self, last: int) -> tuple[bytes, ...]:
        """The last events with their actions, each as JSON, oldest first."""
        return tuple(self._events)[-last:] if last > 0 else ()

    def collect_buffer(self, collect_id: str) -> CollectBuffer:
        """The buffer of that collect operator; it outlives the BatchJobMaster until the client has read it."""
        return self._collects.of(collect_id)

    # The gateway.

    async def register_spark_driver(
        self, registration: SparkDriverRegistration
    ) -> RegistrationSuccess | RegistrationRejection:
        return self._driver.register(registration)

    async def report_spark_application(
        self, driver_id: ResourceID, application: SparkApplication
    ) -> Acknowledge:
        run = self._driver.session_started(driver_id, application)
        if run is not None:
            self._decide(SparkSessionStarted(self._now(), run))
        return Acknowledge()

    async def report_stages(
        self, job_id: JobID, run: int, stages: tuple[BatchStageProgress, ...]
    ) -> Acknowledge:
        self._large_key_groups.note(run, stages)
        self._iterations.note(run, stages)
        self._decide(StagesReported(self._now(), run, stages))
        return Acknowledge()

    async def report_subtasks(
        self, job_id: JobID, run: int, subtasks: tuple[BatchSubtaskResult, ...]
    ) -> Acknowledge:
        self._decide(SubtasksReported(self._now(), run, subtasks))
        return Acknowledge()

    async def push_collected(self, rows: CollectRows) -> CollectConfirmation:
        new = self._collected.new_rows(rows)
        return CollectConfirmation() if new is None else await self._collects.push(new)

    async def push_output(self, output: BatchOutput) -> Acknowledge:
        text = self._printed.new_text(output)
        if text:
            await self.run_blocking(self._services.print_output, text)
        return Acknowledge()

    async def store_committables(self, committables: BatchCommittables) -> Acknowledge:
        self._commits.add(committables)
        return Acknowledge()

    async def begin_commit(self, job_id: JobID, run: int) -> Acknowledge:
        if run != self._scheduler.run:
            raise BatchRunError(f"run {run} of job {job_id} is over: it must not commit")
        # A driver may be lost meanwhile: what is stored then has to be known all the same.
        await asyncio.shield(self.run_call(self._begin_commit(job_id, run), f"begin commit of run {run}"))
        return Acknowledge()

    async def _begin_commit(self, job_id: JobID, run: int) -> None:
        """Stores what the run has left, and decides what follows, whether or not its driver still waits."""
        fault_points.reach("batch.before-store", run=run)
        await self._store_commits(job_id, run)
        fault_points.reach("batch.after-store", run=run)
        self._decide(CommitBegun(self._now(), run))
        if not self._executes(run):
            raise BatchRunError(f"run {run} of job {job_id} is over: it must not commit")

    def _executes(self, run: int) -> bool:
        """Whether that run is the present one, and neither lost nor cancelled."""
        return run == self._scheduler.run and self.graph.status is JobStatus.RUNNING

    async def _store_commits(self, job_id: JobID, run: int) -> None:
        """Returns when they are stored; waits while the store is away. Raises BatchRunError and LeadershipLostError."""
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                await self._commits.store(run)
                return
            except LeadershipLostError:
                raise
            except (RecordsError, FileSystemError, OSError) as error:
                _log.warning("what job %s is to commit is not stored yet: %s", job_id, error)
            passed = asyncio.Event()
            self._services.timers.call_later(backoff.next_seconds(), passed.set)
            await passed.wait()
            if not self._executes(run):
                raise BatchRunError(f"run {run} of job {job_id} is over: it must not commit")

    async def check_run(self, job_id: JobID, run: int) -> Acknowledge:
        if not self._executes(run):
            raise BatchRunError(f"run {run} of job {job_id} is over")
        return Acknowledge()

    async def begin_stage_commit(self, commit: StageCommit) -> Acknowledge:
        if self._pipeline is None:
            raise BatchRunError(f"job {commit.job_id} is no pipeline")
        # The driver may be lost meanwhile: what is stored then has to be known all the same.
        await asyncio.shield(self.run_call(self._pipeline.begin_commit(commit), "begin commit of a stage"))
        return Acknowledge()

    async def report_stage_end(self, end: StageEnd) -> Acknowledge:
        if self._pipeline is not None:
            self._pipeline.ended(end)
        return Acknowledge()

    async def fail_batch(self, job_id: JobID, run: int, cause: FailureCause) -> Acknowledge:
        self._run_ended_badly(run, cause)
        return Acknowledge()

    async def finish_batch(self, result: BatchResult) -> Acknowledge:
        self._large_key_groups.note(result.run, result.stages)
        self._iterations.note(result.run, result.stages)
        self._decide(StagesReported(self._now(), result.run, result.stages))
        self._decide(RunFinished(self._now(), result.run))
        # A pipeline's run ends when it is told to.
        self._cancel_confirmed.set()
        return Acknowledge()

    async def confirm_cancelled(self, job_id: JobID, run: int) -> Acknowledge:
        self._cancel_confirmed.set()
        return Acknowledge()

    async def notify_not_enough_resources(self, driver_id: ResourceID, explanation: str) -> Acknowledge:
        self._driver.lacks_resources(driver_id, explanation)
        return Acknowledge()

    async def read_spark_configuration(self, driver_id: ResourceID) -> SparkConfiguration:
        return SparkConfiguration(configuration=self._driver_configuration())

    async def disconnect_spark_driver(self, driver_id: ResourceID, cause: FailureCause) -> Acknowledge:
        self._driver.disconnected(driver_id, cause)
        return Acknowledge()

    async def read_blob(self, key: str, offset: int, length: int) -> BlobPart:
        data, size = await self.run_blocking(self._services.blobs.read, key, offset, length)
        return BlobPart(data=data, total_size=size)
