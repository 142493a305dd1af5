"""SlotsForRescale: the slots that a job would need at another parallelism, held before its tasks are stopped for it.

Owner: the JobMaster's loop, by way of the JobScheduler. Pure. All slots that the job holds serve it at any parallelism,
of whichever slot sharing group: it is their number that counts. Who stops the tasks is rescaling.py.
"""

from __future__ import annotations

from yarrow.am.jobmaster.scheduling.regions import slots_needed
from yarrow.am.jobmaster.scheduling.scheduler_actions import Actions, RescaleSlotsAnswered
from yarrow.am.jobmaster.scheduling.slot_pool import SlotPool
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.messages import FailureCause


class SlotsForRescale:
    """At most one wish at a time; it is answered once."""

    def __init__(self, pool: SlotPool) -> None:
        self._pool = pool
        self._is_awaited = False

    @property
    def awaited(self) -> int:
        """How many slots the job is to have in all before it is rescaled; 0 while nobody waits for that."""
        return self._pool.at_least if self._is_awaited else 0

    def wish(self, job: JobGraph) -> Actions:
        """So many slots as `job` needs are to be held."""
        self._pool.want_at_least(slots_needed(job))
        self._is_awaited = True
        return self.look()

    def look(self) -> Actions:
        """Answers when they are all there; they stay until `drop`."""
        if not self._is_awaited or self._pool.held < self._pool.at_least:
            return []
        self._is_awaited = False
        return [RescaleSlotsAnswered(None)]

    def fail(self, why: str) -> Actions:
        """They are not waited for any more; no effect where they are there, or nobody waits."""
        if not self._is_awaited:
            return []
        self.drop()
        return [RescaleSlotsAnswered(FailureCause(exception_name="", message=why, stacktrace=why))]

    def drop(self) -> None:
        """The job has what it needs, or goes on as it is: what it does not use is to be given back."""
        self._is_awaited = False
        self._pool.want_at_least(0)
