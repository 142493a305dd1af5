"""Fields that once held a constant: each says what is so, or is absent where Flink leaves it out as well."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pytest

from tests.unit.am.rest.fakes import JOB, REDUCE, SOURCE, TASK_EXECUTOR, FakeCluster, client_of
from tests.unit.am.rest.running import run
from yarrow.common.job_status import JobStatus


def request(cluster: FakeCluster, path: str, **headers: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with client_of(cluster.app()) as client:
            return await client.get(
                path, headers={key.replace("_", "-"): value for key, value in headers.items()}
            )

    return run(ask())


def get(cluster: FakeCluster, path: str) -> Any:
    response = request(cluster, path)
    assert response.status_code == 200, response.text
    return response.json()


def test_what_no_blocklist_says_is_absent(cluster: FakeCluster) -> None:
    assert not {"taskmanagers-blocked", "slots-free-and-blocked"} & set(get(cluster, "/overview"))
    (listed,) = get(cluster, "/taskmanagers")["taskmanagers"]
    assert "blocked" not in listed
    assert "blocked" not in get(cluster, f"/taskmanagers/{TASK_EXECUTOR}")


def test_the_data_port_is_that_of_the_last_heartbeat(cluster: FakeCluster) -> None:
    assert get(cluster, f"/taskmanagers/{TASK_EXECUTOR}")["dataPort"] == 41001
    (info,) = cluster.resource_manager.executors
    cluster.resource_manager.executors = (msgspec.structs.replace(info, data_port=-1),)
    assert get(cluster, "/taskmanagers")["taskmanagers"][0]["dataPort"] == -1


def test_managed_memory_is_the_share_of_state_backends_in_the_slots(cluster: FakeCluster) -> None:
    (info,) = cluster.resource_manager.executors
    registration = info.registration
    hardware = msgspec.structs.replace(registration.hardware, managed_memory=256 << 20)
    registration = msgspec.structs.replace(registration, hardware=hardware)
    cluster.resource_manager.executors = (msgspec.structs.replace(info, registration=registration),)
    shown = get(cluster, f"/taskmanagers/{TASK_EXECUTOR}")
    memory = shown["memoryConfiguration"]
    assert memory["managedMemory"] == shown["hardware"]["managedMemory"] == 256 << 20
    assert (
        memory["frameworkHeap"] + memory["taskHeap"] + memory["managedMemory"] == memory["totalProcessMemory"]
    )
    # Pools that a Python process does not have.
    absent = ("networkMemory", "jvmMetaspace", "jvmOverhead", "frameworkOffHeap", "taskOffHeap")
    assert [memory[name] for name in absent] == [None] * 5
    total, free = shown["totalResource"], shown["freeResource"]
    assert (total["managedMemory"], total["taskHeapMemory"]) == (256, 1024 - 256)
    assert (free["managedMemory"], free["taskHeapMemory"]) == (128, 512 - 128)
    assert shown["allocatedSlots"][0]["resource"]["managedMemory"] == 128


def test_a_job_is_stoppable_while_it_runs_and_takes_savepoints(cluster: FakeCluster) -> None:
    assert get(cluster, f"/jobs/{JOB}")["isStoppable"] is True
    job = cluster.dispatcher.jobs[JOB]
    cluster.dispatcher.jobs[JOB] = msgspec.structs.replace(job, status=JobStatus.CANCELLING)
    assert get(cluster, f"/jobs/{JOB}")["isStoppable"] is False
    nodes = [dict(node) for node in job.stream_graph["nodes"]]
    nodes[1]["inputs"] = [{**nodes[1]["inputs"][0], "exchange": "blocking"}]
    cluster.dispatcher.jobs[JOB] = msgspec.structs.replace(job, stream_graph={"nodes": nodes})
    assert get(cluster, f"/jobs/{JOB}")["isStoppable"] is False


def test_the_stream_graph_is_an_object_whose_nodes_name_their_vertices(cluster: FakeCluster) -> None:
    nodes = get(cluster, f"/jobs/{JOB}")["stream-graph"]["nodes"]
    assert [node["job_vertex_id"] for node in nodes] == [SOURCE, REDUCE]


def test_a_failure_is_labelled_with_its_operator_and_can_be_chosen_by_it(cluster: FakeCluster) -> None:
    path = f"/jobs/{JOB}/exceptions"
    (entry,) = get(cluster, path)["exceptionHistory"]["entries"]
    assert entry["failureLabels"] == {"operator": "my map"}
    assert len(get(cluster, f"{path}?failureLabelFilter=operator:my map")["exceptionHistory"]["entries"]) == 1
    assert get(cluster, f"{path}?failureLabelFilter=operator:other")["exceptionHistory"]["entries"] == []
    refused = request(cluster, f"{path}?failureLabelFilter=operator")
    assert refused.status_code == 400
    assert "key:value" in refused.text


def test_the_page_may_offer_to_rescale_unless_that_is_switched_off(
    cluster: FakeCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert get(cluster, "/config")["features"]["web-rescale"] is True
    off = FakeCluster(tmp_path_factory.mktemp("off"), {"web.rescale.enable": "false"})
    assert get(off, "/config")["features"]["web-rescale"] is False


def test_subtasks_of_a_checkpoint_say_what_they_are(cluster: FakeCluster) -> None:
    path = f"/jobs/{JOB}/checkpoints/details/4"
    vertices = get(cluster, path)["tasks"]
    kinds = set()
    for vertex in vertices:
        for subtask in get(cluster, f"{path}/subtasks/{vertex}")["subtasks"]:
            kinds.add((subtask["className"], subtask["status"], subtask["aborted"]))
    assert kinds == {("completed", "completed", False), ("pending", "pending_or_failed", None)}


@pytest.mark.parametrize("path", ["/jobmanager/log", "/jobmanager/stdout"])
def test_a_master_that_has_written_nothing_shows_an_empty_text(cluster: FakeCluster, path: str) -> None:
    for file in cluster.logs.iterdir():
        file.unlink()
    answer = request(cluster, path)
    assert (answer.status_code, answer.text) == (200, "")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


def test_the_masters_heap_has_a_maximum(cluster: FakeCluster) -> None:
    names = "Status.JVM.Memory.Heap.Used,Status.JVM.Memory.Heap.Max,Status.JVM.Memory.Direct.MemoryUsed"
    used, most, direct = (float(each["value"]) for each in get(cluster, f"/jobmanager/metrics?get={names}"))
    assert 0 < used < most
    assert direct == 0


def test_threads_are_named_where_their_stacks_are_read(cluster: FakeCluster) -> None:
    for path in ("/jobmanager/thread-dump", f"/taskmanagers/{TASK_EXECUTOR}/thread-dump"):
        threads = get(cluster, path)["threadInfos"]
        assert threads
        for thread in threads:
            assert thread["stringifiedThreadInfo"].startswith(f'"{thread["threadName"]}"\n')


def test_only_the_servers_own_page_may_cancel_by_get(cluster: FakeCluster) -> None:
    path = f"/jobs/{JOB}/yarn-cancel"
    for site in (
        {},
        {"sec_fetch_site": "none"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ):
        assert request(cluster, path, **site).status_code == 403
    assert cluster.dispatcher.cancelled == []
    assert request(cluster, path, sec_fetch_site="same-origin").status_code == 202
    assert cluster.dispatcher.cancelled == [JOB]
