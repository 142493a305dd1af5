"""Dispatcher: takes jobs, gives each a JobMaster, remembers those that ended.

Owner: its endpoint loop, which its JobMasters share. Must not schedule (job_master.py) nor know transports.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from yarrow.am.checkpoint.recovery_records import RecordedCheckpointRecovery
from yarrow.am.checkpoint.restore import dispose_savepoint, remove_checkpoints, starting_point
from yarrow.am.checkpoint.statistics import CheckpointStatisticsTracker
from yarrow.am.dispatcher.finished_jobs import FinishedJob, FinishedJobs
from yarrow.am.dispatcher.job_archive import JobArchive, JobArchiver
from yarrow.am.dispatcher.job_graph_store import JobGraphStore, StoredJobError, StoredResult
from yarrow.am.dispatcher.recovering_job import RecoveringJob, passes_by_itself
from yarrow.am.dispatcher.refused_jobs import RefusedJobs
from yarrow.am.dispatcher.validation import decode_and_validate
from yarrow.am.errors import UnknownCollectError
from yarrow.am.jobmaster.collect import CollectBuffer
from yarrow.am.jobmaster.job_master import JobMaster, JobMasterServices
from yarrow.am.jobmaster.settings import JobMasterSettings
from yarrow.runtime.common.errors import (
    CheckpointFailedError,
    DuplicateJobError,
    JobAlreadyEndedError,
    JobNotFoundError,
    JobSubmissionError,
    YarrowError,
)
from yarrow.runtime.common.ids import DispatcherID, JobID, is_hex_id
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.operator_spec import CollectOperator
from yarrow.runtime.graph.states import JobStatus
from yarrow.runtime.ha.records import LeadershipLostError, RecordsError
from yarrow.runtime.ha.services import token_of_epoch
from yarrow.runtime.rpc.checkpoint_statistics import CheckpointRecord, CheckpointStatistics
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.gateway_type import DISPATCHER, RESOURCE_MANAGER
from yarrow.runtime.rpc.gateways import ResourceManagerGateway
from yarrow.runtime.rpc.leader import LeaderInformation
from yarrow.runtime.rpc.messages import (
    Acknowledge,
    ClusterOverview,
    CollectRows,
    ExecutionGraphDetails,
    JobOverview,
    JobResult,
    RescaleRequest,
    SavepointRequest,
)
from yarrow.runtime.snapshot.options import CheckpointType

T = TypeVar("T")
_log = logging.getLogger(__name__)

ENDPOINT_NAME = "dispatcher"
#: Seconds between two attempts at what storage or ZooKeeper has refused: doubled from the first to the last.
_FIRST_PAUSE, _LAST_PAUSE = 0.5, 10.0


@dataclass(frozen=True, slots=True)
class DispatcherSettings:
    """Options of the Dispatcher."""

    #: jobstore.max-capacity: ended jobs kept.
    finished_jobs: int = 100
    #: jobstore.expiration-time, in seconds.
    finished_expiration: float = 3600.0
    #: True = how jobs have ended is kept as long as the cluster id, so that no id runs twice.
    keep_results: bool = False
    #: jobmanager.archive.fs.dir: where ended jobs are archived; None = nowhere.
    archive: JobArchive | None = None
    #: Raises YarrowError for a job whose own configuration cannot be on this cluster.
    check_job: Callable[[JobGraph], None] = field(default=lambda graph: None)
    #: Settings of a job, given its own configuration.
    job_master: Callable[[JobGraph], JobMasterSettings] = field(default=lambda graph: JobMasterSettings())


class Dispatcher(RpcEndpoint):
    """Implements DispatcherGateway."""

    def __init__(
        self,
        services: JobMasterServices,
        store: JobGraphStore,
        recovery: RecordedCheckpointRecovery,
        settings: DispatcherSettings,
    ) -> None:
        """`store` and `recovery` are of the leadership under which this Dispatcher works."""
        self.leader_id = DispatcherID(token_of_epoch(services.epoch, services.ids.hex_id()))
        super().__init__(ENDPOINT_NAME, self.leader_id)
        self._services = services
        self._store = store
        self._recovery = recovery
        self._settings = settings
        self._masters: dict[JobID, JobMaster] = {}
        #: Stored by an earlier leadership, without a JobMaster yet.
        self._recovering: dict[JobID, RecoveringJob] = {}
        #: Stored by an earlier leadership, and left to the next one: what they need stays.
        self._kept: dict[JobID, RecoveringJob] = {}
        #: Of jobs that have ended, until they are stopped.
        self._ending: set[JobMaster] = set()
        #: Accepted, their JobMaster not started yet, with the blobs that they need.
        self._starting: dict[JobID, tuple[str, ...]] = {}
        self._refused = RefusedJobs(self._remove_stored, self._pause)
        self._finished = FinishedJobs(settings.finished_jobs, settings.finished_expiration, services.clock)
        self._archiver = JobArchiver(settings.archive, services.clock, services.ids)
        self._resource_manager: ResourceManagerGateway | None = None
        self._stopping = False
        #: Called when a client asks for the end of the cluster.
        self.on_shut_down: Callable[[], None] = lambda: None
        self.address = ""

    async def on_start(self) -> None:
        self.address = self._services.rpc.serve(DISPATCHER, self)
        self._services.resource_manager.start(self._resource_manager_changed)
        # Known before anybody can ask for them; what takes long comes after.
        for job_id, name in await self._persistently(self._stored_jobs, "the stored jobs"):
            job = RecoveringJob(job_id, name, self._services.clock, self._services.ids)
            self._recovering[job_id] = job
            self.spawn(self._recover(job), f"recover {job_id}")

    async def on_stop(self) -> None:
        """Jobs that run are suspended: nothing of them is removed, and the next leader goes on with them."""
        # From here on no JobMaster starts: those that are being started end by themselves.
        self._stopping = True
        self._services.resource_manager.stop(self._resource_manager_changed)
        self._services.rpc.stop_serving(self.name)
        for master in (*self._masters.values(), *self._ending):
            try:
                master.suspend("its Dispatcher leads no more")
                await master.stop()
            except Exception:
                # The others are to stop all the same.
                _log.exception("%s did not stop as it should", master.name)
        await self._archiver.close()

    @property
    def leader(self) -> LeaderInformation:
        """Where clients find it."""
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
        if job_id in self._masters or job_id in self._starting or job_id in self._recovering:
            raise DuplicateJobError(
                f"a job of the id {job_id} is running already: give the new one another id"
            )
        if (ended := self._finished.get(job_id)) is not None:
            raise _has_run(job_id, ended.overview.status)
        blobs = self._starting[job_id] = _blobs_of(graph)
        try:
            if (result := await self.run_blocking(self._store.result, job_id)) is not None:
                raise _has_run(job_id, result.status)
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
            del self._starting[job_id]
            # Not before: whoever removes blobs of another job in this moment leaves these.
            self._services.blobs.expect_no_more(blobs)
        return job_id

    async def _take_back(self, job_id: JobID) -> None:
        """Of a job that could not be started nothing is to be found by the next leader."""
        if not await self._refused.take_back(job_id) and not self._stopping:
            self.spawn(self._refused.until_removed(job_id), f"take back {job_id}")

    async def _remove_stored(self, job_id: JobID) -> None:
        await self.run_blocking(self._store.remove, job_id)

    async def submit_stored_job(self, blob_key: str) -> JobID:
        job_id = await self.submit_job(await self.run_blocking(self._services.blobs.get, blob_key))
        # Stored as a job now; TaskExecutors still read it from here.
        await self.run_blocking(self._services.blobs.keep_here, blob_key)
        return job_id

    async def list_jobs(self) -> tuple[JobOverview, ...]:
        ended = [job.overview for job in self._finished.all()]
        recovering = [job.overview() for job in self._recovering.values()]
        return (*(master.overview() for master in self._masters.values()), *recovering, *ended)

    async def request_job_status(self, job_id: JobID) -> JobStatus:
        if (master := self._masters.get(job_id)) is not None:
            return master.graph.status
        if job_id in self._recovering:
            return JobStatus.INITIALIZING
        return (await self._ended_before(job_id)).overview.status

    async def request_job_details(self, job_id: JobID) -> ExecutionGraphDetails:
        if (master := self._masters.get(job_id)) is not None:
            return master.details()
        if (recovering := self._recovering.get(job_id)) is not None:
            return recovering.details()
        return (await self._ended_before(job_id)).details

    async def request_job_result(self, job_id: JobID) -> JobResult:
        if (recovering := self._recovering.get(job_id)) is not None:
            await recovering.done.wait()
        if (master := self._masters.get(job_id)) is not None:
            await master.wait_until_ended()
            return master.result()
        return (await self._ended_before(job_id)).result

    async def cancel_job(self, job_id: JobID) -> Acknowledge:
        self._check_cancellable(job_id)
        # Stored before it is promised: should this master die now, the next one cancels the job.
        await self.run_blocking(self._store.mark_cancelled, job_id)
        try:
            self._check_cancellable(job_id)
        except (JobAlreadyEndedError, JobNotFoundError):
            await self._forget_late_mark(job_id)
            raise
        if (recovering := self._recovering.get(job_id)) is not None:
            recovering.cancelled.set()
        else:
            self._masters[job_id].cancel()
        return Acknowledge()

    async def _forget_late_mark(self, job_id: JobID) -> None:
        """The job has ended while it was marked; where it was removed before, the mark is all that is stored of it."""
        try:
            await self.run_blocking(self._store.remove_mark_of_nothing, job_id)
        except RecordsError as error:
            _log.warning("the mark of job %s, which has ended, is left to the next leader: %s", job_id, error)

    def _check_cancellable(self, job_id: JobID) -> None:
        if job_id in self._recovering:
            return
        master = self._masters.get(job_id)
        status = master.graph.status if master is not None else self._ended(job_id).overview.status
        if master is None or status.is_globally_terminal:
            raise JobAlreadyEndedError(f"job {job_id} cannot be cancelled: it is {status.value} already")

    async def request_overview(self) -> ClusterOverview:
        counts = Counter(job.overview.status for job in self._finished.all())
        executors = await self._resource_manager.request_task_executors() if self._resource_manager else ()
        return ClusterOverview(
            task_executors=len(executors),
            slots_total=sum(len(info.registration.slot_report.slots) for info in executors),
            slots_available=sum(info.free_slots for info in executors),
            jobs_running=len(self._masters) + len(self._recovering),
            jobs_finished=counts[JobStatus.FINISHED],
            jobs_cancelled=counts[JobStatus.CANCELED],
            jobs_failed=counts[JobStatus.FAILED],
        )

    # The gateway: checkpoints.

    async def trigger_checkpoint(
        self, job_id: JobID, checkpoint_type: CheckpointType = CheckpointType.CONFIGURED
    ) -> int:
        return await self._live(job_id, "takes no checkpoint").trigger_checkpoint(checkpoint_type)

    async def trigger_savepoint(self, job_id: JobID, request: SavepointRequest) -> str:
        return await self._live(job_id, "takes no savepoint").trigger_savepoint(request)

    async def rescale_job(self, job_id: JobID, request: RescaleRequest) -> Acknowledge:
        master = self._live(job_id, "cannot be rescaled")
        await master.rescale(request.parallelism, request.every, request.trigger_cause)
        return Acknowledge()

    async def dispose_savepoint(self, path: str) -> Acknowledge:
        await self.run_blocking(dispose_savepoint, path)
        return Acknowledge()

    async def request_checkpoint_statistics(self, job_id: JobID) -> CheckpointStatistics:
        return self._checkpoints_of(job_id).statistics()

    async def request_checkpoint(self, job_id: JobID, checkpoint_id: int) -> CheckpointRecord | None:
        return self._checkpoints_of(job_id).record(checkpoint_id)

    def _checkpoints_of(self, job_id: JobID) -> CheckpointStatisticsTracker:
        if (master := self._masters.get(job_id)) is not None:
            return master.checkpoint_statistics
        if (recovering := self._recovering.get(job_id)) is not None:
            return recovering.statistics
        return self._ended(job_id).checkpoints

    def _live(self, job_id: JobID, otherwise: str) -> JobMaster:
        master = self._masters.get(job_id)
        if job_id in self._recovering:
            problem = self._recovering[job_id].problem
            raise CheckpointFailedError(
                f"job {job_id} {otherwise}: it is INITIALIZING under a new leader{f' ({problem})' * bool(problem)}, try"
                " again when it runs"
            )
        if master is None:
            status = self._ended(job_id).overview.status
            raise JobAlreadyEndedError(f"job {job_id} {otherwise}: it is {status.value} already")
        return master

    # The gateway: results and files.

    async def fetch_collected(self, job_id: JobID, collect_id: str, max_rows: int) -> tuple[CollectRows, ...]:
        if (master := self._masters.get(job_id)) is not None:
            return await master.fetch_collected(collect_id, max_rows)
        if job_id in self._recovering:
            return ()
        buffer = self._ended(job_id).collects.get(collect_id)
        if buffer is None:
            raise UnknownCollectError(f"job {job_id} has no collect operator {collect_id!r}")
        return await buffer.fetch(max_rows)

    async def put_blob(self, data: bytes) -> str:
        return await self.run_blocking(self._services.blobs.put, data)

    async def get_blob(self, key: str) -> bytes:
        return await self.run_blocking(self._services.blobs.get, key)

    async def shut_down_cluster(self) -> Acknowledge:
        # After the answer is out.
        self.loop.call_soon(self.on_shut_down)
        return Acknowledge()

    # Jobs.

    async def _run(self, graph: JobGraph, recovering: bool = False) -> None:
        settings = self._settings.job_master(graph)
        graph, start = await self.run_blocking(
            starting_point,
            graph,
            settings.checkpoints,
            recovering=recovering,
            recovery=self._services.checkpoint_recovery,
        )
        master = JobMaster(graph, self._services, settings, start)
        master.on_ending = self._job_ending
        master.on_ended = self._job_ended
        self._check_leads(graph.job_id)
        self._masters[graph.job_id] = master
        try:
            await master.start()
            self._check_leads(graph.job_id)
        except BaseException:
            del self._masters[graph.job_id]
            await master.stop()
            raise
        _log.info("job %s (%s) started", graph.name, graph.job_id)

    def _check_leads(self, job_id: JobID) -> None:
        if self._stopping:
            raise LeadershipLostError(
                f"job {job_id} is not started here: this Dispatcher leads no more. It is stored: the next leader may"
                " run it"
            )

    # Jobs of earlier leaderships.

    def _stored_jobs(self) -> list[tuple[JobID, str]]:
        """Blocking: all that run or are still to be cleaned up, with their names."""
        found: dict[JobID, str] = {}
        for job_id in self._store.job_ids():
            if self._store.remove_mark_of_nothing(job_id):
                continue
            try:
                found[job_id] = self._store.stored(job_id).name
            except (KeyError, StoredJobError):
                found[job_id] = ""
        for job_id in self._store.ended():
            found.setdefault(job_id, "")
        return list(found.items())

    async def _recover(self, job: RecoveringJob) -> None:
        """Until the job runs again, or has ended; tried again while what is in the way may go away."""
        pause = _FIRST_PAUSE
        while True:
            try:
                await self._try_to_recover(job)
                break
            except LeadershipLostError as error:
                _log.info("job %s is left to the next leader: %s", job.job_id, error)
                return
            except Exception as error:
                if not passes_by_itself(error):
                    self._cannot_recover(job, error)
                    break
                job.problem = f"cannot be started again yet: {error}"
                _log.warning("job %s %s; next try in %.1f s", job.job_id, job.problem, pause)
            await self._pause(pause, None if job.cancelled.is_set() else job.cancelled)
            pause = min(2 * pause, _LAST_PAUSE)
        self._recovering.pop(job.job_id, None)
        job.done.set()

    async def _try_to_recover(self, job: RecoveringJob) -> None:
        job_id = job.job_id
        result = await self.run_blocking(self._store.result, job_id)
        if result is not None:
            _log.info("job %s is %s already: what is left of it is removed", job_id, result.status.value)
            ended = job.ended_before(result)
            self._finished.add(ended)
            # Should the former master have had no time for it.
            self._archiver.begin(ended)
            if await self._has_removed_checkpoints(job_id, result.status):
                await self._remove_job(job_id, result.blobs)
            return
        if job.job is None:
            job.is_of(decode_and_validate(await self.run_blocking(self._store.get, job_id)))
        assert job.job is not None
        if job.cancelled.is_set() or await self.run_blocking(self._store.is_cancelled, job_id):
            job.cancelled.set()
            await self._cancel_recovering(job)
            return
        await self._run(job.job, recovering=True)
        if job.cancelled.is_set():
            self._masters[job_id].cancel()

    async def _has_removed_checkpoints(self, job_id: JobID, status: JobStatus) -> bool:
        """Those that the master of an ended job had no time to remove; False = they are left to the next leader."""

        def remove() -> None:
            try:
                graph = decode_and_validate(self._store.get(job_id))
            except (KeyError, StoredJobError):
                return  # Goes last.
            remove_checkpoints(graph, self._settings.job_master(graph).checkpoints, status, self._recovery)

        try:
            await self.run_blocking(remove)
        except (OSError, YarrowError) as error:
            _log.warning("checkpoints of job %s were not removed, the next leader will: %s", job_id, error)
            return False
        return True

    async def _cancel_recovering(self, job: RecoveringJob) -> None:
        """Cancelled before it ran again: restored where that works, so that its checkpoints go as they should."""
        assert job.job is not None
        try:
            await self._run(job.job, recovering=True)
        except LeadershipLostError:
            raise
        except Exception as error:
            _log.warning(
                "job %s is cancelled without having been restored, its checkpoints stay: %s",
                job.job_id,
                error,
            )
            now = self._services.clock.epoch_ms()
            result = StoredResult(
                name=job.job.name, status=JobStatus.CANCELED, end_time=now, blobs=_blobs_of(job.job)
            )
            await self.run_blocking(self._store.mark_ended, job.job_id, result)
            ended = job.ends(JobStatus.CANCELED)
            self._finished.add(ended)
            self._archiver.begin(ended)
            await self._remove_job(job.job_id, result.blobs)
        else:
            self._masters[job.job_id].cancel()

    def _cannot_recover(self, job: RecoveringJob, error: Exception) -> None:
        text = (
            f"the job cannot be taken over from its former master: {error}. What is stored of it is kept, and the next"
            " leader tries again"
        )
        _log.error("job %s: %s", job.job_id, text, exc_info=not isinstance(error, YarrowError))
        self._kept[job.job_id] = job
        self._finished.add(job.ends(JobStatus.FAILED, text))

    # Ends.

    async def _job_ending(self, master: JobMaster) -> None:
        """Before anything of a job that has ended is removed: from here on nobody runs it again."""
        graph = master.graph
        result = StoredResult(
            name=graph.job.name,
            status=graph.status,
            end_time=self._services.clock.epoch_ms(),
            cause=graph.failure,
            blobs=_blobs_of(graph.job),
        )

        def mark() -> None:
            self._store.mark_ended(graph.job.job_id, result)

        await self._persistently(mark, f"the end of job {graph.job.job_id}")

    def _job_ended(self, master: JobMaster) -> None:
        self.assert_main_thread()
        graph = master.graph
        job_id = graph.job.job_id
        collects: dict[str, CollectBuffer] = {
            operator.spec.collect_id: master.collect_buffer(operator.spec.collect_id)
            for vertex in graph.job.vertices
            for operator in vertex.operators
            if isinstance(operator.spec, CollectOperator)
        }
        job = FinishedJob(
            master.overview(), master.details(), master.result(), collects, master.checkpoint_statistics
        )
        self._finished.add(job)
        self._archiver.begin(job)
        self._masters.pop(job_id, None)
        self._ending.add(master)
        _log.info("job %s (%s) is %s", graph.job.name, job_id, graph.status.value)
        self.spawn(self._clean_up(master), f"clean up {job_id}")

    async def _clean_up(self, master: JobMaster) -> None:
        job = master.graph.job
        await self._remove_job(job.job_id, _blobs_of(job))
        await master.stop()
        self._ending.discard(master)

    async def _remove_job(self, job_id: JobID, blobs: tuple[str, ...]) -> None:
        """Removes what is stored of a job whose end is recorded; what fails now is left to the next leader."""

        def remove_records() -> None:
            self._recovery.remove(job_id)
            self._store.remove(job_id)

        def remove_blobs(keys: list[str]) -> None:
            for key in keys:
                self._services.blobs.remove(key)
            if not self._settings.keep_results:
                self._store.forget_result(job_id)

        try:
            await self.run_blocking(remove_records)
            # Looked at as late as can be: another job may have come meanwhile that ships the same file.
            await self.run_blocking(remove_blobs, self._unneeded(blobs, job_id))
        except LeadershipLostError as error:
            _log.info("what is stored of job %s is left to the next leader: %s", job_id, error)
        except (OSError, YarrowError) as error:
            _log.warning("what is stored of job %s was not removed, the next leader will: %s", job_id, error)

    def _unneeded(self, blobs: tuple[str, ...], job_id: JobID) -> list[str]:
        """Those of the blobs of a job that has ended that no other job needs."""
        stored = [*self._recovering.values(), *self._kept.values()]
        if any(job.job is None and job.job_id != job_id for job in stored):
            # Which blobs a job needs that has not been read is not known.
            return []
        used = {key for keys in self._starting.values() for key in keys}
        for graph in [master.graph.job for master in self._masters.values()] + [
            job.job for job in stored if job.job is not None and job.job_id != job_id
        ]:
            used.update(_blobs_of(graph))
        return [key for key in blobs if key not in used]

    async def has_unfinished_jobs(self) -> bool:
        """Whether jobs are stored that have not ended for good; RecordsError."""

        def look() -> bool:
            ended = set(self._store.ended())
            return any(
                job_id not in ended and self._store.is_stored(job_id) for job_id in self._store.job_ids()
            )

        return await self.run_blocking(look)

    # Patience.

    async def _persistently(self, call: Callable[[], T], what: str) -> T:
        """A blocking call, repeated while the records cannot be reached; LeadershipLostError ends it."""
        pause = _FIRST_PAUSE
        while True:
            try:
                return await self.run_blocking(call)
            except LeadershipLostError:
                raise
            except RecordsError as error:
                _log.warning("%s: %s; next try in %.1f s", what, error, pause)
            await self._pause(pause)
            pause = min(2 * pause, _LAST_PAUSE)

    async def _pause(self, seconds: float, cut_short: asyncio.Event | None = None) -> None:
        passed = cut_short or asyncio.Event()
        over = asyncio.Event()
        timer = self._services.timers.call_later(seconds, over.set)
        waits = [asyncio.ensure_future(over.wait()), asyncio.ensure_future(passed.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            for wait in waits:
                wait.cancel()

    async def _ended_before(self, job_id: JobID) -> FinishedJob:
        """As `_ended`; of a job that has ended under a former master, what its record says."""
        try:
            return self._ended(job_id)
        except JobNotFoundError:
            result = await self.run_blocking(self._store.result, job_id) if is_hex_id(job_id) else None
            if result is None:
                raise
        former = RecoveringJob(job_id, result.name, self._services.clock, self._services.ids)
        ended = former.ended_before(result)
        self._finished.add(ended)
        return ended

    def _ended(self, job_id: JobID) -> FinishedJob:
        job = self._finished.get(job_id)
        if job is None:
            raise JobNotFoundError(
                f"no job {job_id} on this cluster: it never ran here, or it ended so long ago that it was"
                " forgotten (jobstore.expiration-time)"
            )
        return job


def _has_run(job_id: JobID, status: JobStatus) -> DuplicateJobError:
    return DuplicateJobError(
        f"a job of the id {job_id} has run on this cluster ({status.value}): give the new one another id"
    )


def _blobs_of(graph: JobGraph) -> tuple[str, ...]:
    """Keys of the files that a job ships."""
    return tuple(dict.fromkeys(file.blob_key for file in graph.user_code.files if file.blob_key))
