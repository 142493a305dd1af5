"""schedule, and the schedules in list and cancel: requests to a running cluster.

Owner: the main thread.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from yarrow.client.errors import CommandError
from yarrow.client.rest.rest_client import RestClient, RestError
from yarrow.client.targets import LOCAL, REMOTE, YARN_SESSION
from yarrow.common.values.schedule import InvalidScheduleError, Schedule
from yarrow.runtime.config.options import execution
from yarrow.runtime.config.settings import Settings

if TYPE_CHECKING:
    from yarrow.cli.program import Program

_TITLE = "------------------------- Schedules --------------------------"
_END = "-" * 62


def schedule(
    program: Program, config: Settings, interval: str | None, cron: str | None, time_zone: str | None
) -> None:
    """Submits the program's first job to run at these times. Raises CommandError for bad times or a bad target."""
    from yarrow.cli.run_command import planned_job
    from yarrow.cli.targets import rest_client
    from yarrow.client.rest.job_submission import submit_schedule

    times = _times(interval, cron, time_zone)
    target = config.get(execution.TARGET) or LOCAL
    if target not in (REMOTE, YARN_SESSION):
        raise CommandError(
            f"{execution.TARGET.key} is {target}, and such a cluster ends with its job: name a cluster that stays, by"
            f" -m HOST:PORT or -t {YARN_SESSION}."
        )
    program.check()
    planned = planned_job(program, config)
    try:
        answer = submit_schedule(rest_client(config), times, planned.job_graph, planned.files)
    except RestError as error:
        raise CommandError(f"The schedule was refused. {' '.join(error.errors) or error}") from None
    print(f"Schedule has been submitted with ID {answer['id']}")
    print(f"The next run is due at {_time(answer['next-time'])}.", flush=True)


def _times(interval: str | None, cron: str | None, time_zone: str | None) -> dict[str, str]:
    """The times as REST takes them, after they were checked here."""
    if (interval is None) == (cron is None):
        raise CommandError("schedule takes --every TIME or --cron EXPRESSION: give one of the two.")
    if cron is None and time_zone is not None:
        raise CommandError("--time-zone belongs to --cron: an interval needs none.")
    try:
        if interval is not None:
            Schedule.every(interval)
            return {"interval": interval}
        assert cron is not None
        Schedule.of_cron(cron, time_zone or "UTC")
    except InvalidScheduleError as error:
        raise CommandError(f"{error}.") from None
    return {"cron": cron, "timeZone": time_zone or "UTC"}


def print_schedules(rest: RestClient) -> None:
    """Prints all schedules; nothing if there are none."""
    try:
        found = rest.get("/schedules")["schedules"]
    except RestError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            # A cluster that has no schedules, as Flink's.
            return
        raise
    if found:
        lines = [schedule_lines(each) for each in sorted(found, key=lambda each: int(each["next-time"]))]
        print("\n".join([_TITLE, *lines, _END]))


def schedule_lines(body: Mapping[str, Any]) -> str:
    """The lines of one schedule: next time, id, name and times, then its present and its last run."""
    times = (
        f"{body['cron']} {body['time-zone']}"
        if body["cron"]
        else f"every {datetime.timedelta(milliseconds=body['interval'])}"
    )
    missed = f", {body['missed']} missed" if body["missed"] else ""
    lines = [
        f"{_time(body['next-time'])} : {body['id']} : {body['name']} ({times}; {body['runs']} runs{missed})"
    ]
    if body["running"]:
        lines.append(f"    run {body['running']['jid']} runs")
    for run in body["ended"][:1]:
        failure = f": {run['failure']}" if run["failure"] else ""
        lines.append(f"    run {run['jid']} was {run['status']} at {_time(run['end-time'])}{failure}")
    return "\n".join(lines)


def cancel_schedule(rest: RestClient, schedule_id: str) -> bool:
    """Cancels the schedule of that id; False if there is none."""
    try:
        body = rest.json("DELETE", f"/schedules/{schedule_id}")
    except RestError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return False
        raise CommandError(
            f"Could not cancel schedule {schedule_id}. {' '.join(error.errors) or error}"
        ) from None
    print(f"Cancelled schedule {schedule_id}.")
    if body["running"]:
        print(f"Its run {body['running']} goes on: `yarrow cancel` with that id cancels it.")
    return True


def _time(milliseconds: int) -> str:
    """`dd.MM.yyyy HH:mm:ss` in local time."""
    return f"{datetime.datetime.fromtimestamp(milliseconds / 1000):%d.%m.%Y %H:%M:%S}"
