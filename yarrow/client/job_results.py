"""Shows the end of a job to the user: its result, or an error that begins with the user's traceback.

Owner: any thread; pure. Shared by the clients of embedded and remote clusters. Accumulators whose class merges in its
own way are merged here. Nothing that is read for this runs code: the program has the class, or gets a reason.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from yarrow.common.job_execution_result import JobExecutionResult
from yarrow.common.job_id import JobID
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.accumulators import UnmergedPart, unmerged_parts
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


def merged_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Accumulators by name with one value each; a merge that fails gives the reason in its place."""
    return {name: _merged(name, value) for name, value in values.items()}


def _merged(name: str, value: Any) -> Any:
    parts = unmerged_parts(value)
    if parts is None:
        return value
    try:
        first, *others = [_accumulator(part) for part in parts]
        for other in others:
            first.merge(other)
        return first.get_local_value()
    except Exception as error:  # merge is code of the program
        return f"not merged: the accumulator {name!r} of class {parts[0].class_name}: {error}"


def _accumulator(part: UnmergedPart) -> Any:
    # Imported late: most jobs have no such accumulator.
    import yarrow.common.accumulators  # noqa: F401 - its classes are found among the loaded ones
    from yarrow.runtime.data.key_classes import loaded_class
    from yarrow.runtime.snapshot.plain_values import load_plain

    if part.reason:
        raise ValueError(part.reason)
    (accumulator,) = load_plain(base64.b64decode(part.encoded), resolve=loaded_class)
    return accumulator
