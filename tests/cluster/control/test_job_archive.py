"""Jobs that end are archived, whatever their end, and are not harmed by an archive that fails."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cluster.control.control_cluster import control_cluster, eventually
from tests.cluster.control.test_leaderships import Masters
from tests.support.fake_task_executor import FakeBehaviour
from tests.support.job_graphs import Stage, linear_job
from tests.unit.runtime.rpc.loops import run
from yarrow.am.dispatcher import job_archive
from yarrow.am.dispatcher.job_archive import EndedJob, JobArchive
from yarrow.am.dispatcher.job_graph_store import JobGraphStore, StoredResult
from yarrow.am.rest.archived_job import answers
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.graph.job_graph import encode_job_graph

FINISHING = FakeBehaviour(finish=True)


def all_answers(job: EndedJob) -> dict[str, str]:
    return answers(job, exceptions=16)


def archived(file: Path) -> dict[str, Any]:
    entries = json.loads(file.read_bytes())["archive"]
    assert all(entry.keys() == {"path", "json"} for entry in entries)
    return {entry["path"]: json.loads(entry["json"]) for entry in entries}


def test_a_finished_job_has_an_archive(tmp_path: Path) -> None:
    folder = tmp_path / "archives" / "here"

    async def body() -> None:
        archive = JobArchive(folder.as_uri(), all_answers)
        async with control_cluster(tmp_path, 2, behaviour=FINISHING, archive=archive) as cluster:
            job_id = await cluster.submit(linear_job(Stage(2)))
            assert (await cluster.result(job_id)).status is JobStatus.FINISHED
            await eventually((folder / job_id).exists)
        bodies = archived(folder / job_id)
        assert bodies[f"/jobs/{job_id}"]["state"] == "FINISHED"
        assert bodies.keys() >= {"/jobs/overview", f"/jobs/{job_id}/checkpoints"}

    run(body())


def test_the_end_of_the_cluster_waits_for_the_archive(tmp_path: Path) -> None:
    folder = tmp_path / "archives"
    stops = threading.Event()

    def slow(job: EndedJob) -> dict[str, str]:
        assert stops.wait(60)
        return all_answers(job)

    async def body() -> None:
        archive = JobArchive(str(folder), slow)
        async with control_cluster(tmp_path, 2, archive=archive) as cluster:
            cancelled, running = [
                await cluster.submit(linear_job(Stage(1), job_id=number)) for number in (1, 2)
            ]
            await cluster.until_running(running, 1)
            await cluster.dispatcher.cancel_job(cancelled)
            assert (await cluster.result(cancelled)).status is JobStatus.CANCELED
            assert not folder.exists()
            asyncio.get_running_loop().call_soon(stops.set)
        # One that is suspended has not ended: another master goes on with it.
        assert [file.name for file in folder.iterdir()] == [cancelled]
        assert archived(folder / cancelled)[f"/jobs/{cancelled}"]["state"] == "CANCELED"

    run(body())


def test_a_job_whose_master_had_no_time_for_it_is_archived_by_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "archives"

    async def body() -> None:
        cluster = Masters(tmp_path)
        settings = replace(cluster.settings.dispatcher, archive=JobArchive(str(folder), all_answers))
        cluster.settings = msgspec.structs.replace(cluster.settings, dispatcher=settings)
        cluster.plane = cluster.new_plane(None)
        await cluster.plane.start()
        await cluster.lead()
        await cluster.follow()
        graph = linear_job(Stage(1))
        store = JobGraphStore(cluster.election.records(1), str(tmp_path / "ha"), cluster.ids)
        store.put(graph.job_id, encode_job_graph(graph), graph.name)
        ended = StoredResult(name=graph.name, status=JobStatus.FAILED, end_time=77)
        store.mark_ended(graph.job_id, ended)
        await cluster.lead()
        await eventually((folder / graph.job_id).exists)
        await cluster.plane.stop()
        (listed,) = archived(folder / graph.job_id)["/jobs/overview"]["jobs"]
        assert (listed["name"], listed["state"], listed["end-time"]) == (graph.name, "FAILED", 77)

    run(body())


def test_an_archive_that_is_there_stays(tmp_path: Path) -> None:
    folder = tmp_path / "archives"
    folder.mkdir()

    async def body() -> None:
        archive = JobArchive(str(folder), all_answers)
        async with control_cluster(tmp_path, 1, behaviour=FINISHING, archive=archive) as cluster:
            graph = linear_job(Stage(1))
            (folder / graph.job_id).write_text("an older one")
            assert (await cluster.result(await cluster.submit(graph))).status is JobStatus.FINISHED
        assert [file.read_text() for file in folder.iterdir()] == ["an older one"]

    run(body())


@pytest.mark.parametrize("error", [YarrowError("the name node is away"), TypeError("a view that fails")])
def test_a_job_ends_as_ever_where_it_cannot_be_archived(
    tmp_path: Path, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(job: EndedJob) -> dict[str, str]:
        raise error

    async def body() -> None:
        archive = JobArchive(str(tmp_path / "archives"), fail)
        async with control_cluster(tmp_path, 1, behaviour=FINISHING, archive=archive) as cluster:
            job_id = await cluster.submit(linear_job(Stage(1)))
            assert (await cluster.result(job_id)).status is JobStatus.FINISHED
            await cluster.until_free(1)
        assert f"job {job_id} was not archived in {tmp_path}/archives" in caplog.text

    run(body())


def test_a_storage_that_hangs_holds_up_no_job_and_the_end_of_the_master_not_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(job_archive, "_LIMIT", 0.05)
    passes = threading.Event()

    def hang(job: EndedJob) -> dict[str, str]:
        passes.wait(60)
        return {}

    async def body() -> None:
        archive = JobArchive(str(tmp_path / "archives"), hang)
        async with control_cluster(tmp_path, 1, behaviour=FINISHING, archive=archive) as cluster:
            for number in (1, 2):
                job_id = await cluster.submit(linear_job(Stage(1), job_id=number))
                assert (await cluster.result(job_id)).status is JobStatus.FINISHED
        assert caplog.text.count("was not archived within 0.05 s, and this master ends") == 2

    try:
        run(body())
    finally:
        passes.set()
