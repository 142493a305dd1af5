"""JobStatus:

the states of a job as users and REST see them. The table of transitions belongs to the job master.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["JobStatus"]


class JobStatus(Enum):
    """The state of a job."""

    #: Accepted; no task runs yet.
    CREATED = 0
    #: Some tasks are scheduled or running, or all have finished and the job is about to.
    RUNNING = 1
    #: A task failed for good and the others are being cancelled.
    FAILING = 2
    #: Ended with an error.
    FAILED = 3
    #: Cancelling was asked for and tasks are being stopped.
    CANCELLING = 4
    #: Ended because it was cancelled.
    CANCELED = 5
    #: Every task ended without error.
    FINISHED = 6
    #: Being started again after a failure.
    RESTARTING = 7
    #: Stopped here, without an end: another master may take it over.
    SUSPENDED = 8
    #: A new master learns from the TaskExecutors which tasks still run.
    RECONCILING = 9

    def is_globally_terminal_state(self) -> bool:
        """Whether the job has ended for every master: FINISHED, CANCELED or FAILED."""
        return self in (JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED)

    def is_terminal_state(self) -> bool:
        """Whether the job has ended for this master: globally, or SUSPENDED."""
        return self.is_globally_terminal_state() or self is JobStatus.SUSPENDED
