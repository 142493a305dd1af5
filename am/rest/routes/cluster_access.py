"""ClusterAccess: the handlers' questions to the cluster, with the refusals of unknown ids in one place.

Owner: the event loop of the REST server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Path, Request

from yarrow.am.rest.collecting import CollectReader
from yarrow.am.rest.errors import NotFoundError
from yarrow.am.rest.models.base import ErrorBody
from yarrow.am.rest.operations import Operations
from yarrow.am.rest.programs.jobs import ProgramJobs
from yarrow.am.rest.programs.store import ProgramStore
from yarrow.am.rest.services import RestServices, RestSettings
from yarrow.am.rest.views.application import application_of
from yarrow.runtime.common.errors import JobNotFoundError
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.rpc.gateways import TaskExecutorGateway
from yarrow.runtime.rpc.messages import (
    AttemptDetails,
    ExecutionGraphDetails,
    TaskExecutorInfo,
    VertexDetails,
)


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """One cluster, for the handlers of its REST API."""

    services: RestServices
    settings: RestSettings
    store: ProgramStore
    programs: ProgramJobs
    collecting: CollectReader
    operations: Operations

    @classmethod
    def of(cls, services: RestServices, settings: RestSettings) -> ClusterAccess:
        """Makes one with a program store of its own."""
        store = ProgramStore(settings.upload_directory, settings.temporary_directory, services.ids)
        programs = ProgramJobs(services, settings)
        operations = Operations(services.clock, services.ids, settings.operation_store_seconds)
        return cls(services, settings, store, programs, CollectReader(services.dispatcher), operations)

    def now(self) -> int:
        """Epoch milliseconds."""
        return self.services.clock.epoch_ms()

    def close(self) -> None:
        """Removes temporary files, and drops the open questions of clients."""
        self.collecting.close()
        self.operations.close()
        self.store.close()

    async def job(self, job_id: str) -> ExecutionGraphDetails:
        """A running or remembered job. Raises JobNotFoundError for any other."""
        return await self.services.dispatcher.request_job_details(JobID(job_id.lower()))

    async def all_jobs(self, running_only: bool = False) -> Sequence[ExecutionGraphDetails]:
        """The details of all jobs; a job that is forgotten meanwhile is left out."""
        found = []
        for job in await self.services.dispatcher.list_jobs():
            if running_only and job.status.is_globally_terminal_state():
                continue
            try:
                found.append(await self.job(job.job_id))
            except JobNotFoundError:
                continue
        return found

    def application_of(self, job_id: str) -> str:
        """The id of the application that a job belongs to."""
        return application_of(job_id, self.services.application)

    async def vertex(self, job_id: str, vertex_id: str) -> VertexDetails:
        """A vertex of a job. Raises NotFoundError if the job has no such vertex."""
        job = await self.job(job_id)
        wanted = vertex_id.lower()
        for vertex in job.vertices:
            if vertex.vertex_id == wanted:
                return vertex
        raise NotFoundError(f"job {job_id} has no vertex {vertex_id}: GET /jobs/{job_id} lists its vertices")

    async def attempt(self, job_id: str, vertex_id: str, subtask: int, number: int | None) -> AttemptDetails:
        """An attempt of a subtask, the present one if `number` is None. Raises NotFoundError for any other."""
        return attempt_of(await self.vertex(job_id, vertex_id), subtask, number)

    async def task_executors(self) -> Sequence[TaskExecutorInfo]:
        """All registered TaskExecutors."""
        return await self.services.resource_manager.request_task_executors()

    async def task_executor(self, resource_id: str) -> TaskExecutorInfo:
        """A registered TaskExecutor. Raises NotFoundError for any other."""
        for info in await self.task_executors():
            if info.registration.resource_id == resource_id:
                return info
        raise NotFoundError(
            f"no TaskExecutor {resource_id!r} is registered: GET /taskmanagers lists the registered "
            "TaskExecutors"
        )

    async def task_executor_gateway(self, resource_id: str) -> TaskExecutorGateway:
        """The gateway of a registered TaskExecutor. Raises NotFoundError for any other."""
        info = await self.task_executor(resource_id)
        return self.services.connect_task_executor(info.registration.address)

    async def wait_for_end(self, job_id: str, seconds: float) -> None:
        """Returns when the job has ended, at the latest after `seconds`."""
        waiting = self.services.dispatcher.request_job_result(JobID(job_id.lower()))
        try:
            await asyncio.wait_for(waiting, seconds)
        except TimeoutError:
            return


async def _access(request: Request) -> ClusterAccess:
    access = request.app.state.access
    assert isinstance(access, ClusterAccess)
    access.services.activity.note_request()
    return access


#: The argument of every handler.
Access = Annotated[ClusterAccess, Depends(_access)]

_HEX = "^[0-9a-fA-F]{32}$"
JobIdPath = Annotated[
    str, Path(alias="jobid", pattern=_HEX, description="Id of a job: 32 hexadecimal digits.")
]
VertexIdPath = Annotated[
    str, Path(alias="vertexid", pattern=_HEX, description="Id of a vertex: 32 hexadecimal digits.")
]
SubtaskPath = Annotated[int, Path(alias="subtaskindex", ge=0, lt=32768, description="Subtask, from 0.")]
AttemptPath = Annotated[int, Path(alias="attempt", ge=0, lt=1 << 31, description="Attempt, from 0.")]
ResourceIdPath = Annotated[
    str, Path(alias="taskmanagerid", min_length=1, max_length=256, description="Id of a TaskExecutor.")
]
TriggerIdPath = Annotated[
    str, Path(alias="triggerid", pattern=_HEX, description="Id of an operation: 32 hexadecimal digits.")
]

_REFUSALS = {
    400: "The request is wrong: a parameter, an id or the body.",
    403: "The request is not allowed: switched off, or from a foreign origin.",
    404: "There is no such thing.",
    408: "The body did not come in time.",
    409: "The thing is not in a state in which this can be done.",
    413: "The request is too large.",
    422: "The program failed.",
    503: "A part of the cluster does not answer.",
    504: "A part of the cluster did not answer in time.",
}


def attempt_of(vertex: VertexDetails, subtask: int, number: int | None) -> AttemptDetails:
    """An attempt of a subtask, the present one if `number` is None. Raises NotFoundError for any other."""
    # A subtask that a rescaling has taken away has former attempts alone.
    former = () if number is None else vertex.former_attempts
    for attempt in (*vertex.subtasks, *former):
        if attempt.subtask == subtask and number in (None, attempt.attempt_number):
            return attempt
    if subtask >= vertex.parallelism:
        raise NotFoundError(
            f"vertex {vertex.name!r} has no subtask {subtask}: it has {vertex.parallelism}, counted from 0"
        )
    raise NotFoundError(
        f"subtask {subtask} of vertex {vertex.name!r} has no attempt {number}, or the attempt is "
        "forgotten (jobmanager.execution.attempts-history-size)"
    )


def refusals(*statuses: int) -> dict[int | str, dict[str, object]]:
    """The refusals of a path, for its documentation; 503 and 504 are always among them."""
    chosen: Iterable[int] = sorted({*statuses, 503, 504})
    return {status: {"model": ErrorBody, "description": _REFUSALS[status]} for status in chosen}


#: The answer of a path that sends a text file.
PLAIN_TEXT: dict[int | str, dict[str, object]] = {
    200: {"description": "The text.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}
