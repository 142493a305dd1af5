"""A driver in a TaskExecutor under a played BatchJobMaster, with threads as workers: results, commits, ends."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.spark_driver import SECRET, Outcome, PlayedMaster
from tests.unit.container.batch.test_sinks import graph_into
from tests.unit.container.supervisor.conftest import eventually
from tests.unit.runtime.graph.programs import environment
from tests.unit.runtime.rpc.loops import run
from yarrow.common import Encoder
from yarrow.common.values.rate_limit import RateLimit
from yarrow.container.batch.local.local_drivers import LocalDriver, LocalDrivers
from yarrow.container.batch.local.local_workers import LocalWorker, LocalWorkers, WorkerPlace
from yarrow.container.launch.in_process_workers import InProcessLauncher, WorkerThreadFactory
from yarrow.container.launch.worker_launcher import RunningWorker
from yarrow.container.supervisor.output_files import OutputFiles
from yarrow.container.worker.worker import WorkerThread
from yarrow.datastream.connectors.file_system import FileSink
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.ids import (
    AllocationID,
    JobID,
    JobMasterID,
    OperatorID,
    ResourceID,
    ResourceManagerID,
    WorkerID,
)
from yarrow.runtime.graph.connector_spec import CollectOperator
from yarrow.runtime.graph.job_graph import JobGraph, encode_job_graph
from yarrow.runtime.graph.states import BatchRunner
from yarrow.runtime.rpc.batch_gateways import BatchRunError
from yarrow.runtime.rpc.bootstrap import PemIdentity, TaskExecutorBootstrap
from yarrow.runtime.rpc.gateway_type import BATCH_JOB_MASTER, LOCAL_DRIVER
from yarrow.runtime.rpc.in_process import InProcessNetwork, InProcessTransport
from yarrow.runtime.rpc.messages import (
    BatchSubmission,
    CollectRows,
    RateLimitRequest,
    ResourceProfile,
    SlotID,
    SlotRequest,
    SparkDriverStart,
    StoredCommittables,
)
from yarrow.runtime.rpc.service import RpcService

HERE = ResourceID("te-1")
MASTER = JobMasterID("master-1")
#: Of `waiting`: threads share this module, and the function goes by its name.
BEGUN = threading.Event()
GO_ON = threading.Event()
#: Of `meeting`.
MEETING = threading.Barrier(2)


@dataclass
class Setting:
    """A driver and its master."""

    master: PlayedMaster
    driver: LocalDriver
    folder: Path
    runs: list[asyncio.Future[Outcome]] = field(default_factory=list)

    async def submit(self, graph: JobGraph, committables: str = "") -> asyncio.Future[Outcome]:
        """Begins the next run of the driver."""
        run = len(self.runs)
        ended = self.master.begin(run, graph)
        submission = BatchSubmission(
            job_id=graph.job_id,
            run=run,
            job_graph=encode_job_graph(graph),
            committables_blob_key=committables,
        )
        await self.master.driver.submit_batch(submission)
        self.runs.append(asyncio.wrap_future(ended))
        return self.runs[-1]

    async def run(self, graph: JobGraph, committables: str = "") -> Outcome:
        return await (await self.submit(graph, committables))


@asynccontextmanager
async def setting(folder: Path) -> AsyncIterator[Setting]:
    service = RpcService([InProcessTransport(InProcessNetwork())])
    await service.start()
    master = PlayedMaster(service, LOCAL_DRIVER)
    await master.start()
    address = service.serve(BATCH_JOB_MASTER, master)
    for name in ("logs", "work"):
        (folder / name).mkdir()
    bootstrap = TaskExecutorBootstrap(
        application_id="app",
        resource_id=HERE,
        resource_manager_address="",
        resource_manager_id=ResourceManagerID("rm"),
        host="here",
        bind_host="here",
        identity=PemIdentity(),
        data_secret=SECRET,
        configuration={"heartbeat.interval": "1 s", "heartbeat.timeout": "60 s"},
        log_directory=str(folder / "logs"),
        working_directory=str(folder / "work"),
    )
    launcher = InProcessLauncher(WorkerThread)
    files = OutputFiles(folder / "logs", HERE)
    start = SparkDriverStart(
        slot=SlotRequest(
            slot_id=SlotID(resource_id=HERE, index=0),
            job_id=JobID("f" * 32),
            allocation_id=AllocationID("a"),
            profile=ResourceProfile(),
            job_master_address=address,
            job_master_id=MASTER,
            resource_manager_id=ResourceManagerID("rm"),
        ),
        driver_id=ResourceID("batchdriver-1"),
        configuration={},
        identity=b"",
        runner=BatchRunner.LOCAL,
    )
    driver = await LocalDrivers(bootstrap, 2, service, launcher, files, SystemClock()).start(start)
    try:
        await asyncio.wrap_future(master.application)
        yield Setting(master, driver, folder)
    finally:
        await driver.end(60)
        await launcher.close()
        await master.stop()
        await service.stop()
        files.close()
    # Nothing of it is left on disk, however it ended.
    assert list((folder / "work").iterdir()) == []


def collecting(function: Any = lambda x: x, *, count: int = 100) -> JobGraph:
    env = environment(2, {"execution.runtime-mode": "AUTOMATIC"})
    builder = env.graph_builder
    stream = env.from_sequence(1, count).map(function).key_by(lambda x: x % 5).reduce(lambda a, b: a + b)
    builder.sink(stream.transformation, "Collect", CollectOperator(collect_id="rows"), parallelism=1)
    return env.get_job_graph()


def test_rows_come_in_parts_that_the_master_takes_one_by_one(tmp_path: Path) -> None:
    async def body() -> None:
        async with setting(tmp_path) as it:
            taken = asyncio.Event()
            waiting: list[CollectRows] = []

            async def slow(rows: CollectRows) -> None:
                waiting.append(rows)
                await taken.wait()

            it.master.on_rows = slow
            ended = await it.submit(collecting())
            await eventually(lambda: bool(waiting), "rows come")
            assert len(waiting) == 1 and not ended.done()
            taken.set()
            outcome = await ended
            assert outcome.failure is None and outcome.finished is not None
            assert sorted(outcome.collected()) == sorted(sum(range(rest or 5, 101, 5)) for rest in range(5))
            assert {stage.state.value for stage in outcome.stages.values()} == {"FINISHED"}
            # Each subtask told what it left.
            assert len(outcome.subtasks) == sum(vertex.parallelism for vertex in outcome.graph.vertices)
            assert it.master.registration is not None and it.master.registration.task_executor == HERE
            assert it.driver.workers() == [], "threads use the memory of their process"

    run(body())


def test_committables_are_stored_then_committed_once(tmp_path: Path) -> None:
    async def body() -> None:
        async with setting(tmp_path) as it:
            seen: list[list[str]] = []

            async def stored(number: int) -> None:
                assert it.master.outcomes[number].committables, "they are stored before the commit begins"
                seen.append(visible(tmp_path))

            it.master.on_commit = stored
            outcome = await it.run(into_files(tmp_path))
            assert outcome.failure is None
            assert seen == [[]]
            assert visible(tmp_path) == ["1", "2", "3"]

    run(body())


def test_a_run_that_was_refused_its_commit_leaves_it_to_the_next_driver(tmp_path: Path) -> None:
    """As after the death of a master, or of a driver between storing and committing."""

    async def refuse(number: int) -> None:
        raise BatchRunError("the run is over")

    async def body() -> None:
        for name in ("one", "other"):
            (tmp_path / name).mkdir()
        graph = into_files(tmp_path)
        async with setting(tmp_path / "one") as it:
            it.master.on_commit = refuse
            outcome = await it.run(graph)
            assert outcome.failure is not None and "the run is over" in outcome.failure.message
            assert visible(tmp_path) == []
            stored = msgspec.msgpack.encode(
                StoredCommittables(job_id=graph.job_id, messages=tuple(outcome.committables))
            )
        async with setting(tmp_path / "other") as it:
            key = hashlib.sha256(stored).hexdigest()
            it.master.blobs[key] = stored
            outcome = await it.run(graph, key)
            assert outcome.failure is None and not outcome.rows and not outcome.subtasks
            assert visible(tmp_path) == ["1", "2", "3"]
            # A second time has no effect.
            assert (await it.run(graph, key)).failure is None
            assert visible(tmp_path) == ["1", "2", "3"]

    run(body())


@pytest.mark.parametrize("how", ["cancelled", "released"])
def test_a_run_that_is_ended_removes_what_its_sinks_have_begun(tmp_path: Path, how: str) -> None:
    BEGUN.clear()
    GO_ON.clear()

    async def body() -> None:
        async with setting(tmp_path) as it:
            ended = await it.submit(into_files(tmp_path, waiting))
            await asyncio.to_thread(BEGUN.wait)
            if how == "released":
                await it.master.driver.release("nobody needs it")
                GO_ON.set()
                await it.driver.wait()
                assert not ended.done()
                return
            await it.master.driver.cancel_batch(it.master.outcomes[0].graph.job_id, 0)
            GO_ON.set()
            outcome = await ended
            assert outcome.cancelled
            assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []

    run(body())
    assert visible(tmp_path) == []


def test_a_failed_run_leaves_what_sinks_have_begun_to_a_later_one(tmp_path: Path) -> None:
    """The master says that the run is over: another one may write already."""

    async def body() -> None:
        async with setting(tmp_path) as it:
            over = BatchRunError("the run is over")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(it.master, "check_run", raising(over))
                failed = await it.run(into_files(tmp_path, broken))
            assert failed.failure is not None and "no number" in failed.failure.message
            left = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
            assert left and visible(tmp_path) == []
            # A run that the master still knows removes them.
            assert (await it.run(into_files(tmp_path, broken))).failure is not None
            assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []

    run(body())


def test_a_result_that_the_master_refuses_fails_the_run_and_its_worker_still_ends_what_sinks_have_begun(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        async with setting(tmp_path) as it:
            it.master.store_committables = raising(BatchRunError("the storage is full"))  # type: ignore[method-assign]
            outcome = await asyncio.wait_for(it.run(into_files(tmp_path)), 60)
            assert outcome.failure is not None and "the storage is full" in outcome.failure.message
            assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []

    run(body())


def test_a_commit_that_fails_is_not_final(tmp_path: Path) -> None:
    """The restart strategy decides, and the next run commits what was stored."""

    async def body() -> None:
        async with setting(tmp_path) as it:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("yarrow.container.batch.local.batch_worker.commit", failing_commit)
                failure = (await it.run(into_files(tmp_path))).failure
            assert failure is not None and "no answer" in failure.message
            assert not failure.is_final

    run(body())


def failing_commit(*arguments: object) -> None:
    raise OSError("no answer")


def test_running_tasks_take_changed_rate_limits_and_the_shares_of_those_that_have_ended(
    tmp_path: Path,
) -> None:
    env = environment(2, {"execution.runtime-mode": "AUTOMATIC"})
    numbers = env.from_sequence(1, 2000).uid("numbers").rate_limit(rows_per_second=0.001)
    env.graph_builder.sink(
        numbers.map(lambda x: x).transformation, "Collect", CollectOperator(collect_id="rows"), parallelism=1
    )
    graph = env.get_job_graph()
    source = graph.vertices[0].head.id

    async def body() -> None:
        async with setting(tmp_path) as it:
            ended = await it.submit(graph)
            with pytest.MonkeyPatch.context() as patch:
                sent: list[dict[OperatorID, RateLimit]] = []
                send = LocalWorker.send_shares

                def noted(worker: LocalWorker, shares: dict[OperatorID, RateLimit]) -> None:
                    sent.append(shares)
                    send(worker, shares)

                patch.setattr(LocalWorker, "send_shares", noted)
                stages = it.master.outcomes[0].stages
                await eventually(
                    lambda: any(stage.tasks_running == 2 for stage in stages.values()), "both run"
                )
                for limit in (RateLimit(rows_per_second=0.002), RateLimit(rows_per_second=4000.0)):
                    request = RateLimitRequest(limits={source: limit})
                    await it.master.driver.change_rate_limits(graph.job_id, 0, request)
                    # Another run takes nothing.
                    await it.master.driver.change_rate_limits(
                        graph.job_id, 1, RateLimitRequest(limits={source: CRAWLING})
                    )
                outcome = await asyncio.wait_for(ended, 60)
            assert outcome.failure is None
            assert sorted(outcome.collected()) == list(range(1, 2001))
            assert {source: RateLimit(rows_per_second=2000.0)} in sent, "both run"
            # The last task of the two goes on with the whole limit.
            assert sent[-1] == {source: RateLimit(rows_per_second=4000.0)}
            assert {source: CRAWLING} not in sent

    run(body())


CRAWLING = RateLimit(rows_per_second=0.0001)


def test_workers_of_two_jobs_have_different_ids(tmp_path: Path) -> None:
    """They share the launcher of their TaskExecutor, which knows each worker by its id."""

    async def body() -> None:
        launcher = NotingLauncher(WorkerThread)
        files = OutputFiles(tmp_path, HERE)
        for name in ("batch-1", "batch-2"):
            folder = tmp_path / name / "runs" / "0" / "workers"
            folder.mkdir(parents=True)
            place = WorkerPlace(slot=0, folder=folder, job_folder=str(tmp_path), forward_logs=False)
            workers = LocalWorkers(launcher, files, place)
            await workers.start()
            await workers.close()
        assert len(set(launcher.ids)) == 2
        files.close()

    run(body())


class NotingLauncher(InProcessLauncher):
    """Notes the ids of its workers."""

    def __init__(self, factory: WorkerThreadFactory) -> None:
        super().__init__(factory)
        self.ids: list[WorkerID] = []

    async def launch(
        self, worker_id: WorkerID, process_name: str, raw_output: int
    ) -> tuple[RunningWorker, socket.socket]:
        self.ids.append(worker_id)
        return await super().launch(worker_id, process_name, raw_output)


def raising(error: Exception) -> Any:
    async def call(*arguments: object) -> None:
        raise error

    return call


def broken(text: str) -> str:
    if text == "3":
        raise ValueError("no number")
    return text


def test_tasks_run_at_a_time_as_far_as_there_are_slots(tmp_path: Path) -> None:
    """Each of both tasks of the source waits for the other one."""

    async def body() -> None:
        async with setting(tmp_path) as it:
            outcome = await it.run(collecting(meeting, count=2))
            assert outcome.failure is None and sorted(outcome.collected()) == [1, 2]

    run(body())


def test_a_function_that_fails_is_told_with_operator_and_record_and_is_final(tmp_path: Path) -> None:
    def fail(number: int) -> int:
        return 1 // (number - 7)

    async def body() -> None:
        async with setting(tmp_path) as it:
            failure = (await it.run(collecting(fail))).failure
            assert failure is not None and failure.is_final
            assert failure.operator_name == "Map"
            assert "while it had the record 7" in failure.stacktrace
            assert "ZeroDivisionError" in failure.stacktrace

    run(body())


def meeting(number: int) -> int:
    """Returns when two tasks are here."""
    MEETING.wait()
    return number


def waiting(text: str) -> str:
    BEGUN.set()
    GO_ON.wait()
    return text


def into_files(folder: Path, function: Any = str) -> JobGraph:
    sink = FileSink.for_row_format(str(folder / "out"), Encoder.simple_string_encoder()).build()
    graph = graph_into(sink, ["1", "2", "3"])
    if function is str:
        return graph
    env = environment(2, {"execution.runtime-mode": "AUTOMATIC"})
    env.from_collection(["1", "2", "3"]).map(function).sink_to(sink)
    return env.get_job_graph()


def visible(folder: Path) -> list[str]:
    """Lines of files that a reader of the folder sees."""
    files = [path for path in (folder / "out").rglob("*") if path.is_file() and path.name[0] not in "._"]
    return sorted(line for path in files for line in path.read_text().splitlines())
