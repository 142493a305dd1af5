"""Paths about jobs: lists, details, cancelling, results, rows of execute_and_collect.

Owner: the event loop of the REST server.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from fastapi import Header, Path, Query, Response

from yarrow.am.rest.errors import BadRequestError, ForbiddenError
from yarrow.am.rest.models.base import EmptyBody, QueueStatus
from yarrow.am.rest.models.event_time import JobEventTime
from yarrow.am.rest.models.jobs import (
    JobAccumulators,
    JobClientHeartbeat,
    JobConfiguration,
    JobDetails,
    JobExceptions,
    JobExecutionResultBody,
    JobIds,
    JobIdWithStatus,
    JobPlan,
    JobsOverview,
    JobStatusBody,
    SchedulerDecisions,
)
from yarrow.am.rest.models.late_records import JobLateRecords
from yarrow.am.rest.routes.cluster_access import Access, ClusterAccess, JobIdPath, refusals
from yarrow.am.rest.routes.flink_router import flink_router
from yarrow.am.rest.views import event_time as event_time_views
from yarrow.am.rest.views import jobs as views
from yarrow.am.rest.views.late_records import late_records
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.rpc.messages import CollectPosition

router = flink_router("Jobs")

#: The browser's header value for a request from a page of this server.
_OWN_PAGE = "same-origin"
#: Most seconds that a request may wait for an event.
LONGEST_WAIT = 60.0


@router.get("/jobs", responses=refusals())
async def job_ids(access: Access) -> JobIds:
    """Ids and states of all running and remembered jobs."""
    jobs = await access.services.dispatcher.list_jobs()
    return JobIds(jobs=[JobIdWithStatus(id=job.job_id, status=job.status) for job in jobs])


@router.get("/jobs/overview", responses=refusals())
async def jobs_overview(access: Access) -> JobsOverview:
    """All running and remembered jobs."""
    jobs = await access.services.dispatcher.list_jobs()
    return JobsOverview(jobs=[views.job_summary(job, access.now()) for job in jobs])


@router.get("/jobs/{jobid}", responses=refusals(400, 404))
async def job_details(access: Access, job_id: JobIdPath) -> JobDetails:
    """A job with its vertices and their metrics."""
    job = await access.job(job_id)
    return views.job_details(job, access.now(), access.application_of(job.job_id))


@router.patch("/jobs/{jobid}", status_code=202, responses=refusals(400, 403, 404, 409))
async def cancel_job(
    access: Access,
    job_id: JobIdPath,
    mode: Annotated[Literal["cancel"], Query(description="The action to take.")] = "cancel",
) -> EmptyBody:
    """Begins to cancel a job; 409 when it has ended in another way."""
    await _cancel(access, job_id)
    return EmptyBody()


@router.get("/jobs/{jobid}/yarn-cancel", status_code=202, responses=refusals(400, 403, 404, 409))
async def cancel_job_by_get(
    access: Access, job_id: JobIdPath, site: Annotated[str, Header(alias="sec-fetch-site")] = ""
) -> EmptyBody:
    """Begins to cancel a job, for Flink's page when this server shows it, and where `yarn.proxy.allow-cancel` is set.

    A browser itself says which page a request comes from: no other page can ask for this, nor can a link.
    """
    if not access.settings.cancel_by_get and site != _OWN_PAGE:
        raise ForbiddenError(
            "Cancelling by GET is switched off: send PATCH /jobs/<job id>?mode=cancel instead."
        )
    await _cancel(access, job_id)
    return EmptyBody()


@router.patch("/jobs/{jobid}/clientHeartbeat", status_code=202, responses=refusals(400, 403, 404))
async def job_client_heartbeat(
    access: Access, job_id: JobIdPath, heartbeat: JobClientHeartbeat | None = None
) -> EmptyBody:
    """Tells a job that ends with its client that the client lives; silence is counted by the master's clock."""
    await access.services.dispatcher.report_job_client_heartbeat(JobID(job_id.lower()))
    return EmptyBody()


async def _cancel(access: ClusterAccess, job_id: str) -> None:
    job = JobID(job_id.lower())
    if await access.services.dispatcher.request_job_status(job) is not JobStatus.CANCELED:
        await access.services.dispatcher.cancel_job(job)


@router.get("/jobs/{jobid}/status", responses=refusals(400, 404))
async def job_status(access: Access, job_id: JobIdPath) -> JobStatusBody:
    """The state of a job."""
    return JobStatusBody(status=await access.services.dispatcher.request_job_status(JobID(job_id.lower())))


@router.get("/jobs/{jobid}/plan", responses=refusals(400, 404))
async def job_plan(access: Access, job_id: JobIdPath) -> JobPlan:
    """The job as a graph of its vertices."""
    return JobPlan(plan=views.job_plan(await access.job(job_id)))


@router.get("/jobs/{jobid}/config", responses=refusals(400, 404))
async def job_configuration(access: Access, job_id: JobIdPath) -> JobConfiguration:
    """The configuration of a job, its secrets hidden."""
    return views.job_configuration(await access.job(job_id))


@router.get("/jobs/{jobid}/exceptions", responses=refusals(400, 404))
async def job_exceptions(
    access: Access,
    job_id: JobIdPath,
    limit: Annotated[
        int | None,
        Query(alias="maxExceptions", ge=0, le=1 << 31, description="The most entries of the answer."),
    ] = None,
    labels: Annotated[
        str | None,
        Query(
            alias="failureLabelFilter",
            description="Only failures with all of these labels, such as operator:my map, separated by commas.",
        ),
    ] = None,
) -> JobExceptions:
    """The failures of the job, the newest first."""
    limit = access.settings.exception_history if limit is None else limit
    return views.job_exceptions(await access.job(job_id), limit, _labels(labels))


@router.get("/jobs/{jobid}/scheduler-decisions", responses=refusals(400, 404, 409))
async def scheduler_decisions(
    access: Access,
    job_id: JobIdPath,
    last: Annotated[int, Query(ge=1, le=1000, description="The most entries of the answer.")] = 100,
) -> SchedulerDecisions:
    """The last events and decisions of a running job's scheduler; a path of Yarrow's own.

    The answer leaves out looks at idle slots that find none, cuts messages, and hides values whose names speak of
    secrets. It has the newest events, at most 1 MiB.
    """
    job = await access.job(job_id)
    found = await access.services.dispatcher.request_scheduler_decisions(job.job_id, last)
    return views.scheduler_decisions(found)


def _labels(text: str | None) -> dict[str, str]:
    """`key:value,key:value`."""
    wanted = {}
    for part in (text or "").split(","):
        key, colon, value = part.partition(":")
        if part and not (key and colon):
            raise BadRequestError(
                f"failureLabelFilter has {part!r}: expected key:value, several separated by commas"
            )
        if part:
            wanted[key] = value
    return wanted


@router.get("/jobs/{jobid}/event-time", responses=refusals(400, 404, 409))
async def job_event_time(access: Access, job_id: JobIdPath) -> JobEventTime:
    """Event time of a running job, operator by operator, and who holds it back, up to the split; Yarrow's."""
    return event_time_views.job_event_time(
        await access.services.dispatcher.request_event_time(JobID(job_id.lower()))
    )


@router.get("/jobs/{jobid}/accumulators", responses=refusals(400, 404))
async def job_accumulators(access: Access, job_id: JobIdPath) -> JobAccumulators:
    """Accumulators of a job, merged over its subtasks."""
    return JobAccumulators.model_validate(await access.job(job_id))


@router.get("/jobs/{jobid}/late-records", responses=refusals(400, 404))
async def job_late_records(access: Access, job_id: JobIdPath) -> JobLateRecords:
    """Late records of a job by operator: number, places, delays and the last ones. The path is Yarrow's."""
    return late_records(await access.job(job_id))


@router.get("/jobs/{jobid}/execution-result", responses=refusals(400, 404), response_model_exclude_none=True)
async def job_execution_result(
    access: Access,
    job_id: JobIdPath,
    wait: Annotated[
        float, Query(ge=0, le=LONGEST_WAIT, description="Seconds to wait for the end of the job.")
    ] = 0,
) -> JobExecutionResultBody:
    """The result of a job once it has ended; IN_PROGRESS before. `wait` is Yarrow's."""
    job = JobID(job_id.lower())
    dispatcher = access.services.dispatcher
    status = await dispatcher.request_job_status(job)
    if wait and not status.is_globally_terminal_state():
        await access.wait_for_end(job_id, wait)
        status = await dispatcher.request_job_status(job)
    if not status.is_globally_terminal_state():
        return JobExecutionResultBody(status=QueueStatus(id="IN_PROGRESS"))
    result = views.execution_result(await dispatcher.request_job_result(job), access.application_of(job))
    access.services.activity.note_result(job)
    return result


_MSGPACK = "application/msgpack"


@router.get(
    "/jobs/{jobid}/collect/{collectid}",
    response_class=Response,
    responses={
        **refusals(400, 403, 404),
        200: {
            "description": "An array of CollectRows messages as msgpack: none when none came in time, the last"
            " one has `last` set.",
            "content": {_MSGPACK: {"schema": {"type": "string", "format": "binary"}}},
        },
    },
)
async def collect_rows(
    access: Access,
    job_id: JobIdPath,
    collect_id: Annotated[str, Path(alias="collectid", min_length=1, max_length=256)],
    max_rows: Annotated[
        int, Query(ge=1, le=1_000_000, description="Most rows of the answer, approximately.")
    ] = 10_000,
    wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT, description="Seconds to wait for rows.")] = 30,
    version: Annotated[
        str, Query(max_length=256, description="`version` of the last received message; none at first.")
    ] = "",
    delivery: Annotated[int, Query(ge=-1, description="`delivery` of the last received message.")] = -1,
) -> Response:
    """The rows of execute_and_collect behind a message; what came before it is not sent again. Yarrow's."""
    position = CollectPosition(version=version, delivery=delivery)
    job = JobID(job_id.lower())
    rows = await access.collecting.fetch(job, collect_id, max_rows, wait, position)
    if rows:
        access.services.activity.note_rows(job, collect_id, last=rows[-1].last)
    return Response(msgspec.msgpack.encode(rows), media_type=_MSGPACK)
