"""Jobs: all jobs of one Dispatcher, by their stage.

Owner: the Dispatcher's loop; pure. A job has one stage at a time. Only an ending job also counts as finished.
"""

from __future__ import annotations

from yarrow.am.dispatcher.finished_jobs import FinishedJob, FinishedJobs
from yarrow.am.dispatcher.recovering_job import RecoveringJob
from yarrow.am.jobmaster.running_job import RunningJob
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.errors import DuplicateJobError, JobNotFoundError, YarrowError
from yarrow.runtime.common.ids import JobID, ScheduleID
from yarrow.runtime.graph.job_graph import JobGraph


class NotKnownYetError(YarrowError):
    """Another job has not been read yet; the caller asks again later."""


class Jobs:
    """The jobs of one leadership."""

    def __init__(self, finished: FinishedJobs) -> None:
        self.running: dict[JobID, RunningJob] = {}
        #: Stored by an earlier leadership, without a JobMaster yet.
        self.recovering: dict[JobID, RecoveringJob] = {}
        #: Stored by an earlier leadership, and left to the next one: their data stay.
        self.kept: dict[JobID, RecoveringJob] = {}
        #: JobMasters of ended jobs, until they are stopped.
        self.ending: set[RunningJob] = set()
        #: Accepted jobs whose JobMaster is not started yet, with the blobs that they need.
        self.starting: dict[JobID, tuple[str, ...]] = {}
        #: Schedules, with the blobs that their runs need.
        self.scheduled: dict[ScheduleID, tuple[str, ...]] = {}
        self.finished = finished

    def check_new(self, job_id: JobID) -> None:
        """Raises DuplicateJobError for the id of a known job."""
        if job_id in self.kept:
            raise DuplicateJobError(
                f"a job of the id {job_id} is stored, and could not be taken over from its former master."
                " Cancel that job, or give the new job another id"
            )
        if job_id in self.running or job_id in self.starting or job_id in self.recovering:
            raise DuplicateJobError(
                f"a job of the id {job_id} is running already: give the new job another id"
            )
        if ScheduleID(job_id) in self.scheduled:
            raise DuplicateJobError(f"a schedule of the id {job_id} exists: give the new job another id")
        if (ended := self.finished.get(job_id)) is not None:
            raise has_run(job_id, ended.overview.status)

    def ended(self, job_id: JobID) -> FinishedJob:
        """An ended job. Raises JobNotFoundError for any other."""
        job = self.finished.get(job_id)
        if job is None:
            raise JobNotFoundError(
                f"no job {job_id} on this cluster: the job never ran here, or ended longer ago than "
                "jobstore.expiration-time"
            )
        return job

    def unneeded(self, blobs: tuple[str, ...], job_id: JobID) -> list[str]:
        """The blobs of an ended job that no other job needs.

        Raises NotKnownYetError while some job has not been read.
        """
        stored = [*self.recovering.values(), *self.kept.values()]
        unread = [job.job_id for job in stored if job.job is None and job.job_id != job_id]
        if blobs and unread:
            raise NotKnownYetError(
                f"the files are kept: the stored job {unread[0]} has not been read yet, and may need them too"
            )
        used = {key for keys in (*self.starting.values(), *self.scheduled.values()) for key in keys}
        for graph in [master.graph.job for master in self.running.values()] + [
            job.job for job in stored if job.job is not None and job.job_id != job_id
        ]:
            used.update(blobs_of(graph))
        return [key for key in blobs if key not in used]


def has_run(job_id: JobID, status: JobStatus) -> DuplicateJobError:
    """The error for a client that submits an ended job again."""
    return DuplicateJobError(
        f"a job of the id {job_id} has run on this cluster ({status.value}): give the new job another id"
    )


def blobs_of(graph: JobGraph) -> tuple[str, ...]:
    """Keys of the files that a job ships."""
    return tuple(dict.fromkeys(file.blob_key for file in graph.user_code.files if file.blob_key))
