"""Paths about TaskExecutors, which Flink's API calls task managers.

Owner: the event loop of the REST server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi.responses import Response, StreamingResponse

from yarrow.am.rest.errors import NotFoundError
from yarrow.am.rest.models.cluster import LogFile, LogList, LogUrl, ThreadDumpBody
from yarrow.am.rest.models.task_managers import TaskManagerDetails, TaskManagers
from yarrow.am.rest.routes.cluster_access import (
    PLAIN_TEXT,
    Access,
    ClusterAccess,
    JobIdPath,
    ResourceIdPath,
    refusals,
)
from yarrow.am.rest.routes.flink_router import flink_router
from yarrow.am.rest.routes.job_manager import LogName
from yarrow.am.rest.views import task_managers as views
from yarrow.runtime.rpc.gateways import TaskExecutorGateway
from yarrow.runtime.rpc.messages import FileInfo

router = flink_router("TaskExecutors")

#: Bytes of a log that one request asks for: they have to fit a message.
_CHUNK = 1 << 20


@router.get("/taskmanagers", responses=refusals())
async def task_managers(access: Access) -> TaskManagers:
    """All registered TaskExecutors."""
    tasks = views.count_tasks(await access.all_jobs(running_only=True))
    executors = await access.task_executors()
    found = [(info, access.services.container_of(info.registration.resource_id)) for info in executors]
    return TaskManagers(
        taskmanagers=[views.task_manager(info, tasks, access.now(), container) for info, container in found]
    )


@router.get("/taskmanagers/{taskmanagerid}", responses=refusals(400, 404))
async def task_manager(access: Access, resource_id: ResourceIdPath) -> TaskManagerDetails:
    """A TaskExecutor with its slots and metrics."""
    info = await access.task_executor(resource_id)
    tasks = views.count_tasks(await access.all_jobs(running_only=True))
    container = access.services.container_of(info.registration.resource_id)
    return views.task_manager_details(info, tasks, access.now(), container)


@router.get("/taskmanagers/{taskmanagerid}/logs", responses=refusals(400, 404))
async def task_manager_logs(access: Access, resource_id: ResourceIdPath) -> LogList:
    """The log files of a TaskExecutor."""
    gateway = await access.task_executor_gateway(resource_id)
    files = await gateway.request_log_list()
    return LogList(logs=[LogFile(name=each.name, size=each.size, mtime=each.mtime) for each in files])


@router.get(
    "/taskmanagers/{taskmanagerid}/log", response_class=Response, responses=PLAIN_TEXT | refusals(400, 404)
)
async def task_manager_log(access: Access, resource_id: ResourceIdPath) -> StreamingResponse:
    """The log of a TaskExecutor and its workers; empty while there is none."""
    return await _first_with_suffix(access, resource_id, ".log")


@router.get(
    "/taskmanagers/{taskmanagerid}/stdout", response_class=Response, responses=PLAIN_TEXT | refusals(400, 404)
)
async def task_manager_output(access: Access, resource_id: ResourceIdPath) -> StreamingResponse:
    """The output of user functions and print() sinks; empty while they have written nothing."""
    return await _first_with_suffix(access, resource_id, ".out")


@router.get(
    "/taskmanagers/{taskmanagerid}/logs/{filename}",
    response_class=Response,
    responses=PLAIN_TEXT | refusals(400, 404),
)
async def task_manager_log_file(
    access: Access, resource_id: ResourceIdPath, name: LogName
) -> StreamingResponse:
    """One of the listed log files."""
    gateway = await access.task_executor_gateway(resource_id)
    for file in await gateway.request_log_list():
        if file.name == name:
            return _text(gateway, file)
    raise NotFoundError(
        f"TaskExecutor {resource_id} has no log file {name!r}: GET /taskmanagers/{resource_id}/logs "
        "lists its log files"
    )


async def _first_with_suffix(access: ClusterAccess, resource_id: str, suffix: str) -> StreamingResponse:
    gateway = await access.task_executor_gateway(resource_id)
    for file in await gateway.request_log_list():
        if file.name.endswith(suffix):
            return _text(gateway, file)
    return _text(gateway, FileInfo(name="", size=0, mtime=0))


def _text(gateway: TaskExecutorGateway, file: FileInfo) -> StreamingResponse:
    return StreamingResponse(_pieces(gateway, file), media_type="text/plain; charset=utf-8")


async def _pieces(gateway: TaskExecutorGateway, file: FileInfo) -> AsyncIterator[bytes]:
    offset = 0
    while offset < file.size:
        piece = await gateway.request_log(file.name, offset, min(_CHUNK, file.size - offset))
        if not piece:
            return
        offset += len(piece)
        yield piece


@router.get("/taskmanagers/{taskmanagerid}/thread-dump", responses=refusals(400, 404))
async def task_manager_thread_dump(access: Access, resource_id: ResourceIdPath) -> ThreadDumpBody:
    """The stacks of the supervisor's and the workers' threads."""
    gateway = await access.task_executor_gateway(resource_id)
    return ThreadDumpBody.of_stacks(await gateway.request_thread_dump())


@router.get("/jobs/{jobid}/taskmanagers/{taskmanagerid}/log-url", responses=refusals(400, 404))
async def task_manager_log_url(access: Access, job_id: JobIdPath, resource_id: ResourceIdPath) -> LogUrl:
    """The address of the log of a TaskExecutor of the job."""
    await access.job(job_id)
    await access.task_executor(resource_id)
    return LogUrl(url=f"/taskmanagers/{resource_id}/log")
