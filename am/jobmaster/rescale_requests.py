"""RescaleRequests: what users, and the Rescaling of a job, ask of its JobMaster about another parallelism.

Owner: the JobMaster's loop. A part of the JobMaster class, apart from scheduling; decisions are Rescaling's.
"""

from __future__ import annotations

from yarrow.am.checkpoint.completed import CompletedCheckpoint
from yarrow.am.jobmaster.links.deployment import EncodedGraph
from yarrow.am.jobmaster.rescaling import RescaleRefusedError, parallelism_for_all
from yarrow.am.jobmaster.scheduler_decisions import RESCALE_SLOTS, SchedulerDecisions
from yarrow.am.jobmaster.scheduling.scheduler_events import (
    RescaleBegun,
    RescaleSlotsFailed,
    RescaleSlotsReleased,
    RescaleSlotsWanted,
    TasksStopForRescale,
)
from yarrow.am.jobmaster.services import JobMasterServices
from yarrow.common.job_status import JobStatus
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.graph.job_graph import JobGraph, encode_job_graph
from yarrow.runtime.rpc.messages import RescaleRequest


class RescaleRequests(SchedulerDecisions):
    """The methods of a JobMaster by which its job becomes one of another parallelism."""

    #: The job's graphs as they travel, by what they are: there are two while it is rescaled.
    _prepared: dict[int, EncodedGraph]
    #: Why the last worker for this job did not start, "" when slots have come since.
    _not_started: str
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

    def hold_slots_for(self, job: JobGraph) -> None:
        """For Rescaling: asks for what the job lacks to become `job`; Rescaling.slots_answered follows."""
        self._timers.after(RESCALE_SLOTS, self._settings.slot_request_timeout, self._rescale_slots_timed_out)
        self._decide(RescaleSlotsWanted(self._now(), job))

    def let_slots_go(self) -> None:
        """For Rescaling: what was held and is not used goes back."""
        self._timers.cancel(RESCALE_SLOTS)
        if not self.graph.machine.is_terminal:
            self._decide(RescaleSlotsReleased(self._now()))

    def _rescale_slots_timed_out(self) -> None:
        seconds = self._settings.slot_request_timeout
        text = (
            f"it would need {self._scheduler.slots_for_rescale} slots and has {self._pool.held}; no more came within"
            f" {seconds:g} s (slot.request.timeout)"
        )
        reasons = (text, self._resource_manager.explanation, self._not_started)
        self._decide(RescaleSlotsFailed(self._now(), "; ".join(filter(None, reasons))))

    def _slots_limited(self, most_slots: int) -> None:
        """There cannot be more slots: a rescale does not wait for them."""
        needed = self._scheduler.slots_for_rescale
        # A ResourceManager that knows of fewer than the job holds has just begun.
        if needed > most_slots >= self._pool.held:
            text = f"it would need {needed} slots, and there are no more than {most_slots}"
            reasons = (text, self._resource_manager.explanation)
            self._decide(RescaleSlotsFailed(self._now(), "; ".join(filter(None, reasons))))

    async def stop_with_checkpoint(self) -> CompletedCheckpoint:
        """For Rescaling: takes a checkpoint with which all tasks end, and the job does not."""
        self._decide(TasksStopForRescale(self._now(), True))
        try:
            return await self._checkpoints.request(SnapshotKind.RESCALE)
        except BaseException:
            self._decide(TasksStopForRescale(self._now(), False))
            raise

    async def go_on_as(self, job: JobGraph) -> None:
        """For Rescaling: what is left of the tasks is cancelled, then all start as `job`."""
        former = self.graph.job
        encoded = self._encoded if job is former else await self._encode(job)
        self._prepared = {id(former): self._encoded, id(job): encoded}
        self._decide(RescaleBegun(self._now(), job))

    def _job_replaced(self, job: JobGraph) -> None:
        self._encoded = self._prepared[id(job)]
        attempt_number = min(execution.attempt_number for execution in self.graph.executions())
        self._collects.replaced(attempt_number, self._checkpoints.checkpoint_id)
