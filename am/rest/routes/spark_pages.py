"""Paths of Spark's own pages about a bounded job: passed on to its SparkDriver, read only.

Owner: the event loop of the REST server. The channel is RPC between proved processes, so the rules of REST's entrance
are the only ones. The paths are Yarrow's.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request, Response

from yarrow.am.rest.routes.cluster_access import Access, ClusterAccess, JobIdPath, refusals
from yarrow.am.rest.routes.flink_router import flink_router
from yarrow.am.rest.spark_paths import PAGE_POLICY, redirected, spark_path, spark_query
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.rpc.messages import SparkPageRequest

router = flink_router("Jobs")

_HTML: dict[int | str, dict[str, object]] = {
    200: {"description": "Spark's page.", "content": {"text/html": {"schema": {"type": "string"}}}},
    302: {"description": "Another page of Spark's."},
}


@router.get("/jobs/{jobid}/spark", response_class=Response, responses=_HTML | refusals(400, 403, 404, 409))
async def first_spark_page(access: Access, request: Request, job_id: JobIdPath) -> Response:
    """Leads on to Spark's own pages about a running bounded job; the path is Yarrow's."""
    return await _page(access, request, job_id, "")


@router.get(
    "/jobs/{jobid}/spark/{page:path}", response_class=Response, responses=_HTML | refusals(400, 403, 404, 409)
)
async def spark_page(
    access: Access,
    request: Request,
    job_id: JobIdPath,
    page: Annotated[str, Path(description="A page of Spark's, as jobs/ or stages/stage/.")],
) -> Response:
    """One of Spark's own pages about a running bounded job, its style or its JSON; the path is Yarrow's."""
    return await _page(access, request, job_id, page)


async def _page(access: ClusterAccess, request: Request, job_id: str, page: str) -> Response:
    job = JobID(job_id.lower())
    base = f"{access.settings.external_base}/jobs/{job}/spark"
    asked = SparkPageRequest(path=spark_path(page), query=spark_query(request.url.query), base=base)
    found = await access.services.dispatcher.request_spark_page(job, asked)
    headers = {
        # A browser obeys all policies of a list.
        "content-security-policy": f"{PAGE_POLICY}, {found.policy}" if found.policy else PAGE_POLICY,
        "cache-control": found.caching or "no-store",
    }
    if found.location:
        behind = request.url.path.partition("/spark")[2]
        headers["location"] = redirected(found.location, base, behind)
    return Response(found.body, found.status, headers, found.media_type)
