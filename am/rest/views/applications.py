"""Applications as REST shows them, made from jobs.

Owner: none (pure).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from yarrow.am.rest.models.applications import (
    ApplicationDetails,
    ApplicationException,
    ApplicationExceptionHistory,
    ApplicationExceptions,
    ApplicationStatus,
    ApplicationSummary,
)
from yarrow.am.rest.views.application import WholeApplication
from yarrow.am.rest.views.jobs import job_summary
from yarrow.common.job_status import JobStatus
from yarrow.runtime.rpc.messages import ExecutionGraphDetails, JobOverview

#: An application with one job has the job's state; it runs while the job is started, restarted or handed
#: over.
_STATUS = {
    JobStatus.FAILING: ApplicationStatus.FAILING,
    JobStatus.FAILED: ApplicationStatus.FAILED,
    JobStatus.CANCELLING: ApplicationStatus.CANCELING,
    JobStatus.CANCELED: ApplicationStatus.CANCELED,
    JobStatus.FINISHED: ApplicationStatus.FINISHED,
}


def summary(jobs: Sequence[JobOverview], whole: WholeApplication | None, now: int) -> ApplicationSummary:
    """An application in the list; without a `whole` one that of the only job."""
    start, end = _span(jobs, whole)
    return ApplicationSummary(
        id=jobs[0].job_id if whole is None else whole.id,
        name=jobs[0].name if whole is None else whole.name,
        start_time=start,
        end_time=end,
        duration=max(0, (end if end > 0 else now) - start),
        status=_status(jobs, whole),
        jobs=Counter(job.status.value for job in jobs),
    )


def details(
    jobs: Sequence[JobOverview],
    whole: WholeApplication | None,
    timestamps: Mapping[str, int],
    now: int,
) -> ApplicationDetails:
    """An application with its jobs; `timestamps`: when the only job of it entered its states, by state name."""
    listed = summary(jobs, whole, now)
    entered = {
        ApplicationStatus.CREATED: listed.start_time,
        # A job begins when it is accepted: its waiting time is part of its run.
        ApplicationStatus.RUNNING: listed.start_time,
        **{status: timestamps.get(name, 0) for name, status in _STATUS.items()},
    }
    return ApplicationDetails.model_validate(
        {
            **dict(listed),
            "timestamps": {status: entered.get(status, 0) for status in ApplicationStatus},
            "jobs": [job_summary(job, now) for job in jobs],
        }
    )


def exceptions(jobs: Iterable[ExecutionGraphDetails]) -> ApplicationExceptions:
    """The failure that ended each job which has failed, the newest first."""
    entries = []
    for job in jobs:
        if job.status is not JobStatus.FAILED or not job.exceptions:
            continue
        last = max(job.exceptions, key=lambda entry: entry.timestamp_ms)
        entries.append(ApplicationException.of(last, job_id=job.job_id))
    entries.sort(key=lambda entry: -entry.timestamp)
    return ApplicationExceptions(exception_history=ApplicationExceptionHistory(entries=entries))


def _status(jobs: Sequence[JobOverview], whole: WholeApplication | None) -> ApplicationStatus:
    if whole is not None and (not whole.ends_with_job or not jobs):
        # It is running while it can be asked: it is gone after its end.
        return ApplicationStatus.RUNNING
    return _STATUS.get(jobs[0].status, ApplicationStatus.RUNNING)


def _span(jobs: Sequence[JobOverview], whole: WholeApplication | None) -> tuple[int, int]:
    if whole is None:
        return jobs[0].start_time, jobs[0].end_time
    end = jobs[0].end_time if whole.ends_with_job and jobs else -1
    return min([whole.start_time, *(job.start_time for job in jobs)]), end
