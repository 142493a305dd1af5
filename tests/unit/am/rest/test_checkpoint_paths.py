"""Paths of checkpoints and savepoints: what they tell, and operations that go on between two requests."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from httpx import AsyncClient

from tests.unit.am.rest.fakes import JOB, FakeCluster, client_of
from yarrow.am.rest.services import RestSettings
from yarrow.runtime.common.errors import CheckpointFailedError
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.checkpoint_options import CheckpointType, SnapshotKind
from yarrow.runtime.rpc.messages import SavepointFormat, SavepointRequest
from yarrow.runtime.yarn.shared_places import check_savepoint_target

VERTEX = f"{1:032x}"


def run(folder: Path, body: Any, settings: RestSettings | None = None) -> None:
    async def inside() -> None:
        cluster = FakeCluster(folder)
        async with client_of(cluster.app(settings)) as client:
            await body(cluster, client)

    asyncio.run(inside())


async def settled(client: AsyncClient, path: str) -> dict[str, Any]:
    """The answer of a path when its operation is over."""
    while True:
        body: dict[str, Any] = (await client.get(path)).json()
        if body["status"]["id"] == "COMPLETED":
            return body
        await asyncio.sleep(0)


def test_statistics_tell_of_all_checkpoints(tmp_path: Path) -> None:
    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        found = (await client.get(f"/jobs/{JOB}/checkpoints")).json()
        assert found["counts"] == {"restored": 0, "total": 4, "in_progress": 1, "completed": 2, "failed": 1}
        assert [each["id"] for each in found["history"]] == [4, 3, 2, 1]
        assert [each["className"] for each in found["history"]] == [
            "in_progress",
            "completed",
            "failed",
            "completed",
        ]
        latest = found["latest"]
        assert (latest["completed"]["id"], latest["savepoint"]["id"], latest["failed"]["id"]) == (1, 3, 2)
        assert latest["completed"]["external_path"] == "/chk-1"
        assert latest["failed"]["failure_message"] == "no space left"
        assert latest["restored"] is None
        assert latest["savepoint"]["checkpoint_type"] == "SAVEPOINT"
        assert latest["completed"]["num_acknowledged_subtasks"] == 2
        assert found["summary"]["checkpointed_size"]["max"] == 10

    run(tmp_path, body)


def test_details_go_down_to_subtasks(tmp_path: Path) -> None:
    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        found = (await client.get(f"/jobs/{JOB}/checkpoints/details/4")).json()
        assert (found["status"], found["num_subtasks"], found["num_acknowledged_subtasks"]) == (
            "IN_PROGRESS",
            3,
            1,
        )
        assert found["tasks"][VERTEX]["num_acknowledged_subtasks"] == 1
        part = (await client.get(f"/jobs/{JOB}/checkpoints/details/4/subtasks/{VERTEX}")).json()
        assert [each["status"] for each in part["subtasks"]] == ["completed", "pending_or_failed"]
        assert part["summary"]["checkpointed_size"]["avg"] == 5
        assert set(part["subtasks"][0]["checkpoint"]) == {"sync", "async"}

    run(tmp_path, body)


def test_configuration_is_the_jobs_own(tmp_path: Path) -> None:
    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        found = (await client.get(f"/jobs/{JOB}/checkpoints/config")).json()
        assert (found["interval"], found["mode"]) == (5000, "exactly_once")
        assert found["tolerable_failed_checkpoints"] == 3
        assert found["state_backend"] == "HashMapStateBackend"

    run(tmp_path, body)


def test_a_savepoint_is_begun_and_asked_about(tmp_path: Path) -> None:
    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        answer = await client.post(f"/jobs/{JOB}/savepoints", json={"target-directory": "/sp"})
        assert answer.status_code == 202
        path = f"/jobs/{JOB}/savepoints/{answer.json()['request-id']}"
        assert (await client.get(path)).json() == {"status": {"id": "IN_PROGRESS"}, "operation": None}
        cluster.dispatcher.may_complete.set()
        assert (await settled(client, path))["operation"]["location"] == "/sp/savepoint-1"

    run(tmp_path, body)


def test_a_trigger_id_of_the_callers_own_begins_once(tmp_path: Path) -> None:
    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        chosen = "c" * 32
        for _ in range(2):
            answer = await client.post(f"/jobs/{JOB}/checkpoints", json={"triggerId": chosen})
            assert answer.json() == {"request-id": chosen}
        cluster.dispatcher.may_complete.set()
        found = await settled(client, f"/jobs/{JOB}/checkpoints/{chosen}")
        assert found["operation"]["checkpointId"] == 4
        assert len(cluster.dispatcher.requests) == 1

    run(tmp_path, body)


def test_a_trigger_id_that_nobody_could_ask_about_is_refused(tmp_path: Path) -> None:
    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        for path in ("checkpoints", "savepoints", "stop"):
            answer = await client.post(f"/jobs/{JOB}/{path}", json={"triggerId": "mine"})
            assert answer.status_code == 400
            assert "triggerId" in answer.json()["errors"][0] and "'mine'" in answer.json()["errors"][0]
        assert cluster.dispatcher.requests == []

    run(tmp_path, body)


def test_a_failure_is_told_with_its_cause(tmp_path: Path) -> None:
    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        cluster.dispatcher.savepoint_error = CheckpointFailedError("/sp: no space left")
        cluster.dispatcher.may_complete.set()
        answer = await client.post(f"/jobs/{JOB}/stop", json={"targetDirectory": "/sp", "drain": True})
        found = await settled(client, f"/jobs/{JOB}/savepoints/{answer.json()['request-id']}")
        cause = found["operation"]["failure-cause"]
        assert "no space left" in cause["stack-trace"] and cause["class"].endswith("CheckpointFailedError")
        assert set(cause) == {"class", "stack-trace", "serialized-throwable"}

    run(tmp_path, body)


@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("stop", {}, SnapshotKind.SAVEPOINT_SUSPEND),
        ("stop", {"drain": True}, SnapshotKind.SAVEPOINT_TERMINATE),
        ("savepoints", {"cancel-job": True}, SnapshotKind.SAVEPOINT),
    ],
)
def test_how_the_job_is_to_end(tmp_path: Path, path: str, body: dict[str, Any], kind: SnapshotKind) -> None:
    async def ask(cluster: FakeCluster, client: AsyncClient) -> None:
        await client.post(f"/jobs/{JOB}/{path}", json=body)
        await asyncio.sleep(0)
        ((_, _, request),) = cluster.dispatcher.requests
        assert isinstance(request, SavepointRequest)
        assert (request.kind, request.cancel_job) == (kind, bool(body.get("cancel-job")))

    run(tmp_path, ask)


@pytest.mark.parametrize("asked", list(CheckpointType))
def test_how_much_a_checkpoint_refers_to(tmp_path: Path, asked: CheckpointType) -> None:
    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        await client.post(f"/jobs/{JOB}/checkpoints", json={"checkpointType": asked.value})
        await asyncio.sleep(0)
        assert cluster.dispatcher.checkpoint_types == [asked]

    run(tmp_path, body)


@pytest.mark.parametrize("form", list(SavepointFormat))
def test_in_which_form_a_savepoint_is_written(tmp_path: Path, form: SavepointFormat) -> None:
    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        for path in ("savepoints", "stop"):
            await client.post(f"/jobs/{JOB}/{path}", json={"formatType": form.value})
        await asyncio.sleep(0)
        requests = [request for _, _, request in cluster.dispatcher.requests]
        assert [request.format_type for request in requests if request is not None] == [form, form]

    run(tmp_path, body)


@pytest.mark.parametrize(
    "where", ["sp", "ftp://host/sp", "s3://bucket/sp", "/sp/../../etc", "/sp\x00", "javascript://x"]
)
def test_no_path_is_used_unchecked(tmp_path: Path, where: str) -> None:
    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        for path, key in (("savepoints", "target-directory"), ("stop", "targetDirectory")):
            answer = await client.post(f"/jobs/{JOB}/{path}", json={key: where})
            assert answer.status_code == 400, answer.text
        answer = await client.post("/savepoint-disposal", json={"savepoint-path": where})
        assert answer.status_code == 400
        assert cluster.dispatcher.requests == []

    run(tmp_path, body)


@pytest.mark.parametrize("target", ["/mnt/savepoints", "file:///mnt/savepoints"])
def test_on_yarn_a_savepoint_goes_to_no_disk_of_a_node(tmp_path: Path, target: str) -> None:
    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        for path, key in (("savepoints", "target-directory"), ("stop", "targetDirectory")):
            answer = await client.post(f"/jobs/{JOB}/{path}", json={key: target})
            assert answer.status_code == 400
            assert "every node has another /mnt/savepoints" in answer.json()["errors"][0]
            assert "hdfs://host:port/mnt/savepoints" in answer.json()["errors"][0]
        cluster.dispatcher.may_complete.set()
        answer = await client.post(f"/jobs/{JOB}/stop", json={"targetDirectory": "hdfs://a:1/savepoints"})
        assert answer.status_code == 202
        await settled(client, f"/jobs/{JOB}/savepoints/{answer.json()['request-id']}")
        assert [request[0] for request in cluster.dispatcher.requests] == ["savepoint"]

    run(tmp_path, body, RestSettings(check_savepoint_target=check_savepoint_target))


def test_a_plain_target_lies_in_the_default_file_system(tmp_path: Path) -> None:
    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        cluster.dispatcher.may_complete.set()
        answer = await client.post(f"/jobs/{JOB}/savepoints", json={"target-directory": "/savepoints"})
        assert answer.status_code == 202
        await settled(client, f"/jobs/{JOB}/savepoints/{answer.json()['request-id']}")
        ((_, _, request),) = cluster.dispatcher.requests
        assert request is not None and request.target_directory == "hdfs://name-node:9000/savepoints"

    settings = Settings({"fs.default-scheme": "hdfs://name-node:9000"})
    run(tmp_path, body, replace(RestSettings.of(settings), check_savepoint_target=check_savepoint_target))


def test_a_savepoint_is_disposed_of(tmp_path: Path) -> None:
    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        answer = await client.post("/savepoint-disposal", json={"savepoint-path": "/sp/savepoint-1"})
        found = await settled(client, f"/savepoint-disposal/{answer.json()['request-id']}")
        assert found["operation"] == {"failure-cause": None}
        assert cluster.dispatcher.requests == [("dispose", "/sp/savepoint-1", None)]

    run(tmp_path, body)
