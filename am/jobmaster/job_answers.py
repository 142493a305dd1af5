"""JobAnswers: what a JobMaster says of its job to the Dispatcher, and so to REST and clients.

Owner: the JobMaster's loop. A part of the JobMaster class, apart from scheduling. Nothing here changes the job.
"""

from __future__ import annotations

from abc import abstractmethod

import msgspec

from yarrow.am.checkpoint.statistics import CheckpointStatisticsTracker
from yarrow.am.execution.execution_graph import ExecutionGraph
from yarrow.am.jobmaster.checkpoints.checkpoint_link import CheckpointLink
from yarrow.am.jobmaster.collecting.collect_buffer import CollectBuffer
from yarrow.am.jobmaster.collecting.collect_buffers import CollectBuffers
from yarrow.am.jobmaster.details import job_details, job_overview, job_result
from yarrow.am.jobmaster.links.resource_manager_link import ResourceManagerLink
from yarrow.am.jobmaster.rescaling import Rescaling
from yarrow.am.jobmaster.scheduling.job_scheduler import JobScheduler
from yarrow.am.jobmaster.scheduling.slot_pool import SlotPool
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.messages import (
    CollectPosition,
    CollectRows,
    ExecutionGraphDetails,
    JobOverview,
    JobResult,
)


class JobAnswers(RpcEndpoint):
    """The methods of a JobMaster that tell how its job is."""

    graph: ExecutionGraph
    _checkpoints: CheckpointLink
    _collects: CollectBuffers
    #: Why the last worker for this job did not start, "" when slots have come since.
    _not_started: str
    _pool: SlotPool
    _rescaling: Rescaling
    _resource_manager: ResourceManagerLink
    _scheduler: JobScheduler

    @property
    @abstractmethod
    def checkpoint_statistics(self) -> CheckpointStatisticsTracker:
        """What is shown of the job's checkpoints."""

    @abstractmethod
    def _now(self) -> float:
        """Monotonic time."""

    def details(self) -> ExecutionGraphDetails:
        """All that REST shows of the job."""
        statistics = self.checkpoint_statistics
        details = job_details(self.graph, self.waiting_for(), statistics.metrics())
        return msgspec.structs.replace(
            details, rescales=self._rescaling.history, last_checkpoint_path=statistics.last_path
        )

    @property
    def left_checkpoints(self) -> bool:
        """The job has ended, and not all of its checkpoints that should go with it could be deleted."""
        return self._checkpoints.left_some

    def overview(self) -> JobOverview:
        """The job's line in a list."""
        return msgspec.structs.replace(job_overview(self.graph), waiting_for=self.waiting_for())

    def result(self) -> JobResult:
        """How the job ended; to be called when it has."""
        return job_result(self.graph)

    def waiting_for(self) -> str:
        """What the job waits for, "" when for nothing."""
        text = self._scheduler.explanation(self._now())
        if not text or not self._pool.waiting:
            return text
        return "; ".join(filter(None, (text, self._resource_manager.explanation, self._not_started)))

    async def fetch_collected(
        self, collect_id: str, max_rows: int, position: CollectPosition
    ) -> tuple[CollectRows, ...]:
        """The rows behind those that the client has."""
        return await self._collects.of(collect_id).fetch(max_rows, position)

    def collect_buffer(self, collect_id: str) -> CollectBuffer:
        """The buffer itself: it outlives the JobMaster until the client has read it."""
        return self._collects.of(collect_id)
