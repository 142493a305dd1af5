"""ApplicationEnd: YARN's final status and diagnostics, made from the ends of jobs.

Owner: none; pure. YARN shows diagnostics to everybody who may see the application: they contain the user's
error and no secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from yarrow.common.job_status import JobStatus
from yarrow.runtime.rpc.messages import JobResult
from yarrow.runtime.yarn.gateways import FinalStatus

#: Most characters. A longer text keeps its beginning and end, because the error stands at one of them.
MOST_DIAGNOSTICS = 8000
_CUT = "\n[...]\n"


@dataclass(frozen=True, slots=True)
class ApplicationEnd:
    """The final status and diagnostics of an application."""

    status: FinalStatus
    diagnostics: str

    def __post_init__(self) -> None:
        if len(self.diagnostics) > MOST_DIAGNOSTICS:
            half = (MOST_DIAGNOSTICS - len(_CUT)) // 2
            object.__setattr__(
                self, "diagnostics", f"{self.diagnostics[:half]}{_CUT}{self.diagnostics[-half:]}"
            )


def end_of_job(result: JobResult) -> ApplicationEnd:
    """The end of an application with one job."""
    job = f"Job {result.name!r} ({result.job_id})"
    match result.status:
        case JobStatus.FINISHED:
            return ApplicationEnd(FinalStatus.SUCCEEDED, f"{job} has finished.")
        case JobStatus.CANCELED:
            why = f": {result.cancellation}" if result.cancellation else ""
            return ApplicationEnd(FinalStatus.KILLED, f"{job} was cancelled{why}.")
    if result.cause is None:
        return ApplicationEnd(FinalStatus.FAILED, f"{job} is {result.status.value}; no cause was recorded.")
    trace = (result.cause.stacktrace or result.cause.message).rstrip()
    return ApplicationEnd(FinalStatus.FAILED, f"{trace}\n\n{job} failed.")


def end_of_jobs(results: Sequence[JobResult]) -> ApplicationEnd:
    """The end of an application with several jobs: the worst of their ends, and the first of equal ones."""
    ends = [end_of_job(result) for result in results]
    for status in (FinalStatus.FAILED, FinalStatus.KILLED):
        for end in ends:
            if end.status is status:
                return end
    if len(ends) == 1:
        return ends[0]
    return ApplicationEnd(FinalStatus.SUCCEEDED, f"{len(ends)} jobs have finished.")
