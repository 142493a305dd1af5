"""Paths about checkpoints of a job: statistics, settings, details; and taking one.

Owner: the event loop of the REST server.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from yarrow.am.rest.errors import NotFoundError
from yarrow.am.rest.models.base import TriggerBody
from yarrow.am.rest.models.checkpoints import (
    AnyCheckpoint,
    CheckpointConfigurationBody,
    CheckpointOperation,
    CheckpointStatisticsBody,
    CheckpointTrigger,
    TaskCheckpointDetails,
    checkpoint_body,
)
from yarrow.am.rest.routes.cluster_access import (
    Access,
    ClusterAccess,
    JobIdPath,
    TriggerIdPath,
    VertexIdPath,
    refusals,
)
from yarrow.am.rest.routes.flink_router import flink_router
from yarrow.am.rest.routes.operation_bodies import running_job, state
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.data.checkpoint_options import CheckpointType
from yarrow.runtime.rpc.checkpoint_statistics import CheckpointRecord

router = flink_router("Checkpoints", prefix="/jobs/{jobid}")

CheckpointIdPath = Annotated[int, Path(alias="checkpointid", ge=0, lt=2**63, description="A checkpoint.")]


@router.get("/checkpoints", responses=refusals(400, 404), response_model_exclude_none=False)
async def checkpoint_statistics(access: Access, job_id: JobIdPath) -> CheckpointStatisticsBody:
    """Checkpoints of a job so far."""
    dispatcher = access.services.dispatcher
    found = await dispatcher.request_checkpoint_statistics(JobID(job_id.lower()))
    return CheckpointStatisticsBody.model_validate(found)


@router.get("/checkpoints/config", responses=refusals(400, 404))
async def checkpoint_configuration(access: Access, job_id: JobIdPath) -> CheckpointConfigurationBody:
    """The checkpoint settings of a job; with the longest interval it takes none by itself."""
    dispatcher = access.services.dispatcher
    found = await dispatcher.request_checkpoint_statistics(JobID(job_id.lower()))
    return CheckpointConfigurationBody.model_validate(found.configuration)


@router.get("/checkpoints/details/{checkpointid}", responses=refusals(400, 404))
async def checkpoint_details(
    access: Access, job_id: JobIdPath, checkpoint_id: CheckpointIdPath
) -> AnyCheckpoint:
    """One checkpoint."""
    return checkpoint_body(await _record(access, job_id, checkpoint_id))


@router.get("/checkpoints/details/{checkpointid}/subtasks/{vertexid}", responses=refusals(400, 404))
async def checkpoint_of_vertex(
    access: Access, job_id: JobIdPath, checkpoint_id: CheckpointIdPath, vertex_id: VertexIdPath
) -> TaskCheckpointDetails:
    """The part of one vertex in a checkpoint, subtask by subtask."""
    record = await _record(access, job_id, checkpoint_id)
    for vertex in record.vertices:
        if vertex.vertex_id == vertex_id.lower():
            return TaskCheckpointDetails.model_validate(vertex)
    raise NotFoundError(
        f"vertex {vertex_id} has no part in checkpoint {checkpoint_id} of job {job_id}: GET /jobs/"
        f"{job_id}/checkpoints/details/{checkpoint_id} lists the vertices of the checkpoint"
    )


async def _record(access: ClusterAccess, job_id: str, checkpoint_id: int) -> CheckpointRecord:
    record = await access.services.dispatcher.request_checkpoint(JobID(job_id.lower()), checkpoint_id)
    if record is None:
        raise NotFoundError(
            f"job {job_id} has no checkpoint {checkpoint_id}, or the checkpoint is forgotten "
            "(web.checkpoints.history)"
        )
    return record


@router.post("/checkpoints", status_code=202, responses=refusals(400, 403, 404, 409))
async def trigger_checkpoint(
    access: Access, job_id: JobIdPath, request: CheckpointTrigger | None = None
) -> TriggerBody:
    """Takes a checkpoint now; GET with the id that is answered tells how it goes."""
    asked = request or CheckpointTrigger()
    wanted = CheckpointType(asked.checkpoint_type)
    job = await running_job(access, job_id, "a checkpoint")
    dispatcher = access.services.dispatcher
    scope = f"checkpoints of {job}"
    trigger = access.operations.begin(
        scope, asked.trigger_id, lambda: dispatcher.trigger_checkpoint(job, wanted)
    )
    return TriggerBody(request_id=trigger)


@router.get("/checkpoints/{triggerid}", responses=refusals(400, 404))
async def checkpoint_status(
    access: Access, job_id: JobIdPath, trigger_id: TriggerIdPath
) -> CheckpointOperation:
    """The state of a requested checkpoint."""
    outcome = access.operations.outcome(f"checkpoints of {job_id.lower()}", trigger_id)
    return CheckpointOperation.model_validate(state(outcome, "checkpoint_id"))
