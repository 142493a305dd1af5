"""Dispatcher: accepts jobs, gives each a JobMaster, and answers questions about them.

Owner: its endpoint loop, which its JobMasters share. Must not schedule (job_master.py) nor know transports.
job_ends.py handles the end of a job, job_recovery.py the jobs of earlier leaderships.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from yarrow.am.checkpoint.recovery_records import RecordedCheckpointRecovery
from yarrow.am.checkpoint.restore import dispose_savepoint, starting_point
from yarrow.am.checkpoint.statistics import CheckpointStatisticsTracker
from yarrow.am.dispatcher.attached_clients import AttachedClients
from yarrow.am.dispatcher.finished_jobs import FinishedJobs
from yarrow.am.dispatcher.job_ends import JobEnds
from yarrow.am.dispatcher.job_graph_store import JobGraphStore
from yarrow.am.dispatcher.job_recovery import JobRecovery
from yarrow.am.dispatcher.jobs import Jobs, blobs_of, has_run
from yarrow.am.dispatcher.records_retry import LAST_PAUSE, RecordsRetry
from yarrow.am.dispatcher.refused_jobs import RefusedJobs
from yarrow.am.dispatcher.schedule_store import ScheduleStore
from yarrow.am.dispatcher.schedules import Schedules
from yarrow.am.dispatcher.settings import DispatcherSettings
from yarrow.am.dispatcher.validation import decode_and_validate
from yarrow.am.execution.errors import UnknownCollectError
from yarrow.am.jobmaster.job_master import JobMaster
from yarrow.am.jobmaster.running_job import RunningJob
from yarrow.am.jobmaster.services import JobMasterServices
from yarrow.common.job_status import JobStatus
from yarrow.common.values.schedule import Schedule
from yarrow.runtime.common.errors import (
    CheckpointFailedError,
    JobAlreadyEndedError,
    JobNotFoundError,
    JobSubmissionError,
    YarrowError,
)
from yarrow.runtime.common.ids import DispatcherID, JobID, ScheduleID
from yarrow.runtime.config.options import execution, rpc
from yarrow.runtime.data.checkpoint_options import CheckpointType
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import JobType
from yarrow.runtime.ha.records import LeadershipLostError, RecordsError
from yarrow.runtime.ha.services import token_of_epoch
from yarrow.runtime.rpc.batch_gateways import NoSparkPagesError
from yarrow.runtime.rpc.checkpoint_statistics import CheckpointRecord, CheckpointStatistics
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.gateway_type import DISPATCHER, RESOURCE_MANAGER
from yarrow.runtime.rpc.gateways import ResourceManagerGateway
from yarrow.runtime.rpc.leader import LeaderInformation
from yarrow.runtime.rpc.messages import (
    COLLECT_START,
    Acknowledge,
    ClusterOverview,
    CollectPosition,
    CollectRows,
    EventTimeDetails,
    ExecutionGraphDetails,
    JobOverview,
    JobResult,
    RateLimitDetails,
    RateLimitRequest,
    RescaleRequest,
    SavepointRequest,
    ScheduleOverview,
    SparkPage,
    SparkPageRequest,
)

if TYPE_CHECKING:
    from yarrow.am.dispatcher.rate_limit_changes import RateLimitChanges

_log = logging.getLogger(__name__)

ENDPOINT_NAME = "dispatcher"


class Dispatcher(RpcEndpoint):
    """The Dispatcher of one leadership; implements DispatcherGateway."""

    def __init__(
        self,
        services: JobMasterServices,
        store: JobGraphStore,
        schedules: ScheduleStore,
        recovery: RecordedCheckpointRecovery,
        settings: DispatcherSettings,
        on_shut_down: Callable[[], None],
    ) -> None:
        """The stores and `recovery` belong to the leadership under which this Dispatcher works.

        `on_shut_down` is called when a client asks to end the cluster.
        """
        self.leader_id = DispatcherID(token_of_epoch(services.epoch, services.ids.hex_id()))
        super().__init__(ENDPOINT_NAME, self.leader_id)
        self._services = services
        self._store = store
        self._settings = settings
        finished = FinishedJobs(settings.finished_jobs, settings.finished_expiration, services.clock)
        self._jobs = Jobs(finished)
        self._schedules = Schedules(self, services, schedules, self._jobs, self.submit_job, store.end_of)
        self._ends = JobEnds(self, services, store, recovery, self._jobs, settings, self._schedules.run_ended)
        self._recovery = JobRecovery(self, services, store, self._jobs, self._ends, self._recover)
        self._refused = RefusedJobs(self._remove_stored, RecordsRetry(self, services.timers).pause)
        self._clock = services.clock
        self._clients = AttachedClients(services.clock, services.timers, self._client_is_gone)
        self._resource_manager: ResourceManagerGateway | None = None
        self._stopping = False
        self._on_shut_down = on_shut_down
        self.address = ""

    async def on_start(self) -> None:
        self.address = self._services.rpc.serve(DISPATCHER, self)
        self._services.resource_manager.start(self._resource_manager_changed)
        # Jobs are known before anybody can ask for them; slow work comes after.
        await self._schedules.load()
        await self._recovery.begin()
        self._schedules.begin()

    async def on_stop(self) -> None:
        """Suspends running jobs: their data stay, and the next leader continues them."""
        # From here on no JobMaster starts; those that are starting end by themselves.
        self._stopping = True
        self._clients.close()
        self._services.resource_manager.stop(self._resource_manager_changed)
        self._services.rpc.stop_serving(self.name)
        for master in (*self._jobs.running.values(), *self._jobs.ending):
            try:
                master.suspend("its Dispatcher leads no more")
                await master.stop()
            except Exception:
                # The others must stop nevertheless.
                _log.exception("%s failed while it stopped", master.name)
        await self._ends.close()

    @property
    def leader(self) -> LeaderInformation:
        """The address for clients."""
        return LeaderInformation(address=self.address, leader_id=self.leader_id)

    def _resource_manager_changed(self, leader: LeaderInformation | None) -> None:
        self._resource_manager = (
            self._services.rpc.connect(leader.address, RESOURCE_MANAGER, leader.leader_id)
            if leader is not None
            else None
        )

    # The gateway.

    async def submit_job(self, job_graph: bytes) -> JobID:
        self.assert_main_thread()
        graph = decode_and_validate(job_graph)
        self._settings.check_job(graph)
        job_id = graph.job_id
        self._jobs.check_new(job_id)
        blobs = self._jobs.starting[job_id] = blobs_of(graph)
        try:
            if (result := await self.run_blocking(self._store.result, job_id)) is not None:
                raise has_run(job_id, result.status)
            await self.run_blocking(self._services.blobs.require, blobs)
            await self._refused.submitted_again(job_id)
            try:
                await self.run_blocking(self._store.put, job_id, job_graph, graph.name)
                await self._run(graph)
            except Exception:
                await self._take_back(job_id)
                raise
        except Exception as error:
            if isinstance(error, YarrowError):
                raise
            raise JobSubmissionError(f"job {graph.name!r} could not be started: {error!r}") from error
        finally:
            del self._jobs.starting[job_id]
            # Not before: a removal of another job's blobs at this moment spares these.
            self._services.blobs.expect_no_more(blobs)
        return job_id

    async def _take_back(self, job_id: JobID) -> None:
        """Removes a job that could not be started, so that the next leader does not find it."""
        if not await self._refused.take_back(job_id) and not self._stopping:
            self.spawn(self._refused.until_removed(job_id), f"take back {job_id}")

    async def _remove_stored(self, job_id: JobID) -> None:
        await self.run_blocking(self._store.remove, job_id)

    async def submit_stored_job(self, blob_key: str) -> JobID:
        job_id = await self.submit_job(await self.run_blocking(self._services.blobs.get, blob_key))
        # The blob is now stored as a job; TaskExecutors still read it from here.
        await self.run_blocking(self._services.blobs.keep_here, blob_key)
        return job_id

    async def list_jobs(self) -> tuple[JobOverview, ...]:
        ended = [job.overview for job in self._jobs.finished.all()]
        recovering = [job.overview() for job in self._jobs.recovering.values()]
        return (*(master.queries.overview() for master in self._jobs.running.values()), *recovering, *ended)

    async def request_job_status(self, job_id: JobID) -> JobStatus:
        if (master := self._jobs.running.get(job_id)) is not None:
            return master.graph.status
        if job_id in self._jobs.recovering:
            return JobStatus.INITIALIZING
        return (await self._recovery.ended_before(job_id)).overview.status

    async def request_job_details(self, job_id: JobID) -> ExecutionGraphDetails:
        if (master := self._jobs.running.get(job_id)) is not None:
            return master.queries.details()
        if (recovering := self._jobs.recovering.get(job_id)) is not None:
            return recovering.details()
        return (await self._recovery.ended_before(job_id)).details

    async def request_job_result(self, job_id: JobID) -> JobResult:
        if (recovering := self._jobs.recovering.get(job_id)) is not None:
            await recovering.done.wait()
        if (master := self._jobs.running.get(job_id)) is not None:
            await master.wait_until_ended()
            return master.queries.result()
        return (await self._recovery.ended_before(job_id)).result

    async def cancel_job(self, job_id: JobID) -> Acknowledge:
        return await self._cancel(job_id)

    async def _cancel(self, job_id: JobID, reason: str = "") -> Acknowledge:
        self._check_cancellable(job_id)
        # Stored before the answer: if this master dies now, the next one cancels the job.
        await self.run_blocking(self._store.mark_cancelled, job_id)
        try:
            self._check_cancellable(job_id)
        except (JobAlreadyEndedError, JobNotFoundError):
            await self._forget_late_mark(job_id)
            raise
        if (recovering := self._jobs.recovering.get(job_id)) is not None:
            recovering.cancelled.set()
        elif (kept := self._jobs.kept.get(job_id)) is not None:
            await self._recovery.give_up(kept)
        else:
            self._jobs.running[job_id].cancel(reason)
        return Acknowledge()

    async def _forget_late_mark(self, job_id: JobID) -> None:
        """Removes the cancel mark of a job that ended meanwhile; if the job is removed, the mark is its only record."""
        try:
            await self.run_blocking(self._store.remove_mark_of_nothing, job_id)
        except RecordsError as error:
            _log.warning(
                "the record of the ended job %s is not removed, the next leader removes it: %s", job_id, error
            )

    def _check_cancellable(self, job_id: JobID) -> None:
        if job_id in self._jobs.recovering or job_id in self._jobs.kept:
            return
        master = self._jobs.running.get(job_id)
        status = master.graph.status if master is not None else self._jobs.ended(job_id).overview.status
        if master is None or status.is_globally_terminal_state():
            raise JobAlreadyEndedError(
                f"job {job_id} cannot be cancelled: its status is {status.value} already"
            )

    async def report_job_client_heartbeat(self, job_id: JobID) -> Acknowledge:
        await self.request_job_status(job_id)  # refuses unknown ids
        self._clients.note_heartbeat(job_id)
        return Acknowledge()

    def _client_is_gone(self, job_id: JobID, seconds: float) -> None:
        if (
            master := self._jobs.running.get(job_id)
        ) is not None and not master.graph.status.is_globally_terminal_state():
            # On a second try, `seconds` is the pause before it.
            silence = max(seconds, master.graph.job.client_heartbeat_timeout)
            self.spawn(self._cancel_abandoned(job_id, silence), f"cancel {job_id}")

    async def _cancel_abandoned(self, job_id: JobID, seconds: float) -> None:
        """Cancels a job that was to end with its client, which is gone."""
        reason = (
            f"the job was to end with its client (-sae, {execution.SHUTDOWN_ON_ATTACHED_EXIT.key}), which "
            f"has been silent for {seconds:g} s ({rpc.CLIENT_HEARTBEAT_TIMEOUT.key})"
        )
        _log.warning("job %s is cancelled: %s", job_id, reason)
        try:
            await self._cancel(job_id, reason)
        except (JobAlreadyEndedError, JobNotFoundError, LeadershipLostError):
            return
        except RecordsError as error:
            _log.warning(
                "job %s cannot be cancelled yet: %s; the Dispatcher tries again in %.1f s",
                job_id,
                error,
                LAST_PAUSE,
            )
            self._clients.expect(job_id, LAST_PAUSE)

    # The gateway: schedules.

    async def create_schedule(self, blob_key: str, schedule: Schedule) -> ScheduleOverview:
        return await self._schedules.create(blob_key, schedule)

    async def list_schedules(self) -> tuple[ScheduleOverview, ...]:
        return self._schedules.all()

    async def request_schedule(self, schedule_id: ScheduleID) -> ScheduleOverview:
        return self._schedules.get(schedule_id)

    async def cancel_schedule(self, schedule_id: ScheduleID) -> JobID | None:
        return await self._schedules.cancel(schedule_id)

    async def request_overview(self) -> ClusterOverview:
        counts = Counter(job.overview.status for job in self._jobs.finished.all())
        executors = await self._resource_manager.request_task_executors() if self._resource_manager else ()
        return ClusterOverview(
            task_executors=len(executors),
            slots_total=sum(len(info.registration.slot_report.slots) for info in executors),
            slots_available=sum(info.free_slots for info in executors),
            jobs_running=len(self._jobs.running) + len(self._jobs.recovering),
            jobs_finished=counts[JobStatus.FINISHED],
            jobs_cancelled=counts[JobStatus.CANCELED],
            jobs_failed=counts[JobStatus.FAILED],
        )

    # The gateway: checkpoints.

    async def trigger_checkpoint(
        self, job_id: JobID, checkpoint_type: CheckpointType = CheckpointType.CONFIGURED
    ) -> int:
        return await self._live(job_id, "takes no checkpoint").checkpoint_api.trigger_checkpoint(
            checkpoint_type
        )

    async def trigger_savepoint(self, job_id: JobID, request: SavepointRequest) -> str:
        return await self._live(job_id, "takes no savepoint").checkpoint_api.trigger_savepoint(request)

    async def rescale_job(self, job_id: JobID, request: RescaleRequest) -> Acknowledge:
        master = self._live(job_id, "cannot be rescaled")
        await master.rescale(request)
        return Acknowledge()

    async def request_rate_limits(self, job_id: JobID) -> RateLimitDetails:
        return self._live(job_id, "shows no rate limits").rate_limits()

    @cached_property
    def _rate_limit_changes(self) -> RateLimitChanges:
        # Imported late: few jobs have their limits changed.
        from yarrow.am.dispatcher.rate_limit_changes import RateLimitChanges

        return RateLimitChanges(self._store, self.run_blocking)

    async def change_rate_limits(self, job_id: JobID, request: RateLimitRequest) -> RateLimitDetails:
        return await self._rate_limit_changes.change(
            job_id, lambda: self._live(job_id, "takes no rate limits"), request.limits
        )

    async def dispose_savepoint(self, path: str) -> Acknowledge:
        await self.run_blocking(dispose_savepoint, path)
        return Acknowledge()

    async def request_checkpoint_statistics(self, job_id: JobID) -> CheckpointStatistics:
        return self._checkpoints_of(job_id).statistics()

    async def request_scheduler_decisions(self, job_id: JobID, last: int) -> tuple[bytes, ...]:
        if (master := self._jobs.running.get(job_id)) is not None:
            return master.scheduler_decisions(last)
        if job_id in self._jobs.recovering:
            return ()
        status = self._jobs.ended(job_id).overview.status
        raise JobAlreadyEndedError(
            f"job {job_id} shows no decisions of its scheduler, which are kept while the job runs: its "
            f"status is {status.value} already"
        )

    async def request_event_time(self, job_id: JobID) -> EventTimeDetails:
        if (master := self._jobs.running.get(job_id)) is not None:
            return await master.event_time()
        if job_id in self._jobs.recovering:
            return EventTimeDetails(
                job_id=job_id, status=JobStatus.INITIALIZING, now_ms=self._clock.epoch_ms()
            )
        status = self._jobs.ended(job_id).overview.status
        raise JobAlreadyEndedError(f"job {job_id} has no event time any more: its status is {status.value}")

    async def request_spark_page(self, job_id: JobID, request: SparkPageRequest) -> SparkPage:
        if (master := self._jobs.running.get(job_id)) is not None:
            return await master.spark_page(request)
        if job_id in self._jobs.recovering:
            raise NoSparkPagesError(
                f"job {job_id} is INITIALIZING under a new leader: ask again when it runs"
            )
        status = self._jobs.ended(job_id).overview.status
        raise JobAlreadyEndedError(
            f"job {job_id} has no pages of Spark's any more: its status is {status.value}"
        )

    async def request_checkpoint(self, job_id: JobID, checkpoint_id: int) -> CheckpointRecord | None:
        return self._checkpoints_of(job_id).record(checkpoint_id)

    def _checkpoints_of(self, job_id: JobID) -> CheckpointStatisticsTracker:
        if (master := self._jobs.running.get(job_id)) is not None:
            return master.checkpoint_api.statistics
        if (recovering := self._jobs.recovering.get(job_id)) is not None:
            return recovering.statistics
        return self._jobs.ended(job_id).checkpoints

    def _live(self, job_id: JobID, otherwise: str) -> RunningJob:
        master = self._jobs.running.get(job_id)
        if job_id in self._jobs.recovering:
            problem = self._jobs.recovering[job_id].problem
            raise CheckpointFailedError(
                f"job {job_id} {otherwise}: it is INITIALIZING under a new leader{f' ({problem})' * bool(problem)}, try"
                " again when it runs"
            )
        if master is None:
            status = self._jobs.ended(job_id).overview.status
            raise JobAlreadyEndedError(f"job {job_id} {otherwise}: its status is {status.value} already")
        return master

    # The gateway: results and files.

    async def fetch_collected(
        self, job_id: JobID, collect_id: str, max_rows: int, position: CollectPosition = COLLECT_START
    ) -> tuple[CollectRows, ...]:
        if (master := self._jobs.running.get(job_id)) is not None:
            return await master.collect_buffer(collect_id).fetch(max_rows, position)
        if job_id in self._jobs.recovering:
            return ()
        buffer = self._jobs.ended(job_id).collects.get(collect_id)
        if buffer is None:
            raise UnknownCollectError(
                f"job {job_id} has no collect operator {collect_id!r}, or the job ended under another "
                "master, and the rows not yet fetched are lost. Fetch rows while the job runs, or write "
                "to a sink"
            )
        return await buffer.fetch(max_rows, position)

    async def put_blob(self, data: bytes) -> str:
        return await self.run_blocking(self._services.blobs.put, data)

    async def shut_down_cluster(self) -> Acknowledge:
        # After the answer is out.
        self.loop.call_soon(self._on_shut_down)
        return Acknowledge()

    # Jobs.

    async def _run(self, graph: JobGraph, recovering: bool = False) -> None:
        master = await self._master_of(graph, recovering)
        self._check_leads(graph.job_id)
        self._jobs.running[graph.job_id] = master
        try:
            await master.start()
            self._check_leads(graph.job_id)
        except BaseException:
            # A job that was cancelled while its master started may have ended already.
            self._jobs.running.pop(graph.job_id, None)
            await master.stop()
            raise
        if graph.client_heartbeat_timeout > 0:
            self._clients.expect(graph.job_id, graph.client_heartbeat_timeout)
        _log.info("job %s (%s) started", graph.name, graph.job_id)

    async def _master_of(self, graph: JobGraph, recovering: bool) -> RunningJob:
        settings, ends = self._settings.job_master(graph), self._ends
        if graph.job_type is JobType.BATCH:
            # Loaded for bounded jobs alone.
            from yarrow.am.jobmaster.batch.batch_job_master import BatchJobMaster

            return BatchJobMaster(graph, self._services, settings, ends.record, ends.begin)
        graph, start = await self.run_blocking(
            starting_point,
            graph,
            settings.checkpoints,
            recovering=recovering,
            recovery=self._services.checkpoint_recovery,
        )
        return JobMaster(graph, self._services, settings, start, ends.record, ends.begin)

    async def _recover(self, graph: JobGraph) -> None:
        await self._run(graph, recovering=True)

    def _check_leads(self, job_id: JobID) -> None:
        if self._stopping:
            raise LeadershipLostError(
                f"job {job_id} is not started here: this Dispatcher does not lead any more. The job is "
                "stored, and the next leader may run it"
            )

    @property
    def keeps_jobs(self) -> bool:
        """Whether some jobs could not be taken over: reported as FAILED, they have not ended for good."""
        return bool(self._jobs.kept)

    async def has_unfinished_jobs(self) -> bool:
        """Whether unfinished jobs are stored, or schedules that would run more of them. Raises RecordsError."""
        if self._schedules.has_some:
            return True

        def look() -> bool:
            ended = set(self._store.ended())
            return any(
                job_id not in ended and self._store.is_stored(job_id) for job_id in self._store.job_ids()
            )

        return await self.run_blocking(look)
