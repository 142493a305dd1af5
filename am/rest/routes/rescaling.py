"""Paths about the parallelism of a running job: Flink 1.x's rescaling, Flink 2.x's resource requirements, the history.

Owner: the event loop of the REST server.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from yarrow.am.rest.errors import BadRequestError, NotFoundError
from yarrow.am.rest.models.base import TriggerBody
from yarrow.am.rest.models.rescaling import (
    JobResourceRequirements,
    LatestRescales,
    ParallelismBounds,
    RescaleConfiguration,
    RescaleDetails,
    RescalesHistory,
    RescalesOverview,
    RescalesSummary,
    RescalingOperation,
    VertexRequirements,
)
from yarrow.am.rest.routes.cluster_access import Access, JobIdPath, TriggerIdPath, refusals
from yarrow.am.rest.routes.flink_router import flink_router
from yarrow.am.rest.routes.operation_bodies import running_job, state
from yarrow.am.rest.views.rescaling import rescale_counts, rescale_details_of, rescale_durations
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.config.options import resourcemanager
from yarrow.runtime.rpc.messages import RESCALES_KEPT, ExecutionGraphDetails, RescaleRequest

router = flink_router("Rescaling")


@router.patch("/jobs/{jobid}/rescaling", responses=refusals(400, 403, 404, 409))
async def rescale(
    access: Access, job_id: JobIdPath, parallelism: Annotated[int, Query(ge=1, le=32768)]
) -> TriggerBody:
    """Rescales all vertices of a job; GET with the id answered tells how it goes."""
    job = await running_job(access, job_id, "another parallelism")
    dispatcher = access.services.dispatcher
    wanted = RescaleRequest(every=parallelism, trigger_cause=f"rescaling to {parallelism}")
    return TriggerBody(
        request_id=access.operations.begin(
            f"rescales of {job}", None, lambda: dispatcher.rescale_job(job, wanted)
        )
    )


@router.get("/jobs/{jobid}/rescaling/{triggerid}", responses=refusals(400, 404))
async def rescaling_status(
    access: Access, job_id: JobIdPath, trigger_id: TriggerIdPath
) -> RescalingOperation:
    """The state of a requested rescale."""
    outcome = access.operations.outcome(f"rescales of {job_id.lower()}", trigger_id)
    return RescalingOperation.model_validate(state(outcome))


@router.get("/jobs/{jobid}/resource-requirements", responses=refusals(400, 404))
async def resource_requirements(access: Access, job_id: JobIdPath) -> JobResourceRequirements:
    """The parallelism of each vertex."""
    job = await access.job(job_id)
    return JobResourceRequirements(
        {
            vertex.vertex_id: VertexRequirements(
                parallelism=ParallelismBounds(upper_bound=vertex.parallelism)
            )
            for vertex in job.vertices
        }
    )


@router.put("/jobs/{jobid}/resource-requirements", responses=refusals(400, 403, 404, 409))
async def change_resource_requirements(
    access: Access, job_id: JobIdPath, request: JobResourceRequirements
) -> dict[str, str]:
    """Rescales the vertices that are named to their upper bounds; the history tells how it goes."""
    found = await access.job(job_id)
    job = found.job_id
    if not _is_being_rescaled(found):
        await running_job(access, job_id, "other resource requirements")
    vertices = {vertex.vertex_id: vertex for vertex in found.vertices}
    for name, wanted in request.root.items():
        vertex = vertices.get(JobVertexID(name))
        if vertex is None:
            raise NotFoundError(f"job {job_id} has no vertex {name}")
        bounds = wanted.parallelism
        if not bounds.lower_bound <= bounds.upper_bound <= vertex.max_parallelism:
            raise BadRequestError(
                f"the parallelism of {vertex.name!r} must lie between its lower bound, "
                f"{bounds.lower_bound}, and its max parallelism, {vertex.max_parallelism}: "
                f"{bounds.upper_bound} does not"
            )
    dispatcher = access.services.dispatcher
    parallelism = {JobVertexID(name): entry.parallelism.upper_bound for name, entry in request.root.items()}
    # Nobody asks for the outcome. A request that comes during a rescale is for the one after it.
    asked = RescaleRequest(parallelism=parallelism, trigger_cause="new resource requirements", waits=True)
    access.operations.begin(f"rescales of {job}", None, lambda: dispatcher.rescale_job(job, asked))
    return {}


@router.get("/jobs/{jobid}/rescales/overview", responses=refusals(400, 404))
async def rescales_overview(access: Access, job_id: JobIdPath) -> RescalesOverview:
    """The number of rescales, and the newest of each end."""
    job = await access.job(job_id)
    newest = {record.state: rescale_details_of(job, number) for number, record in enumerate(job.rescales)}
    return RescalesOverview(
        rescales_counts=rescale_counts(job),
        latest=LatestRescales(completed=newest.get("COMPLETED"), failed=newest.get("FAILED")),
    )


@router.get("/jobs/{jobid}/rescales/summary", responses=refusals(400, 404))
async def rescales_summary(access: Access, job_id: JobIdPath) -> RescalesSummary:
    """The number of rescales, and their durations."""
    job = await access.job(job_id)
    return RescalesSummary(
        rescales_counts=rescale_counts(job),
        rescales_duration_stats_in_millis=rescale_durations(job, "COMPLETED", "FAILED"),
        completed_rescales_duration_stats_in_millis=rescale_durations(job, "COMPLETED"),
        failed_rescales_duration_stats_in_millis=rescale_durations(job, "FAILED"),
    )


@router.get("/jobs/{jobid}/rescales/config", responses=refusals(400, 404))
async def rescales_configuration(access: Access, job_id: JobIdPath) -> RescaleConfiguration:
    """The settings of the job's rescales."""
    job = await access.job(job_id)
    settings = access.services.settings.overlay(job.configuration, f"job {job.name!r}")
    wait, idle = (
        settings.get(option).nanos // 1_000_000
        for option in (resourcemanager.SLOT_REQUEST_TIMEOUT, resourcemanager.SLOT_IDLE_TIMEOUT)
    )
    return RescaleConfiguration(
        rescale_history_max=RESCALES_KEPT,
        submission_resource_wait_timeout_in_millis=wait,
        slot_idle_timeout_in_millis=idle,
    )


@router.get("/jobs/{jobid}/rescales/history", responses=refusals(400, 404))
async def rescales_history(access: Access, job_id: JobIdPath) -> RescalesHistory:
    """All remembered rescales, the newest first."""
    return RescalesHistory(_history(await access.job(job_id)))


@router.get("/jobs/{jobid}/rescales/details/{rescaleuuid}", responses=refusals(400, 404))
async def rescale_details(access: Access, job_id: JobIdPath, rescaleuuid: str) -> RescaleDetails:
    """One rescale."""
    for details in _history(await access.job(job_id)):
        if details.rescale_uuid == rescaleuuid:
            return details
    raise NotFoundError(f"job {job_id} had no rescale {rescaleuuid}, or the rescale is forgotten")


def _is_being_rescaled(job: ExecutionGraphDetails) -> bool:
    return bool(job.rescales) and job.rescales[-1].state == "IN_PROGRESS"


def _history(job: ExecutionGraphDetails) -> list[RescaleDetails]:
    return [rescale_details_of(job, number) for number in reversed(range(len(job.rescales)))]
