"""Shows the end of a job to the user: its result, or an error that begins with the user's traceback.

Owner: any thread; pure. Shared by the clients of embedded and remote clusters.
"""

from __future__ import annotations

from yarrow.client.accumulator_values import merged_values
from yarrow.common.job_execution_result import JobExecutionResult
from yarrow.common.job_id import JobID
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.errors import JobCancelledError, JobExecutionError
from yarrow.runtime.rpc.messages import FailureCause, JobResult


def public_status(name: str) -> JobStatus:
    """The status for programs: PyFlink has no INITIALIZING, so that becomes CREATED.

    An unknown status of a newer cluster becomes CREATED too.
    """
    status = JobStatus.__members__.get(name, JobStatus.CREATED)
    return JobStatus.CREATED if status is JobStatus.INITIALIZING else status


def execution_result(result: JobResult) -> JobExecutionResult:
    """The result of a FINISHED job. Raises JobCancelledError or JobExecutionError otherwise."""
    if result.status is JobStatus.FINISHED:
        values = merged_values(result.accumulators)
        return JobExecutionResult(JobID(result.job_id), result.net_runtime_ms, values)
    if result.status is JobStatus.CANCELED:
        raise JobCancelledError(f"Job {result.name!r} ({result.job_id}) was cancelled.", result.job_id)
    raise JobExecutionError(failure_text(result), result.job_id)


def failure_text(result: JobResult) -> str:
    """The user's own traceback first, then operator, job and record of the failure."""
    name = f"Job {result.name!r} ({result.job_id})"
    cause = result.cause
    if cause is None:
        return f"{name} ended as {result.status.value}; the cluster gave no cause."
    return f"{_trace(cause)}\n\n{name} failed{_where(cause)}."


def _trace(cause: FailureCause) -> str:
    if cause.stacktrace.strip():
        return cause.stacktrace.rstrip()
    return f"{cause.exception_name}: {cause.message}"


def _where(cause: FailureCause) -> str:
    where = f" in {cause.operator_name}" if cause.operator_name else ""
    return where + (f", at the record {cause.record}" if cause.record else "")
