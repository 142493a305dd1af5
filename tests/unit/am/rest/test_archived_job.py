"""The archive of a job holds, path by path, what the server would have answered."""

from __future__ import annotations

import json

from msgspec import structs

from tests.unit.am.rest.fakes import ENDED_JOB, JOB, NOW, REDUCE, SOURCE, FakeCluster, client_of
from tests.unit.am.rest.running import run
from yarrow.am.dispatcher.job_archive import EndedJob
from yarrow.am.rest.archived_job import answers
from yarrow.runtime.rpc.messages import RescaleRecord


def ended_job(cluster: FakeCluster) -> EndedJob:
    async def look() -> EndedJob:
        overviews = {job.job_id: job for job in await cluster.dispatcher.list_jobs()}
        statistics = cluster.dispatcher.checkpoints.statistics()
        found = [cluster.dispatcher.checkpoints.record(each.id) for each in statistics.history]
        records = tuple(record for record in found if record is not None)
        return EndedJob(
            overviews[ENDED_JOB], cluster.dispatcher.jobs[ENDED_JOB], statistics, records, now=NOW
        )

    return run(look())


def test_every_answer_is_the_servers(cluster: FakeCluster) -> None:
    rescale = RescaleRecord(
        rescale_id="f" * 32,
        start_ms=NOW,
        end_ms=NOW + 5,
        state="COMPLETED",
        before={SOURCE: 1, REDUCE: 1},
        after={SOURCE: 2, REDUCE: 1},
        trigger_cause="rescaling to 2",
    )
    job = cluster.dispatcher.jobs.pop(ENDED_JOB)
    cluster.dispatcher.jobs = {ENDED_JOB: structs.replace(job, rescales=(rescale,))}
    archived = answers(ended_job(cluster), exceptions=16)

    async def ask() -> None:
        async with client_of(cluster.app()) as client:
            for path, body in archived.items():
                response = await client.get(path)
                assert response.status_code == 200, path
                assert json.loads(body) == response.json(), path

    run(ask())
    job_path = f"/jobs/{ENDED_JOB}"
    assert f"{job_path}/rescales/details/{'f' * 32}" in archived
    assert f"{job_path}/checkpoints/details/3/subtasks/{1:032x}" in archived
    assert f"{job_path}/vertices/{SOURCE}/subtasks/1/attempts/0/accumulators" in archived
    assert f"{job_path}/vertices/{REDUCE}/subtasks/0" in archived


def test_it_tells_of_that_job_alone_and_hides_its_secrets(cluster: FakeCluster) -> None:
    archived = answers(ended_job(cluster), exceptions=0)
    (listed,) = json.loads(archived["/jobs/overview"])["jobs"]
    assert (listed["jid"], listed["state"]) == (ENDED_JOB, "FINISHED")
    assert JOB not in "".join([*archived, *archived.values()])
    assert "hunter2" not in "".join(archived.values())
    exceptions = json.loads(archived[f"/jobs/{ENDED_JOB}/exceptions"])
    assert exceptions["exceptionHistory"]["entries"] == []
