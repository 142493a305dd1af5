"""Paths about applications: in a session each job is one, on YARN the application that runs the jobs.

Owner: the event loop of the REST server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import Path

from yarrow.am.rest.errors import ConflictError, NotFoundError
from yarrow.am.rest.models.applications import (
    ApplicationDetails,
    ApplicationExceptions,
    ApplicationsOverview,
)
from yarrow.am.rest.models.base import EmptyBody
from yarrow.am.rest.models.cluster import ConfigurationEntry
from yarrow.am.rest.routes.cluster_access import Access, ClusterAccess, refusals
from yarrow.am.rest.routes.flink_router import flink_router
from yarrow.am.rest.routes.job_manager import configuration_entries
from yarrow.am.rest.views import applications as views
from yarrow.runtime.common.errors import JobNotFoundError
from yarrow.runtime.rpc.messages import ExecutionGraphDetails, JobOverview

router = flink_router("Applications")

ApplicationIdPath = Annotated[
    str,
    Path(
        alias="applicationid",
        pattern="^[0-9a-fA-F]{32}$",
        description="Id of an application: 32 hexadecimal digits.",
    ),
]


@router.get("/applications/overview", responses=refusals())
async def applications_overview(access: Access) -> ApplicationsOverview:
    """All running and remembered applications."""
    jobs = await access.services.dispatcher.list_jobs()
    whole, now = access.services.application, access.now()
    groups: list[Sequence[JobOverview]] = [jobs] if whole is not None else [[job] for job in jobs]
    return ApplicationsOverview(applications=[views.summary(group, whole, now) for group in groups])


@router.get("/applications/{applicationid}", responses=refusals(400, 404))
async def application_details(access: Access, application_id: ApplicationIdPath) -> ApplicationDetails:
    """An application with its jobs."""
    jobs = await _jobs(access, application_id)
    whole = access.services.application
    timestamps = {}
    if whole is None or (whole.ends_with_job and jobs):
        timestamps = (await access.job(jobs[0].job_id)).timestamps
    return views.details(jobs, whole, timestamps, access.now())


@router.post("/applications/{applicationid}/cancel", status_code=202, responses=refusals(400, 403, 404, 409))
async def cancel_application(access: Access, application_id: ApplicationIdPath) -> EmptyBody:
    """Begins to cancel all running jobs of an application; 409 if none runs."""
    running = [
        job for job in await _jobs(access, application_id) if not job.status.is_globally_terminal_state()
    ]
    if not running:
        raise ConflictError(f"application {application_id} has no running job that could be cancelled")
    for job in running:
        await access.services.dispatcher.cancel_job(job.job_id)
    return EmptyBody()


@router.get("/applications/{applicationid}/exceptions", responses=refusals(400, 404))
async def application_exceptions(access: Access, application_id: ApplicationIdPath) -> ApplicationExceptions:
    """The failures that ended jobs of an application, the newest first."""
    found: list[ExecutionGraphDetails] = []
    for job in await _jobs(access, application_id):
        try:
            found.append(await access.job(job.job_id))
        except JobNotFoundError:
            continue  # forgotten meanwhile
    return views.exceptions(found)


@router.get("/applications/{applicationid}/jobmanager/config", responses=refusals(400, 404))
async def cluster_configuration_of_application(
    access: Access, application_id: ApplicationIdPath
) -> list[ConfigurationEntry]:
    """The configuration of the cluster that runs the application."""
    await _jobs(access, application_id)
    return configuration_entries(access.services)


async def _jobs(access: ClusterAccess, application_id: str) -> Sequence[JobOverview]:
    """The jobs of the application. Raises NotFoundError for an unknown application."""
    wanted = application_id.lower()
    jobs = await access.services.dispatcher.list_jobs()
    whole = access.services.application
    if whole is not None and wanted == whole.id:
        return jobs
    found = [job for job in jobs if whole is None and job.job_id == wanted]
    if not found:
        raise NotFoundError(
            f"no application {application_id} on this cluster: GET /applications/overview lists all "
            "applications"
        )
    return found
