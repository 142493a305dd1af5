"""Paths about uploaded programs, which Flink's API calls jars: a .py file, or a .zip of modules.

Owner: the event loop of the REST server. A program's main runs in a child process only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

from fastapi import Depends, File, Path, Query, Request, UploadFile

from yarrow.am.rest.errors import BadRequestError, ForbiddenError
from yarrow.am.rest.models.applications import ApplicationStart
from yarrow.am.rest.models.base import EmptyBody
from yarrow.am.rest.models.jobs import JobPlan
from yarrow.am.rest.models.programs import (
    ProgramApplication,
    ProgramArguments,
    ProgramEntry,
    ProgramFile,
    ProgramList,
    ProgramRun,
    ProgramRunResult,
    ProgramUpload,
)
from yarrow.am.rest.programs.store import StoredProgram
from yarrow.am.rest.routes.cluster_access import Access, refusals
from yarrow.am.rest.routes.flink_router import flink_router
from yarrow.am.rest.views.jobs import plan_of


async def _allowed(access: Access) -> None:
    if not access.settings.submit_enabled:
        raise ForbiddenError("Programs cannot be uploaded or run through REST: web.submit.enable is false.")


router = flink_router("Programs", prefix="/jars", dependencies=[Depends(_allowed)])

ProgramId = Annotated[
    str, Path(alias="jarid", min_length=1, max_length=256, description="Id of an uploaded program.")
]
EntryQuery = Annotated[str | None, Query(alias="entry-class", description="A module, or module:function.")]
ArgumentQuery = Annotated[
    str | None, Query(alias="programArg", description="The program's arguments, separated by commas.")
]
ParallelismQuery = Annotated[int | None, Query(ge=1, le=32768, description="Default parallelism.")]


@router.get("", responses=refusals(403))
async def programs(access: Access, request: Request) -> ProgramList:
    """The uploaded programs, the newest first."""
    store = access.store
    found = await asyncio.to_thread(
        lambda: [_file(program, store.entries_of(program)) for program in store.list()]
    )
    return ProgramList(address=str(request.base_url).rstrip("/"), files=found)


def _file(program: StoredProgram, names: Sequence[str]) -> ProgramFile:
    return ProgramFile(
        id=program.id,
        name=program.name,
        uploaded=program.uploaded_ms,
        entry=[ProgramEntry(name=name) for name in names],
    )


@router.post("/upload", responses=refusals(400, 403, 408, 413))
async def upload_program(
    access: Access,
    jarfile: Annotated[UploadFile, File(description="A Python file (.py), or a .zip with a __main__.py.")],
) -> ProgramUpload:
    """Stores a program under a name that the server chooses."""
    program = await asyncio.to_thread(access.store.add, jarfile.filename or "", jarfile.file)
    return ProgramUpload(filename=str(program.path))


@router.delete("/{jarid}", responses=refusals(400, 403, 404))
async def delete_program(access: Access, program_id: ProgramId) -> EmptyBody:
    """Deletes a program."""
    await asyncio.to_thread(access.store.remove, program_id)
    return EmptyBody()


def _with_query(
    body: ProgramArguments, entry: str | None, argument: str | None, parallelism: int | None
) -> None:
    """Takes query values for fields that the body leaves out."""
    body.entry_class = body.entry_class or entry
    body.parallelism = body.parallelism or parallelism
    if body.program_args is None and body.program_args_list is None and argument:
        body.program_args_list = argument.split(",")


async def _plan(access: Access, program_id: str, arguments: ProgramArguments) -> JobPlan:
    program = await asyncio.to_thread(access.store.get, program_id)
    graph = await access.programs.plan(program, arguments)
    return JobPlan(plan=plan_of(graph.plan, graph.job_id, graph.name, graph.job_type))


@router.post("/{jarid}/plan", responses=refusals(400, 403, 404, 422))
async def plan_program(
    access: Access,
    program_id: ProgramId,
    body: ProgramArguments | None = None,
    entry: EntryQuery = None,
    argument: ArgumentQuery = None,
    parallelism: ParallelismQuery = None,
) -> JobPlan:
    """The plan of the first job that the program's main executes; nothing is started."""
    arguments = body or ProgramArguments()
    _with_query(arguments, entry, argument, parallelism)
    return await _plan(access, program_id, arguments)


@router.get("/{jarid}/plan", responses=refusals(400, 403, 404, 422))
async def plan_program_by_get(
    access: Access,
    program_id: ProgramId,
    entry: EntryQuery = None,
    argument: ArgumentQuery = None,
    parallelism: ParallelismQuery = None,
) -> JobPlan:
    """The same for clients that can only GET. It runs main, so that pages of other origins may not ask."""
    arguments = ProgramArguments()
    _with_query(arguments, entry, argument, parallelism)
    return await _plan(access, program_id, arguments)


@router.post("/{jarid}/run", responses=refusals(400, 403, 404, 409, 413, 422))
async def run_program(
    access: Access,
    program_id: ProgramId,
    body: ProgramRun | None = None,
    entry: EntryQuery = None,
    argument: ArgumentQuery = None,
    parallelism: ParallelismQuery = None,
    savepoint_path: Annotated[str | None, Query(alias="savepointPath")] = None,
    allow_non_restored_state: Annotated[bool | None, Query(alias="allowNonRestoredState")] = None,
) -> ProgramRunResult:
    """Runs the program's main and submits the jobs that it executed, once it has ended well."""
    arguments = body or ProgramRun()
    _with_query(arguments, entry, argument, parallelism)
    arguments.savepoint_path = arguments.savepoint_path or savepoint_path
    if arguments.allow_non_restored_state is None:
        arguments.allow_non_restored_state = allow_non_restored_state
    program = await asyncio.to_thread(access.store.get, program_id)
    jobs = await access.programs.submit(program, arguments)
    return ProgramRunResult(jobid=jobs[0], application_id=access.application_of(jobs[0]), jobids=list(jobs))


@router.post("/{jarid}/run-application", status_code=202, responses=refusals(400, 403, 404, 409, 413, 422))
async def run_program_as_application(
    access: Access,
    program_id: ProgramId,
    body: ProgramApplication | None = None,
    entry: EntryQuery = None,
    argument: ArgumentQuery = None,
    parallelism: ParallelismQuery = None,
    savepoint_path: Annotated[str | None, Query(alias="savepointPath")] = None,
    allow_non_restored_state: Annotated[bool | None, Query(alias="allowNonRestoredState")] = None,
) -> ApplicationStart:
    """The same as /run, answered with the application of the first job.

    A program's main fails before the answer, which says so, not after it as in Flink.
    """
    arguments = body or ProgramApplication()
    whole = access.services.application
    if arguments.application_id is not None and whole is None:
        if arguments.job_id not in (None, arguments.application_id):
            raise BadRequestError(
                f"in a session a job is its own application. Make applicationId {arguments.application_id} and"
                f" jobId {arguments.job_id} equal, or leave one out"
            )
        arguments.job_id = arguments.application_id
    elif arguments.application_id not in (None, whole and whole.id):
        raise BadRequestError(
            f"all jobs of this cluster belong to its application {whole and whole.id}: leave applicationId "
            "out"
        )
    started = await run_program(
        access, program_id, arguments, entry, argument, parallelism, savepoint_path, allow_non_restored_state
    )
    return ApplicationStart(applicationid=started.application_id)
