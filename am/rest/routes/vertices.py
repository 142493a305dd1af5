"""Paths about vertices, subtasks and attempts of a job.

Owner: the event loop of the REST server.
"""

from __future__ import annotations

from yarrow.am.rest.models import vertices as models
from yarrow.am.rest.routes.cluster_access import (
    Access,
    AttemptPath,
    JobIdPath,
    SubtaskPath,
    VertexIdPath,
    refusals,
)
from yarrow.am.rest.routes.flink_router import flink_router
from yarrow.am.rest.views import vertices as views

router = flink_router("Vertices", prefix="/jobs/{jobid}/vertices/{vertexid}")


@router.get("", responses=refusals(400, 404))
async def vertex_details(
    access: Access, job_id: JobIdPath, vertex_id: VertexIdPath
) -> models.VertexDetailsBody:
    """A vertex with its subtasks."""
    return views.vertex_details(await access.vertex(job_id, vertex_id), access.now())


@router.get("/subtasktimes", responses=refusals(400, 404))
async def vertex_times(access: Access, job_id: JobIdPath, vertex_id: VertexIdPath) -> models.VertexTimes:
    """The times at which each subtask entered its states."""
    return views.vertex_times(await access.vertex(job_id, vertex_id), access.now())


@router.get("/taskmanagers", responses=refusals(400, 404))
async def vertex_task_managers(
    access: Access, job_id: JobIdPath, vertex_id: VertexIdPath
) -> models.VertexTaskManagers:
    """The vertex by TaskExecutor."""
    return views.vertex_task_managers(await access.vertex(job_id, vertex_id), access.now())


@router.get("/backpressure", responses=refusals(400, 404))
async def vertex_back_pressure(
    access: Access, job_id: JobIdPath, vertex_id: VertexIdPath
) -> models.VertexBackPressure:
    """Where the time of the subtasks goes: busy, idle, waiting for room downstream; measured, not sampled."""
    return views.back_pressure(await access.vertex(job_id, vertex_id), access.now())


@router.get("/accumulators", responses=refusals(400, 404, 409))
async def vertex_accumulators(
    access: Access, job_id: JobIdPath, vertex_id: VertexIdPath
) -> models.VertexAccumulators:
    """Accumulators of the vertex, merged over its subtasks."""
    return views.vertex_accumulators(await access.vertex(job_id, vertex_id))


@router.get("/subtasks/accumulators", responses=refusals(400, 404))
async def subtasks_accumulators(
    access: Access, job_id: JobIdPath, vertex_id: VertexIdPath
) -> models.SubtasksAccumulators:
    """Accumulators of each subtask."""
    return models.SubtasksAccumulators.model_validate(await access.vertex(job_id, vertex_id))


@router.get("/subtasks/{subtaskindex}", responses=refusals(400, 404))
async def subtask_details(
    access: Access, job_id: JobIdPath, vertex_id: VertexIdPath, subtask: SubtaskPath
) -> models.AttemptDetailsBody:
    """The present attempt of a subtask."""
    return views.attempt_details(await access.attempt(job_id, vertex_id, subtask, None), access.now())


@router.get("/subtasks/{subtaskindex}/attempts/{attempt}", responses=refusals(400, 404))
async def attempt_details(
    access: Access, job_id: JobIdPath, vertex_id: VertexIdPath, subtask: SubtaskPath, number: AttemptPath
) -> models.AttemptDetailsBody:
    """One attempt of a subtask."""
    return views.attempt_details(await access.attempt(job_id, vertex_id, subtask, number), access.now())


@router.get("/subtasks/{subtaskindex}/attempts/{attempt}/accumulators", responses=refusals(400, 404))
async def attempt_accumulators(
    access: Access, job_id: JobIdPath, vertex_id: VertexIdPath, subtask: SubtaskPath, number: AttemptPath
) -> models.AttemptAccumulators:
    """Accumulators of one attempt."""
    attempt = await access.attempt(job_id, vertex_id, subtask, number)
    return models.AttemptAccumulators.model_validate(attempt)
