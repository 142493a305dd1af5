"""Messages about schedules: jobs that run again and again.

Owner: none (frozen values).
"""

from __future__ import annotations

from yarrow.common.job_status import JobStatus
from yarrow.common.values.schedule import Schedule
from yarrow.runtime.common.ids import JobID, ScheduleID
from yarrow.runtime.rpc.messages.base import Message


class ScheduledRun(Message, frozen=True, kw_only=True):
    """One run of a schedule: a job."""

    job_id: JobID
    #: The time of the schedule to which the run belongs: epoch ms.
    due_time: int
    #: How many missed times the run makes up for; 0 = the run has begun at its time.
    makes_up_for: int = 0
    #: The job's end; None = it has not ended.
    status: JobStatus | None = None
    #: Epoch ms; -1 = it has not ended.
    end_time: int = -1
    #: Why the run failed, in one line; "" = it did not.
    failure: str = ""


class ScheduleOverview(Message, frozen=True, kw_only=True):
    """A schedule, as clients see it."""

    schedule_id: ScheduleID
    name: str
    schedule: Schedule
    #: Epoch ms of its submission, from which intervals are counted.
    start_time: int
    #: The next time at which a run is due: epoch ms. While a run runs it may lie in the past.
    next_time: int
    #: Runs so far, the present one included.
    runs: int
    #: Times at which no run has begun, because another one ran or no master was there.
    missed: int
    #: The run that has not ended; None = none.
    running: ScheduledRun | None = None
    #: The last runs that have ended, the newest first.
    ended: tuple[ScheduledRun, ...] = ()
