"""Paths about savepoints: taking one, stopping a job with one, deleting one.

Owner: the event loop of the REST server. The JobMaster or Dispatcher that uses a path checks it.
"""

from __future__ import annotations

import msgspec

from yarrow.am.checkpoint.targets import checked_path
from yarrow.am.rest.errors import BadRequestError
from yarrow.am.rest.models.base import TriggerBody
from yarrow.am.rest.models.checkpoints import (
    DisposalOperation,
    SavepointDisposal,
    SavepointOperation,
    SavepointTrigger,
    StopWithSavepoint,
)
from yarrow.am.rest.routes.cluster_access import Access, ClusterAccess, JobIdPath, TriggerIdPath, refusals
from yarrow.am.rest.routes.flink_router import flink_router
from yarrow.am.rest.routes.operation_bodies import running_job, state
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.paths import with_default_scheme
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.rpc.messages import SavepointFormat, SavepointRequest

router = flink_router("Savepoints")

_DISPOSALS = "disposals of savepoints"


@router.post("/jobs/{jobid}/savepoints", status_code=202, responses=refusals(400, 403, 404, 409))
async def trigger_savepoint(
    access: Access, job_id: JobIdPath, request: SavepointTrigger | None = None
) -> TriggerBody:
    """Takes a savepoint, and cancels the job with it where asked; GET with the id answered tells how it goes."""
    asked = request or SavepointTrigger()
    wanted = SavepointRequest(
        kind=SnapshotKind.SAVEPOINT,
        target_directory=asked.target_directory,
        cancel_job=asked.cancel_job,
        format_type=SavepointFormat(asked.format_type),
    )
    return await _begin(access, job_id, asked.trigger_id, wanted)


@router.post("/jobs/{jobid}/stop", status_code=202, responses=refusals(400, 403, 404, 409))
async def stop_with_savepoint(
    access: Access, job_id: JobIdPath, request: StopWithSavepoint | None = None
) -> TriggerBody:
    """Stops a job with a savepoint; GET /savepoints with the id answered tells how it goes."""
    asked = request or StopWithSavepoint()
    wanted = SavepointRequest(
        kind=SnapshotKind.SAVEPOINT_TERMINATE if asked.drain else SnapshotKind.SAVEPOINT_SUSPEND,
        target_directory=asked.target_directory,
        format_type=SavepointFormat(asked.format_type),
    )
    return await _begin(access, job_id, asked.trigger_id, wanted)


def _place(access: ClusterAccess, path: str, what: str) -> str:
    """A path of a request, in the file system of fs.default-scheme if it names none."""
    default = access.settings.default_scheme
    return checked_path(with_default_scheme(path, default) if path.startswith("/") else path, what)


async def _begin(
    access: ClusterAccess, job_id: str, trigger_id: str | None, wanted: SavepointRequest
) -> TriggerBody:
    if wanted.target_directory:
        target = _place(access, wanted.target_directory, "target directory of the savepoint")
        wanted = msgspec.structs.replace(wanted, target_directory=target)
        try:
            access.settings.check_savepoint_target(target)
        except YarrowError as error:
            raise BadRequestError(str(error)) from error
    job = await running_job(access, job_id, "a savepoint")
    dispatcher = access.services.dispatcher
    scope = f"savepoints of {job}"
    return TriggerBody(
        request_id=access.operations.begin(
            scope, trigger_id, lambda: dispatcher.trigger_savepoint(job, wanted)
        )
    )


@router.get("/jobs/{jobid}/savepoints/{triggerid}", responses=refusals(400, 404))
async def savepoint_status(
    access: Access, job_id: JobIdPath, trigger_id: TriggerIdPath
) -> SavepointOperation:
    """The state of a requested savepoint."""
    outcome = access.operations.outcome(f"savepoints of {job_id.lower()}", trigger_id)
    return SavepointOperation.model_validate(state(outcome, "location"))


@router.post("/savepoint-disposal", responses=refusals(400, 403))
async def dispose_savepoint(access: Access, request: SavepointDisposal | None = None) -> TriggerBody:
    """Deletes the files of a savepoint; GET with the id that is answered tells how it goes."""
    if request is None:
        raise BadRequestError(
            "the body is missing: send JSON with the path of the savepoint as savepoint-path"
        )
    path = _place(access, request.savepoint_path, "savepoint to dispose of")
    dispatcher = access.services.dispatcher
    trigger = access.operations.begin(_DISPOSALS, None, lambda: dispatcher.dispose_savepoint(path))
    return TriggerBody(request_id=trigger)


@router.get("/savepoint-disposal/{triggerid}", responses=refusals(400, 404))
async def disposal_status(access: Access, trigger_id: TriggerIdPath) -> DisposalOperation:
    """The state of a savepoint's disposal."""
    return DisposalOperation.model_validate(state(access.operations.outcome(_DISPOSALS, trigger_id)))
