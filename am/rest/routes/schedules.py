"""Paths about schedules: jobs that run again and again. Yarrow's own.

Owner: the event loop of the REST server. A submission is that of POST /jobs with `schedule` in its part `request`.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request

from yarrow.am.rest.errors import BadRequestError
from yarrow.am.rest.models.schedules import (
    CancelledScheduleBody,
    ScheduleBody,
    ScheduledRunBody,
    SchedulesBody,
    ScheduleSubmissionRequest,
    ScheduleTimes,
)
from yarrow.am.rest.routes.cluster_access import Access, refusals
from yarrow.am.rest.routes.flink_router import flink_router
from yarrow.am.rest.routes.submission import FORM, MOST_PARTS, graph_of, request_of
from yarrow.common.values.schedule import InvalidScheduleError, Schedule
from yarrow.runtime.common.ids import ScheduleID
from yarrow.runtime.graph.job_graph import encode_job_graph
from yarrow.runtime.rpc.messages import ScheduleOverview

router = flink_router("Schedules")

ScheduleIdPath = Annotated[
    str,
    Path(
        alias="scheduleid",
        pattern="^[0-9a-fA-F]{32}$",
        description="Id of a schedule: 32 hexadecimal digits.",
    ),
]


@router.post(
    "/schedules",
    status_code=202,
    responses=refusals(400, 403, 408, 409, 413),
    openapi_extra=FORM,
)
async def create_schedule(access: Access, request: Request) -> ScheduleBody:
    """Submits a bounded job that runs at the times of a schedule.

    The form is that of `POST /jobs`. The part `request` has `schedule` too: `interval`, or `cron` and `timeZone`.
    """
    form = await request.form(max_files=MOST_PARTS, max_fields=MOST_PARTS)
    try:
        asked = request_of(form, ScheduleSubmissionRequest)
        times = _schedule(asked.schedule)
        graph = await graph_of(access, form, asked)
    finally:
        await form.close()
    key = await access.services.put_blob(encode_job_graph(graph))
    return body(await access.services.dispatcher.create_schedule(key, times))


@router.get("/schedules", responses=refusals())
async def schedules(access: Access) -> SchedulesBody:
    """All schedules, with their next times and last runs."""
    found = await access.services.dispatcher.list_schedules()
    return SchedulesBody(schedules=[body(schedule) for schedule in found])


@router.get("/schedules/{scheduleid}", responses=refusals(400, 404))
async def schedule(access: Access, schedule_id: ScheduleIdPath) -> ScheduleBody:
    """A schedule with its next time and last runs."""
    return body(await access.services.dispatcher.request_schedule(ScheduleID(schedule_id.lower())))


@router.delete("/schedules/{scheduleid}", responses=refusals(400, 403, 404))
async def cancel_schedule(access: Access, schedule_id: ScheduleIdPath) -> CancelledScheduleBody:
    """Ends a schedule. Its present run goes on: cancel that as any job."""
    running = await access.services.dispatcher.cancel_schedule(ScheduleID(schedule_id.lower()))
    return CancelledScheduleBody(running=running)


def _schedule(times: ScheduleTimes) -> Schedule:
    if (times.interval is None) == (times.cron is None):
        raise BadRequestError("the part 'request': schedule has to have interval or cron, and not both")
    try:
        if times.interval is not None:
            return Schedule.every(times.interval)
        return Schedule.of_cron(times.cron or "", times.time_zone)
    except InvalidScheduleError as error:
        raise BadRequestError(str(error)) from None


def body(overview: ScheduleOverview) -> ScheduleBody:
    """The body of a schedule."""
    times = overview.schedule
    return ScheduleBody.of(
        overview,
        interval=times.interval_ms or None,
        cron=times.cron or None,
        time_zone=times.time_zone if times.cron else None,
        running=ScheduledRunBody.of(overview.running) if overview.running is not None else None,
        ended=[ScheduledRunBody.of(run) for run in overview.ended],
    )
