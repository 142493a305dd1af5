"""Paths of rescaling: begun by one request, asked about by others, remembered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from httpx import AsyncClient
from msgspec import structs

from tests.unit.am.rest.fakes import ENDED_JOB, JOB, REDUCE, SOURCE, FakeCluster, job_details
from tests.unit.am.rest.test_checkpoint_paths import run, settled
from yarrow.am.rest.views.rescaling import rescale_details_of, rescale_durations
from yarrow.common.job_status import JobStatus
from yarrow.runtime.rpc.messages import RescaleRecord


def test_a_job_is_rescaled_and_its_failure_told(tmp_path: Path) -> None:
    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        answer = await client.patch(f"/jobs/{JOB}/rescaling?parallelism=4")
        assert answer.status_code == 200
        path = f"/jobs/{JOB}/rescaling/{answer.json()['request-id']}"
        assert (await settled(client, path))["operation"].get("failure-cause") is None
        answer = await client.patch(f"/jobs/{JOB}/rescaling?parallelism=101")
        found = await settled(client, f"/jobs/{JOB}/rescaling/{answer.json()['request-id']}")
        assert "above the max parallelism" in found["operation"]["failure-cause"]["stack-trace"]
        assert [request.every for request in cluster.dispatcher.rescales] == [4, 101]

    run(tmp_path, body)


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        assert (await client.patch(f"/jobs/{JOB}/rescaling?parallelism=0")).status_code == 400
        assert (await client.patch(f"/jobs/{JOB}/rescaling")).status_code == 400
        assert (await client.patch(f"/jobs/{ENDED_JOB}/rescaling?parallelism=2")).status_code == 409
        path = f"/jobs/{JOB}/resource-requirements"
        bounds: dict[str, Any] = {"lowerBound": 1, "upperBound": 129}
        refused = await client.put(path, json={REDUCE: {"parallelism": bounds}})
        assert refused.status_code == 400 and "max parallelism, 128" in refused.text
        unknown = await client.put(path, json={"f" * 32: {"parallelism": {"upperBound": 1}}})
        assert unknown.status_code == 404
        assert cluster.dispatcher.rescales == []

    run(tmp_path, body)


def test_requirements_are_told_and_changed(tmp_path: Path) -> None:
    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        path = f"/jobs/{JOB}/resource-requirements"
        told = (await client.get(path)).json()
        assert told[SOURCE] == {"parallelism": {"lowerBound": 1, "upperBound": 2}}
        told[SOURCE]["parallelism"]["upperBound"] = 3
        answer = await client.put(path, json=told)
        assert (answer.status_code, answer.json()) == (200, {})
        # The operation begins behind the answer.
        while not cluster.dispatcher.rescales:  # noqa: ASYNC110
            await asyncio.sleep(0)
        (request,) = cluster.dispatcher.rescales
        assert request.parallelism == {SOURCE: 3, REDUCE: 1}

    run(tmp_path, body)


def test_requirements_may_change_while_those_before_are_being_met(tmp_path: Path) -> None:
    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        path = f"/jobs/{JOB}/resource-requirements"
        asked = {SOURCE: {"parallelism": {"upperBound": 3}}}
        job = structs.replace(job_details(JOB, JobStatus.RUNNING), status=JobStatus.RESTARTING)
        cluster.dispatcher.jobs = {**cluster.dispatcher.jobs, JOB: job}
        assert (await client.put(path, json=asked)).status_code == 409, "it restarts for another reason"
        record = RescaleRecord(rescale_id="r1", start_ms=1, before={}, after={}, trigger_cause="request")
        cluster.dispatcher.jobs[JOB] = structs.replace(job, rescales=(record,))
        assert (await client.put(path, json=asked)).status_code == 200
        while not cluster.dispatcher.rescales:  # noqa: ASYNC110
            await asyncio.sleep(0)
        (request,) = cluster.dispatcher.rescales
        assert request.waits and request.parallelism == {SOURCE: 3}

    run(tmp_path, body)


def test_the_history_names_parallelisms_and_reasons(tmp_path: Path) -> None:
    record = RescaleRecord(
        rescale_id="r1",
        start_ms=10,
        end_ms=30,
        state="FAILED",
        before={SOURCE: 2, REDUCE: 1},
        after={SOURCE: 4, REDUCE: 1},
        trigger_cause="rescaling to 4",
        reason="no slots",
    )
    job = structs.replace(job_details(JOB, JobStatus.RUNNING), rescales=(record,))
    told = rescale_details_of(job, 0)
    source = told.vertices[SOURCE]
    assert (source.pre_rescale_parallelism, source.desired_parallelism) == (2, 4)
    assert source.post_rescale_parallelism == 2, "it went back"
    assert (told.terminal_state, told.terminated_reason) == ("FAILED", "EXCEPTION_OCCURRED")
    assert (told.failure_reason, told.scheduler_states[0].duration_in_millis) == ("no slots", 20)
    taken = rescale_durations(job, "FAILED")
    assert (taken.min, taken.max, taken.avg, taken.p50) == (20, 20, 20, 20)
    running = structs.replace(job, rescales=(structs.replace(record, state="IN_PROGRESS", end_ms=-1),))
    assert rescale_details_of(running, 0).terminal_state is None

    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        assert (await client.get(f"/jobs/{JOB}/rescales/history")).json() == []
        overview = (await client.get(f"/jobs/{JOB}/rescales/overview")).json()
        assert overview["rescalesCounts"] == {"ignored": 0, "inProgress": 0, "completed": 0, "failed": 0}
        assert (await client.get(f"/jobs/{JOB}/rescales/details/r9")).status_code == 404
        summary = (await client.get(f"/jobs/{JOB}/rescales/summary")).json()
        assert summary["rescalesDurationStatsInMillis"]["p99"] == "NaN"
        configuration = (await client.get(f"/jobs/{JOB}/rescales/config")).json()
        assert configuration["rescaleHistoryMax"] == 20
        assert configuration["slotIdleTimeoutInMillis"] == 50_000

    run(tmp_path, body)
