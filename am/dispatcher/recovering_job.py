"""RecoveringJob: a stored job without a JobMaster, because its graph or checkpoint has not been read yet.

Owner: the Dispatcher's loop. Others see the job as INITIALIZING, with the obstacle. Obstacles that may pass
by themselves are distinguished from others: a job never begins empty because storage was out of reach.
"""

from __future__ import annotations

import asyncio

import msgspec

from yarrow.am.checkpoint.recovery_store import RecoveryStoreError
from yarrow.am.checkpoint.settings import CheckpointSettings
from yarrow.am.checkpoint.statistics import CheckpointStatisticsTracker
from yarrow.am.dispatcher.finished_jobs import FinishedJob
from yarrow.am.dispatcher.job_graph_store import StoredResult
from yarrow.am.execution.errors import failure_of
from yarrow.am.execution.execution_graph import ExecutionGraph
from yarrow.am.jobmaster.details import job_details, job_overview, job_result
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.common.ids import IdFactory, JobID
from yarrow.runtime.graph.job_graph import JobGraph, UserCode
from yarrow.runtime.ha.records import RecordsError
from yarrow.runtime.rpc.messages import ExecutionGraphDetails, JobOverview


def passes_by_itself(error: BaseException) -> bool:
    """Whether a failed call may work later: storage or ZooKeeper is out of reach, or a name node is in safe mode."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if isinstance(cause, FileNotFoundError | PermissionError):
            return False
        if isinstance(cause, FileSystemError | RecordsError | RecoveryStoreError | OSError):
            return True
        cause = cause.__cause__
    return False


class RecoveringJob:
    """A stored job whose JobMaster has not started."""

    def __init__(self, job_id: JobID, name: str, clock: Clock, ids: IdFactory) -> None:
        self.job_id = job_id
        self._clock = clock
        self._ids = ids
        self._shown = self._empty(name)
        #: The stored graph, once it has been read.
        self.job: JobGraph | None = None
        #: The present obstacle; "" at first.
        self.problem = ""
        #: Set when the job's cancellation is requested.
        self.cancelled = asyncio.Event()
        #: Set when there is a JobMaster, or the job has ended.
        self.done = asyncio.Event()

    @property
    def statistics(self) -> CheckpointStatisticsTracker:
        """Empty checkpoint statistics: there were no checkpoints under this master."""
        return CheckpointStatisticsTracker(self._shown.job, CheckpointSettings(), self._clock)

    def _empty(self, name: str) -> ExecutionGraph:
        return self._graph_of(
            JobGraph(job_id=self.job_id, name=name, vertices=(), edges=(), user_code=UserCode())
        )

    def _graph_of(self, job: JobGraph) -> ExecutionGraph:
        return ExecutionGraph(job, self._clock, self._ids)

    def is_of(self, job: JobGraph) -> None:
        """Sets the graph that has been read."""
        self.job = job
        self._shown = self._graph_of(job)

    def ends(self, status: JobStatus, cause: str = "") -> FinishedJob:
        """Ends the job as CANCELED or FAILED without having run it under this master."""
        graph = self._shown
        if status is JobStatus.CANCELED:
            graph.transition(JobStatus.CANCELLING)
        if cause:
            graph.failure = failure_of(RecoveryFailedError, cause)
            graph.record_exception(graph.failure, None)
        graph.transition(status, cause)
        return FinishedJob(job_overview(graph), job_details(graph), job_result(graph), {}, self.statistics)

    def ended_before(self, result: StoredResult) -> FinishedJob:
        """A job that ended under a former master, of which only the record is known."""
        if self.job is None:
            self._shown = self._empty(result.name)
        ended = {"status": result.status, "end_time": result.end_time}
        graph = self._shown
        replace = msgspec.structs.replace
        return FinishedJob(
            replace(job_overview(graph), **ended),
            replace(job_details(graph), **ended),
            replace(job_result(graph), cause=result.cause, **ended),
            {},
            self.statistics,
        )

    def overview(self) -> JobOverview:
        """The job's line in a list."""
        return msgspec.structs.replace(job_overview(self._shown), waiting_for=self.problem)

    def details(self) -> ExecutionGraphDetails:
        """The job's details for REST."""
        return job_details(self._shown, self.problem)


class RecoveryFailedError(RecoveryStoreError):
    """This master cannot take over a job that ran under another master."""
