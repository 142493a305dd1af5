"""What a bounded job answers to REST and clients: its details, and that it takes no checkpoints.

Owner: the BatchJobMaster's loop. Nothing here changes the job.
"""

from __future__ import annotations

import msgspec

from yarrow.am.checkpoint.statistics import CheckpointStatisticsTracker
from yarrow.am.execution.execution_graph import ExecutionGraph
from yarrow.am.jobmaster.batch.iteration_progress import IterationProgress
from yarrow.am.jobmaster.batch.large_key_groups import LargeKeyGroups
from yarrow.am.jobmaster.batch.spark_driver_link import SparkDriverLink
from yarrow.am.jobmaster.details import job_details, job_overview, job_result
from yarrow.runtime.common.errors import CheckpointFailedError
from yarrow.runtime.data.checkpoint_options import CheckpointType
from yarrow.runtime.rpc.messages import ExecutionGraphDetails, JobOverview, JobResult, SavepointRequest


class BatchAnswers:
    """Answers questions about one bounded job."""

    def __init__(
        self,
        graph: ExecutionGraph,
        driver: SparkDriverLink,
        groups: LargeKeyGroups,
        iterations: IterationProgress,
    ) -> None:
        self._graph = graph
        self._driver = driver
        self._large_key_groups = groups
        self._iterations = iterations

    def details(self) -> ExecutionGraphDetails:
        """All that REST shows of the job."""
        application = self._driver.application
        return msgspec.structs.replace(
            job_details(self._graph, self._driver.waiting_for),
            batch_runner=self._graph.job.batch_runner.value,
            batch_runner_reason=self._graph.job.batch_runner_reason,
            spark_application="" if application is None else application.application_id,
            spark_master="" if application is None else application.spark_master,
            has_spark_pages=self._driver.has_pages and not self._graph.status.is_globally_terminal_state(),
            spark_driver=self._driver.driver_id,
            spark_driver_task_executor=self._driver.task_executor,
            large_key_groups=self._large_key_groups.all,
            iterations=self._iterations.all,
        )

    def overview(self) -> JobOverview:
        """The job's line in a list."""
        return msgspec.structs.replace(job_overview(self._graph), waiting_for=self._driver.waiting_for)

    def result(self) -> JobResult:
        """The final result of the job; call it only when the job has ended."""
        return job_result(self._graph)


class NoCheckpoints:
    """Refuses checkpoints and savepoints: a bounded job begins again instead."""

    def __init__(self, graph: ExecutionGraph, statistics: CheckpointStatisticsTracker) -> None:
        """`statistics` stay empty."""
        self._graph = graph
        self.statistics = statistics

    @property
    def left_some(self) -> bool:
        """False: there are none."""
        return False

    async def trigger_checkpoint(self, checkpoint_type: CheckpointType = CheckpointType.CONFIGURED) -> int:
        """Raises CheckpointFailedError."""
        raise self._refused()

    async def trigger_savepoint(self, request: SavepointRequest) -> str:
        """Raises CheckpointFailedError."""
        raise self._refused()

    def _refused(self) -> CheckpointFailedError:
        job = self._graph.job
        return CheckpointFailedError(
            f"job {job.name!r} ({job.job_id}) runs in BATCH mode, which takes no checkpoints and savepoints: cancel it"
            " instead, or run it in STREAMING mode"
        )
