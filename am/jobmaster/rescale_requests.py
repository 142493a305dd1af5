"""RescaleRequests: joins users' rescale requests, the Rescaling and the JobScheduler.

Owner: the JobMaster's loop. rescaling.py decides whether and how the job is rescaled. job_scheduler.py
decides by which slots, and when tasks stop and start.
"""

from __future__ import annotations

from yarrow.am.checkpoint.completed import CompletedCheckpoint
from yarrow.am.jobmaster.checkpoints.checkpoint_link import CheckpointLink
from yarrow.am.jobmaster.decide import Decide
from yarrow.am.jobmaster.encoded_graphs import EncodedGraphs
from yarrow.am.jobmaster.links.named_timers import NamedTimers
from yarrow.am.jobmaster.missing_slots import MissingSlots
from yarrow.am.jobmaster.rescaling import RescaleRefusedError, Rescaling, parallelism_for_all
from yarrow.am.jobmaster.scheduling.job_scheduler import JobScheduler
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
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.messages import FailureCause, RescaleRequest

#: Name of the timer of slot.request.timeout, which runs while a rescale waits for slots.
_RESCALE_SLOTS = "slots for a rescale"


class RescaleRequests:
    """Changes the parallelism of one job; implements RescalableJob."""

    def __init__(
        self,
        scheduler: JobScheduler,
        checkpoints: CheckpointLink,
        encoded: EncodedGraphs,
        missing_slots: MissingSlots,
        timers: NamedTimers,
        services: JobMasterServices,
        slot_request_timeout: float,
        decide: Decide,
    ) -> None:
        """`slot_request_timeout`: seconds within which the slots for a rescale have to come."""
        self.rescaling = Rescaling(self, services.clock, services.ids)
        self._scheduler = scheduler
        self._graph = scheduler.graph
        self._pool = scheduler.pool
        self._checkpoints = checkpoints
        self._encoded = encoded
        self._missing_slots = missing_slots
        self._timers = timers
        self._now = services.clock.monotonic
        self._slot_request_timeout = slot_request_timeout
        self._decide = decide

    async def rescale(self, request: RescaleRequest) -> None:
        """Returns when all tasks run at the new parallelism.

        Raises RescaleRefusedError and RescaleFailedError.
        """
        if request.waits:
            await self.rescaling.idle()
        if self._graph.status is not JobStatus.RUNNING:
            raise RescaleRefusedError(
                f"the job {self._graph.job.name!r} is {self._graph.status.value}: only a RUNNING job is rescaled"
            )
        job = self._graph.job
        wanted = parallelism_for_all(job, request.every) if request.every > 0 else request.parallelism
        await self.rescaling.rescale(job, wanted, request.trigger_cause)

    def job_ended(self, text: str) -> None:
        """Refuses rescales from now on, for the reason in `text`."""
        self.rescaling.ended(FailureCause(exception_name="", message=text, stacktrace=text))

    def slots_answered(self, failure: FailureCause | None) -> None:
        """Reports that the slots for a rescale are held or, with a failure, will not come."""
        self._timers.cancel(_RESCALE_SLOTS)
        self.rescaling.slots_answered(failure)

    def slots_limited(self, most_slots: int) -> None:
        """Fails a rescale that needs more slots than the cluster can ever have."""
        needed = self._scheduler.slots_for_rescale
        # A new ResourceManager that knows of fewer slots than the job holds cannot judge yet.
        if needed > most_slots >= self._pool.held:
            self._slots_failed(
                f"the job would need {needed} slots, and the cluster offers at most {most_slots}"
            )

    def _slots_timed_out(self) -> None:
        self._slots_failed(
            f"the job would need {self._scheduler.slots_for_rescale} slots and has {self._pool.held}; no "
            f"more came within {self._slot_request_timeout:g} s (slot.request.timeout)"
        )

    def _slots_failed(self, why: str) -> None:
        self._decide(RescaleSlotsFailed(self._now(), self._missing_slots.explained(why)))

    # RescalableJob.

    def hold_slots_for(self, job: JobGraph) -> None:
        """Asks for the slots that the job lacks to become `job`; `Rescaling.slots_answered` follows."""
        self._timers.after(_RESCALE_SLOTS, self._slot_request_timeout, self._slots_timed_out)
        self._decide(RescaleSlotsWanted(self._now(), job))

    def let_slots_go(self) -> None:
        """Frees slots that were held for a rescale and are not used."""
        self._timers.cancel(_RESCALE_SLOTS)
        if not self._graph.machine.is_terminal:
            self._decide(RescaleSlotsReleased(self._now()))

    async def stop_with_checkpoint(self) -> CompletedCheckpoint:
        """Takes a checkpoint after which all tasks end; the job itself does not end."""
        self._decide(TasksStopForRescale(self._now(), True))
        try:
            return await self._checkpoints.request(SnapshotKind.RESCALE)
        except BaseException:
            self._decide(TasksStopForRescale(self._now(), False))
            raise

    async def go_on_as(self, job: JobGraph) -> None:
        """Cancels the remaining tasks, then starts all tasks as `job`."""
        await self._encoded.prepare(job)
        self._decide(RescaleBegun(self._now(), job))
