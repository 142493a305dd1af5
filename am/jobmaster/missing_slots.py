"""MissingSlots: why a job lacks slots, as far as its JobMaster was told.

Owner: the JobMaster's loop. Must not ask for slots (job_scheduler.py, resource_manager_link.py).
"""

from __future__ import annotations

import logging

from yarrow.am.jobmaster.links.resource_manager_link import ResourceManagerLink
from yarrow.am.jobmaster.scheduling.job_scheduler import JobScheduler
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.repeated_notice import RepeatedNotice

#: Seconds that a job waits for slots before a warning: slots normally come within that time.
_PATIENCE_SECONDS = 10.0
_log = logging.getLogger(__name__)


class MissingSlots:
    """The reasons for which one job waits, as text for users."""

    def __init__(self, scheduler: JobScheduler, resource_manager: ResourceManagerLink, clock: Clock) -> None:
        self._scheduler = scheduler
        self._resource_manager = resource_manager
        self._clock = clock
        #: Why the last worker for this job did not start; "" if slots have come since.
        self.not_started = ""
        self._notice = RepeatedNotice(patience=_PATIENCE_SECONDS)

    @property
    def any(self) -> bool:
        """True while the job runs, or restarts, and lacks slots."""
        scheduler = self._scheduler
        active = scheduler.graph.status in (JobStatus.RUNNING, JobStatus.RESTARTING)
        return active and bool(scheduler.pool.waiting)

    def waiting_for(self) -> str:
        """The slots or other thing that the job waits for; "" while it waits for nothing."""
        text = self._scheduler.explanation(self._clock.monotonic())
        return self.explained(text) if text and self._scheduler.pool.waiting else text

    def explained(self, text: str) -> str:
        """`text` followed by the known reasons: the ResourceManager's and that of a worker that did not start."""
        reasons = (text, self._resource_manager.explanation, self.not_started)
        return "; ".join(filter(None, reasons))

    def log(self) -> None:
        """Warns of slots that have been missing for a while, and logs their arrival. Call it at intervals."""
        name = self._scheduler.graph.job.name
        said = self._notice.look(self.waiting_for() if self.any else "", self._clock.monotonic())
        if said:
            _log.warning("the job %r %s", name, said)
        elif said is not None:
            _log.warning("the job %r has all slots and waits no more", name)
