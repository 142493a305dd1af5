"""PendingRescale: a job's change to other parallelisms, from the wish until all its tasks run so or as before.

Owner: the JobMaster's loop, by way of the JobScheduler. Pure. What fails before all run makes the job go back, once.
"""

from __future__ import annotations

from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.messages import FailureCause


class PendingRescale:
    """At most one at a time."""

    def __init__(self) -> None:
        #: A checkpoint with which all tasks end is under way or complete: the job does not end with them.
        self.stops_tasks = False
        #: What the job becomes at its next restart: the same at another parallelism.
        self._next_job: JobGraph | None = None
        #: What it goes back to if something fails before all its tasks run.
        self._fallback: JobGraph | None = None
        #: Why it goes back; None while it does not.
        self._failure: FailureCause | None = None

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
