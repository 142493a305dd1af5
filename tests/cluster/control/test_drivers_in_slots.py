"""SparkDrivers in slots of TaskExecutors: slots counted, messages lost, TaskExecutors and masters gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from tests.cluster.control.control_cluster import ControlCluster, control_cluster, eventually
from tests.cluster.control.test_batch_jobs import BROKEN, RESTARTING, bounded_job, prepared
from tests.cluster.control.test_leaderships import masters
from tests.support.fake_spark_driver import FakeSparkDriver
from tests.support.job_graphs import Stage, linear_job
from tests.unit.runtime.rpc.loops import run, settled
from yarrow.am.dispatcher.job_graph_store import JobGraphStore
from yarrow.am.execution.errors import NoResourceAvailableError
from yarrow.am.jobmaster.scheduling.settings import JobMasterSettings
from yarrow.am.resourcemanager.slot_spark_drivers import DriversInSlots
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.ha.records import RecordsError, UnknownWriteError
from yarrow.runtime.rpc.batch_gateways import BatchRunError
from yarrow.runtime.rpc.errors import qualified_name
from yarrow.runtime.rpc.messages import RegistrationRejection, StoredCommittables


def drivers(cluster: ControlCluster) -> list[FakeSparkDriver]:
    """Those that run, on all TaskExecutors."""
    return [driver for executor in cluster.executors for driver in executor.spark_drivers.values()]


def ever_started(cluster: ControlCluster) -> int:
    return sum(len(executor.started_drivers) for executor in cluster.executors)


async def next_driver(cluster: ControlCluster, *former: FakeSparkDriver) -> FakeSparkDriver:
    """The one driver that runs; heartbeats pass until it does."""

    def found() -> list[FakeSparkDriver]:
        return [driver for driver in drivers(cluster) if driver not in former]

    for seconds in range(120):
        await settled()
        if found():
            break
        cluster.timers.advance(1)
        # What is stored goes through threads, which need their time: more of it on a busy machine.
        await asyncio.sleep(0.01 if seconds < 60 else 0.25)
    await eventually(lambda: bool(found()))
    assert len(drivers(cluster)) == 1, "a job has one driver"
    return found()[0]


async def submitted_driver(cluster: ControlCluster) -> tuple[JobID, FakeSparkDriver]:
    """A bounded job whose driver has got its plan."""
    job_id = await cluster.submit(bounded_job())
    driver = await next_driver(cluster)
    await driver.begin()
    await eventually(lambda: bool(driver.submissions))
    return job_id, driver


async def waiting_for(cluster: ControlCluster, job_id: JobID) -> str:
    return (await cluster.dispatcher.request_job_details(job_id)).waiting_for


async def finish(cluster: ControlCluster, job_id: JobID, driver: FakeSparkDriver) -> None:
    await driver.begin()
    await eventually(lambda: bool(driver.submissions))
    await driver.finish()
    assert (await cluster.result(job_id)).status is JobStatus.FINISHED


def free_slots(cluster: ControlCluster) -> int:
    return cluster.plane.resource_manager.slot_manager.slots_free


def test_a_driver_has_a_slot_as_long_as_its_job_runs(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 2, drivers_in_slots=True) as cluster:
            job_id = await cluster.submit(bounded_job())
            driver = await next_driver(cluster)
            assert free_slots(cluster) == 1
            # The other slot serves a stream meanwhile.
            stream = await cluster.submit(linear_job(Stage(1), job_id=2))
            await cluster.until_running(stream, 1)
            await driver.begin()
            details = await cluster.dispatcher.request_job_details(job_id)
            assert (details.spark_driver, details.spark_driver_task_executor) == (driver.driver_id, "te-1")
            assert details.spark_master == "local[2]"
            await eventually(lambda: bool(driver.submissions))
            await driver.finish()
            assert (await cluster.result(job_id)).status is JobStatus.FINISHED
            assert drivers(cluster) == []
            await cluster.until_free(1)
            assert cluster.slots_agree()

    run(body())


def test_a_job_waits_for_a_slot_and_says_so(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1, drivers_in_slots=True) as cluster:
            stream = await cluster.submit(linear_job(Stage(1), job_id=2))
            await cluster.until_running(stream, 1)
            job_id = await cluster.submit(bounded_job())

            async def says_so() -> bool:
                text = await waiting_for(cluster, job_id)
                return text.startswith("lacks room for its SparkDriver: needs 1 slots, has 0;") and (
                    "start more with `yarrow taskmanager`" in text
                )

            await eventually(says_so)
            assert any(job.waiting_for for job in await cluster.dispatcher.list_jobs())
            await cluster.dispatcher.cancel_job(stream)
            await finish(cluster, job_id, await next_driver(cluster))

    run(body())


def test_a_job_without_a_slot_fails_by_the_slot_timeout(tmp_path: Path) -> None:
    async def body() -> None:
        settings = JobMasterSettings(slot_request_timeout=60)
        async with control_cluster(tmp_path, jobs=settings, drivers_in_slots=True) as cluster:
            job_id = await cluster.submit(bounded_job())
            await cluster.pass_time(70)
            result = await cluster.result(job_id)
            assert result.status is JobStatus.FAILED
            assert result.cause is not None
            assert result.cause.exception_name == qualified_name(NoResourceAvailableError)
            assert "no Spark session within 60 s (slot.request.timeout)" in result.cause.message
            assert "0 TaskExecutors with 0 slots are registered" in result.cause.message
            await cluster.add(1)
            await cluster.until_free(1)
            assert ever_started(cluster) == 0, "nobody needs a driver any more"

    run(body())


def test_a_job_that_is_cancelled_while_it_waits_starts_no_driver(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, drivers_in_slots=True) as cluster:
            job_id = await cluster.submit(bounded_job())
            await settled()
            await cluster.dispatcher.cancel_job(job_id)
            assert (await cluster.result(job_id)).status is JobStatus.CANCELED
            await cluster.add(1)
            await cluster.until_free(1)
            await cluster.pass_time(20)
            assert ever_started(cluster) == 0

    run(body())


@pytest.mark.parametrize("lost", ["request", "reply"])
def test_a_start_that_was_lost_leads_to_one_driver(tmp_path: Path, lost: str) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1, 1, drivers_in_slots=True) as cluster:
            drop = cluster.fault.drop_requests if lost == "request" else cluster.fault.drop_replies
            drop("start_spark_driver")
            job_id = await cluster.submit(bounded_job())
            driver = await next_driver(cluster)
            assert ever_started(cluster) == 1
            await finish(cluster, job_id, driver)
            await cluster.until_free(2)
            assert cluster.slots_agree()

    run(body())


def test_no_second_driver_starts_while_a_start_is_uncertain(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1, 1, drivers_in_slots=True) as cluster:
            cluster.fault.drop_replies("start_spark_driver")
            cluster.fault.drop_requests("request_slot_report")
            job_id = await cluster.submit(bounded_job())
            await settled()
            assert (len(drivers(cluster)), ever_started(cluster)) == (1, 1)
            await finish(cluster, job_id, await next_driver(cluster))
            assert ever_started(cluster) == 1

    run(body())


@pytest.mark.parametrize("lost", ["", "notify_slot_available"])
def test_a_driver_that_dies_is_replaced_as_the_restart_strategy_says(tmp_path: Path, lost: str) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1, jobs=RESTARTING, drivers_in_slots=True) as cluster:
            job_id = await cluster.submit(bounded_job())
            first = await next_driver(cluster)
            await first.begin()
            if lost:
                cluster.fault.drop_requests(lost)
            await cluster.executors[0].end_driver(first, "killed by SIGKILL")
            second = await next_driver(cluster, first)
            assert second.driver_id != first.driver_id
            exceptions = (await cluster.dispatcher.request_job_details(job_id)).exceptions
            assert ("killed by SIGKILL" in exceptions[0].cause.message) is not bool(lost)
            await finish(cluster, job_id, second)

    run(body())


def test_without_a_restart_strategy_a_dead_driver_fails_the_job(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1, drivers_in_slots=True) as cluster:
            job_id = await cluster.submit(bounded_job())
            driver = await next_driver(cluster)
            await cluster.executors[0].end_driver(driver, "it could not be started: no such file")
            result = await cluster.result(job_id)
            assert result.status is JobStatus.FAILED
            assert result.cause is not None
            assert "could not be started: no such file" in result.cause.message
            await cluster.until_free(1)

    run(body())


@pytest.mark.parametrize("how", ["ends", "stalls"])
def test_a_driver_goes_with_its_task_executor(tmp_path: Path, how: str) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1, jobs=RESTARTING, drivers_in_slots=True) as cluster:
            job_id = await cluster.submit(bounded_job())
            first = await next_driver(cluster)
            await first.begin()
            await cluster.add(1)
            lost = cluster.executors.pop(0)
            if how == "ends":
                await cluster.plane.resource_manager_gateway().disconnect_task_executor(
                    lost.resource_id, "killed"
                )
            await lost.stop()
            if how == "ends":
                await first.stop()
            second = await next_driver(cluster, first)
            exceptions = (await cluster.dispatcher.request_job_details(job_id)).exceptions
            if how == "ends":
                assert "its TaskExecutor te-1 is gone: killed" in exceptions[0].cause.message
            else:
                assert first.is_released, "it is told, since it may live"
                await first.stop()
            await finish(cluster, job_id, second)

    run(body())


def test_a_driver_is_ended_though_the_first_message_is_lost(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1, drivers_in_slots=True) as cluster:
            job_id, driver = await submitted_driver(cluster)
            cluster.fault.drop_requests("free_slot", 2)
            await driver.master.fail_batch(job_id, 0, BROKEN)
            await settled()
            assert drivers(cluster) == [driver]
            status = await cluster.dispatcher.request_job_status(job_id)
            assert status is JobStatus.FAILING, "the job has not ended before its driver"
            await cluster.pass_time(10)
            assert (await cluster.result(job_id)).status is JobStatus.FAILED
            assert drivers(cluster) == []

    run(body())


def test_a_start_that_comes_again_or_late_starts_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1, drivers_in_slots=True) as cluster:
            gateway = cluster.plane.resource_manager_gateway()
            job_id = await cluster.submit(bounded_job())
            driver = await next_driver(cluster)
            await gateway.request_spark_driver(driver.request)
            await settled()
            assert ever_started(cluster) == 1
            # Another process of the same driver is refused: the first one serves.
            await driver.begin()
            other = FakeSparkDriver(driver.driver_id, driver.request, cluster.service(), place="elsewhere")
            await other.start()
            answer = await other.register()
            assert isinstance(answer, RegistrationRejection)
            assert "already" in answer.reason
            await other.stop()
            await finish_begun(cluster, job_id, driver)
            with pytest.raises(Exception, match="has ended"):
                await gateway.request_spark_driver(driver.request)

    run(body())


async def finish_begun(cluster: ControlCluster, job_id: JobID, driver: FakeSparkDriver) -> None:
    await eventually(lambda: bool(driver.submissions))
    await driver.finish()
    assert (await cluster.result(job_id)).status is JobStatus.FINISHED


def test_a_new_master_ends_the_former_ones_driver_before_it_starts_its_own(tmp_path: Path) -> None:
    async def body() -> None:
        async with masters(tmp_path, DriversInSlots()) as cluster:
            await cluster.lead()
            await cluster.add(2)
            job_id = await cluster.submit(bounded_job())
            first = await next_driver(cluster)
            await first.begin()
            # The TaskExecutor hears nothing of it: it keeps the driver.
            cluster.fault.drop_requests("free_slot", 3)
            await cluster.follow()
            assert drivers(cluster) == [first]
            await cluster.lead()
            await settled()
            assert drivers(cluster) == [first], "not a second one beside it"
            second = await next_driver(cluster, first)
            assert second.request.job_master_id != first.request.job_master_id
            await finish(cluster, job_id, second)

    run(body())


def test_a_new_master_commits_what_the_former_one_has_stored(tmp_path: Path) -> None:
    async def body() -> None:
        async with masters(tmp_path, DriversInSlots()) as cluster:
            await cluster.lead()
            await cluster.add(1)
            job_id, first = await submitted_driver(cluster)
            await first.master.store_committables(prepared(first, 0))
            await first.master.begin_commit(job_id, 0)
            await cluster.follow()
            await cluster.lead()
            second = await next_driver(cluster, first)
            await second.begin()
            await eventually(lambda: bool(second.submissions))
            key = second.submissions[-1].committables_blob_key
            blob = await second.master.read_blob(key, 0, 10_000)
            kept = msgspec.msgpack.decode(blob.data, type=StoredCommittables)
            assert kept.messages == (prepared(first, 0),)
            # Nobody cancels it any more.
            await cluster.dispatcher.cancel_job(job_id)
            await second.finish()
            assert (await cluster.result(job_id)).status is JobStatus.FINISHED
            records = cluster.election.records(2)
            await eventually(lambda: not any(map(records.children, ("jobs", "results", "checkpoints"))))
            assert [path for path in (tmp_path / "ha").rglob("*") if path.is_file()] == []

    run(body())


def test_a_store_that_is_away_delays_a_commit_and_costs_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1, drivers_in_slots=True) as cluster:
            job_id, driver = await submitted_driver(cluster)
            tries: list[JobID] = []
            real = JobGraphStore.put_commits

            def put(store: JobGraphStore, job_id: JobID, commits: bytes) -> None:
                tries.append(job_id)
                if len(tries) < 3:
                    raise UnknownWriteError("the connection broke")
                real(store, job_id, commits)

            monkeypatch.setattr(JobGraphStore, "put_commits", put)
            await driver.master.store_committables(prepared(driver, 0))
            await settled()
            timers = cluster.timers.pending
            begins = asyncio.ensure_future(driver.master.begin_commit(job_id, 0))
            for number in (1, 2):
                # The pause has begun, too: the thread counts before the master hears of it.
                await eventually(
                    lambda number=number: len(tries) == number and cluster.timers.pending > timers  # type: ignore[misc]
                )
                assert not begins.done()
                cluster.timers.advance(1)
            await begins
            await driver.finish()
            assert (await cluster.result(job_id)).status is JobStatus.FINISHED

    run(body())


def test_a_job_that_is_cancelled_while_its_store_is_away_commits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1, drivers_in_slots=True) as cluster:
            job_id, driver = await submitted_driver(cluster)
            tries: list[JobID] = []

            def put(store: JobGraphStore, job_id: JobID, commits: bytes) -> None:
                tries.append(job_id)
                raise RecordsError("ZooKeeper is away")

            monkeypatch.setattr(JobGraphStore, "put_commits", put)
            await settled()
            timers = cluster.timers.pending
            begins = asyncio.ensure_future(driver.master.begin_commit(job_id, 0))
            await eventually(lambda: len(tries) == 1 and cluster.timers.pending > timers)
            await cluster.dispatcher.cancel_job(job_id)
            cluster.timers.advance(1)
            with pytest.raises(BatchRunError, match="must not commit"):
                await begins
            assert (await cluster.result(job_id)).status is JobStatus.CANCELED
            assert len(tries) == 1

    run(body())
