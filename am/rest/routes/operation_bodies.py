"""Functions that the paths of asynchronous operations share.

Owner: the event loop of the REST server.
"""

from __future__ import annotations

from typing import Any

from yarrow.am.rest.errors import ConflictError
from yarrow.am.rest.operations import OperationOutcome
from yarrow.am.rest.routes.cluster_access import ClusterAccess
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.ids import JobID


def state(outcome: OperationOutcome | None, value: str = "") -> dict[str, Any]:
    """The fields of the body of an operation; None runs. `value` is the field that holds the result; "" = none."""
    if outcome is None:
        return {"status": {"id": "IN_PROGRESS"}}
    if outcome.failed:
        failure = {"class_": outcome.error_class, "stack_trace": outcome.error_text}
        return {"status": {"id": "COMPLETED"}, "operation": {"failure_cause": failure}}
    return {"status": {"id": "COMPLETED"}, "operation": {value: outcome.value} if value else {}}


async def running_job(access: ClusterAccess, job_id: str, what: str) -> JobID:
    """The id of a running job. Raises ConflictError if the job does not run."""
    job = await access.job(job_id)
    if job.status is not JobStatus.RUNNING:
        raise ConflictError(f"job {job_id} is {job.status.value}: only a running job takes {what}")
    return job.job_id
