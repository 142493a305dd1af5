"""PendingRescale: a job's change of parallelism, from the request until all tasks run at the new or the former one.

Owner: the JobMaster's loop, through the JobScheduler. Pure. A rescale first holds the slots that the job will
need. Any slot serves any slot sharing group at any parallelism, so only the number of slots counts. If
anything fails before all tasks run, the job goes back, once. rescaling.py stops the tasks.
"""

from __future__ import annotations

import msgspec

from yarrow.am.jobmaster.scheduling.regions import slots_needed
from yarrow.am.jobmaster.scheduling.scheduler_actions import Actions, RescaleSlotsAnswered
from yarrow.am.jobmaster.scheduling.slot_pool import SlotPool
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.messages import FailureCause


class PendingRescaleSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The whole state of a PendingRescale."""

    stops_tasks: bool
    next_job: JobGraph | None
    fallback: JobGraph | None
    failure: FailureCause | None
    slots_awaited: bool


class PendingRescale:
    """The rescale of one job, at most one at a time. Each request for slots is answered once."""

    def __init__(self, pool: SlotPool) -> None:
        self._pool = pool
        #: A checkpoint with which all tasks end is running or complete, and the job must not end with its
        #: tasks.
        self.stops_tasks = False
        #: The job graph after the next restart: the same job at another parallelism.
        self._next_job: JobGraph | None = None
        #: The job graph to go back to if something fails before all tasks run.
        self._fallback: JobGraph | None = None
        #: Why the job goes back; None while it does not.
        self._failure: FailureCause | None = None
        #: The job waits for the requested slots.
        self._slots_awaited = False

    def snapshot(self) -> PendingRescaleSnapshot:
        """The present state."""
        return PendingRescaleSnapshot(
            stops_tasks=self.stops_tasks,
            next_job=self._next_job,
            fallback=self._fallback,
            failure=self._failure,
            slots_awaited=self._slots_awaited,
        )

    def restore(self, snapshot: PendingRescaleSnapshot) -> None:
        """Continues from a snapshot."""
        self.stops_tasks = snapshot.stops_tasks
        self._next_job, self._fallback = snapshot.next_job, snapshot.fallback
        self._failure, self._slots_awaited = snapshot.failure, snapshot.slots_awaited

    # Slots.

    @property
    def slots_awaited(self) -> int:
        """The number of slots that the job must hold before it is rescaled; 0 = no rescale waits for slots."""
        return self._pool.at_least if self._slots_awaited else 0

    def wish_slots(self, job: JobGraph) -> Actions:
        """Holds as many slots as `job` needs."""
        self._pool.want_at_least(slots_needed(job))
        self._slots_awaited = True
        return self.look_for_slots()

    def look_for_slots(self) -> Actions:
        """Answers once all slots are held; they stay held until `drop_slots`."""
        if not self._slots_awaited or self._pool.held < self._pool.at_least:
            return []
        self._slots_awaited = False
        return [RescaleSlotsAnswered(None)]

    def fail_slots(self, why: str) -> Actions:
        """Stops waiting for slots; no effect if they are held, or no rescale waits."""
        if not self._slots_awaited:
            return []
        self.drop_slots()
        return [RescaleSlotsAnswered(FailureCause(exception_name="", message=why, stacktrace=why))]

    def drop_slots(self) -> None:
        """Stops holding extra slots, because the rescale is over; unused slots are given back."""
        self._slots_awaited = False
        self._pool.want_at_least(0)

    # The change of the job.

    @property
    def next_job(self) -> JobGraph | None:
        """The job graph to use once all tasks have ended; None = the present one."""
        return self._next_job

    @property
    def awaits_all_running(self) -> bool:
        """True while the job may still have to go back."""
        return self._fallback is not None

    def begins(self, job: JobGraph) -> None:
        """Notes that all tasks are about to start again as `job`."""
        self._next_job = job

    def failed(self, cause: FailureCause) -> None:
        """Notes a failure: a job whose tasks do not all run yet goes back."""
        if self._fallback is not None:
            self._next_job, self._fallback, self._failure = self._fallback, None, cause

    def replaced(self, former: JobGraph) -> FailureCause | None:
        """Notes that the job was replaced.

        Returns why it went back, or None if it may still go back to `former`.
        """
        failure, self._failure, self._next_job = self._failure, None, None
        self._fallback = former if failure is None else None
        return failure

    def all_run(self) -> None:
        """Notes that all tasks run: the rescale has succeeded."""
        self._fallback = None
