"""Schedules by REST: submit, list, look at, cancel; bad times are named."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.unit.am.rest.fakes import JOB, STARTED, UNKNOWN, FakeCluster, client_of
from tests.unit.am.rest.running import run
from tests.unit.am.rest.test_submission import graph
from yarrow.runtime.graph.job_graph import encode_job_graph


def submit(cluster: FakeCluster, schedule: object) -> httpx.Response:
    async def main() -> httpx.Response:
        async with client_of(cluster.app()) as client:
            request = {"executionPlanFileName": "plan", "schedule": schedule}
            files = [("file_0", ("plan", encode_job_graph(JOB_GRAPH)))]
            return await client.post("/v1/schedules", data={"request": json.dumps(request)}, files=files)

    return run(main())


def ask(cluster: FakeCluster, method: str, path: str) -> httpx.Response:
    async def main() -> httpx.Response:
        async with client_of(cluster.app()) as client:
            return await client.request(method, path)

    return run(main())


JOB_GRAPH = graph()


def expected(**times: Any) -> dict[str, Any]:
    return {
        "id": JOB_GRAPH.job_id,
        "name": "numbers",
        "interval": None,
        "cron": None,
        "time-zone": None,
        "start-time": STARTED,
        "next-time": STARTED + 60_000,
        "runs": 0,
        "missed": 0,
        "running": None,
        "ended": [],
        **times,
    }


def test_a_schedule_is_submitted_listed_and_cancelled(cluster: FakeCluster) -> None:
    response = submit(cluster, {"cron": "0 3 * * *", "timeZone": "Europe/Berlin"})
    assert response.status_code == 202, response.text
    body = expected(**{"cron": "0 3 * * *", "time-zone": "Europe/Berlin"})
    assert response.json() == body
    path = f"/schedules/{JOB_GRAPH.job_id}"
    assert ask(cluster, "GET", "/schedules").json() == {"schedules": [body]}
    assert ask(cluster, "GET", path).json() == body
    assert ask(cluster, "DELETE", path).json() == {"running": JOB}
    assert ask(cluster, "GET", "/schedules").json() == {"schedules": []}
    for method in ("GET", "DELETE"):
        assert ask(cluster, method, path).status_code == 404
    assert ask(cluster, "GET", f"/schedules/{UNKNOWN}").status_code == 404
    assert ask(cluster, "GET", "/schedules/..%2Fjobs").status_code in (400, 404)


def test_an_interval_is_shown_in_milliseconds(cluster: FakeCluster) -> None:
    assert submit(cluster, {"interval": "10 min"}).json() == expected(interval=600_000)


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        (None, "schedule"),
        ({}, "interval or cron"),
        ({"interval": "1 h", "cron": "0 3 * * *"}, "not both"),
        ({"interval": "often"}, "'often' cannot be read"),
        ({"interval": "5 ms"}, "1 s at least"),
        ({"cron": "0 25 * * *"}, "Bad hour"),
        ({"cron": "0 3 * * *", "timeZone": "Berlin"}, "no time zone 'Berlin'"),
        ({"cron": 7}, "schedule.cron"),
    ],
)
def test_bad_times_are_refused_by_name(cluster: FakeCluster, schedule: object, text: str) -> None:
    response = submit(cluster, schedule)
    assert response.status_code == 400, response.text
    assert text in response.json()["errors"][0]
    assert not cluster.dispatcher.schedules
