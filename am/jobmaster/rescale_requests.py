"""RescaleRequests: what users, and the Rescaling of a job, ask of its JobMaster about another parallelism.

Owner: the JobMaster's loop. A part of the JobMaster class, apart from scheduling; decisions are Rescaling's.
"""

from __future__ import annotations

from yarrow.am.checkpoint.completed import CompletedCheckpoint
from yarrow.am.jobmaster.deployment import EncodedGraph
from yarrow.am.jobmaster.rescaling import RescaleRefusedError, parallelism_for_all
from yarrow.am.jobmaster.scheduler_decisions import SchedulerDecisions
from yarrow.am.jobmaster.services import JobMasterServices
from yarrow.runtime.graph.job_graph import JobGraph, encode_job_graph
from yarrow.runtime.graph.states import JobStatus
from yarrow.runtime.rpc.messages import RescaleRequest
from yarrow.runtime.snapshot.options import SnapshotKind


class RescaleRequests(SchedulerDecisions):
    """The methods of a JobMaster by which its job becomes one of another parallelism."""

    #: The job's graphs as they travel, by what they are: there are two while it is rescaled.
    _prepared: dict[int, EncodedGraph]
    _services: JobMasterServices

    async def rescale(self, request: RescaleRequest) -> None:
        """Returns when all tasks run so. Raises RescaleRefusedError and RescaleFailedError."""
        self.assert_main_thread()
        if request.waits:
            await self._rescaling.idle()
        if self.graph.status is not JobStatus.RUNNING:
            raise RescaleRefusedError(
                f"the job {self.graph.job.name!r} is {self.graph.status.value}: only a RUNNING job is rescaled"
            )
        job = self.graph.job
        wanted = parallelism_for_all(job, request.every) if request.every > 0 else request.parallelism
        await self._rescaling.rescale(job, wanted, request.trigger_cause)

    async def _encode(self, job: JobGraph) -> EncodedGraph:
        data = encode_job_graph(job)
        if len(data) <= self._settings.inline_graph_bytes:
            return EncodedGraph(data)
        return EncodedGraph(b"", await self.run_blocking(self._services.blobs.put_here, data))

    async def stop_with_checkpoint(self) -> CompletedCheckpoint:
        """For Rescaling: takes a checkpoint with which all tasks end, and the job does not."""
        self._carry_out(self._scheduler.stop_to_rescale(True))
        try:
            return await self._checkpoints.request(SnapshotKind.RESCALE)
        except BaseException:
            self._carry_out(self._scheduler.stop_to_rescale(False))
            raise

    async def go_on_as(self, job: JobGraph) -> None:
        """For Rescaling: what is left of the tasks is cancelled, then all start as `job`."""
        former = self.graph.job
        encoded = self._encoded if job is former else await self._encode(job)
        self._prepared = {id(former): self._encoded, id(job): encoded}
        self._carry_out(self._scheduler.rescale(job, self._now()))

    def _job_replaced(self, job: JobGraph) -> None:
        self._encoded = self._prepared[id(job)]
        self._checkpoints.job_replaced(job)
        attempt_number = min(execution.attempt_number for execution in self.graph.executions())
        self._collects.replaced(job, attempt_number, self._checkpoints.checkpoint_id)
