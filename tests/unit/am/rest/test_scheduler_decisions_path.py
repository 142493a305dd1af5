"""The path of Yarrow's own that shows what a job's scheduler decided."""

from __future__ import annotations

from pathlib import Path

from httpx import AsyncClient

from tests.support.job_graphs import Stage, linear_job
from tests.unit.am.jobmaster.scheduling.scheduling import BROKEN, Scheduling
from tests.unit.am.rest.fakes import ENDED_JOB, JOB, FakeCluster
from tests.unit.am.rest.test_checkpoint_paths import run
from yarrow.runtime.graph.states import ExecutionState


def test_the_last_decisions_of_a_running_job(tmp_path: Path) -> None:
    job = Scheduling(linear_job(Stage(1)))
    job.running(1)
    job.report(ExecutionState.FAILED, cause=BROKEN)

    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        cluster.dispatcher.decisions = job.log.events(1000)
        path = f"/jobs/{JOB}/scheduler-decisions"
        decisions = (await client.get(path)).json()["decisions"]
        assert [each["event"]["event"] for each in decisions] == [
            "JobStarted",
            "SlotsOffered",
            "TasksUpdated",
            "TasksUpdated",
        ]
        assert decisions[0]["number"] == 1 and decisions[0]["timestamp"] == job.clock.epoch_ms()
        assert decisions[1]["actions"][0] == {"action": "SlotsAccepted", "allocations": ["a0"]}
        (last,) = (await client.get(f"{path}?last=1")).json()["decisions"]
        assert last == decisions[-1]
        assert last["event"]["updates"][0]["cause"]["message"] == "broken" and last["error"] == ""

    run(tmp_path, body)


def test_what_cannot_be_shown_is_refused(tmp_path: Path) -> None:
    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        assert (await client.get(f"/jobs/{ENDED_JOB}/scheduler-decisions")).status_code == 409
        assert (await client.get(f"/jobs/{'f' * 32}/scheduler-decisions")).status_code == 404
        assert (await client.get(f"/jobs/{JOB}/scheduler-decisions?last=0")).status_code == 400
        assert (await client.get(f"/jobs/{JOB}/scheduler-decisions?last=1001")).status_code == 400

    run(tmp_path, body)
