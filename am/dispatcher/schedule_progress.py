"""ScheduleProgress: which times of a schedule have been used, by which runs, and which time is next.

Owner: none (immutable values). Pure: the caller brings the time, stores each new progress, and starts the jobs.
Runs never overlap. A time that passes while a run runs, or while no master is there, is missed: one run makes up
for all times missed together.
"""

from __future__ import annotations

import msgspec

from yarrow.common.job_status import JobStatus
from yarrow.common.values.schedule import Schedule
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.rpc.messages import ScheduledRun

#: How many ended runs are kept to be shown.
KEPT_RUNS = 20
#: How many missed times are counted one by one, before the rest is left out.
_MOST_COUNTED = 10_000


class ScheduleProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of one schedule."""

    #: Epoch ms of its submission, from which intervals are counted.
    start_time: int
    #: The first time that no run has used: epoch ms.
    next_time: int
    #: Since when a run could have begun at its time: epoch ms. Times before it are missed.
    free_since: int
    running: ScheduledRun | None = None
    #: The newest first.
    ended: tuple[ScheduledRun, ...] = ()
    runs: int = 0
    missed: int = 0

    @staticmethod
    def begun(schedule: Schedule, now: int) -> ScheduleProgress:
        """The progress of a new schedule: an interval is due at once, a cron expression at its next time."""
        return ScheduleProgress(
            start_time=now, next_time=schedule.next_after(now - 1, start_ms=now), free_since=now
        )

    def under_new_master(self, now: int) -> ScheduleProgress:
        """The progress as a new master takes it over: it could begin no run before."""
        return msgspec.structs.replace(self, free_since=max(self.free_since, now))

    def with_run(self, schedule: Schedule, job_id: JobID, now: int) -> ScheduleProgress | None:
        """The progress with a run that begins now; None if none is due, or one runs."""
        if self.running is not None or self.next_time > now:
            return None
        due, count = self.next_time, 1
        following = schedule.next_after(due, self.start_time)
        while following <= now and count < _MOST_COUNTED:
            due, count = following, count + 1
            following = schedule.next_after(due, self.start_time)
        if following <= now:
            following = schedule.next_after(now, self.start_time)
        missed = count - 1 + (due < self.free_since)
        return msgspec.structs.replace(
            self,
            next_time=following,
            running=ScheduledRun(job_id=job_id, due_time=due, makes_up_for=missed),
            runs=self.runs + 1,
            missed=self.missed + missed,
        )

    def with_end(self, status: JobStatus, now: int, failure: str = "") -> ScheduleProgress:
        """The progress when the present run has ended."""
        assert self.running is not None
        run = msgspec.structs.replace(self.running, status=status, end_time=now, failure=failure)
        return msgspec.structs.replace(
            self, running=None, free_since=now, ended=(run, *self.ended)[:KEPT_RUNS]
        )
