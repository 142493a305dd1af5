"""One control plane under several leaderships: jobs suspended and taken over, cancelled meanwhile, not to be read."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from tests.cluster.control.control_cluster import ControlCluster, eventually
from tests.support.fake_spark_driver import FakeSparkDriver
from tests.support.job_graphs import Stage, linear_job
from tests.unit.runtime.rpc.loops import run, settled
from yarrow.am import control_plane as cluster_entrypoint
from yarrow.am.checkpoint.recovery_records import RecordedCheckpointRecovery
from yarrow.am.checkpoint.settings import CheckpointSettings, StorageKind
from yarrow.am.control_plane import ControlPlane, ControlPlaneServices
from yarrow.am.dispatcher.job_graph_store import JobGraphStore, StoredResult
from yarrow.am.jobmaster.scheduling.settings import JobMasterSettings
from yarrow.am.leader_gateway import NoLeaderError
from yarrow.am.resourcemanager.driver import StandaloneDriver
from yarrow.am.resourcemanager.slot_spark_drivers import DriversInSlots
from yarrow.am.resourcemanager.spark_drivers import SparkDriverLauncher
from yarrow.am.yarn.modes.per_job import submit_until_taken
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.errors import (
    DuplicateJobError,
    FileSystemError,
    JobAlreadyEndedError,
    JobNotFoundError,
    YarrowError,
)
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.graph.connector_spec import CollectOperator
from yarrow.runtime.graph.job_graph import JobGraph, encode_job_graph
from yarrow.runtime.graph.states import JobType
from yarrow.runtime.ha.none import NoHighAvailability
from yarrow.runtime.ha.records import LeadershipLostError, Put
from yarrow.runtime.ha.services import LeaderContender, epoch_of_token
from yarrow.runtime.rpc.gateways import DispatcherGateway
from yarrow.runtime.rpc.messages import BatchCommittables, FailureCause, StoredCommittables


class ByHand(NoHighAvailability):
    """An election that the test decides."""

    is_highly_available = True

    def __init__(self, storage: Path) -> None:
        super().__init__()
        self.storage_directory = str(storage)
        self._contender: LeaderContender | None = None

    async def start(self, contender: LeaderContender) -> None:
        self._contender = contender

    def grant(self) -> int:
        assert self._contender is not None
        self._leads = True
        epoch = self._records.next_leadership().epoch
        self._contender.grant_leadership(epoch)
        return epoch

    def replace(self) -> None:
        """Another master leads, of which nobody hears."""
        self._records.next_leadership()

    def revoke(self) -> None:
        assert self._contender is not None
        self._leads = False
        self._contender.revoke_leadership("the test says so")


class Masters(ControlCluster):
    """A cluster whose master is elected by hand."""

    def __init__(
        self,
        directory: Path,
        spark_drivers: SparkDriverLauncher | DriversInSlots | None = None,
        jobs: JobMasterSettings | None = None,
    ) -> None:
        self.election = ByHand(directory / "ha")
        self._launcher = spark_drivers
        super().__init__(directory, jobs=jobs)

    def new_plane(self, driver: object) -> ControlPlane:
        services = ControlPlaneServices(
            clock=self.clock,
            timers=self.timers,
            ids=self.ids,
            high_availability=self.election,
            spark_drivers=self._launcher or self.spark_drivers,
        )
        return ControlPlane(self.service(), StandaloneDriver(), self.settings, services)

    async def lead(self) -> None:
        """A new leadership has been taken up, and TaskExecutors know."""
        self.election.grant()
        await eventually(lambda: self.plane.leads)
        self.leader.announce(self.plane.resource_manager_leader)

    async def follow(self) -> None:
        self.election.revoke()
        await eventually(lambda: not self.plane.leads)


async def recorded_end_without_clean_up(
    cluster: Masters, cause: FailureCause | None = None, checkpoint: str = ""
) -> JobGraph:
    """A job that has ended under the first leadership, which ended right after it had recorded that.

    The job has FINISHED, or FAILED by the cause. It had a checkpoint of that path.
    """
    await cluster.lead()
    await cluster.add(1)
    graph = linear_job(Stage(1))
    job_id = await cluster.submit(graph)
    await cluster.until_running(job_id, 1)
    store = JobGraphStore(cluster.election.records(1), cluster.election.storage_directory, cluster.ids)
    if checkpoint:
        RecordedCheckpointRecovery(cluster.election.records(1)).of_job(job_id).add(3, checkpoint)
    status = JobStatus.FINISHED if cause is None else JobStatus.FAILED
    store.mark_ended(job_id, StoredResult(name=graph.name, status=status, end_time=7, cause=cause))
    await cluster.follow()
    return graph


@asynccontextmanager
async def masters(
    directory: Path,
    spark_drivers: SparkDriverLauncher | DriversInSlots | None = None,
    jobs: JobMasterSettings | None = None,
) -> AsyncIterator[Masters]:
    cluster = Masters(directory, spark_drivers, jobs)
    await cluster.plane.start()
    try:
        yield cluster
    finally:
        for executor in cluster.executors:
            await executor.stop()
        await cluster.plane.stop()


def test_jobs_are_suspended_and_go_on_under_the_next_leadership(tmp_path: Path) -> None:
    async def body() -> None:
        async with masters(tmp_path) as cluster:
            assert not cluster.plane.leads
            await cluster.lead()
            await cluster.add(1)
            job_id = await cluster.submit(linear_job(Stage(1)))
            await cluster.until_running(job_id, 1)
            former = cluster.plane.dispatcher
            first = former.leader_id
            result = asyncio.ensure_future(cluster.dispatcher.request_job_result(job_id))
            await cluster.follow()
            assert (await former.list_jobs())[0].status is JobStatus.SUSPENDED
            with pytest.raises(NoLeaderError):
                _ = cluster.plane.dispatcher
            await cluster.executors[0].stop()
            await cluster.lead()
            await cluster.add(1)
            await cluster.until_running(job_id, 1)
            assert epoch_of_token(cluster.plane.dispatcher.leader_id) == 2 > epoch_of_token(first)
            await cluster.dispatcher.cancel_job(job_id)
            assert (await result).status is JobStatus.CANCELED, "who waits is answered by the next leader"
            records = cluster.election.records(2)
            await eventually(lambda: not any(map(records.children, ("jobs", "results", "checkpoints"))))
            assert [path for path in (tmp_path / "ha").rglob("*") if path.is_file()] == []

    run(body())


@asynccontextmanager
async def bounded_job_of_a_former_leader(
    directory: Path,
) -> AsyncIterator[tuple[Masters, JobID, FakeSparkDriver]]:
    """A job in BATCH mode whose SparkDriver has its plan, under the first leadership."""
    async with masters(directory) as cluster:
        await cluster.lead()
        job_id = await cluster.submit(structs.replace(linear_job(Stage(1)), job_type=JobType.BATCH))
        driver = await cluster.next_spark_driver()
        await driver.begin()
        await eventually(lambda: bool(driver.submissions))
        yield cluster, job_id, driver


def prepared(driver: FakeSparkDriver, run: int) -> BatchCommittables:
    vertex = driver.graph.vertices[0]
    return BatchCommittables(
        job_id=driver.request.job_id,
        run=run,
        vertex_id=vertex.id,
        operator_id=vertex.operators[0].id,
        subtask=0,
        attempt=0,
        sequence=0,
        payload=b"prepared",
    )


def test_a_bounded_job_begins_again_under_the_next_leadership(tmp_path: Path) -> None:
    async def body() -> None:
        async with bounded_job_of_a_former_leader(tmp_path) as (cluster, job_id, first):
            await first.master.store_committables(prepared(first, 0))
            await cluster.follow()
            assert cluster.spark_drivers.ended == [first.driver_id]
            with pytest.raises(YarrowError):
                await first.master.begin_commit(job_id, 0)
            await cluster.lead()
            second = await cluster.next_spark_driver(2)
            await second.begin()
            await eventually(lambda: bool(second.submissions))
            assert second.submissions[0].committables_blob_key == "", "nothing was certain to be committed"
            await second.finish()
            assert (await cluster.result(job_id)).status is JobStatus.FINISHED

    run(body())


def test_the_next_leadership_commits_what_the_former_one_has_stored(tmp_path: Path) -> None:
    async def body() -> None:
        async with bounded_job_of_a_former_leader(tmp_path) as (cluster, job_id, first):
            sent = prepared(first, 0)
            await first.master.store_committables(sent)
            await first.master.begin_commit(job_id, 0)
            await cluster.follow()
            # The next leader may be another process, with other local files.
            shutil.rmtree(cluster.settings.blob_directory)
            await cluster.lead()
            second = await cluster.next_spark_driver(2)
            await second.begin()
            await eventually(lambda: bool(second.submissions))
            # Too late: parts of the output may be visible.
            await cluster.dispatcher.cancel_job(job_id)
            key = second.submissions[0].committables_blob_key
            part = await second.master.read_blob(key, 0, 1 << 20)
            assert msgspec.msgpack.decode(part.data, type=StoredCommittables).messages == (sent,)
            await second.finish()
            assert (await cluster.result(job_id)).status is JobStatus.FINISHED
            records = cluster.election.records(2)
            await eventually(lambda: not any(map(records.children, ("jobs", "results"))))
            assert [path for path in (tmp_path / "ha").rglob("*") if path.is_file()] == []

    run(body())


def test_a_commit_that_was_begun_before_a_cancellation_outlives_a_store_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        async with bounded_job_of_a_former_leader(tmp_path) as (cluster, job_id, first):
            sent = prepared(first, 0)
            await first.master.store_committables(sent)
            await first.master.begin_commit(job_id, 0)
            # Too late: parts of the output may be visible. The next leader finds the request all the same.
            await cluster.dispatcher.cancel_job(job_id)
            await cluster.follow()
            tries: list[JobID] = []
            real = JobGraphStore.commits

            def commits(store: JobGraphStore, job: JobID) -> bytes:
                tries.append(job)
                if len(tries) == 1:
                    raise OSError("the storage does not answer")
                return real(store, job)

            monkeypatch.setattr(JobGraphStore, "commits", commits)
            await cluster.lead()

            def asked_again() -> bool:
                cluster.timers.advance(0.1)
                return len(tries) > 1

            await eventually(asked_again)
            second = await cluster.next_spark_driver(2)
            await second.begin()
            await eventually(lambda: bool(second.submissions))
            part = await second.master.read_blob(second.submissions[0].committables_blob_key, 0, 1 << 20)
            assert msgspec.msgpack.decode(part.data, type=StoredCommittables).messages == (sent,)
            await second.finish()
            assert (await cluster.result(job_id)).status is JobStatus.FINISHED

    run(body())


def test_a_leader_that_was_replaced_lets_nothing_be_committed(tmp_path: Path) -> None:
    async def body() -> None:
        async with bounded_job_of_a_former_leader(tmp_path) as (cluster, job_id, driver):
            await driver.master.store_committables(prepared(driver, 0))
            # Another master leads, and this one has not heard of it.
            cluster.election.replace()
            with pytest.raises(LeadershipLostError):
                await driver.master.begin_commit(job_id, 0)
            store = JobGraphStore(
                cluster.election.records(2), cluster.election.storage_directory, cluster.ids
            )
            assert store.commits(job_id) == b""

    run(body())


def test_rows_of_a_client_do_not_end_with_the_leadership(tmp_path: Path) -> None:
    async def body() -> None:
        async with masters(tmp_path) as cluster:
            await cluster.lead()
            await cluster.add(1)
            graph = linear_job(Stage(1), Stage(1, operator=CollectOperator(collect_id="c")))
            job_id = await cluster.submit(graph)
            await cluster.until_running(job_id, 2)
            rows = asyncio.ensure_future(cluster.dispatcher.fetch_collected(job_id, "c", 10))
            await settled()
            await cluster.follow()
            await cluster.executors[0].stop()
            await cluster.lead()
            await cluster.add(1)
            await cluster.until_running(job_id, 2)
            assert not any(message.last for message in await rows)
            await cluster.dispatcher.cancel_job(job_id)
            (end,) = await cluster.dispatcher.fetch_collected(job_id, "c", 10)
            assert end.last and not end.complete

    run(body())


def test_a_job_that_is_to_end_with_its_client_is_cancelled_when_that_is_silent_under_any_leader(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        async with masters(tmp_path) as cluster:
            await cluster.lead()
            await cluster.add(1)
            job_id = await cluster.submit(
                structs.replace(linear_job(Stage(1)), client_heartbeat_timeout=30.0)
            )
            await cluster.until_running(job_id, 1)
            for _ in range(3):
                await cluster.pass_time(20)
                await cluster.dispatcher.report_job_client_heartbeat(job_id)
            await cluster.pass_time(20)
            await cluster.executors[0].stop()
            await cluster.follow()
            await cluster.lead()
            await cluster.add(1)
            await cluster.until_running(job_id, 1)
            await cluster.pass_time(20)
            assert await cluster.dispatcher.request_job_status(job_id) is JobStatus.RUNNING, (
                "a new leader has heard nothing for 20 s, not for 40"
            )
            await cluster.pass_time(11)
            result = await cluster.dispatcher.request_job_result(job_id)
            assert result.status is JobStatus.CANCELED
            assert "-sae" in result.cancellation
            assert "silent for 30 s (client.heartbeat.timeout)" in result.cancellation
            await cluster.dispatcher.report_job_client_heartbeat(job_id)
            with pytest.raises(JobNotFoundError):
                await cluster.dispatcher.report_job_client_heartbeat(JobID("f" * 32))

    run(body())


def test_a_job_whose_graph_is_out_of_reach_is_initializing_until_it_is_read(tmp_path: Path) -> None:
    async def body() -> None:
        async with masters(tmp_path) as cluster:
            await cluster.lead()
            await cluster.add(1)
            job_id = await cluster.submit(linear_job(Stage(1)))
            await cluster.follow()
            graphs = tmp_path / "ha" / "job-graphs"
            (stored,) = graphs.iterdir()
            content = stored.read_bytes()
            stored.unlink()
            # Cannot be opened, and is there: as a name node answers in safe mode.
            stored.mkdir()
            await cluster.lead()
            gateway = cluster.dispatcher
            await eventually(lambda: _waits(gateway))
            assert await gateway.request_job_status(job_id) is JobStatus.INITIALIZING
            assert (await gateway.request_job_details(job_id)).name == linear_job(Stage(1)).name
            with pytest.raises(DuplicateJobError):
                await cluster.submit(linear_job(Stage(1)))
            stored.rmdir()
            stored.write_bytes(content)
            await cluster.pass_time(10)
            await cluster.until_status(job_id, JobStatus.RUNNING)

    run(body())


async def _waits(gateway: DispatcherGateway) -> bool:
    return any(job.waiting_for for job in await gateway.list_jobs())


def test_an_entry_that_cannot_be_read_fails_its_job_and_is_kept(tmp_path: Path) -> None:
    async def body() -> None:
        async with masters(tmp_path) as cluster:
            await cluster.lead()
            await cluster.add(2)
            broken = await cluster.submit(linear_job(Stage(1), job_id=1))
            good = await cluster.submit(linear_job(Stage(1), job_id=2))
            cluster.election.records(1).write(Put(f"jobs/{broken}", b"\xc1"))
            await cluster.follow()
            await cluster.executors[0].stop()
            await cluster.lead()
            await cluster.add(2)
            result = await cluster.result(broken)
            assert result.status is JobStatus.FAILED
            assert result.cause is not None and "cannot be decoded" in result.cause.message
            await cluster.until_status(good, JobStatus.RUNNING)
            assert cluster.election.records(2).read(f"jobs/{broken}") is not None
            assert await cluster.plane.dispatcher.has_unfinished_jobs()
            with pytest.raises(DuplicateJobError, match="could not be taken over"):
                await cluster.submit(linear_job(Stage(1), job_id=1))

    run(body())


def test_a_job_that_could_not_be_taken_over_is_given_up_by_a_cancel(tmp_path: Path) -> None:
    async def body() -> None:
        async with masters(tmp_path) as cluster:
            await cluster.lead()
            job_id = await cluster.submit(linear_job(Stage(1)))
            cluster.election.records(1).write(Put(f"jobs/{job_id}", b"\xc1"))
            await cluster.follow()
            await cluster.lead()
            assert (await cluster.result(job_id)).status is JobStatus.FAILED
            await cluster.dispatcher.cancel_job(job_id)
            assert (await cluster.result(job_id)).status is JobStatus.CANCELED
            records = cluster.election.records(2)
            assert not any(map(records.children, ("jobs", "results", "checkpoints")))
            with pytest.raises(JobAlreadyEndedError):
                await cluster.dispatcher.cancel_job(job_id)

    run(body())


def test_a_job_that_cannot_be_read_and_was_cancelled_before_ends_so(tmp_path: Path) -> None:
    async def body() -> None:
        async with masters(tmp_path) as cluster:
            await cluster.lead()
            job_id = await cluster.submit(linear_job(Stage(1)))
            records = cluster.election.records(1)
            records.write(Put(f"jobs/{job_id}", b"\xc1"), Put(f"jobs/{job_id}/cancelled", b""))
            await cluster.follow()
            await cluster.lead()
            assert (await cluster.result(job_id)).status is JobStatus.CANCELED
            assert not any(map(cluster.election.records(2).children, ("jobs", "results")))

    run(body())


def test_the_end_of_a_cluster_keeps_a_job_that_could_not_be_taken_over(tmp_path: Path) -> None:
    """An application of its own ends as FAILED then: its last checkpoint may be all that is left of the job."""

    async def body() -> None:
        removed: list[bool] = []

        class Removing(ByHand):
            async def close_and_clean_up(self) -> None:
                removed.append(True)

        async with masters(tmp_path) as cluster:
            cluster.election.__class__ = Removing
            await cluster.lead()
            job_id = await cluster.submit(linear_job(Stage(1)))
            cluster.election.records(1).write(Put(f"jobs/{job_id}", b"\xc1"))
            await cluster.follow()
            await cluster.lead()
            assert (await cluster.result(job_id)).status is JobStatus.FAILED
            await cluster.plane.stop_work(clean_up=True, even_unfinished=True)
            await cluster.plane.close()
            assert removed == []

    run(body())


def test_a_job_cancelled_under_one_leadership_ends_under_the_next(tmp_path: Path) -> None:
    async def body() -> None:
        async with masters(tmp_path) as cluster:
            await cluster.lead()
            await cluster.add(1)
            job_id = await cluster.submit(linear_job(Stage(1)))
            await cluster.until_running(job_id, 1)
            # The promise is stored, and the master dies before it is kept.
            cluster.election.records(1).write(Put(f"jobs/{job_id}/cancelled", b""))
            await cluster.follow()
            await cluster.lead()
            assert (await cluster.result(job_id)).status is JobStatus.CANCELED
            records = cluster.election.records(2)
            await eventually(lambda: not any(map(records.children, ("jobs", "results"))))

    run(body())


def test_a_job_that_has_ended_never_runs_again_though_its_clean_up_was_cut_off(tmp_path: Path) -> None:
    async def body() -> None:
        async with masters(tmp_path) as cluster:
            graph = await recorded_end_without_clean_up(cluster)
            await cluster.lead()
            assert (await cluster.result(graph.job_id)).status is JobStatus.FINISHED
            records = cluster.election.records(2)
            await eventually(lambda: not any(map(records.children, ("jobs", "results"))))
            with pytest.raises(DuplicateJobError, match="has run on this cluster"):
                await cluster.dispatcher.submit_job(encode_job_graph(graph))

    run(body())


@pytest.mark.parametrize("is_final", [True, False])
def test_the_next_leader_keeps_the_checkpoint_of_a_job_that_failed_for_good(
    tmp_path: Path, is_final: bool
) -> None:
    cause = FailureCause(
        exception_name="an.Error", message="rows are lost", stacktrace="rows are lost", is_final=is_final
    )
    checkpoints = CheckpointSettings(storage=StorageKind.FILE_SYSTEM, directory=str(tmp_path / "checkpoints"))

    async def body() -> None:
        async with masters(tmp_path, jobs=JobMasterSettings(checkpoints=checkpoints)) as cluster:
            kept = tmp_path / "checkpoints" / "kept" / "chk-3"
            kept.mkdir(parents=True)
            (kept / "_metadata").write_text("a checkpoint")
            await recorded_end_without_clean_up(cluster, cause, str(kept))
            await cluster.lead()
            records = cluster.election.records(2)
            await eventually(lambda: not any(map(records.children, ("jobs", "results", "checkpoints"))))
            assert kept.exists() == is_final

    run(body())


def test_what_is_stored_is_cleaned_up_only_after_the_last_job(tmp_path: Path) -> None:
    async def body() -> None:
        cleaned: list[bool] = []

        class Noting(ByHand):
            async def close(self) -> None:
                cleaned.append(False)

            async def close_and_clean_up(self) -> None:
                cleaned.append(True)

        for ends in (False, True):
            cluster = Masters(tmp_path / str(ends))
            cluster.election = Noting(tmp_path / str(ends) / "ha")
            cluster.plane = cluster.new_plane(None)
            await cluster.plane.start()
            await cluster.lead()
            job_id: JobID = await cluster.submit(linear_job(Stage(1)))
            if ends:
                await cluster.dispatcher.cancel_job(job_id)
                await cluster.result(job_id)
                records = cluster.election.records(1)
                await eventually(lambda: not records.children("results"))  # noqa: B023
            await cluster.plane.stop(clean_up=True)
        assert cleaned == [False, True]

    run(body())


def test_how_a_job_ended_is_known_after_all_else_of_it_has_gone(tmp_path: Path) -> None:
    async def body() -> None:
        cluster = Masters(tmp_path)
        dispatcher = replace(cluster.settings.dispatcher, keep_results=True)
        cluster.settings = msgspec.structs.replace(cluster.settings, dispatcher=dispatcher)
        cluster.plane = cluster.new_plane(None)
        await cluster.plane.start()
        await cluster.lead()
        graph = linear_job(Stage(1))
        job_id = await cluster.submit(graph)
        await cluster.dispatcher.cancel_job(job_id)
        await cluster.result(job_id)
        records = cluster.election.records(1)
        await eventually(lambda: not records.children("jobs"))
        # A later attempt submits its job again, learns that it has run, and asks how it ended.
        await cluster.follow()
        await cluster.lead()
        with pytest.raises(DuplicateJobError):
            await cluster.dispatcher.submit_job(encode_job_graph(graph))
        assert (await cluster.result(job_id)).status is JobStatus.CANCELED
        assert (await cluster.dispatcher.request_job_details(job_id)).name == graph.name
        await cluster.plane.stop()

    run(body())


def test_a_lease_that_is_doubtful_for_a_moment_does_not_leave_the_cluster_without_a_leader(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        async with masters(tmp_path) as cluster:
            election = cluster.election
            election.grant()
            # Seen by whoever takes the leadership up: the answer that renews the lease is on its way.
            election._leads = False
            await settled()
            assert not cluster.plane.leads
            election._leads = True
            await eventually(lambda: cluster.plane.leads)

    run(body())


def test_a_job_of_an_application_is_submitted_when_somebody_leads(tmp_path: Path) -> None:
    async def body() -> None:
        async with masters(tmp_path) as cluster:
            graph = linear_job(Stage(1))
            submitting = asyncio.ensure_future(submit_until_taken(cluster.plane.dispatcher_gateway(), graph))
            await settled()
            # The former attempt's session outlasts rest.await-leader-timeout.
            await cluster.pass_time(31)
            await settled()
            assert not submitting.done()
            await cluster.lead()
            await submitting
            assert [job.job_id for job in await cluster.dispatcher.list_jobs()] == [graph.job_id]

    run(body())


def test_a_leadership_that_is_over_cleans_nothing_up(tmp_path: Path) -> None:
    async def body() -> None:
        cluster = Masters(tmp_path)
        cleaned: list[bool] = []

        class Noting(ByHand):
            async def close_and_clean_up(self) -> None:
                cleaned.append(True)

        cluster.election = Noting(tmp_path / "ha")
        cluster.plane = cluster.new_plane(None)
        await cluster.plane.start()
        await cluster.lead()
        # Another leads, and this process has not heard of it: it was stopped and continued.
        cluster.election._records.next_leadership()
        await cluster.plane.stop(clean_up=True)
        assert cleaned == []

    run(body())


@pytest.mark.parametrize(
    ("error", "shown"),
    [(FileSystemError("hdfs://nn:1/ha: in safe mode"), False), (ZeroDivisionError("a bug"), True)],
)
def test_what_keeps_a_master_from_leading_is_said_now_and_then_and_shown_once(
    tmp_path: Path,
    error: Exception,
    shown: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(cluster_entrypoint, "_PAUSE", 0.001)
    attempts = 0

    async def body() -> None:
        async with masters(tmp_path) as cluster:

            async def refuse(epoch: int) -> None:
                nonlocal attempts
                attempts += 1
                raise error

            lead = cluster.plane._lead
            monkeypatch.setattr(cluster.plane, "_lead", refuse)
            cluster.election.grant()
            await eventually(lambda: attempts > 20)
            monkeypatch.setattr(cluster.plane, "_lead", lead)
            await eventually(lambda: cluster.plane.leads)

    run(body())
    said = [record for record in caplog.records if "cannot lead yet" in record.getMessage()]
    assert len(said) == attempts.bit_length()
    assert all(str(error) in record.getMessage() for record in said)
    assert [record.exc_info is not None for record in said] == [shown] + [False] * (len(said) - 1)
