"""Bounded jobs on fake SparkDrivers: finish, fail, cancel, restart, collect, print; each end ends the driver."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from tests.cluster.control.control_cluster import DEADLINE, ControlCluster, control_cluster, eventually
from tests.support.fake_spark_driver import FakeSparkDriver, FakeSparkDrivers
from tests.support.job_graphs import Stage, linear_job
from tests.unit.runtime.rpc.loops import run, settled
from yarrow.am.dispatcher.job_graph_store import JobGraphStore
from yarrow.am.execution.errors import SparkDriverStartError
from yarrow.am.jobmaster.scheduling.restart_strategies import FixedDelayBackoff, FixedDelaySettings
from yarrow.am.jobmaster.scheduling.settings import JobMasterSettings
from yarrow.am.resourcemanager.spark_drivers import OnDriverDelayed, OnDriverEnded, SparkDrivers
from yarrow.am.rest.views.jobs import job_details
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.errors import CheckpointFailedError, JobAlreadyEndedError, YarrowError
from yarrow.runtime.common.ids import JobID, JobMasterID, ResourceID
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.graph.connector_spec import CollectOperator
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import ExecutionState, JobType
from yarrow.runtime.rpc.batch_gateways import BatchRunError, NoSparkPagesError
from yarrow.runtime.rpc.messages import (
    BatchCommittables,
    BatchOutput,
    BatchSubtaskResult,
    CollectRows,
    FailureCause,
    LargeKeyGroup,
    RegistrationRejection,
    SavepointRequest,
    SparkDriverRequest,
    SparkPageRequest,
    StoredCommittables,
)

RESTARTING = JobMasterSettings(restart_backoff=lambda: FixedDelayBackoff(FixedDelaySettings(2, 1.0)))
#: As a driver reports an error of a user's function.
BROKEN = FailureCause(
    is_final=True,
    exception_name="builtins.ValueError",
    message="no number",
    stacktrace="ValueError: no number",
    operator_name="operator 1",
)


def bounded_job(*stages: Stage) -> JobGraph:
    graph = linear_job(*(stages or (Stage(2), Stage(3))))
    return msgspec.structs.replace(graph, job_type=JobType.BATCH)


async def started(cluster: ControlCluster, graph: JobGraph | None = None) -> tuple[JobID, FakeSparkDriver]:
    """A job whose driver has taken it."""
    job_id = await cluster.submit(graph or bounded_job())
    driver = await cluster.next_spark_driver()
    await driver.begin()
    await eventually(lambda: bool(driver.submissions))
    return job_id, driver


def prepared(driver: FakeSparkDriver, run: int, subtask: int = 0) -> BatchCommittables:
    """What a subtask of the last vertex has prepared in that run."""
    vertex = driver.graph.vertices[-1]
    return BatchCommittables(
        job_id=driver.request.job_id,
        run=run,
        vertex_id=vertex.id,
        operator_id=vertex.operators[0].id,
        subtask=subtask,
        attempt=0,
        sequence=0,
        payload=b"%d of run %d" % (subtask, run),
    )


async def states(cluster: ControlCluster, job_id: JobID) -> set[ExecutionState]:
    details = await cluster.dispatcher.request_job_details(job_id)
    return {subtask.state for vertex in details.vertices for subtask in vertex.subtasks}


def test_a_bounded_job_runs_in_its_driver_and_takes_no_slot(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            job_id = await cluster.submit(bounded_job())
            driver = await cluster.next_spark_driver()
            assert await states(cluster, job_id) == {ExecutionState.SCHEDULED}
            details = await cluster.dispatcher.request_job_details(job_id)
            assert details.waiting_for == "lacks a SparkDriver"
            await driver.begin()
            await eventually(lambda: bool(driver.submissions))
            assert driver.graph == bounded_job()
            await driver.report(ExecutionState.RUNNING)
            assert await states(cluster, job_id) == {ExecutionState.RUNNING}
            vertex = driver.graph.vertices[1].id
            done = BatchSubtaskResult(
                vertex_id=vertex,
                subtask=2,
                attempt=0,
                accumulators={"rows": 7},
                metrics={"numRecordsIn": 7.0},
            )
            await driver.report(ExecutionState.FINISHED)
            await driver.master.report_subtasks(job_id, 0, (done, done))
            await driver.finish()
            result = await cluster.result(job_id)
            assert (result.status, result.accumulators) == (JobStatus.FINISHED, {"rows": 7})
            assert await states(cluster, job_id) == {ExecutionState.FINISHED}
            details = await cluster.dispatcher.request_job_details(job_id)
            assert details.vertices[1].subtasks[2].metrics == {
                "numRecordsIn": 7.0,
                "numRecordsOut": 1.0,
            }
            assert cluster.spark_drivers.ended == [driver.driver_id]
            assert cluster.driver.requests == 0, "no TaskExecutor was asked for"

    run(body())


def test_a_large_key_group_is_named_while_the_job_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            job_id, driver = await started(cluster)
            (_, stage) = driver.stages(ExecutionState.RUNNING)
            group = LargeKeyGroup(
                vertex_id=stage.vertex_id,
                vertex_name="vertex 1",
                subtask=2,
                key_group=77,
                key="'DE'",
                records=2_000_000,
                mean_records=310,
            )
            large = msgspec.structs.replace(stage, large_key_group=group)
            for _ in range(3):
                await driver.master.report_stages(job_id, 0, (large,))
            details = await cluster.dispatcher.request_job_details(job_id)
            assert details.large_key_groups == (group,)
            body = job_details(details, 0, "app").model_dump(by_alias=True)["large-key-groups"]
            assert body == [
                {
                    "vertex-id": stage.vertex_id,
                    "vertex-name": "vertex 1",
                    "subtask": 2,
                    "key-group": 77,
                    "key": "'DE'",
                    "records": 2_000_000,
                    "mean-records": 310,
                }
            ]
            await driver.master.report_stages(job_id, 0, (stage,))
            details = await cluster.dispatcher.request_job_details(job_id)
            assert details.large_key_groups == ()

    run(body())
    told = [record.getMessage() for record in caplog.records if "key group" in record.getMessage()]
    assert len(told) == 1
    assert "key group 77 of 'vertex 1' has 2000000 records, most of them of the key 'DE'" in told[0]
    assert "the others have 310 on average" in told[0]


def test_a_users_error_fails_the_job_at_the_first(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, jobs=RESTARTING) as cluster:
            job_id, driver = await started(cluster)
            await driver.report(ExecutionState.RUNNING)
            await driver.master.fail_batch(job_id, 0, BROKEN)
            result = await cluster.result(job_id)
            assert (result.status, result.cause) == (JobStatus.FAILED, BROKEN)
            details = await cluster.dispatcher.request_job_details(job_id)
            assert details.exceptions[0].task_name == "vertex 1 (1/3)"
            assert cluster.spark_drivers.ended == [driver.driver_id]

    run(body())


@pytest.mark.parametrize("phase", ["asked for", "registered", "running"])
def test_a_cancelled_job_ends_its_driver(tmp_path: Path, phase: str) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            job_id = await cluster.submit(bounded_job())
            driver = await cluster.next_spark_driver()
            if phase == "registered":
                await driver.register()
            elif phase == "running":
                await driver.begin()
                await eventually(lambda: bool(driver.submissions))
            await cluster.dispatcher.cancel_job(job_id)
            assert (await cluster.result(job_id)).status is JobStatus.CANCELED
            assert await states(cluster, job_id) == {ExecutionState.CANCELED}
            assert cluster.spark_drivers.ended == [driver.driver_id]
            assert driver.cancelled == ([0] if phase == "running" else []), "it ends what sinks have begun"

    run(body())


def test_a_lost_driver_is_replaced_as_the_restart_strategy_says(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, jobs=RESTARTING) as cluster:
            job_id, first = await started(cluster)
            await first.report(ExecutionState.RUNNING)
            await cluster.spark_drivers.crash(first)
            await cluster.until_status(job_id, JobStatus.RESTARTING)
            await cluster.pass_time(2)
            second = await cluster.next_spark_driver(2)
            await second.begin()
            await eventually(lambda: bool(second.submissions))
            assert second.run == 1
            await second.finish()
            result = await cluster.result(job_id)
            assert result.status is JobStatus.FINISHED
            details = await cluster.dispatcher.request_job_details(job_id)
            assert details.restarts == 1
            assert "SIGKILL" in details.exceptions[0].cause.message
            assert {subtask.attempt_number for subtask in details.vertices[0].subtasks} == {1}

    run(body())


def test_drivers_that_are_lost_too_often_fail_the_job(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, jobs=RESTARTING) as cluster:
            job_id = await cluster.submit(bounded_job())
            for number in (1, 2, 3):
                driver = await cluster.next_spark_driver(number)
                await cluster.spark_drivers.crash(driver)
                if number < 3:
                    await cluster.until_status(job_id, JobStatus.RESTARTING)
                    await cluster.pass_time(2)
            result = await cluster.result(job_id)
            assert result.status is JobStatus.FAILED
            assert result.cause is not None and "SIGKILL" in result.cause.message

    run(body())


def test_a_driver_that_cannot_start_is_told_with_its_cause(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            cluster.spark_drivers.failures = ["no memory for a SparkDriver"]
            result = await cluster.result(await cluster.submit(bounded_job()))
            assert result.status is JobStatus.FAILED
            assert result.cause is not None and "no memory for a SparkDriver" in result.cause.message

    run(body())


def test_a_cluster_without_spark_drivers_fails_the_job_at_once(tmp_path: Path) -> None:
    async def body() -> None:
        cluster = ControlCluster(tmp_path, RESTARTING)
        cluster.spark_drivers.refusal = "this cluster starts none: run the job elsewhere"
        await cluster.plane.start()
        result = await cluster.result(await cluster.submit(bounded_job()))
        assert result.status is JobStatus.FAILED
        assert result.cause is not None and "starts none: run the job elsewhere" in result.cause.message
        await cluster.plane.stop()

    run(body())


def test_a_driver_whose_session_does_not_start_is_given_up(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            job_id = await cluster.submit(bounded_job())
            driver = await cluster.next_spark_driver()
            await driver.register()
            # The slot has come, and Spark has a time of its own to start in.
            await cluster.pass_time(310)
            assert (await cluster.dispatcher.request_job_status(job_id)) is JobStatus.RUNNING
            await cluster.pass_time(120)
            result = await cluster.result(job_id)
            assert result.status is JobStatus.FAILED
            assert result.cause is not None and "spark.start-timeout and slot.request" in result.cause.message
            assert cluster.spark_drivers.ended == [driver.driver_id]

    run(body())


def test_a_silent_driver_is_lost(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            job_id, driver = await started(cluster)
            await cluster.pass_time(100)
            assert (await cluster.dispatcher.request_job_status(job_id)) is JobStatus.RUNNING
            driver.answers_heartbeats = False
            await cluster.pass_time(100)
            result = await cluster.result(job_id)
            assert result.cause is not None and "heartbeat.timeout" in result.cause.message
            assert cluster.spark_drivers.ended == [driver.driver_id]

    run(body())


def test_a_driver_that_nobody_asked_for_is_refused_and_a_former_one_changes_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, jobs=RESTARTING) as cluster:
            job_id, first = await started(cluster)
            stranger = FakeSparkDriver(ResourceID("stranger"), first.request, cluster.service())
            await stranger.start()
            assert isinstance(await stranger.register(), RegistrationRejection)
            await stranger.stop()
            await cluster.spark_drivers.crash(first)
            await cluster.until_status(job_id, JobStatus.RESTARTING)
            await cluster.pass_time(2)
            second = await cluster.next_spark_driver(2)
            # Late messages of the first one.
            await first.master.fail_batch(job_id, 0, BROKEN)
            await first.finish()
            assert second.submissions == []
            assert (await cluster.dispatcher.request_job_status(job_id)) is JobStatus.RUNNING

    run(body())


def test_rows_and_text_of_a_repeated_run_come_once(tmp_path: Path) -> None:
    async def body() -> None:
        graph = bounded_job(Stage(1), Stage(1, operator=CollectOperator(collect_id="rows")))
        async with control_cluster(tmp_path, jobs=RESTARTING) as cluster:
            job_id, first = await started(cluster, graph)

            async def send(driver: FakeSparkDriver, payloads: list[bytes], text: str) -> None:
                sent = 0
                for sequence, payload in enumerate(payloads):
                    last = payload == b"c"
                    rows = CollectRows(
                        job_id=job_id,
                        collect_id="rows",
                        subtask=0,
                        attempt_number=driver.run,
                        sequence=sequence,
                        payload=payload,
                        first=sequence,
                        row_count=1,
                        last=last,
                    )
                    await driver.master.push_collected(rows)
                for line in text.splitlines(keepends=True):
                    output = BatchOutput(
                        job_id=job_id,
                        run=driver.run,
                        vertex_id=graph.vertices[1].id,
                        subtask=0,
                        first=sent,
                        text=line,
                    )
                    await driver.master.push_output(output)
                    sent += len(line)

            await send(first, [b"a", b"b"], "one\ntw")
            await cluster.spark_drivers.crash(first)
            await cluster.until_status(job_id, JobStatus.RESTARTING)
            await cluster.pass_time(2)
            second = await cluster.next_spark_driver(2)
            await second.begin()
            await eventually(lambda: bool(second.submissions))
            await send(second, [b"a", b"b", b"c"], "one\ntwo\nthree\n")
            await second.finish()
            assert (await cluster.result(job_id)).status is JobStatus.FINISHED
            found = await cluster.dispatcher.fetch_collected(job_id, "rows", 100)
            assert [rows.payload for rows in found] == [b"a", b"b", b"c"]
            assert "".join(cluster.printed) == "one\ntwo\nthree\n"

    run(body())


def test_sparks_pages_come_from_the_present_driver_until_the_job_ends(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            ask = cluster.dispatcher.request_spark_page
            page = SparkPageRequest(path="/jobs/", query="id=1", base="/jobs/x/spark")
            job_id = await cluster.submit(bounded_job())
            driver = await cluster.next_spark_driver()
            with pytest.raises(NoSparkPagesError, match=r"Spark does not run for job .* now"):
                await ask(job_id, page)
            assert not (await cluster.dispatcher.request_job_details(job_id)).has_spark_pages
            await driver.begin()
            await eventually(lambda: bool(driver.submissions))
            assert (await cluster.dispatcher.request_job_details(job_id)).has_spark_pages
            assert (
                await ask(job_id, page)
            ).body.decode() == f"{driver.driver_id}: /jobs/?id=1 below /jobs/x/spark"
            await driver.report(ExecutionState.FINISHED)
            await driver.finish()
            assert (await cluster.result(job_id)).status is JobStatus.FINISHED
            assert not (await cluster.dispatcher.request_job_details(job_id)).has_spark_pages
            with pytest.raises(JobAlreadyEndedError, match="has no pages of Spark's any more"):
                await ask(job_id, page)

    run(body())


def test_what_a_bounded_job_does_not_do_is_refused_by_name(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            job_id, _ = await started(cluster)
            with pytest.raises(CheckpointFailedError, match="runs in BATCH mode, which takes no checkpoints"):
                await cluster.dispatcher.trigger_checkpoint(job_id)
            with pytest.raises(CheckpointFailedError, match="run it in STREAMING mode"):
                await cluster.dispatcher.trigger_savepoint(
                    job_id, SavepointRequest(kind=SnapshotKind.SAVEPOINT, target_directory="/x")
                )
            decisions = await cluster.dispatcher.request_scheduler_decisions(job_id, 10)
            assert b"BatchJobStarted" in decisions[0]

    run(body())


def test_results_that_are_being_committed_are_committed_by_the_next_driver(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, jobs=RESTARTING) as cluster:
            graph = msgspec.structs.replace(bounded_job(), configuration={"spark.master": "yarn"})
            job_id, first = await started(cluster, graph)
            assert await first.configuration() == first.request.configuration
            assert first.request.configuration["spark.master"] == "yarn"
            sent = [prepared(first, 0, subtask) for subtask in range(3)]
            for message in sent:
                await first.master.store_committables(message)
            await first.master.begin_commit(job_id, 0)
            await first.master.check_run(job_id, 0)
            await cluster.spark_drivers.crash(first)
            await cluster.until_status(job_id, JobStatus.RESTARTING)
            with pytest.raises(BatchRunError):
                await first.master.check_run(job_id, 0)
            # Too late: parts of the output may be visible.
            await cluster.dispatcher.cancel_job(job_id)
            await cluster.pass_time(2)
            second = await cluster.next_spark_driver(2)
            await second.begin()
            await eventually(lambda: bool(second.submissions))
            key = second.submissions[0].committables_blob_key
            part = await second.master.read_blob(key, 0, 1 << 20)
            assert msgspec.msgpack.decode(part.data, type=StoredCommittables).messages == tuple(sent)
            # Nothing executes: no commit waits for room for executors.
            assert await second.configuration() == second.request.configuration
            assert second.request.configuration["spark.master"] == "local[1]"
            await second.finish()
            assert (await cluster.result(job_id)).status is JobStatus.FINISHED
            await eventually(lambda: not (tmp_path / "blobs" / key).exists())

    run(body())


def test_a_commit_goes_on_whatever_the_restart_strategy_says(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            job_id, driver = await started(cluster)
            message = prepared(driver, 0)
            await driver.master.store_committables(message)
            await driver.master.begin_commit(job_id, 0)
            for number in (2, 3):
                await cluster.spark_drivers.crash(driver)
                await cluster.until_status(job_id, JobStatus.RESTARTING)
                await cluster.pass_time(5)
                driver = await cluster.next_spark_driver(number)
                await driver.begin()
                await eventually(lambda: bool(driver.submissions))  # noqa: B023
                assert driver.submissions[0].committables_blob_key
            await driver.finish()
            assert (await cluster.result(job_id)).status is JobStatus.FINISHED

    run(body())


@pytest.mark.parametrize("stored", ["before the next run begins", "while the next run executes"])
def test_a_driver_that_is_lost_while_its_commit_is_stored_is_followed_by_a_run_that_only_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: str
) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, jobs=RESTARTING) as cluster:
            job_id, first = await started(cluster)
            gate, inside = threading.Event(), threading.Event()
            real = JobGraphStore.put_commits

            def put(store: JobGraphStore, job: JobID, commits: bytes) -> None:
                inside.set()
                assert gate.wait(DEADLINE)
                real(store, job, commits)

            monkeypatch.setattr(JobGraphStore, "put_commits", put)
            await first.master.store_committables(prepared(first, 0))
            begins = asyncio.ensure_future(first.master.begin_commit(job_id, 0))
            await eventually(inside.is_set)
            # As the server does when the connection of a driver breaks.
            begins.cancel()
            await asyncio.gather(begins, return_exceptions=True)
            await cluster.spark_drivers.crash(first)
            await cluster.until_status(job_id, JobStatus.RESTARTING)
            last = 2
            if stored.startswith("while"):
                await cluster.pass_time(2)
                second = await cluster.next_spark_driver(2)
                await second.begin()
                await eventually(lambda: bool(second.submissions))
                await second.master.store_committables(prepared(second, 1))
                begins = asyncio.ensure_future(second.master.begin_commit(job_id, 1))
                await settled()
                gate.set()
                with pytest.raises(BatchRunError, match="nothing of run 1"):
                    await begins
                await cluster.spark_drivers.crash(second)
                await cluster.until_status(job_id, JobStatus.RESTARTING)
                last = 3
            else:
                gate.set()
                await eventually(lambda: commit_is_known(cluster, job_id))
            await cluster.pass_time(2)
            driver = await cluster.next_spark_driver(last)
            await driver.begin()
            await eventually(lambda: bool(driver.submissions))
            part = await driver.master.read_blob(driver.submissions[0].committables_blob_key, 0, 1 << 20)
            kept = msgspec.msgpack.decode(part.data, type=StoredCommittables)
            assert kept.messages == (prepared(driver, 0),)
            # Too late: parts of the output may be visible.
            await cluster.dispatcher.cancel_job(job_id)
            await settled()
            assert driver.cancelled == []
            await driver.finish()
            assert (await cluster.result(job_id)).status is JobStatus.FINISHED

    run(body())


async def commit_is_known(cluster: ControlCluster, job_id: JobID) -> bool:
    """The master has decided that its results are committed."""
    decisions = await cluster.dispatcher.request_scheduler_decisions(job_id, 5)
    return any(b"CommitBegun" in decision for decision in decisions)


def test_what_a_lost_run_has_prepared_is_not_committed(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, jobs=RESTARTING) as cluster:
            job_id, first = await started(cluster)
            message = prepared(first, 0)
            await first.master.store_committables(message)
            await cluster.spark_drivers.crash(first)
            await cluster.until_status(job_id, JobStatus.RESTARTING)
            await cluster.pass_time(2)
            second = await cluster.next_spark_driver(2)
            await second.begin()
            await eventually(lambda: bool(second.submissions))
            assert second.submissions[0].committables_blob_key == ""
            again = prepared(second, 1)
            await second.master.store_committables(message)
            await second.master.store_committables(again)
            with pytest.raises(BatchRunError, match=r"run 0 .* is over"):
                await second.master.begin_commit(job_id, 0)
            await second.master.begin_commit(job_id, 1)
            (blob,) = (tmp_path / "blobs").iterdir()
            assert msgspec.msgpack.decode(blob.read_bytes(), type=StoredCommittables).messages == (again,)
            await second.finish()
            assert (await cluster.result(job_id)).status is JobStatus.FINISHED

    run(body())


@pytest.mark.parametrize("end", ["cancelled", "leadership lost"])
def test_a_job_that_ends_while_its_master_starts_says_so_and_asks_for_no_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            gate, inside = threading.Event(), threading.Event()
            real = JobGraphStore.commits

            def commits(records: JobGraphStore, job: JobID) -> bytes:
                inside.set()
                assert gate.wait(DEADLINE)
                return real(records, job)

            monkeypatch.setattr(JobGraphStore, "commits", commits)
            graph = bounded_job()
            submits = asyncio.ensure_future(cluster.submit(graph))
            await eventually(inside.is_set)
            if end == "cancelled":
                await cluster.dispatcher.cancel_job(graph.job_id)
                await settled()
            else:
                cluster.plane.dispatcher._jobs.running[graph.job_id].suspend("another master leads")
            gate.set()
            with pytest.raises(YarrowError, match="was stopped before it had started"):
                await submits
            if end == "cancelled":
                assert (await cluster.result(graph.job_id)).status is JobStatus.CANCELED
            assert cluster.spark_drivers.drivers == []

    run(body())


def test_a_leadership_that_ends_ends_its_drivers(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            _, driver = await started(cluster)
        assert cluster.spark_drivers.ended == [driver.driver_id]

    run(body())


def test_a_driver_that_starts_while_its_resource_manager_ends_is_ended(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            started_late = asyncio.Event()
            real = cluster.spark_drivers.start_spark_driver

            async def start(
                request: SparkDriverRequest, on_ended: OnDriverEnded, on_delayed: OnDriverDelayed
            ) -> None:
                await started_late.wait()
                await real(request, on_ended, on_delayed)

            launcher = SlowLauncher(start, cluster.spark_drivers)
            drivers = SparkDrivers(launcher, cluster.service(), cluster.plane.resource_manager.spawn)
            request = SparkDriverRequest(
                driver_id=ResourceID("driver-0"),
                job_id=JobID("1"),
                job_master_id=JobMasterID("2"),
                job_master_address="inproc://nobody",
                configuration={},
                slots=1,
            )
            asking = asyncio.ensure_future(drivers.request(request))
            await settled()
            await drivers.close()
            started_late.set()
            with pytest.raises(SparkDriverStartError, match="leads no more"):
                await asking
            assert cluster.spark_drivers.ended == ["driver-0"]

    run(body())


class SlowLauncher:
    """Starts drivers when the test lets it."""

    def __init__(
        self,
        start: Callable[[SparkDriverRequest, OnDriverEnded, OnDriverDelayed], Awaitable[None]],
        launcher: FakeSparkDrivers,
    ) -> None:
        self._start = start
        self._launcher = launcher

    async def start_spark_driver(
        self, request: SparkDriverRequest, on_ended: OnDriverEnded, on_delayed: OnDriverDelayed
    ) -> None:
        await self._start(request, on_ended, on_delayed)

    async def end_spark_driver(self, driver_id: ResourceID) -> None:
        await self._launcher.end_spark_driver(driver_id)
