"""JobQueries: answers questions of the Dispatcher, REST and clients about one job.

Owner: the JobMaster's loop. Nothing here changes the job.
"""

from __future__ import annotations

import msgspec

from yarrow.am.execution.execution_graph import ExecutionGraph
from yarrow.am.jobmaster.checkpoints.checkpoint_link import CheckpointLink
from yarrow.am.jobmaster.details import job_details, job_overview, job_result
from yarrow.am.jobmaster.missing_slots import MissingSlots
from yarrow.am.jobmaster.rescaling import Rescaling
from yarrow.runtime.rpc.messages import ExecutionGraphDetails, JobOverview, JobResult


class JobQueries:
    """Answers questions about one job."""

    def __init__(
        self,
        graph: ExecutionGraph,
        checkpoints: CheckpointLink,
        rescaling: Rescaling,
        missing_slots: MissingSlots,
    ) -> None:
        self._graph = graph
        self._checkpoints = checkpoints
        self._rescaling = rescaling
        self._missing_slots = missing_slots

    def details(self) -> ExecutionGraphDetails:
        """All that REST shows of the job."""
        statistics = self._checkpoints.coordinator.statistics
        details = job_details(self._graph, self._missing_slots.waiting_for(), statistics.metrics())
        return msgspec.structs.replace(
            details, rescales=self._rescaling.history, last_checkpoint_path=statistics.last_path
        )

    def overview(self) -> JobOverview:
        """The job's line in a list."""
        waiting_for = self._missing_slots.waiting_for()
        return msgspec.structs.replace(job_overview(self._graph), waiting_for=waiting_for)

    def result(self) -> JobResult:
        """The final result of the job; call it only when the job has ended."""
        return job_result(self._graph)
