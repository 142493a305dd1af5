"""Paths about applications: one a job in a session, one that has all jobs on YARN."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pytest

from tests.unit.am.rest.fakes import (
    ENDED_JOB,
    JOB,
    NOW,
    STARTED,
    UNKNOWN,
    FakeCluster,
    client_of,
    job_details,
)
from tests.unit.am.rest.running import run
from yarrow.am.rest.views.application import WholeApplication
from yarrow.am.yarn.running_master import application_for_rest
from yarrow.common.job_status import JobStatus
from yarrow.runtime.yarn.application import ApplicationDescription, DeploymentMode

YARN_ID = "application_1700000000000_0007"


def request(cluster: FakeCluster, method: str, path: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with client_of(cluster.app()) as client:
            return await client.request(method, path)

    return run(ask())


def get(cluster: FakeCluster, path: str) -> Any:
    response = request(cluster, "GET", path)
    assert response.status_code == 200, response.text
    return response.json()


def on_yarn(cluster: FakeCluster, *, ends_with_job: bool = False) -> WholeApplication:
    whole = WholeApplication.on_yarn(YARN_ID, "words", STARTED - 5000, ends_with_job=ends_with_job)
    cluster.services = msgspec.structs.replace(cluster.services, application=whole)
    return whole


def test_in_a_session_each_job_is_an_application_with_the_jobs_id(cluster: FakeCluster) -> None:
    running, ended = get(cluster, "/applications/overview")["applications"]
    assert running == {
        "id": JOB,
        "name": "words",
        "start-time": STARTED,
        "end-time": -1,
        "duration": NOW - STARTED,
        "status": "RUNNING",
        "jobs": {"RUNNING": 1},
    }
    assert (ended["id"], ended["status"], ended["jobs"]) == (ENDED_JOB, "FINISHED", {"FINISHED": 1})
    assert ended["end-time"] == STARTED + ended["duration"]
    assert get(cluster, f"/jobs/{JOB}")["application-id"] == JOB
    assert (
        get(cluster, f"/jobs/{ENDED_JOB}/execution-result")["job-execution-result"]["application-id"]
        == ENDED_JOB
    )


def test_an_application_shows_its_jobs_and_when_it_entered_its_states(cluster: FakeCluster) -> None:
    shown = get(cluster, f"/applications/{ENDED_JOB}")
    assert [job["jid"] for job in shown["jobs"]] == [ENDED_JOB]
    assert shown["timestamps"]["FINISHED"] == STARTED + 20_000
    assert shown["timestamps"]["CREATED"] == STARTED
    assert shown["timestamps"]["FAILED"] == 0
    config = get(cluster, f"/applications/{JOB}/jobmanager/config")
    assert config == get(cluster, "/jobmanager/config")


def test_a_whole_application_has_all_jobs_under_one_id(cluster: FakeCluster) -> None:
    whole = on_yarn(cluster)
    (shown,) = get(cluster, "/applications/overview")["applications"]
    assert (shown["id"], shown["name"], shown["status"]) == (whole.id, "words", "RUNNING")
    assert shown["start-time"] == STARTED - 5000
    assert shown["jobs"] == {"RUNNING": 1, "FINISHED": 1}
    details = get(cluster, f"/applications/{whole.id}")
    assert {job["jid"] for job in details["jobs"]} == {JOB, ENDED_JOB}
    assert get(cluster, f"/jobs/{ENDED_JOB}")["application-id"] == whole.id
    assert request(cluster, "GET", f"/applications/{JOB}").status_code == 404


def test_a_per_job_application_is_in_the_state_of_its_job(cluster: FakeCluster) -> None:
    whole = on_yarn(cluster, ends_with_job=True)
    cluster.dispatcher.jobs.pop(JOB)
    shown = get(cluster, f"/applications/{whole.id}")
    assert (shown["status"], shown["end-time"]) == ("FINISHED", STARTED + 20_000)
    cluster.dispatcher.jobs.clear()
    shown = get(cluster, f"/applications/{whole.id}")
    assert (shown["status"], shown["end-time"], shown["jobs"]) == ("RUNNING", -1, [])


@pytest.mark.parametrize(
    ("job", "application"),
    [
        (JobStatus.INITIALIZING, "RUNNING"),
        (JobStatus.RESTARTING, "RUNNING"),
        (JobStatus.FAILING, "FAILING"),
        (JobStatus.CANCELLING, "CANCELING"),
        (JobStatus.CANCELED, "CANCELED"),
        (JobStatus.FAILED, "FAILED"),
    ],
)
def test_the_state_of_an_application_follows_its_job(
    cluster: FakeCluster, job: JobStatus, application: str
) -> None:
    cluster.dispatcher.jobs[JOB] = msgspec.structs.replace(cluster.dispatcher.jobs[JOB], status=job)
    assert get(cluster, f"/applications/{JOB}")["status"] == application


def test_cancelling_an_application_cancels_its_running_jobs(cluster: FakeCluster) -> None:
    whole = on_yarn(cluster)
    answer = request(cluster, "POST", f"/applications/{whole.id}/cancel")
    assert (answer.status_code, answer.json()) == (202, {})
    assert cluster.dispatcher.cancelled == [JOB]


def test_an_application_without_running_jobs_cannot_be_cancelled(cluster: FakeCluster) -> None:
    answer = request(cluster, "POST", f"/applications/{ENDED_JOB}/cancel")
    assert answer.status_code == 409
    assert ENDED_JOB in answer.text
    assert cluster.dispatcher.cancelled == []


def test_exceptions_are_the_failures_that_ended_jobs(cluster: FakeCluster) -> None:
    assert get(cluster, f"/applications/{JOB}/exceptions") == {"exceptionHistory": {"entries": []}}
    cluster.dispatcher.jobs[JOB] = job_details(JOB, JobStatus.FAILED)
    (entry,) = get(cluster, f"/applications/{JOB}/exceptions")["exceptionHistory"]["entries"]
    assert entry["jobId"] == JOB
    assert entry["exceptionName"] == "builtins.ValueError"
    assert entry["timestamp"] == STARTED + 5000
    assert "no number" in entry["stacktrace"]


@pytest.mark.parametrize("path", ["", "/exceptions", "/jobmanager/config"])
def test_an_unknown_application_is_named(cluster: FakeCluster, path: str) -> None:
    answer = request(cluster, "GET", f"/applications/{UNKNOWN}{path}")
    assert answer.status_code == 404
    assert UNKNOWN in answer.json()["errors"][0]


def test_on_yarn_an_application_keeps_its_id_over_attempts_and_a_session_has_none() -> None:
    def described(mode: DeploymentMode) -> ApplicationDescription:
        return ApplicationDescription(mode=mode, name="words", configuration={}, interpreter="python")

    assert application_for_rest(described(DeploymentMode.SESSION), YARN_ID, 1) is None
    first = application_for_rest(described(DeploymentMode.APPLICATION), YARN_ID, 1)
    second = application_for_rest(described(DeploymentMode.APPLICATION), YARN_ID, 2)
    per_job = application_for_rest(described(DeploymentMode.PER_JOB), YARN_ID, 2)
    assert first is not None and second is not None and per_job is not None
    assert first.id == second.id
    assert len(bytes.fromhex(first.id)) == 16
    assert (first.ends_with_job, per_job.ends_with_job) == (False, True)
