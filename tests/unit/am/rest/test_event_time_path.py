"""GET /jobs/JOB/event-time: event time by operator, and who holds it back."""

from __future__ import annotations

from pathlib import Path

from httpx import AsyncClient

from tests.unit.am.rest.fakes import ENDED_JOB, JOB, FakeCluster
from tests.unit.am.rest.test_checkpoint_paths import run


def test_it_shows_the_answer_of_the_job_master(tmp_path: Path) -> None:
    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        answer = await client.get(f"/jobs/{JOB}/event-time")
        assert answer.status_code == 200
        body = answer.json()
        assert body["status"] == "RUNNING"
        assert body["operators"][0] == {
            "name": "Source: clicks",
            "least": 1_000,
            "has-ended": False,
            "subtask": 1,
            "greatest": 60_000,
            "idle": False,
        }
        assert body["operators"][1]["least"] is None
        (holder,) = body["holders"]
        assert (holder["split"], holder["age"], holder["reason"]) == ("7", 42_000, "no idleness set")
        assert holder["path"] == ["Window", "Source: clicks"]
        assert body["silent"] == []

    run(tmp_path, body)


def test_it_is_refused_for_jobs_that_do_not_run(tmp_path: Path) -> None:
    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        assert (await client.get(f"/jobs/{ENDED_JOB}/event-time")).status_code == 409
        assert (await client.get(f"/jobs/{'f' * 32}/event-time")).status_code == 404

    run(tmp_path, body)
