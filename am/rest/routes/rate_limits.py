"""Paths about the rate limits of a running job's sources and sinks; they are Yarrow's.

Owner: the event loop of the REST server.
"""

from __future__ import annotations

from yarrow.am.rest.errors import BadRequestError
from yarrow.am.rest.models.rate_limits import JobRateLimits, OperatorRateBody, RateLimitsChange
from yarrow.am.rest.routes.cluster_access import Access, JobIdPath, refusals
from yarrow.am.rest.routes.flink_router import flink_router
from yarrow.common.values.rate_limit import RateLimit
from yarrow.runtime.common.ids import JobID, OperatorID
from yarrow.runtime.rpc.messages import RateLimitDetails, RateLimitRequest

router = flink_router("Rate limits")


@router.get("/jobs/{jobid}/rate-limits", responses=refusals(400, 404, 409))
async def job_rate_limits(access: Access, job_id: JobIdPath) -> JobRateLimits:
    """The sources and sinks of a running job that take a rate limit, each with its limit; Yarrow's."""
    return _body(await access.services.dispatcher.request_rate_limits(JobID(job_id.lower())))


@router.patch("/jobs/{jobid}/rate-limits", responses=refusals(400, 403, 404, 409))
async def change_rate_limits(access: Access, job_id: JobIdPath, change: RateLimitsChange) -> JobRateLimits:
    """Sets other limits, which hold and are stored when the answer comes. It waits for a rescale to end; Yarrow's."""
    job = JobID(job_id.lower())
    present = await access.services.dispatcher.request_rate_limits(job)
    limits: dict[OperatorID, RateLimit] = {}
    for name, body in change.operators.items():
        limit = RateLimit(rows_per_second=body.rows_per_second, bytes_per_second=body.bytes_per_second)
        limits[_operator(present, name)] = limit
    request = RateLimitRequest(limits=limits)
    return _body(await access.services.dispatcher.change_rate_limits(job, request))


def _operator(details: RateLimitDetails, name: str) -> OperatorID:
    """The operator of that id or uid. Raises BadRequestError, which names those that there are."""
    for entry in details.operators:
        if name.lower() == entry.operator_id or (entry.uid and name == entry.uid):
            return entry.operator_id
    known = ", ".join(f"{entry.uid or entry.operator_id} ({entry.name})" for entry in details.operators)
    raise BadRequestError(
        f"the job {details.job_id} has no source or sink {name!r} that takes a rate limit; it has: {known or 'none'}"
    )


def _body(details: RateLimitDetails) -> JobRateLimits:
    return JobRateLimits(
        operators=[
            OperatorRateBody(
                operator_id=entry.operator_id,
                vertex_id=entry.vertex_id,
                name=entry.name,
                uid=entry.uid or None,
                type="source" if entry.is_source else "sink",
                rows_per_second=entry.limit.rows_per_second,
                bytes_per_second=entry.limit.bytes_per_second,
                counts_bytes=entry.counts_bytes,
                subtasks=entry.subtasks,
                sharing_subtasks=entry.sharing_subtasks,
            )
            for entry in details.operators
        ]
    )
