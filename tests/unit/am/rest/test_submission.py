"""Submitting JobGraphs with their files."""

from __future__ import annotations

import json

import httpx
import msgspec
import pytest

from tests.unit.am.rest.fakes import JOB, FakeCluster, client_of
from tests.unit.am.rest.running import run
from tests.unit.runtime.graph.programs import environment
from yarrow.runtime.graph.job_graph import JobGraph, ShippedFile, decode_job_graph, encode_job_graph


def graph(*files: ShippedFile) -> JobGraph:
    env = environment()
    env.from_collection([1, 2]).print()
    made = env.get_job_graph("numbers")
    return msgspec.structs.replace(made, user_code=msgspec.structs.replace(made.user_code, files=files))


def submit(cluster: FakeCluster, request: object, **parts: bytes) -> httpx.Response:
    async def main() -> httpx.Response:
        async with client_of(cluster.app()) as client:
            text = request if isinstance(request, str) else json.dumps(request)
            files = [(f"file_{n}", (name, data)) for n, (name, data) in enumerate(parts.items())]
            return await client.post("/v1/jobs", data={"request": text}, files=files or None)

    return run(main())


@pytest.mark.parametrize("field", ["executionPlanFileName", "jobGraphFileName"])
def test_job_graph_is_submitted(cluster: FakeCluster, field: str) -> None:
    job = graph()
    response = submit(cluster, {field: "plan.bin"}, **{"plan.bin": encode_job_graph(job)})
    assert response.status_code == 202, response.text
    assert response.json() == {"jobUrl": f"/jobs/{job.job_id}"}
    assert decode_job_graph(cluster.dispatcher.submitted[0]) == job


def test_artifacts_become_blobs(cluster: FakeCluster) -> None:
    stored = ShippedFile(name="other.py", kind="python_file", blob_key="a" * 64)
    job = graph(ShippedFile(name="table.csv", kind="cached_file", blob_key=""), stored)
    request = {
        "executionPlanFileName": "plan",
        "jobArtifactFileNames": [{"entryName": "table.csv", "fileName": "part"}],
    }
    response = submit(cluster, request, plan=encode_job_graph(job), part=b"1,2")
    assert response.status_code == 202, response.text
    table, other = decode_job_graph(cluster.dispatcher.submitted[0]).user_code.files
    assert cluster.dispatcher.blobs[table.blob_key] == b"1,2"
    assert other == stored


@pytest.mark.parametrize(
    ("request_part", "text"),
    [
        ("{", "'request'"),
        ("[]", "'request'"),
        ({}, "executionPlanFileName"),
        ({"executionPlanFileName": "other"}, "'other'"),
        ({"executionPlanFileName": "bad"}, "no JobGraph"),
        ({"executionPlanFileName": "needs"}, "'table.csv' without a blob key"),
        (
            {
                "executionPlanFileName": "plan",
                "jobArtifactFileNames": [{"entryName": "x", "fileName": "plan"}],
            },
            "no file named x",
        ),
    ],
)
def test_wrong_submissions_say_what_is_wrong(cluster: FakeCluster, request_part: object, text: str) -> None:
    needs = graph(ShippedFile(name="table.csv", kind="cached_file", blob_key=""))
    response = submit(
        cluster, request_part, plan=encode_job_graph(graph()), bad=b"nothing", needs=encode_job_graph(needs)
    )
    assert response.status_code == 400, response.text
    assert text in response.json()["errors"][0]
    assert not cluster.dispatcher.submitted


def test_submission_without_request_is_refused(cluster: FakeCluster) -> None:
    async def main() -> httpx.Response:
        async with client_of(cluster.app()) as client:
            return await client.post("/jobs", files={"plan": ("plan", b"x")})

    assert run(main()).status_code == 400


def test_job_id_in_use_is_a_conflict(cluster: FakeCluster) -> None:
    taken = msgspec.structs.replace(graph(), job_id=JOB)
    response = submit(cluster, {"jobGraphFileName": "plan"}, plan=encode_job_graph(taken))
    assert response.status_code == 409
