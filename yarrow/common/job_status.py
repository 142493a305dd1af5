"""JobStatus: the states of a job as programs, REST and the engine name them.

A value, usable from any thread. The table of transitions belongs to the master (`yarrow.runtime.graph.states`).
"""

from __future__ import annotations

from enum import Enum

__all__ = ["JobStatus"]


class JobStatus(str, Enum):  # noqa: UP042 - str() of a StrEnum would not be `JobStatus.RUNNING`, as programs expect
    """The state of a job; the value is its name, as messages, stored jobs and REST write it."""

    #: Accepted by the Dispatcher; its JobMaster is being made. Clients report it as CREATED, as in PyFlink.
    INITIALIZING = "INITIALIZING"
    #: Accepted; no task runs yet.
    CREATED = "CREATED"
    #: Some tasks are scheduled or running, or all have finished and the job is about to.
    RUNNING = "RUNNING"
    #: A task failed for good and the others are being cancelled.
    FAILING = "FAILING"
    #: Ended with an error.
    FAILED = "FAILED"
    #: Cancelling was asked for and tasks are being stopped.
    CANCELLING = "CANCELLING"
    #: Ended because it was cancelled.
    CANCELED = "CANCELED"
    #: Every task ended without error.
    FINISHED = "FINISHED"
    #: Being started again after a failure.
    RESTARTING = "RESTARTING"
    #: Stopped here, without an end: another master may take it over.
    SUSPENDED = "SUSPENDED"
    #: A new master learns from the TaskExecutors which tasks still run.
    RECONCILING = "RECONCILING"

    def is_globally_terminal_state(self) -> bool:
        """Whether the job has ended for every master: FINISHED, CANCELED or FAILED."""
        return self in (JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED)

    def is_terminal_state(self) -> bool:
        """Whether the job has ended for this master: globally, or SUSPENDED."""
        return self.is_globally_terminal_state() or self is JobStatus.SUSPENDED
