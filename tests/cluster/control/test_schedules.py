"""Bounded jobs on schedules, on fake SparkDrivers: runs, ends, missed times, cancellation, and the next master."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.cluster.control.control_cluster import ControlCluster, control_cluster, eventually
from tests.cluster.control.test_batch_jobs import bounded_job
from tests.cluster.control.test_leaderships import Masters, masters
from tests.support.fake_spark_driver import FakeSparkDriver
from tests.support.job_graphs import Stage, linear_job
from tests.unit.runtime.rpc.loops import run, settled
from yarrow.am.dispatcher.schedule_store import ScheduleStore, StoredSchedule
from yarrow.batch import Pipeline
from yarrow.common.configuration import Configuration
from yarrow.common.job_status import JobStatus
from yarrow.common.values.schedule import Schedule
from yarrow.runtime.common.errors import DuplicateJobError, JobSubmissionError, ScheduleNotFoundError
from yarrow.runtime.common.ids import JobID, ScheduleID
from yarrow.runtime.graph.batch.due_times import with_due_time
from yarrow.runtime.graph.connector_spec import CollectOperator
from yarrow.runtime.graph.job_graph import JobGraph, ShippedFile, encode_job_graph
from yarrow.runtime.ha.records import RecordsError
from yarrow.runtime.rpc.messages import ScheduleOverview

EACH_MINUTE = Schedule.every("1 min")


async def create(
    cluster: ControlCluster, graph: JobGraph | None = None, schedule: Schedule = EACH_MINUTE
) -> ScheduleOverview:
    key = await cluster.plane.store_blob(encode_job_graph(graph or bounded_job()))
    return await cluster.dispatcher.create_schedule(key, schedule)


async def shown(cluster: ControlCluster) -> ScheduleOverview:
    """The only schedule."""
    (overview,) = await cluster.dispatcher.list_schedules()
    return overview


async def running(cluster: ControlCluster, runs: int) -> JobID:
    """The job of that run, once it is submitted."""

    async def reached() -> bool:
        overview = await shown(cluster)
        known = {job.job_id for job in await cluster.dispatcher.list_jobs()}
        return overview.runs == runs and overview.running is not None and overview.running.job_id in known

    await eventually(reached)
    overview = await shown(cluster)
    assert overview.running is not None
    return overview.running.job_id


async def finish(cluster: ControlCluster, number: int) -> None:
    """Lets the SparkDriver with that number run and finish its job."""
    driver: FakeSparkDriver = await cluster.next_spark_driver(number)
    await driver.begin()
    await eventually(lambda: bool(driver.submissions))
    await driver.finish()
    await ended(cluster, number)


async def ended(cluster: ControlCluster, number: int) -> None:
    async def reached() -> bool:
        overview = await shown(cluster)
        return len(overview.ended) == number and overview.running is None

    await eventually(reached)


async def until_overdue(cluster: ControlCluster) -> None:
    """Lets a minute pass, and each task of the master see it."""
    await settled()
    await cluster.pass_time(60)


def test_runs_are_ordinary_jobs_that_begin_at_their_times(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            template = bounded_job()
            start = cluster.clock.epoch_ms()
            assert (await create(cluster)).schedule_id == ScheduleID(template.job_id)
            first = await running(cluster, 1)
            assert first != template.job_id
            driver = await cluster.next_spark_driver(1)
            await driver.begin()
            await eventually(lambda: bool(driver.submissions))
            due = EACH_MINUTE.due_parameters(start)
            assert driver.graph == msgspec.structs.replace(with_due_time(template, due), job_id=first)
            await driver.finish()
            await ended(cluster, 1)
            overview = await shown(cluster)
            assert (overview.next_time, overview.ended[0].status) == (start + 60_000, JobStatus.FINISHED)
            assert (await cluster.result(first)).status is JobStatus.FINISHED
            cluster.timers.advance(59)
            await settled()
            assert (await shown(cluster)).runs == 1
            await settled()
            cluster.timers.advance(1)
            assert await running(cluster, 2) != first
            await finish(cluster, 2)
            overview = await shown(cluster)
            assert [run.due_time for run in overview.ended] == [start + 60_000, start]
            assert (overview.missed, overview.next_time) == (0, start + 120_000)

    run(body())


def test_a_run_waits_for_the_former_one_and_makes_up_for_missed_times(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            start = cluster.clock.epoch_ms()
            await create(cluster)
            first = await running(cluster, 1)
            driver = await cluster.next_spark_driver(1)
            await driver.begin()
            await eventually(lambda: bool(driver.submissions))
            await cluster.pass_time(150)
            overview = await shown(cluster)
            assert (overview.runs, overview.next_time) == (1, start + 60_000)
            await driver.finish()
            second = await running(cluster, 2)
            overview = await shown(cluster)
            assert overview.running is not None
            assert (overview.running.due_time, overview.running.makes_up_for) == (start + 120_000, 2)
            assert (overview.missed, overview.next_time) == (2, start + 180_000)
            assert f"The run {second} makes up for them" in caplog.text
            assert first != second

    run(body())


def test_a_failed_and_a_cancelled_run_do_not_end_the_schedule(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            await create(cluster)
            await running(cluster, 1)
            driver = await cluster.next_spark_driver(1)
            await cluster.spark_drivers.crash(driver)
            await ended(cluster, 1)
            failed = (await shown(cluster)).ended[0]
            assert failed.status is JobStatus.FAILED and "killed by SIGKILL" in failed.failure
            await until_overdue(cluster)
            await cluster.dispatcher.cancel_job(await running(cluster, 2))
            await ended(cluster, 2)
            assert (await shown(cluster)).ended[0].status is JobStatus.CANCELED
            await until_overdue(cluster)
            await running(cluster, 3)

    run(body())


def test_a_cancelled_schedule_runs_no_more_and_its_run_goes_on(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            code = bounded_job().user_code
            shipped = await cluster.plane.store_blob(b"a table")
            files = (ShippedFile(name="table.csv", kind="cached_file", blob_key=shipped),)
            graph = msgspec.structs.replace(
                bounded_job(), user_code=msgspec.structs.replace(code, files=files)
            )
            schedule_id = (await create(cluster, graph)).schedule_id
            await running(cluster, 1)
            await finish(cluster, 1)
            # The next run needs the file that this one has shipped.
            await settled()
            assert cluster.plane.blobs.get(shipped) == b"a table"
            await until_overdue(cluster)
            job_id = await running(cluster, 2)
            assert await cluster.dispatcher.cancel_schedule(schedule_id) == job_id
            with pytest.raises(ScheduleNotFoundError, match=schedule_id):
                await cluster.dispatcher.request_schedule(schedule_id)
            with pytest.raises(ScheduleNotFoundError):
                await cluster.dispatcher.cancel_schedule(schedule_id)
            driver = await cluster.next_spark_driver(2)
            await driver.begin()
            await eventually(lambda: bool(driver.submissions))
            assert cluster.plane.blobs.get(shipped) == b"a table"
            await driver.finish()
            assert (await cluster.result(job_id)).status is JobStatus.FINISHED
            await eventually(lambda: not list((tmp_path / "blobs").iterdir()))
            await until_overdue(cluster)
            assert len(await cluster.dispatcher.list_jobs()) == 2

    run(body())


def test_what_cannot_run_on_a_schedule_is_refused(tmp_path: Path) -> None:
    collecting = Stage(1, operator=CollectOperator(collect_id="rows"))

    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            with pytest.raises(JobSubmissionError, match=r"no bounded job.*execution\.runtime-mode to BATCH"):
                await create(cluster, linear_job(Stage(1)))
            with pytest.raises(JobSubmissionError, match=r"execute_and_collect.*write the rows to a sink"):
                await create(cluster, bounded_job(Stage(1), collecting))
            await create(cluster)
            with pytest.raises(DuplicateJobError, match="a schedule of the id"):
                await create(cluster)
            with pytest.raises(DuplicateJobError, match="a schedule of the id"):
                await cluster.submit(bounded_job())
            assert len(await cluster.dispatcher.list_schedules()) == 1

    run(body())


def test_a_pipeline_runs_on_a_schedule(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            pipeline = Pipeline(
                "nightly",
                configuration=Configuration.from_dict(
                    {"execution.batch.pipeline-directory": str(tmp_path / "temporary")}
                ),
            )
            pipeline.stage("only", lambda spark: None)
            await create(cluster, pipeline.get_job_graph())
            job_id = await running(cluster, 1)
            driver = await cluster.next_spark_driver(1)
            assert driver.request.job_id == job_id
            details = await cluster.dispatcher.request_job_details(job_id)
            assert (details.name, [vertex.name for vertex in details.vertices]) == ("nightly", ["only"])
            await cluster.dispatcher.cancel_job(job_id)
            await ended(cluster, 1)
            await until_overdue(cluster)
            await running(cluster, 2)

    run(body())


async def led(cluster: Masters) -> None:
    await cluster.follow()
    await cluster.lead()


def test_a_schedule_outlives_its_master(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with masters(tmp_path) as cluster:
            await cluster.lead()
            start = cluster.clock.epoch_ms()
            await create(cluster)
            await running(cluster, 1)
            await finish(cluster, 1)
            await cluster.follow()
            cluster.timers.advance(130)
            (tmp_path / "blobs").rename(tmp_path / "blobs of the former master")
            await cluster.lead()
            await running(cluster, 2)
            overview = await shown(cluster)
            assert overview.running is not None
            assert (overview.running.due_time, overview.missed) == (start + 120_000, 2)
            assert "makes up for them" in caplog.text
            await finish(cluster, 2)
            await settled()
            cluster.timers.advance(50)
            await running(cluster, 3)
            assert (await shown(cluster)).missed == 2

    run(body())


def test_a_run_of_a_former_master_is_the_run_of_the_next_one(tmp_path: Path) -> None:
    async def body() -> None:
        async with masters(tmp_path) as cluster:
            await cluster.lead()
            await create(cluster)
            job_id = await running(cluster, 1)
            await led(cluster)
            assert await running(cluster, 1) == job_id
            await eventually(lambda: len(cluster.spark_drivers.drivers) >= 2)
            driver = cluster.spark_drivers.drivers[-1]
            assert driver.request.job_id == job_id
            await driver.begin()
            await eventually(lambda: bool(driver.submissions))
            await driver.finish()
            await ended(cluster, 1)
            assert (await shown(cluster)).ended[0].job_id == job_id

    run(body())


def test_a_run_that_was_recorded_and_not_submitted_is_submitted_by_the_next_master(tmp_path: Path) -> None:
    async def body() -> None:
        async with masters(tmp_path) as cluster:
            await cluster.lead()
            schedule_id = (await create(cluster)).schedule_id
            await running(cluster, 1)
            await finish(cluster, 1)
            await cluster.follow()
            # As a master leaves it that dies between both.
            store = ScheduleStore(cluster.election._records.next_leadership())
            stored = store.get(schedule_id)
            job_id = JobID("cd" * 16)
            progress = stored.progress.with_run(stored.schedule, job_id, stored.progress.next_time)
            assert progress is not None
            store.put(schedule_id, msgspec.structs.replace(stored, progress=progress))
            await cluster.lead()
            assert await running(cluster, 2) == job_id
            await finish(cluster, 2)
            assert (await shown(cluster)).ended[0].job_id == job_id

    run(body())


def test_a_run_whose_end_was_not_noted_is_not_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuses = True
    put = ScheduleStore.put

    def refusing(self: ScheduleStore, schedule_id: ScheduleID, stored: StoredSchedule) -> None:
        if refuses and stored.progress.running is None:
            raise RecordsError("ZooKeeper is away")
        put(self, schedule_id, stored)

    async def body() -> None:
        nonlocal refuses
        async with masters(tmp_path) as cluster:
            await cluster.lead()
            refuses = False
            await create(cluster)
            refuses = True
            job_id = await running(cluster, 1)
            driver = await cluster.next_spark_driver(1)
            await driver.begin()
            await eventually(lambda: bool(driver.submissions))
            await driver.finish()
            assert (await cluster.result(job_id)).status is JobStatus.FINISHED
            await settled()
            assert (await shown(cluster)).running is not None
            await cluster.follow()
            refuses = False
            await cluster.lead()
            await ended(cluster, 1)
            overview = await shown(cluster)
            assert (overview.runs, overview.ended[0].status) == (1, JobStatus.FINISHED)
            assert len(cluster.spark_drivers.drivers) == 1

    monkeypatch.setattr(ScheduleStore, "put", refusing)
    run(body())


def test_a_schedule_that_cannot_be_read_is_left_and_the_others_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        async with masters(tmp_path) as cluster:
            await cluster.lead()
            await create(cluster)
            await running(cluster, 1)
            await cluster.follow()
            store = ScheduleStore(cluster.election._records.next_leadership())
            damaged = ScheduleID("ef" * 16)
            store.put(damaged, msgspec.structs.replace(store.get(store.ids()[0]), version=99))
            await cluster.lead()
            await running(cluster, 1)
            assert f"the record of schedule {damaged} has version 99" in caplog.text
            await cluster.dispatcher.cancel_schedule(damaged)
            assert store.ids() != () and damaged not in store.ids()

    run(body())


def test_a_schedule_keeps_the_data_of_its_cluster(tmp_path: Path) -> None:
    async def body() -> None:
        async with masters(tmp_path) as cluster:
            await cluster.lead()
            overview = await create(cluster, schedule=Schedule.of_cron("0 3 * * *"))
            assert await cluster.plane.dispatcher.has_unfinished_jobs()
            await cluster.dispatcher.cancel_schedule(overview.schedule_id)
            assert not await cluster.plane.dispatcher.has_unfinished_jobs()

    run(body())
