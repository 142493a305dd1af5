"""Bodies about schedules; paths of Yarrow's own.

Owner: none (declarations).
"""

from __future__ import annotations

from pydantic import Field

from yarrow.am.rest.models.base import CamelModel, HyphenModel, TextOrNone
from yarrow.am.rest.models.jobs import JobSubmissionRequest
from yarrow.common.job_status import JobStatus


class ScheduleTimes(CamelModel):
    """The times of a schedule: an interval, or a cron expression with its time zone."""

    #: A number with a unit, as `10 min`.
    interval: str | None = Field(default=None, max_length=100)
    #: minute, hour, day of month, month, day of week; a field of seconds may come before them.
    cron: str | None = Field(default=None, max_length=1000)
    #: IANA name of the zone of the cron expression.
    time_zone: str = Field(default="UTC", max_length=100)


class ScheduleSubmissionRequest(JobSubmissionRequest):
    """The part `request` of the submission of a schedule."""

    schedule: ScheduleTimes


class ScheduledRunBody(HyphenModel):
    """One run of a schedule."""

    jid: str = Field(validation_alias="job_id")
    #: Epoch ms at which the run was due.
    due_time: int
    #: Times that were missed, and for which the run makes up; 0 = it began at its time.
    makes_up_for: int
    #: Final status of the job; null = it has not ended.
    status: JobStatus | None
    #: Epoch ms; -1 = it has not ended.
    end_time: int
    #: Why the run failed; null = it did not.
    failure: TextOrNone


class ScheduleBody(HyphenModel):
    """A schedule."""

    id: str = Field(validation_alias="schedule_id")
    name: str
    #: The interval in milliseconds; null = a cron expression.
    interval: int | None
    #: The cron expression; null = an interval.
    cron: str | None
    #: The time zone of the cron expression; null = an interval.
    time_zone: str | None
    #: Epoch ms of the submission.
    start_time: int
    #: Epoch ms of the next time; it is past while a run holds it up.
    next_time: int
    #: Runs so far, the present one included.
    runs: int
    #: Times at which no run began, because another ran or no master was there.
    missed: int
    #: The present run; null = none.
    running: ScheduledRunBody | None
    #: The last runs that ended, the newest first.
    ended: list[ScheduledRunBody]


class CancelledScheduleBody(HyphenModel):
    """The end of a schedule."""

    #: The job of its present run, which goes on; null = none.
    running: str | None


class SchedulesBody(HyphenModel):
    """All schedules."""

    schedules: list[ScheduleBody]
