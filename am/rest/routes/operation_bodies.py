"""Functions that the paths of asynchronous operations share.

Owner: the event loop of the REST server.
"""

from __future__ import annotations

from yarrow.am.rest.errors import ConflictError
from yarrow.am.rest.models.checkpoints import FailureCauseBody, OperationStatus
from yarrow.am.rest.operations import OperationOutcome
from yarrow.am.rest.routes.cluster_access import ClusterAccess
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.ids import JobID


def status(completed: bool) -> OperationStatus:
    """The state of the operation."""
    return OperationStatus(id="COMPLETED" if completed else "IN_PROGRESS")


def failure(outcome: OperationOutcome) -> FailureCauseBody:
    """Why it failed."""
    return FailureCauseBody(class_=outcome.error_class, stack_trace=outcome.error_text)


async def running_job(access: ClusterAccess, job_id: str, what: str) -> JobID:
    """The id of a running job. Raises ConflictError if the job does not run."""
    job = await access.job(job_id)
    if job.status is not JobStatus.RUNNING:
        raise ConflictError(f"job {job_id} is {job.status.value}: only a running job takes {what}")
    return job.job_id
