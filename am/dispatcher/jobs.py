"""Jobs: all that one Dispatcher knows of, by what becomes of them.

Owner: the Dispatcher's loop; pure. A job is in one place at a time, but for those that are ending: these have finished
for whoever asks.
"""

from __future__ import annotations

from yarrow.am.dispatcher.finished_jobs import FinishedJob, FinishedJobs
from yarrow.am.dispatcher.recovering_job import RecoveringJob
from yarrow.am.jobmaster.job_master import JobMaster
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.errors import DuplicateJobError, JobNotFoundError, YarrowError
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.graph.job_graph import JobGraph


class NotKnownYetError(YarrowError):
    """To be asked again."""


class Jobs:
    """Those of one leadership."""

    def __init__(self, finished: FinishedJobs) -> None:
        self.running: dict[JobID, JobMaster] = {}
        #: Stored by an earlier leadership, without a JobMaster yet.
        self.recovering: dict[JobID, RecoveringJob] = {}
        #: Stored by an earlier leadership, and left to the next one: what they need stays.
        self.kept: dict[JobID, RecoveringJob] = {}
        #: Of jobs that have ended, until they are stopped.
        self.ending: set[JobMaster] = set()
        #: Accepted, their JobMaster not started yet, with the blobs that they need.
        self.starting: dict[JobID, tuple[str, ...]] = {}
        self.finished = finished

    def check_new(self, job_id: JobID) -> None:
        """Raises DuplicateJobError for the id of a job that is known."""
        if job_id in self.kept:
            raise DuplicateJobError(
                f"a job of the id {job_id} is stored, and could not be taken over from its former master: cancel it,"
                " or give the new one another id"
            )
        if job_id in self.running or job_id in self.starting or job_id in self.recovering:
            raise DuplicateJobError(
                f"a job of the id {job_id} is running already: give the new one another id"
            )
        if (ended := self.finished.get(job_id)) is not None:
            raise has_run(job_id, ended.overview.status)

    def ended(self, job_id: JobID) -> FinishedJob:
        """A job that has ended; JobNotFoundError for any other."""
        job = self.finished.get(job_id)
        if job is None:
            raise JobNotFoundError(
                f"no job {job_id} on this cluster: it never ran here, or it ended so long ago that it was"
                " forgotten (jobstore.expiration-time)"
            )
        return job

    def unneeded(self, blobs: tuple[str, ...], job_id: JobID) -> list[str]:
        """Those of the blobs of a job that has ended that no other job needs.

        NotKnownYetError while there is another job that has not been read.
        """
        stored = [*self.recovering.values(), *self.kept.values()]
        unread = [job.job_id for job in stored if job.job is None and job.job_id != job_id]
        if blobs and unread:
            raise NotKnownYetError(
                f"whether the stored job {unread[0]} needs its files too is not known before that has been read"
            )
        used = {key for keys in self.starting.values() for key in keys}
        for graph in [master.graph.job for master in self.running.values()] + [
            job.job for job in stored if job.job is not None and job.job_id != job_id
        ]:
            used.update(blobs_of(graph))
        return [key for key in blobs if key not in used]


def has_run(job_id: JobID, status: JobStatus) -> DuplicateJobError:
    """What is said to who submits a job again that has ended."""
    return DuplicateJobError(
        f"a job of the id {job_id} has run on this cluster ({status.value}): give the new one another id"
    )


def blobs_of(graph: JobGraph) -> tuple[str, ...]:
    """Keys of the files that a job ships."""
    return tuple(dict.fromkeys(file.blob_key for file in graph.user_code.files if file.blob_key))
