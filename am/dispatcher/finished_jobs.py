"""FinishedJobs: ended jobs, kept for later questions and limited by number and age.

Owner: the Dispatcher's loop. Pure but for the injected clock.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from yarrow.am.checkpoint.statistics import CheckpointStatisticsTracker
from yarrow.am.jobmaster.collecting.collect_buffer import CollectBuffer
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.rpc.messages import ExecutionGraphDetails, JobOverview, JobResult


class FinishedJob(msgspec.Struct, frozen=True):
    """The data of an ended job."""

    overview: JobOverview
    details: ExecutionGraphDetails
    result: JobResult
    #: Rows that the client has not fetched yet.
    collects: Mapping[str, CollectBuffer]
    checkpoints: CheckpointStatisticsTracker


class FinishedJobs:
    """The newest ended jobs."""

    def __init__(self, capacity: int, expiration_seconds: float, clock: Clock) -> None:
        """`capacity` is jobstore.max-capacity, `expiration_seconds` jobstore.expiration-time."""
        self._capacity = capacity
        self._expiration = expiration_seconds
        self._clock = clock
        #: In order of their ends.
        self._jobs: dict[JobID, tuple[float, FinishedJob]] = {}

    def add(self, job: FinishedJob) -> None:
        """Adds a job that has just ended; drops the oldest one beyond the capacity."""
        self._jobs[job.overview.job_id] = (self._clock.monotonic(), job)
        while len(self._jobs) > self._capacity:
            del self._jobs[next(iter(self._jobs))]

    def get(self, job_id: JobID) -> FinishedJob | None:
        """The job; None if it is unknown or too old."""
        self._expire()
        entry = self._jobs.get(job_id)
        return entry[1] if entry is not None else None

    def all(self) -> list[FinishedJob]:
        """All kept jobs, oldest first."""
        self._expire()
        return [job for _, job in self._jobs.values()]

    def _expire(self) -> None:
        limit = self._clock.monotonic() - self._expiration
        for job_id, (ended, _) in list(self._jobs.items()):
            if ended > limit:
                return
            del self._jobs[job_id]
