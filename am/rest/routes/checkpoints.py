"""Paths about checkpoints and savepoints, as a job without any has them; taking one is refused.

Owner: the event loop of the REST server.
"""

from __future__ import annotations

from typing import Annotated, NoReturn

from fastapi import APIRouter, Path

import yarrow.runtime.config.options.checkpointing as options
from yarrow.am.rest.cluster_access import (
    Access,
    ClusterAccess,
    JobIdPath,
    TriggerIdPath,
    VertexIdPath,
    refusals,
)
from yarrow.am.rest.errors import ConflictError, NotFoundError
from yarrow.am.rest.models.base import Trigger
from yarrow.am.rest.models.checkpoints import (
    Checkpoint,
    CheckpointConfiguration,
    CheckpointStatistics,
    CheckpointTrigger,
    Externalization,
    SavepointTrigger,
    StopWithSavepoint,
    TaskCheckpoint,
)
from yarrow.runtime.config.quantities import Duration
from yarrow.runtime.graph.states import JobStatus

router = APIRouter(prefix="/jobs/{jobid}", tags=["Checkpoints"])

#: Flink's interval of a job that takes no checkpoints.
_NEVER = 2**63 - 1

CheckpointIdPath = Annotated[int, Path(alias="checkpointid", ge=0, lt=2**63, description="A checkpoint.")]


@router.get("/checkpoints", responses=refusals(400, 404))
async def checkpoint_statistics(access: Access, job_id: JobIdPath) -> CheckpointStatistics:
    """Checkpoints of a job so far: there are none."""
    await access.job(job_id)
    return CheckpointStatistics()


@router.get("/checkpoints/config", responses=refusals(400, 404))
async def checkpoint_configuration(access: Access, job_id: JobIdPath) -> CheckpointConfiguration:
    """How a job takes checkpoints: with the longest interval, never."""
    await access.job(job_id)
    return CheckpointConfiguration(
        mode="exactly_once",
        interval=_NEVER,
        timeout=_milliseconds(options.TIMEOUT.default),
        min_pause=_milliseconds(options.MIN_PAUSE.default),
        max_concurrent=options.MAX_CONCURRENT.default,
        externalization=Externalization(),
        state_backend="HeapKeyedStateBackend",
        checkpoint_storage="none",
        unaligned_checkpoints=options.UNALIGNED.default,
        tolerable_failed_checkpoints=0,
        aligned_checkpoint_timeout=0,
        checkpoints_after_tasks_finish=True,
    )


def _milliseconds(duration: Duration) -> int:
    return int(duration.seconds * 1000)


@router.get("/checkpoints/details/{checkpointid}", responses=refusals(400, 404))
async def checkpoint_details(
    access: Access, job_id: JobIdPath, checkpoint_id: CheckpointIdPath
) -> Checkpoint:
    """One checkpoint: every number is unknown."""
    await access.job(job_id)
    _unknown_checkpoint(job_id, checkpoint_id)


@router.get("/checkpoints/details/{checkpointid}/subtasks/{vertexid}", responses=refusals(400, 404))
async def checkpoint_of_vertex(
    access: Access, job_id: JobIdPath, checkpoint_id: CheckpointIdPath, vertex_id: VertexIdPath
) -> TaskCheckpoint:
    """The part of one vertex in a checkpoint: every number is unknown."""
    await access.vertex(job_id, vertex_id)
    _unknown_checkpoint(job_id, checkpoint_id)


def _unknown_checkpoint(job_id: str, checkpoint_id: int) -> NoReturn:
    raise NotFoundError(f"job {job_id} has no checkpoint {checkpoint_id}: it has taken none")


@router.post("/checkpoints", status_code=202, responses=refusals(400, 403, 404, 409))
async def trigger_checkpoint(
    access: Access, job_id: JobIdPath, request: CheckpointTrigger | None = None
) -> Trigger:
    """Takes a checkpoint: refused, for this version has none."""
    await _refuse(access, job_id, "a checkpoint")


@router.post("/savepoints", status_code=202, responses=refusals(400, 403, 404, 409))
async def trigger_savepoint(
    access: Access, job_id: JobIdPath, request: SavepointTrigger | None = None
) -> Trigger:
    """Takes a savepoint: refused, for this version has none."""
    await _refuse(access, job_id, "a savepoint")


@router.post("/stop", status_code=202, responses=refusals(400, 403, 404, 409))
async def stop_with_savepoint(
    access: Access, job_id: JobIdPath, request: StopWithSavepoint | None = None
) -> Trigger:
    """Stops a job with a savepoint: refused, for this version has none."""
    await _refuse(access, job_id, "a savepoint to stop with")


async def _refuse(access: ClusterAccess, job_id: str, what: str) -> NoReturn:
    job = await access.job(job_id)
    if job.status is not JobStatus.RUNNING:
        raise ConflictError(f"job {job_id} is {job.status.value}: only a running job takes {what}")
    raise ConflictError(
        f"job {job_id} cannot take {what}: this version has no checkpoints and savepoints."
        f" PATCH /jobs/{job_id}?mode=cancel ends it."
    )


@router.get("/checkpoints/{triggerid}", responses=refusals(400, 404))
async def checkpoint_status(access: Access, job_id: JobIdPath, trigger_id: TriggerIdPath) -> Trigger:
    """How a checkpoint that was asked for goes: every id is unknown."""
    await access.job(job_id)
    _unknown_operation(trigger_id)


@router.get("/savepoints/{triggerid}", responses=refusals(400, 404))
async def savepoint_status(access: Access, job_id: JobIdPath, trigger_id: TriggerIdPath) -> Trigger:
    """How a savepoint that was asked for goes: every id is unknown."""
    await access.job(job_id)
    _unknown_operation(trigger_id)


def _unknown_operation(trigger_id: str) -> NoReturn:
    raise NotFoundError(f"no operation {trigger_id} was begun here")
