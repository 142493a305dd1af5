"""What single paths answer: values that a field snapshot cannot hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest

from tests.unit.am.rest.fakes import (
    ENDED_JOB,
    JOB,
    LOG_TEXT,
    NOW,
    REDUCE,
    SOURCE,
    STARTED,
    TASK_EXECUTOR,
    UNKNOWN,
    FakeCluster,
    attempt,
    client_of,
    job_details,
    task_metrics,
)
from tests.unit.am.rest.running import run
from yarrow.am.rest.errors import status_of
from yarrow.am.rest.routes import jobs
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.late_records import LatePlace, LateRecord, LateRecords, LateRemedy
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.errors import AnswerTooLargeError, MessageTooLargeError
from yarrow.runtime.rpc.messages import COLLECT_START, AttemptDetails, CollectPosition, CollectRows


def get(cluster: FakeCluster, path: str, status: int = 200) -> Any:
    response = request(cluster, "GET", path)
    assert response.status_code == status, response.text
    return response.json()


def request(cluster: FakeCluster, method: str, path: str, **options: Any) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with client_of(cluster.app()) as client:
            return await client.request(method, path, **options)

    return run(ask())


def test_paths_work_bare_and_versioned(cluster: FakeCluster) -> None:
    assert get(cluster, "/overview") == get(cluster, "/v1/overview")
    assert get(cluster, "/overview")["slots-total"] == 2


def test_the_heartbeat_of_a_jobs_client_reaches_the_dispatcher_with_or_without_flinks_body(
    cluster: FakeCluster,
) -> None:
    path = f"/jobs/{JOB}/clientHeartbeat"
    assert request(cluster, "PATCH", path).status_code == 202
    assert request(cluster, "PATCH", path, json={"expiredTimestamp": NOW}).status_code == 202
    assert cluster.dispatcher.requests == [("heartbeat", JOB, None)] * 2
    assert request(cluster, "PATCH", f"/jobs/{UNKNOWN}/clientHeartbeat").status_code == 404


def test_an_application_on_yarn_shows_its_attempt_and_its_containers(cluster: FakeCluster) -> None:
    assert get(cluster, "/overview")["yarn-attempt"] == 0
    assert get(cluster, f"/taskmanagers/{TASK_EXECUTOR}")["containerId"] == ""
    containers = {TASK_EXECUTOR: "container_1_0001_02_000003"}
    cluster.services = msgspec.structs.replace(
        cluster.services, container_of=containers.__getitem__, attempt=2, max_attempts=3
    )
    overview = get(cluster, "/overview")
    assert (overview["yarn-attempt"], overview["yarn-max-attempts"]) == (2, 3)
    (shown,) = get(cluster, "/taskmanagers")["taskmanagers"]
    assert shown["containerId"] == "container_1_0001_02_000003"
    assert get(cluster, f"/taskmanagers/{TASK_EXECUTOR}")["containerId"] == shown["containerId"]


def test_answers_have_flinks_headers(cluster: FakeCluster) -> None:
    for path, status in (("/overview", 200), ("/nothing", 404)):
        response = request(cluster, "GET", path)
        assert response.status_code == status
        assert response.headers["content-type"] == "application/json; charset=UTF-8"
        assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/nothing", 404, "Not found: /nothing"),
        ("GET", "/v1/nothing", 404, "Not found"),
        ("POST", "/overview", 405, "not allowed"),
        ("GET", "/jobs/xyz", 400, "jobid"),
        ("GET", f"/jobs/{UNKNOWN}", 404, "no job"),
        ("GET", f"/jobs/{JOB}/vertices/{UNKNOWN}", 404, "has no vertex"),
        ("GET", f"/jobs/{JOB}/vertices/{SOURCE}/subtasks/9", 404, "has no subtask 9: it has 2"),
        ("GET", f"/jobs/{JOB}/vertices/{SOURCE}/subtasks/0/attempts/5", 404, "no attempt 5"),
        ("GET", f"/jobs/{JOB}/vertices/{SOURCE}/subtasks/-1", 400, "subtaskindex"),
        ("GET", f"/jobs/{JOB}/vertices/{SOURCE}/subtasks/metrics?subtasks=a", 400, "0-2,5"),
        ("GET", f"/jobs/{JOB}/vertices/{SOURCE}/subtasks/metrics?get=x&agg=median", 400, "median"),
        ("GET", "/jobs/metrics?jobs=1", 400, "hexadecimal"),
        ("GET", "/taskmanagers/nobody", 404, "nobody"),
        ("GET", f"/jobs/{JOB}/collect/other", 404, "other"),
        ("PATCH", f"/jobs/{JOB}?mode=stop", 400, "mode"),
        ("PATCH", f"/jobs/{ENDED_JOB}", 409, "has ended"),
        ("GET", f"/jobs/{JOB}/yarn-cancel", 403, "PATCH"),
        ("POST", f"/jobs/{ENDED_JOB}/savepoints", 409, "FINISHED"),
        ("POST", f"/jobs/{ENDED_JOB}/checkpoints", 409, "FINISHED"),
        ("GET", f"/jobs/{JOB}/checkpoints/details/77", 404, "has no checkpoint 77"),
        ("GET", f"/jobs/{JOB}/checkpoints/details/1/subtasks/{UNKNOWN}", 404, "has no part in checkpoint 1"),
        ("GET", f"/jobs/{JOB}/savepoints/{UNKNOWN}", 404, "no operation"),
        ("GET", f"/jobs/{JOB}/checkpoints/{UNKNOWN}", 404, "no operation"),
        ("GET", f"/savepoint-disposal/{UNKNOWN}", 404, "no operation"),
        ("DELETE", f"/datasets/{UNKNOWN}", 404, UNKNOWN),
    ],
)
def test_refusals_name_the_thing(
    cluster: FakeCluster, method: str, path: str, status: int, text: str
) -> None:
    response = request(cluster, method, path)
    assert response.status_code == status, response.text
    (error,) = response.json()["errors"]
    assert text in error
    assert list(response.json()) == ["errors"]


def test_wrong_method_names_the_right_ones(cluster: FakeCluster) -> None:
    assert request(cluster, "PUT", "/overview").headers["allow"] == "GET"


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        (
            b"{",
            "expected JSON: Expecting property name enclosed in double quotes, line 1, column 2, at the end of the",
        ),
        (b'{"drain": yes}', "expected JSON: Expecting value, line 1, column 11, at 'yes}'"),
        (b'{\n "drain" true}', "expected JSON: Expecting ':' delimiter, line 2, column 10, at 'true}'"),
        (b'{"a": "\xff"}', "expected JSON in UTF-8: byte 7 is 0xff: invalid start byte"),
        (b"[" * 200_000, "expected JSON: it is nested too deeply"),
    ],
)
def test_bad_json_says_what_is_bad_and_where(cluster: FakeCluster, body: bytes, wrong: str) -> None:
    path = f"/jobs/{JOB}/stop"
    response = request(cluster, "POST", path, content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400
    (text,) = response.json()["errors"]
    assert text.startswith(f"body: {wrong}")


def test_bad_json_is_the_callers_fault(cluster: FakeCluster) -> None:
    path = f"/jobs/{JOB}/checkpoints"
    response = request(cluster, "POST", path, content=b"{", headers={"content-type": "application/json"})
    assert response.status_code == 400
    # As curl sends it: Flink does not look at the type either.
    form = {"content-type": "application/x-www-form-urlencoded"}
    response = request(cluster, "POST", path, content=b'{"checkpointType": "SMALL"}', headers=form)
    assert response.status_code == 400
    assert "FULL" in response.text


def test_an_answer_that_is_too_large_is_not_the_callers_fault() -> None:
    assert status_of(AnswerTooLargeError("the reply has 16000000 bytes")) == 500
    assert status_of(MessageTooLargeError("the request has 16000000 bytes")) == 413


def test_job_details_sum_up_the_tasks(cluster: FakeCluster) -> None:
    job = get(cluster, f"/jobs/{JOB}")
    source = next(vertex for vertex in job["vertices"] if vertex["id"] == SOURCE)
    assert (job["state"], job["duration"], job["end-time"]) == ("RUNNING", NOW - STARTED, -1)
    assert job["timestamps"]["FAILED"] == 0
    assert job["timestamps"]["RUNNING"] == STARTED + 2
    assert source["metrics"]["read-records"] == 400
    assert source["metrics"]["accumulated-busy-time"] == 2001.0
    assert source["metrics"]["read-bytes-complete"] is True
    assert source["start-time"] == STARTED + 1000
    assert source["tasks"]["RUNNING"] == 2
    reduce = next(vertex for vertex in job["vertices"] if vertex["id"] == REDUCE)
    assert reduce["metrics"]["read-records-complete"] is False
    assert job["status-counts"]["RUNNING"] == 2
    assert job["plan"]["nodes"][0]["inputs"][0]["ship_strategy"] == "HASH"
    claims = [node["claims"] for node in job["plan"]["nodes"]]
    assert claims == [[], [{"operator": "Source: gen", "claim": "replay: exact positions"}]]


def test_ended_job_has_its_end(cluster: FakeCluster) -> None:
    job = get(cluster, f"/jobs/{ENDED_JOB}")
    assert (job["end-time"], job["duration"]) == (STARTED + 20_000, 20_000)
    assert job["vertices"][0]["end-time"] == STARTED + 10_000
    assert job["vertices"][0]["status"] == "FINISHED"


def test_attempts_are_found_present_and_former(cluster: FakeCluster) -> None:
    subtasks = f"/jobs/{JOB}/vertices/{SOURCE}/subtasks"
    present = get(cluster, f"{subtasks}/1")
    assert (present["attempt"], present["status"]) == (1, "RUNNING")
    assert present["start_time"] == present["start-time"]
    assert present["status-duration"]["SCHEDULED"] == 500
    assert present["status-duration"]["RUNNING"] == NOW - STARTED - 2000
    former = get(cluster, f"{subtasks}/1/attempts/0")
    assert (former["status"], former["status-duration"]["RUNNING"]) == ("FAILED", 8000)
    assert get(cluster, f"{subtasks}/0/attempts/0/accumulators")["user-accumulators"][0]["value"] == "1"


def test_vertex_is_aggregated(cluster: FakeCluster) -> None:
    vertex = get(cluster, f"/jobs/{JOB}/vertices/{SOURCE}")
    read = vertex["aggregated"]["metrics"]["read-records"]
    assert read == {
        "min": 100,
        "max": 300,
        "avg": 200,
        "sum": 400,
        "median": 200,
        "p25": 150,
        "p75": 250,
        "p95": 290,
    }
    (manager,) = get(cluster, f"/jobs/{JOB}/vertices/{SOURCE}/taskmanagers")["taskmanagers"]
    assert manager["taskmanager-id"] == TASK_EXECUTOR
    assert manager["metrics"]["write-records"] == 800
    accumulators = get(cluster, f"/jobs/{JOB}/vertices/{SOURCE}/accumulators")["user-accumulators"]
    assert accumulators == [
        {"name": "rows", "type": "IntCounter", "value": "3"},
        {"name": "words", "type": "ListAccumulator", "value": '["a"]'},
    ]


def test_back_pressure_is_that_of_the_worst_subtask(cluster: FakeCluster) -> None:
    pressure = get(cluster, f"/jobs/{JOB}/vertices/{SOURCE}/backpressure")
    assert (pressure["status"], pressure["backpressureLevel"], pressure["backpressure-level"]) == (
        "ok",
        "high",
        "high",
    )
    first, second = pressure["subtasks"]
    assert (first["ratio"], first["busyRatio"], second["backpressure-level"]) == (0.8, 0.2, "ok")
    without = get(cluster, f"/jobs/{JOB}/vertices/{REDUCE}/backpressure")
    assert (without["status"], without["subtasks"]) == ("deprecated", [])


def test_metrics_outlive_a_restart_until_the_next_attempt_tells_of_its_own(cluster: FakeCluster) -> None:
    base = f"/jobs/{JOB}/vertices/{REDUCE}"
    assert get(cluster, f"{base}/metrics") == []

    def restarted(told: dict[str, float]) -> None:
        job = cluster.dispatcher.jobs[JOB]
        source, reduce = job.vertices
        reduce = msgspec.structs.replace(
            reduce,
            subtasks=(attempt(REDUCE, 0, number=2, metrics=told),),
            former_attempts=tuple(
                attempt(REDUCE, 0, ExecutionState.FAILED, number, task_metrics(number + 5, 0))
                for number in range(2)
            ),
        )
        cluster.dispatcher.jobs[JOB] = msgspec.structs.replace(job, vertices=(source, reduce))

    restarted({})
    assert {"id": "0.numRecordsIn"} in get(cluster, f"{base}/metrics")
    assert get(cluster, f"{base}/subtasks/0/metrics?get=numRecordsIn") == [
        {"id": "numRecordsIn", "value": "6"}
    ]
    assert get(cluster, f"{base}/subtasks/metrics?get=numRecordsIn&agg=max") == [
        {"id": "numRecordsIn", "max": 6}
    ]
    assert len(get(cluster, f"{base}/watermarks")) == 1
    restarted({"numRecordsIn": 1})
    assert get(cluster, f"{base}/metrics") == [{"id": "0.numRecordsIn"}]
    assert get(cluster, f"{base}/metrics?get=0.numRecordsIn") == [{"id": "0.numRecordsIn", "value": "1"}]
    assert get(cluster, f"{base}/watermarks") == []


def test_a_subtask_that_a_rescaling_took_away_has_former_attempts_alone(cluster: FakeCluster) -> None:
    job = cluster.dispatcher.jobs[JOB]
    source, reduce = job.vertices
    former = attempt(REDUCE, 1, ExecutionState.CANCELED, 0, task_metrics(5, 0))
    rescaled = msgspec.structs.replace(reduce, former_attempts=(former,))
    cluster.dispatcher.jobs[JOB] = msgspec.structs.replace(job, vertices=(source, rescaled))
    base = f"/jobs/{JOB}/vertices/{REDUCE}"
    assert get(cluster, f"{base}/subtasks/1/attempts/0")["status"] == "CANCELED"
    for path in ("subtasks/1", "subtasks/1/metrics"):
        assert "it has 1, counted from 0" in get(cluster, f"{base}/{path}", 404)["errors"][0]
    assert get(cluster, f"{base}/metrics") == []


def test_metrics_are_named_then_asked_for(cluster: FakeCluster) -> None:
    base = f"/jobs/{JOB}/vertices/{SOURCE}"
    names = get(cluster, f"{base}/metrics")
    assert {"id": "0.Source__gen.numRecordsOut"} in names
    assert get(cluster, f"{base}/metrics?get=1.numRecordsIn,0.nothing,0.my_map.group.hits") == [
        {"id": "1.numRecordsIn", "value": "300"},
        {"id": "0.my_map.group.hits", "value": "7"},
    ]
    assert get(cluster, f"{base}/subtasks/metrics?get=numRecordsIn") == [
        {"id": "numRecordsIn", "min": 100, "max": 300, "avg": 200, "sum": 400, "skew": 50}
    ]
    assert get(cluster, f"{base}/subtasks/metrics?get=numRecordsIn&agg=max,sum&subtasks=1-9") == [
        {"id": "numRecordsIn", "max": 300, "sum": 300}
    ]
    assert get(cluster, f"{base}/watermarks")[0]["value"] == str(-(2**63))
    assert get(cluster, f"/jobs/metrics?get=uptime&agg=max&jobs={JOB}") == [
        {"id": "uptime", "max": NOW - STARTED - 2}
    ]
    assert get(cluster, "/taskmanagers/metrics?get=Status.JVM.Memory.Heap.Used&agg=avg") == [
        {"id": "Status.JVM.Memory.Heap.Used", "avg": 1000}
    ]
    path = f"/jobs/{JOB}/metrics"
    assert {"id": "lastCheckpointExternalPath"} in get(cluster, path)
    asked = f"{path}?get=lastCheckpointExternalPath,lastCheckpointSize"
    assert [each["value"] for each in get(cluster, asked)] == ["n/a", "-1"]
    taken = msgspec.structs.replace(cluster.dispatcher.jobs[JOB], last_checkpoint_path="hdfs:///c/chk-3")
    cluster.dispatcher.jobs = {**cluster.dispatcher.jobs, JOB: taken}
    assert get(cluster, asked)[0] == {"id": "lastCheckpointExternalPath", "value": "hdfs:///c/chk-3"}
    assert get(cluster, "/jobmanager/metrics?get=taskSlotsTotal") == [{"id": "taskSlotsTotal", "value": "2"}]


def test_exceptions_are_told_in_both_forms(cluster: FakeCluster) -> None:
    told = get(cluster, f"/jobs/{JOB}/exceptions")
    (entry,) = told["exceptionHistory"]["entries"]
    assert told["root-exception"] == entry["stacktrace"]
    assert entry["endpoint"] == entry["location"] == told["all-exceptions"][0]["location"] == "host-1:41001"
    none = get(cluster, f"/jobs/{JOB}/exceptions?maxExceptions=0")
    assert (none["exceptionHistory"]["entries"], none["truncated"]) == ([], True)


def test_secrets_are_hidden(cluster: FakeCluster) -> None:
    for path in ("/jobmanager/config", f"/jobs/{JOB}/jobmanager/config", f"/jobs/{JOB}/config"):
        text = request(cluster, "GET", path).text
        assert "hunter2" not in text
        assert "******" in text


def test_execution_result_comes_at_the_end(cluster: FakeCluster) -> None:
    assert get(cluster, f"/jobs/{JOB}/execution-result") == {"status": {"id": "IN_PROGRESS"}}
    result = get(cluster, f"/jobs/{ENDED_JOB}/execution-result")["job-execution-result"]
    assert (result["application-status"], result["net-runtime"]) == ("SUCCEEDED", 20_000)
    assert result["accumulator-results"]["rows"] == 3
    assert "failure-cause" not in result
    cluster.dispatcher.jobs[JOB] = job_details(JOB, JobStatus.FAILED)
    failed = get(cluster, f"/jobs/{JOB}/execution-result")["job-execution-result"]
    assert failed["failure-cause"]["class"] == "builtins.ValueError"


def test_execution_result_can_be_waited_for(cluster: FakeCluster) -> None:
    async def ask() -> httpx.Response:
        async with client_of(cluster.app()) as client:
            asked = asyncio.create_task(client.get(f"/jobs/{JOB}/execution-result?wait=60"))
            await cluster.dispatcher.asked_for_result.wait()
            cluster.dispatcher.jobs[JOB] = job_details(JOB, JobStatus.CANCELED)
            cluster.dispatcher.ended.set()
            return await asked

    assert run(ask()).json()["job-execution-result"]["application-status"] == "CANCELED"


def test_cancelling_reaches_the_dispatcher_once_asked(cluster: FakeCluster) -> None:
    assert request(cluster, "PATCH", f"/v1/jobs/{JOB}?mode=cancel").status_code == 202
    assert cluster.dispatcher.cancelled == [JOB]
    cluster.dispatcher.jobs[JOB] = job_details(JOB, JobStatus.CANCELED)
    assert request(cluster, "PATCH", f"/jobs/{JOB}").status_code == 202


def test_cluster_can_be_shut_down(cluster: FakeCluster) -> None:
    response = request(cluster, "DELETE", "/cluster")
    assert (response.status_code, response.json()) == (200, {})
    assert cluster.dispatcher.shut_down


def test_task_managers_have_slots_memory_and_metrics(cluster: FakeCluster) -> None:
    (listed,) = get(cluster, "/taskmanagers")["taskmanagers"]
    assert (listed["slotsNumber"], listed["freeSlots"], listed["assignedTasks"]) == (2, 1, 3)
    assert listed["timeSinceLastHeartbeat"] == NOW - 250
    assert listed["totalResource"]["taskHeapMemory"] == 1024
    assert listed["freeResource"]["taskHeapMemory"] == 512
    assert listed["memoryConfiguration"]["totalProcessMemory"] == 1 << 30
    one = get(cluster, f"/taskmanagers/{TASK_EXECUTOR}")
    assert one["allocatedSlots"] == [{"jobId": JOB, "resource": one["freeResource"], "assignedTasks": 3}]
    assert one["metrics"]["heapUsed"] == 1000
    assert one["metrics"]["garbageCollectors"] == [{"name": "All", "count": 4, "time": 0}]


def test_logs_are_read_by_listed_names_alone(cluster: FakeCluster) -> None:
    listed = [file["name"] for file in get(cluster, "/jobmanager/logs")["logs"]]
    assert listed == ["master.log", "master.out"]
    assert request(cluster, "GET", "/jobmanager/log").content == LOG_TEXT
    assert request(cluster, "GET", "/jobmanager/stdout").text == "printed\n"
    assert request(cluster, "GET", "/jobmanager/logs/master.out").text == "printed\n"
    assert request(cluster, "GET", f"/taskmanagers/{TASK_EXECUTOR}/log").content == LOG_TEXT
    assert request(cluster, "GET", f"/taskmanagers/{TASK_EXECUTOR}/stdout").text == "hi\n"


@pytest.mark.parametrize(
    "name",
    [
        "../secret.txt",
        "..%2fsecret.txt",
        "%2e%2e%2fsecret.txt",
        "link.log",
        "%2e%2e",
        "%00",
        "....//secret.txt",
    ],
)
@pytest.mark.parametrize(
    "base", ["/jobmanager/logs/", f"/taskmanagers/{TASK_EXECUTOR}/logs/", "/v1/jobmanager/logs/"]
)
def test_no_path_leads_out_of_the_folder_of_logs(cluster: FakeCluster, base: str, name: str) -> None:
    response = request(cluster, "GET", base + name)
    assert response.status_code in (404, 405)
    assert "not for you" not in response.text


def test_rows_are_collected_as_messages(cluster: FakeCluster) -> None:
    rows = CollectRows(job_id=JOB, collect_id="results", subtask=0, sequence=0, payload=b"x", row_count=1)

    async def ask() -> AsyncIterator[httpx.Response]:
        async with client_of(cluster.app()) as client:
            path = f"/jobs/{JOB}/collect/results"
            yield await client.get(f"{path}?wait=0")
            # The first question is still open: what comes now is the second request's.
            cluster.dispatcher.rows.put_nowait((rows,))
            yield await client.get(path)
            yield await client.get(f"{path}?wait=0&version=v&delivery=3")

    async def both() -> list[httpx.Response]:
        return [response async for response in ask()]

    empty, full, nothing = run(both())
    decode = msgspec.msgpack.Decoder(list[CollectRows]).decode
    assert decode(empty.content) == []
    assert decode(full.content) == [rows]
    assert decode(nothing.content) == []
    assert cluster.dispatcher.positions == [COLLECT_START, CollectPosition(version="v", delivery=3)]
    assert full.headers["content-type"] == "application/msgpack"


def test_page_of_the_api_needs_nothing_from_elsewhere(cluster: FakeCluster) -> None:
    page = request(cluster, "GET", "/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "http://" not in page.text
    assert "https://" not in page.text


def test_applications_share_the_routes_that_modules_made(cluster: FakeCluster) -> None:
    """What validates requests is costly, so that no application makes it anew."""
    first, second = cluster.app().router.routes, cluster.app().router.routes
    shared = [route for route in first if any(route is other for other in second)]
    assert [route for route in jobs.router.routes if route not in shared] == []
    assert {getattr(route, "path", None) for route in first if route not in shared} == {
        "/docs",
        "/openapi.json",
        None,
    }


def test_late_records_are_summed_up_by_operator(cluster: FakeCluster) -> None:
    path = f"/jobs/{JOB}/late-records"
    assert get(cluster, path) == {"operators": []}
    job = cluster.dispatcher.jobs[JOB]
    source, reduce = job.vertices

    def told(place: LatePlace, delay: int, **fields: Any) -> AttemptDetails:
        record = LateRecord(key="'a'", timestamp=5, watermark=5 + delay, delay_ms=delay, window="[0, 6)")
        report = LateRecords(
            operator="windows",
            remedy=LateRemedy.ALLOWED_LATENESS,
            places={place: 1},
            delays={delay: 1},
            longest_ms=delay,
            last=(record,),
            **fields,
        )
        return msgspec.structs.replace(attempt(REDUCE, 0), late_records=(report,))

    subtasks = (
        told(LatePlace.DROPPED, 9, of_no_window=3),
        told(LatePlace.SIDE_OUTPUT, 2),
        told(LatePlace.FUNCTION, 7, ahead=4),
    )
    reduce = msgspec.structs.replace(reduce, subtasks=subtasks)
    cluster.dispatcher.jobs[JOB] = msgspec.structs.replace(job, vertices=(source, reduce))
    (found,) = get(cluster, path)["operators"]
    last, delays = found.pop("last"), found.pop("delays")
    assert found == {
        "operator": "windows",
        "vertex": REDUCE,
        "dropped": 1,
        "sideOutput": 1,
        "function": 1,
        "ofNoWindow": 3,
        "aheadOfTime": 4,
        "longestDelay": 9,
        "latenessFor99Percent": 9,
        "lastAheadOfTime": [],
        "sentences": [
            "Operator 'windows': 3 records late (1 dropped, 1 side output, 1 function), at most 9 ms; an allowed"
            " lateness of 9 ms keeps 99 % of them.",
            "Operator 'windows': no window contains 3 records, dropped.",
            "Operator 'windows': 4 records too far ahead of time to be believed.",
        ],
    }
    assert delays == {"2": 1, "7": 1, "9": 1}
    assert [record["delay"] for record in last] == [2, 7, 9]
    assert last[0] == {"key": "'a'", "timestamp": 5, "watermark": 7, "delay": 2, "window": "[0, 6)"}
