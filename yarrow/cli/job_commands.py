"""list, cancel, rescale, rate-limits and watermark: requests to a running cluster.

The output is that of Flink's command line, for scripts.

Owner: the main thread.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from yarrow.cli.schedule_commands import cancel_schedule, print_schedules
from yarrow.client.errors import CommandError
from yarrow.client.event_time_lines import event_time_lines
from yarrow.client.rest.rest_client import RestClient, RestError
from yarrow.client.rest.rest_operations import OperationFailedError, await_operation
from yarrow.runtime.common.clock import Clock, SystemClock

_RUNNING = "------------------ Running/Restarting Jobs -------------------"
_SCHEDULED = "----------------------- Scheduled Jobs -----------------------"
_TERMINATED = "---------------------- Terminated Jobs -----------------------"
_END = "-" * 62
_SCHEDULED_STATES = {"CREATED", "INITIALIZING"}
_ENDED_STATES = {"FINISHED", "CANCELED", "FAILED"}


def list_jobs(rest: RestClient, running: bool, scheduled: bool, every: bool) -> None:
    """Prints jobs by state; without a choice the running and the scheduled ones."""
    if not (running or scheduled or every):
        running = scheduled = True
    print("Waiting for response...", flush=True)
    for line in application_lines(rest.get("/overview"), SystemClock()):
        # Not on the stream from which scripts read the jobs.
        print(line, file=sys.stderr, flush=True)
    jobs = sorted(rest.get("/jobs/overview")["jobs"], key=lambda job: int(job["start-time"]))
    ended = [job for job in jobs if job["state"] in _ENDED_STATES]
    waiting = [job for job in jobs if job["state"] in _SCHEDULED_STATES]
    active = [job for job in jobs if job not in ended and job not in waiting]
    if running or every:
        _print_jobs(_RUNNING, active, "No running jobs.")
    if scheduled or every:
        _print_jobs(_SCHEDULED, waiting, "No scheduled jobs.")
    if scheduled or every:
        print_schedules(rest)
    if every:
        _print_jobs(_TERMINATED, ended, "No terminated jobs.")


def attempt_text(overview: Mapping[str, Any]) -> str:
    """The present attempt of an application on YARN, and whether another would follow; "" without YARN."""
    attempt, most = int(overview.get("yarn-attempt", 0)), int(overview.get("yarn-max-attempts", 0))
    if not most:
        return ""
    last = ", the last: YARN starts no other" if attempt >= most else ""
    return f"Attempt {attempt} of {most} of the application{last}."


def tokens_text(overview: Mapping[str, Any], clock: Clock) -> str:
    """How long the tokens of an application on a secured cluster last; "" if none ends."""
    ends = int(overview.get("yarn-tokens-end", 0))
    if not ends:
        return ""
    from yarrow.runtime.yarn.delegation_tokens import time_left

    return f"Its delegation token {time_left(ends, clock.epoch_ms())}."


def application_lines(overview: Mapping[str, Any], clock: Clock) -> list[str]:
    """Facts about an application on YARN; empty for other clusters."""
    return [line for line in (attempt_text(overview), tokens_text(overview, clock)) if line]


def _print_jobs(title: str, jobs: Iterable[Mapping[str, Any]], none: str) -> None:
    lines = [job_line(job) for job in jobs]
    print("\n".join([title, *lines, _END]) if lines else none)


def job_line(job: Mapping[str, Any]) -> str:
    """`dd.MM.yyyy HH:mm:ss : <id> : <name> (STATE)`, in local time; a waiting job has its reason on a line below."""
    start = datetime.datetime.fromtimestamp(int(job["start-time"]) / 1000)
    waits = f"\n    {job['waiting-for']}" if job.get("waiting-for") else ""
    return f"{start:%d.%m.%Y %H:%M:%S} : {job['jid']} : {job['name']} ({job['state']}){waits}"


def cancel_job(rest: RestClient, job_id: str) -> None:
    """Cancels a job, or a schedule. Raises CommandError if there is none of that id, or it has ended."""
    if cancel_schedule(rest, job_id):
        return
    print(f"Cancelling job {job_id}.", flush=True)
    try:
        state = rest.get(f"/jobs/{job_id}/status")["status"]
        if state in _ENDED_STATES:
            raise CommandError(f"Could not cancel job {job_id}: it is {state} already.")
        rest.json("PATCH", f"/jobs/{job_id}?mode=cancel")
    except RestError as error:
        raise CommandError(f"Could not cancel job {job_id}. {' '.join(error.errors) or error}") from None
    print(f"Cancelled job {job_id}.")


def show_watermarks(rest: RestClient, job_id: str) -> None:
    """Prints the event time of a running job. Raises CommandError if the job has ended, or there is none."""
    try:
        answer = rest.get(f"/jobs/{job_id}/event-time")
    except RestError as error:
        raise CommandError(
            f"Could not show the event time of job {job_id}. {' '.join(error.errors) or error}"
        ) from None
    print("\n".join(event_time_lines(answer)))


def rescale_job(rest: RestClient, job_id: str, parallelism: int) -> None:
    """Rescales a running job and waits for its end.

    Raises CommandError with the cause if the job stays as it was.
    """
    print(f"Rescaling job {job_id} to parallelism {parallelism}.", flush=True)
    path = f"/jobs/{job_id}/rescaling"
    try:
        trigger = rest.json("PATCH", f"{path}?parallelism={parallelism}")["request-id"]
        await_operation(rest, f"{path}/{trigger}")
    except RestError as error:
        raise CommandError(f"Could not rescale job {job_id}. {' '.join(error.errors) or error}") from None
    except OperationFailedError as error:
        raise CommandError(f"Could not rescale job {job_id}. {error}") from None
    print(f"Rescaled job {job_id}.")


def show_rate_limits(rest: RestClient, job_id: str) -> None:
    """Prints the rate limits of a running job's sources and sinks. Raises CommandError if the job has ended."""
    print("\n".join(_rate_limit_lines(_rate_limits(rest, job_id))))


def change_rate_limit(
    rest: RestClient, job_id: str, name: str, rows: float | None, size_bytes: float | None
) -> None:
    """Sets the limit of a source or sink, by uid or operator id; None = no limit.

    Raises CommandError if there is no such operator, or the limit is refused.
    """
    limit = {"rows-per-second": rows, "bytes-per-second": size_bytes}
    try:
        answer = rest.json("PATCH", f"/jobs/{job_id}/rate-limits", {"operators": {name: limit}})
    except RestError as error:
        raise CommandError(
            f"Could not limit {name} of job {job_id}. {' '.join(error.errors) or error}"
        ) from None
    print("\n".join(_rate_limit_lines(answer["operators"])))


def _rate_limits(rest: RestClient, job_id: str) -> list[Mapping[str, Any]]:
    try:
        return list(rest.get(f"/jobs/{job_id}/rate-limits")["operators"])
    except RestError as error:
        raise CommandError(
            f"Could not show the rate limits of job {job_id}. {' '.join(error.errors) or error}"
        ) from None


def _rate_limit_lines(operators: Iterable[Mapping[str, Any]]) -> list[str]:
    """`<uid or id> : <source or sink> <name> : <limit>`; one line for a job that takes no limits."""
    lines = []
    for entry in operators:
        limits = [
            f"{entry[f'{what}-per-second']:g} {what}/s"
            for what in ("rows", "bytes")
            if entry[f"{what}-per-second"] is not None
        ]
        who = f"{entry['uid'] or entry['operator-id']} : {entry['type']} {entry['name']}"
        lines.append(f"{who} : {' and '.join(limits) or 'no limit'}")
    return lines or ["No source or sink of the job takes a rate limit."]
