"""RunningJob: one job under its JobMaster, as the Dispatcher sees it, whether it is a stream or a batch program.

Owner: none (Protocols). All methods are called on the Dispatcher's loop, which its JobMasters share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from yarrow.am.checkpoint.statistics import CheckpointStatisticsTracker
from yarrow.am.execution.execution_graph import ExecutionGraph
from yarrow.am.jobmaster.collecting.collect_buffer import CollectBuffer
from yarrow.common.job_status import JobStatus
from yarrow.common.values.rate_limit import RateLimit
from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.data.checkpoint_options import CheckpointType
from yarrow.runtime.rpc.messages import (
    EventTimeDetails,
    ExecutionGraphDetails,
    JobOverview,
    JobResult,
    RateLimitDetails,
    RescaleRequest,
    SavepointRequest,
    SparkPage,
    SparkPageRequest,
)


class JobAnswers(Protocol):
    """What REST and clients ask about a job."""

    def details(self) -> ExecutionGraphDetails:
        """All that REST shows of the job."""
        ...

    def overview(self) -> JobOverview:
        """The job's line in a list."""
        ...

    def result(self) -> JobResult:
        """The final result of the job; call it only when the job has ended."""
        ...


class CheckpointRequests(Protocol):
    """Requests of users about the checkpoints of a job."""

    @property
    def statistics(self) -> CheckpointStatisticsTracker:
        """Statistics of the job's checkpoints; they outlive the JobMaster."""
        ...

    @property
    def left_some(self) -> bool:
        """True if the job has ended and some checkpoints that should have been deleted could not be."""
        ...

    async def trigger_checkpoint(self, checkpoint_type: CheckpointType = CheckpointType.CONFIGURED) -> int:
        """Takes a checkpoint now, and returns its id. Raises CheckpointFailedError."""
        ...

    async def trigger_savepoint(self, request: SavepointRequest) -> str:
        """Takes a savepoint, ends the job with it if asked to, and returns its path.

        Raises CheckpointFailedError and InvalidSavepointPathError.
        """
        ...


class RunningJob(Protocol):
    """A job with its JobMaster."""

    name: str
    graph: ExecutionGraph

    @property
    def checkpoint_api(self) -> CheckpointRequests: ...

    @property
    def queries(self) -> JobAnswers: ...

    async def start(self) -> None:
        """Begins the job."""
        ...

    async def stop(self) -> None:
        """Ends the JobMaster; the job's data stay unless the job has ended."""
        ...

    def suspend(self, cause: str) -> None:
        """Ends the job on this master alone, because another master continues it. Call `stop` afterwards."""
        ...

    async def wait_until_ended(self) -> JobStatus:
        """Returns when the job has ended."""
        ...

    def cancel(self, reason: str = "") -> None:
        """Starts cancelling. `reason` is set if no user has asked for it."""
        ...

    async def rescale(self, request: RescaleRequest) -> None:
        """Returns when all tasks run at the new parallelism.

        Raises RescaleRefusedError and RescaleFailedError.
        """
        ...

    async def event_time(self) -> EventTimeDetails:
        """Event time of the job, operator by operator, and who holds it back."""
        ...

    async def spark_page(self, request: SparkPageRequest) -> SparkPage:
        """One of Spark's own pages about a bounded job. Raises NoSparkPagesError."""
        ...

    def rate_limits(self) -> RateLimitDetails:
        """The rate limits of the job's sources and sinks."""
        ...

    async def change_rate_limits(self, limits: Mapping[OperatorID, RateLimit]) -> None:
        """Sets other limits. Raises RateLimitRefusedError."""
        ...

    def scheduler_decisions(self, last: int) -> tuple[bytes, ...]:
        """The last events of the scheduler with their actions, each as JSON, oldest first."""
        ...

    def collect_buffer(self, collect_id: str) -> CollectBuffer:
        """The buffer of that collect operator; it outlives the JobMaster until the client has read it."""
        ...
