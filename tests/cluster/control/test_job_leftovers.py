"""What is stored of a job that has ended goes in the end, though storage is away for a while."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from msgspec import structs

from tests.cluster.control.control_cluster import eventually
from tests.cluster.control.test_leaderships import Masters, masters, recorded_end_without_clean_up
from tests.support.job_graphs import Stage, linear_job
from tests.unit.runtime.rpc.loops import run
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.errors import JobNotFoundError
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.fs import local
from yarrow.runtime.fs.file_system import FileStatus
from yarrow.runtime.fs.local import LocalFileSystem
from yarrow.runtime.graph.job_graph import ShippedFile, UserCode
from yarrow.runtime.ha.records import LeaderRecords, Put


class Storage:
    """The folder of graphs, which can be away: what is below a plain file can neither be read nor removed."""

    def __init__(self, directory: Path) -> None:
        self.graphs = directory / "ha" / "job-graphs"
        self._aside = directory / "aside"

    def goes_away(self) -> None:
        self.graphs.rename(self._aside)
        self.graphs.touch()

    def comes_back(self) -> None:
        self.graphs.unlink()
        self._aside.rename(self.graphs)


class Hanging:
    """Storage that says nothing for a while of the folder of graphs."""

    def __init__(self, directory: Path) -> None:
        self.asked, self.answers = threading.Semaphore(0), threading.Event()
        graphs, asked, answers = str(Storage(directory).graphs), self.asked, self.answers

        class FileSystem(LocalFileSystem):
            def list(self, path: str) -> list[FileStatus]:
                if path == graphs:
                    asked.release()
                    answers.wait(120)
                return super().list(path)

        self.file_system = FileSystem


async def until_removed(cluster: Masters, records: LeaderRecords) -> None:
    """Nothing of ended jobs is recorded any more; time passes for who tries again."""

    async def removed() -> bool:
        await cluster.pass_time(1)
        return not records.children("results")

    await eventually(removed)


async def ended_without_storage(cluster: Masters, storage: Storage) -> JobID:
    await cluster.lead()
    await cluster.add(1)
    job_id = await cluster.submit(linear_job(Stage(1)))
    await cluster.until_running(job_id, 1)
    storage.goes_away()
    await cluster.dispatcher.cancel_job(job_id)
    assert (await cluster.result(job_id)).status is JobStatus.CANCELED
    return job_id


def test_the_leader_removes_it_when_storage_is_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        storage = Storage(tmp_path)
        async with masters(tmp_path) as cluster:
            job_id = await ended_without_storage(cluster, storage)
            records = cluster.election.records(1)

            async def tried_again() -> bool:
                await cluster.pass_time(1)
                return "(4 attempts so far)" in caplog.text

            await eventually(tried_again)
            assert records.children("results") == (job_id,), "the next leader would find what is left"
            assert (await cluster.dispatcher.request_job_status(job_id)) is JobStatus.CANCELED
            storage.comes_back()
            assert [*storage.graphs.iterdir()]
            await until_removed(cluster, records)
            assert not [*storage.graphs.iterdir()] and not records.children("jobs")
        assert "was not removed" not in caplog.text

    run(body())


def test_storage_that_hangs_leaves_threads_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hanging = Hanging(tmp_path)

    async def body() -> None:
        storage = Storage(tmp_path)
        async with masters(tmp_path) as cluster:
            await cluster.lead()
            jobs = 6
            await cluster.add(jobs)
            ids = [await cluster.submit(linear_job(Stage(1), job_id=number + 1)) for number in range(jobs)]
            for job_id in ids:
                await cluster.until_running(job_id, 1)
            storage.goes_away()
            for job_id in ids:
                await cluster.dispatcher.cancel_job(job_id)
            await eventually(lambda: caplog.text.count("is not removed yet") == jobs)
            storage.comes_back()
            monkeypatch.setattr(local, "LocalFileSystem", hanging.file_system)
            try:
                await cluster.pass_time(1)
                await eventually(lambda: hanging.asked.acquire(blocking=False))
                await cluster.pass_time(20)
                # This needs a thread, and has one.
                with pytest.raises(JobNotFoundError):
                    await cluster.dispatcher.request_job_status(JobID("f" * 32))
                assert not hanging.asked.acquire(blocking=False), "several are asked for at once"
            finally:
                hanging.answers.set()
            await until_removed(cluster, cluster.election.records(1))

    run(body())


def test_a_removal_that_the_end_overtakes_is_not_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It has not failed: the next leader finds what there is of it."""
    hanging = Hanging(tmp_path)

    async def body() -> None:
        async with masters(tmp_path) as cluster:
            await cluster.lead()
            await cluster.add(1)
            job_id = await cluster.submit(linear_job(Stage(1)))
            await cluster.until_running(job_id, 1)
            monkeypatch.setattr(local, "LocalFileSystem", hanging.file_system)
            try:
                await cluster.dispatcher.cancel_job(job_id)
                await eventually(lambda: hanging.asked.acquire(blocking=False))
                await cluster.follow()
            finally:
                hanging.answers.set()
            await eventually(lambda: not any("clean up" in task.get_name() for task in asyncio.all_tasks()))
        assert "was not removed" not in caplog.text

    run(body())


def test_what_is_left_at_the_end_is_named_and_removed_by_the_next_leader(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        storage = Storage(tmp_path)
        async with masters(tmp_path) as cluster:
            job_id = await ended_without_storage(cluster, storage)
            await eventually(lambda: "is not removed yet" in caplog.text)
            await cluster.follow()
            await eventually(lambda: f"was not removed: {storage.graphs}/{job_id}-*" in caplog.text)
            storage.comes_back()
            await cluster.lead()
            records = cluster.election.records(2)
            await eventually(lambda: not records.children("results"))
            assert not [*storage.graphs.iterdir()]

    run(body())


def test_what_a_former_master_left_is_tried_again_too(tmp_path: Path) -> None:
    async def body() -> None:
        storage = Storage(tmp_path)
        async with masters(tmp_path) as cluster:
            job_id = (await recorded_end_without_clean_up(cluster)).job_id
            storage.goes_away()
            await cluster.lead()
            assert (await cluster.result(job_id)).status is JobStatus.FINISHED
            records = cluster.election.records(2)
            await cluster.pass_time(20)
            assert records.children("results") == (job_id,)
            storage.comes_back()
            await until_removed(cluster, records)
            assert not [*storage.graphs.iterdir()]

    run(body())


def test_files_that_a_job_shipped_go_when_it_is_known_that_no_other_needs_them(tmp_path: Path) -> None:
    async def body() -> None:
        async with masters(tmp_path) as cluster:
            await cluster.lead()
            await cluster.add(2)
            broken = await cluster.submit(linear_job(Stage(1), job_id=1))
            key = await cluster.plane.store_blob(b"a file of the user")
            code = UserCode(files=(ShippedFile(name="a.txt", kind="cached_file", blob_key=key),))
            job_id = await cluster.submit(structs.replace(linear_job(Stage(1), job_id=2), user_code=code))
            cluster.election.records(1).write(Put(f"jobs/{broken}", b"\xc1"))
            await cluster.follow()
            await cluster.lead()
            await cluster.until_status(broken, JobStatus.FAILED)
            await cluster.until_status(job_id, JobStatus.RUNNING)
            await cluster.dispatcher.cancel_job(job_id)
            assert (await cluster.result(job_id)).status is JobStatus.CANCELED
            records = cluster.election.records(2)
            await eventually(lambda: records.children("jobs") == (broken,))
            await cluster.pass_time(20)
            blob = tmp_path / "ha" / "blobs" / key
            assert blob.exists() and records.children("results") == (job_id,)
            # The user gives the job up that nobody can read.
            await cluster.dispatcher.cancel_job(broken)
            await until_removed(cluster, records)
            assert not blob.exists()

    run(body())
