"""PendingRescale: a job's change to other parallelisms, from the wish until all its tasks run so or as before.

Owner: the JobMaster's loop, by way of the JobScheduler. Pure. A rescale first holds the slots that the job will need:
all slots of a job serve it at any parallelism, of whichever slot sharing group, so that only their number counts. A
failure before all tasks run makes the job go back, once. Who stops the tasks is rescaling.py.
"""

from __future__ import annotations

import msgspec

from yarrow.am.jobmaster.scheduling.regions import slots_needed
from yarrow.am.jobmaster.scheduling.scheduler_actions import Actions, RescaleSlotsAnswered
from yarrow.am.jobmaster.scheduling.slot_pool import SlotPool
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.messages import FailureCause


class PendingRescaleSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All that a PendingRescale knows."""

    stops_tasks: bool
    next_job: JobGraph | None
    fallback: JobGraph | None
    failure: FailureCause | None
    slots_awaited: bool


class PendingRescale:
    """At most one at a time; its wish for slots is answered once."""

    def __init__(self, pool: SlotPool) -> None:
        self._pool = pool
        #: A checkpoint with which all tasks end is under way or complete: the job does not end with them.
        self.stops_tasks = False
        #: What the job becomes at its next restart: the same at another parallelism.
        self._next_job: JobGraph | None = None
        #: What it goes back to if something fails before all its tasks run.
        self._fallback: JobGraph | None = None
        #: Why it goes back; None while it does not.
        self._failure: FailureCause | None = None
        #: The job waits for the slots that were wished for.
        self._slots_awaited = False

    def snapshot(self) -> PendingRescaleSnapshot:
        """What is under way now."""
        return PendingRescaleSnapshot(
            stops_tasks=self.stops_tasks,
            next_job=self._next_job,
            fallback=self._fallback,
            failure=self._failure,
            slots_awaited=self._slots_awaited,
        )

    def restore(self, snapshot: PendingRescaleSnapshot) -> None:
        """Goes on where a snapshot was taken."""
        self.stops_tasks = snapshot.stops_tasks
        self._next_job, self._fallback = snapshot.next_job, snapshot.fallback
        self._failure, self._slots_awaited = snapshot.failure, snapshot.slots_awaited

    # The slots that it needs.

    @property
    def slots_awaited(self) -> int:
        """How many slots the job is to have in all before it is rescaled; 0 while nobody waits for that."""
        return self._pool.at_least if self._slots_awaited else 0

    def wish_slots(self, job: JobGraph) -> Actions:
        """So many slots as `job` needs are to be held."""
        self._pool.want_at_least(slots_needed(job))
        self._slots_awaited = True
        return self.look_for_slots()

    def look_for_slots(self) -> Actions:
        """Answers when they are all there; they stay until `drop_slots`."""
        if not self._slots_awaited or self._pool.held < self._pool.at_least:
            return []
        self._slots_awaited = False
        return [RescaleSlotsAnswered(None)]

    def fail_slots(self, why: str) -> Actions:
        """They are not waited for any more; no effect where they are there, or nobody waits."""
        if not self._slots_awaited:
            return []
        self.drop_slots()
        return [RescaleSlotsAnswered(FailureCause(exception_name="", message=why, stacktrace=why))]

    def drop_slots(self) -> None:
        """The job has what it needs, or goes on as it is: what it does not use is to be given back."""
        self._slots_awaited = False
        self._pool.want_at_least(0)

    # The change of the job.

    @property
    def next_job(self) -> JobGraph | None:
        """What the job becomes when all its tasks have ended; None = what it is."""
        return self._next_job

    @property
    def awaits_all_running(self) -> bool:
        """True while the job may still have to go back."""
        return self._fallback is not None

    def begins(self, job: JobGraph) -> None:
        """All tasks are to start again as `job`."""
        self._next_job = job

    def failed(self, cause: FailureCause) -> None:
        """Something has failed: a job that does not all run as it should goes back to what it was."""
        if self._fallback is not None:
            self._next_job, self._fallback, self._failure = self._fallback, None, cause

    def replaced(self, former: JobGraph) -> FailureCause | None:
        """The job is now what it was to become; why it went back, or None when it may have to go back to `former`."""
        failure, self._failure, self._next_job = self._failure, None, None
        self._fallback = former if failure is None else None
        return failure

    def all_run(self) -> None:
        """It has succeeded."""
        self._fallback = None
