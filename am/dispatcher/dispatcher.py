"""Dispatcher: takes jobs, gives each a JobMaster, remembers those that ended.

Owner: its endpoint loop, which its JobMasters share. Must not schedule (job_master.py) nor know transports.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from yarrow.am.checkpoint.restore import dispose_savepoint, starting_point
from yarrow.am.checkpoint.statistics import CheckpointStatisticsTracker
from yarrow.am.dispatcher.finished_jobs import FinishedJob, FinishedJobs
from yarrow.am.dispatcher.job_graph_store import JobGraphStore
from yarrow.am.dispatcher.validation import decode_and_validate
from yarrow.am.errors import UnknownCollectError
from yarrow.am.jobmaster.collect import CollectBuffer
from yarrow.am.jobmaster.job_master import JobMaster, JobMasterServices
from yarrow.am.jobmaster.settings import JobMasterSettings
from yarrow.runtime.common.errors import (
    DuplicateJobError,
    JobAlreadyEndedError,
    JobNotFoundError,
    JobSubmissionError,
    YarrowError,
)
from yarrow.runtime.common.ids import DispatcherID, JobID
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.operator_spec import CollectOperator
from yarrow.runtime.graph.states import JobStatus
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

_log = logging.getLogger(__name__)

ENDPOINT_NAME = "dispatcher"


@dataclass(frozen=True, slots=True)
class DispatcherSettings:
    """Options of the Dispatcher."""

    #: jobstore.max-capacity: ended jobs kept.
    finished_jobs: int = 100
    #: jobstore.expiration-time, in seconds.
    finished_expiration: float = 3600.0
    #: Settings of a job, given its own configuration.
    job_master: Callable[[JobGraph], JobMasterSettings] = field(default=lambda graph: JobMasterSettings())


class Dispatcher(RpcEndpoint):
    """Implements DispatcherGateway."""

    def __init__(
        self, services: JobMasterServices, store: JobGraphStore, settings: DispatcherSettings
    ) -> None:
        self.leader_id = DispatcherID(services.ids.hex_id())
        super().__init__(ENDPOINT_NAME, self.leader_id)
        self._services = services
        self._store = store
        self._settings = settings
        self._masters: dict[JobID, JobMaster] = {}
        #: Of jobs that have ended, until they are stopped.
        self._ending: set[JobMaster] = set()
        #: Accepted, their JobMaster not started yet.
        self._starting: set[JobID] = set()
        self._finished = FinishedJobs(settings.finished_jobs, settings.finished_expiration, services.clock)
        self._resource_manager: ResourceManagerGateway | None = None
        #: Called when a client asks for the end of the cluster.
        self.on_shut_down: Callable[[], None] = lambda: None
        self.address = ""

    async def on_start(self) -> None:
        self.address = self._services.rpc.serve(DISPATCHER, self)
        self._services.resource_manager.start(self._resource_manager_changed)
        for job_id in await self.run_blocking(self._store.job_ids):
            await self._recover(job_id)

    async def on_stop(self) -> None:
        self._services.resource_manager.stop(self._resource_manager_changed)
        self._services.rpc.stop_serving(self.name)
        for master in (*self._masters.values(), *self._ending):
            await master.stop()

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
        job_id = graph.job_id
        if job_id in self._masters or job_id in self._starting:
            raise DuplicateJobError(
                f"a job of the id {job_id} is running already: give the new one another id"
            )
        if (ended := self._finished.get(job_id)) is not None:
            status = ended.overview.status.value
            raise DuplicateJobError(
                f"a job of the id {job_id} has run on this cluster ({status}): give the new one another id"
            )
        self._starting.add(job_id)
        try:
            await self.run_blocking(self._store.put, job_id, job_graph)
            await self._run(graph)
        except Exception as error:
            await self.run_blocking(self._store.remove, job_id)
            if isinstance(error, YarrowError):
                raise
            raise JobSubmissionError(f"job {graph.name!r} could not be started: {error!r}") from error
        finally:
            self._starting.discard(job_id)
        return job_id

    async def submit_stored_job(self, blob_key: str) -> JobID:
        return await self.submit_job(await self.run_blocking(self._services.blobs.get, blob_key))

    async def list_jobs(self) -> tuple[JobOverview, ...]:
        ended = [job.overview for job in self._finished.all()]
        return (*(master.overview() for master in self._masters.values()), *ended)

    async def request_job_status(self, job_id: JobID) -> JobStatus:
        if (master := self._masters.get(job_id)) is not None:
            return master.graph.status
        return self._ended(job_id).overview.status

    async def request_job_details(self, job_id: JobID) -> ExecutionGraphDetails:
        if (master := self._masters.get(job_id)) is not None:
            return master.details()
        return self._ended(job_id).details

    async def request_job_result(self, job_id: JobID) -> JobResult:
        if (master := self._masters.get(job_id)) is not None:
            await master.wait_until_ended()
            return master.result()
        return self._ended(job_id).result

    async def cancel_job(self, job_id: JobID) -> Acknowledge:
        master = self._masters.get(job_id)
        status = master.graph.status if master is not None else self._ended(job_id).overview.status
        if master is None or status.is_globally_terminal:
            raise JobAlreadyEndedError(f"job {job_id} cannot be cancelled: it is {status.value} already")
        master.cancel()
        return Acknowledge()

    async def request_overview(self) -> ClusterOverview:
        counts = Counter(job.overview.status for job in self._finished.all())
        executors = await self._resource_manager.request_task_executors() if self._resource_manager else ()
        return ClusterOverview(
            task_executors=len(executors),
            slots_total=sum(len(info.registration.slot_report.slots) for info in executors),
            slots_available=sum(info.free_slots for info in executors),
            jobs_running=len(self._masters),
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
        return self._ended(job_id).checkpoints

    def _live(self, job_id: JobID, otherwise: str) -> JobMaster:
        master = self._masters.get(job_id)
        if master is None:
            status = self._ended(job_id).overview.status
            raise JobAlreadyEndedError(f"job {job_id} {otherwise}: it is {status.value} already")
        return master

    # The gateway: results and files.

    async def fetch_collected(self, job_id: JobID, collect_id: str, max_rows: int) -> tuple[CollectRows, ...]:
        if (master := self._masters.get(job_id)) is not None:
            return await master.fetch_collected(collect_id, max_rows)
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
            starting_point, graph, settings.checkpoints, recovering=recovering
        )
        master = JobMaster(graph, self._services, settings, start)
        master.on_ended = self._job_ended
        self._masters[graph.job_id] = master
        try:
            await master.start()
        except BaseException:
            del self._masters[graph.job_id]
            await master.stop()
            raise
        _log.info("job %s (%s) started", graph.name, graph.job_id)

    async def _recover(self, job_id: JobID) -> None:
        try:
            graph = decode_and_validate(await self.run_blocking(self._store.get, job_id))
            await self._run(graph, recovering=True)
        except YarrowError as error:
            _log.error("stored job %s cannot be started again: %s", job_id, error)

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
        self._masters.pop(job_id, None)
        self._ending.add(master)
        _log.info("job %s (%s) is %s", graph.job.name, job_id, graph.status.value)
        self.spawn(self._clean_up(master), f"clean up {job_id}")

    async def _clean_up(self, master: JobMaster) -> None:
        await self.run_blocking(self._store.remove, master.graph.job.job_id)
        await master.stop()
        self._ending.discard(master)

    def _ended(self, job_id: JobID) -> FinishedJob:
        job = self._finished.get(job_id)
        if job is None:
            raise JobNotFoundError(
                f"no job {job_id} on this cluster: it never ran here, or it ended so long ago that it was"
                " forgotten (jobstore.expiration-time)"
            )
        return job
