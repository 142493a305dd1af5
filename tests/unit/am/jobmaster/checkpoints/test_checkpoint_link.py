"""CheckpointLink and the pointers to checkpoints: what is complete when they cannot be stored, and what stays."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.counting_ids import CountingIdFactory
from tests.support.job_graphs import Stage, linear_job
from tests.support.manual_timers import ManualTimers
from tests.unit.am.jobmaster.scheduling.scheduling import Scheduling
from tests.unit.runtime.rpc.loops import run
from yarrow.am.checkpoint.recovery_in_memory import InMemoryCheckpointRecovery
from yarrow.am.checkpoint.recovery_store import CheckpointPointer, RecoveryStoreError, UnknownOutcomeError
from yarrow.am.checkpoint.restore import starting_point
from yarrow.am.checkpoint.settings import CheckpointSettings, StorageKind
from yarrow.am.jobmaster.checkpoints.checkpoint_link import (
    CheckpointFlags,
    CheckpointLink,
    CheckpointServices,
)
from yarrow.common.execution_modes import ExternalizedCheckpointRetention
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.errors import CheckpointFailedError
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, SnapshotKind
from yarrow.runtime.graph.connector_spec import PrintOperator
from yarrow.runtime.ha.stored_files import KEPT_FILE
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.messages import AcknowledgeCheckpoint, CheckpointMetrics, FailureCause

JOB = linear_job(Stage(2, operator=PrintOperator()))


class ScriptedStore:
    """A CheckpointRecoveryStore whose next calls fail as a test says; before or after they had their effect."""

    def __init__(self, recovery: InMemoryCheckpointRecovery) -> None:
        self.inner = recovery.of_job(JOB.job_id)
        self.failures: dict[str, list[tuple[RecoveryStoreError, bool]]] = {}
        self.calls: list[str] = []

    def _call(self, name: str, call: Callable[[], Any]) -> Any:
        self.calls.append(name)
        if self.failures.get(name):
            error, takes_effect = self.failures[name].pop(0)
            if takes_effect:
                call()
            raise error
        return call()

    def next_checkpoint_id(self) -> int:
        return self.inner.next_checkpoint_id()

    def use_checkpoint_id(self, checkpoint_id: int) -> None:
        self._call("use", lambda: self.inner.use_checkpoint_id(checkpoint_id))

    def begun_ids(self) -> range:
        return self.inner.begun_ids()

    def completed(self) -> tuple[CheckpointPointer, ...]:
        return self.inner.completed()

    def add(
        self, checkpoint_id: int, path: str, *, owned: bool = True, claimed: bool = False
    ) -> CheckpointPointer:
        found: CheckpointPointer = self._call("add", lambda: self.inner.add(checkpoint_id, path, owned=owned))
        return found

    def discard(self, checkpoint_id: int) -> None:
        self._call("discard", lambda: self.inner.discard(checkpoint_id))

    @property
    def latest_savepoint_id(self) -> int:
        return self.inner.latest_savepoint_id

    def note_savepoint(self, checkpoint_id: int) -> None:
        self._call("note", lambda: self.inner.note_savepoint(checkpoint_id))

    def close(self, terminal: bool) -> None:
        self.inner.close(terminal)


class Job:
    """A job of two tasks that run and acknowledge whatever is asked of them."""

    def __init__(self, folder: Path, retention: ExternalizedCheckpointRetention) -> None:
        self.folder = folder
        self.settings = CheckpointSettings(
            interval=None,
            storage=StorageKind.FILE_SYSTEM,
            directory=str(folder),
            tolerable_failures=0,
            retention=retention,
        )
        self.store = ScriptedStore(InMemoryCheckpointRecovery())
        self.failed: list[FailureCause] = []
        self.told: list[CheckpointFlags] = []
        self.scheduling = Scheduling(JOB)
        self.scheduling.running(2)
        self.owner = RpcEndpoint("master")
        self.timers = ManualTimers(self.scheduling.clock)

    async def start(self) -> None:
        await self.owner.start()
        self.restart()

    def restart(self, *leftovers: CheckpointLocation) -> None:
        """Another link, as of the next master."""
        _, start = starting_point(JOB, self.settings)
        start = msgspec.structs.replace(start, recovery=self.store, leftovers=leftovers)
        services = CheckpointServices(self.scheduling.clock, self.timers, CountingIdFactory(), {})
        graph = self.scheduling.graph
        self.link = CheckpointLink(
            self.owner,
            graph,
            services,
            self.settings,
            start,
            on_too_many_failures=self.failed.append,
            on_changed=self.told.append,
        )

    async def ends(self, status: JobStatus) -> None:
        graph = self.scheduling.graph
        if status is JobStatus.CANCELED:
            graph.transition(JobStatus.CANCELLING)
        graph.transition(status)
        await self.link.end()

    async def fails(self, cause: FailureCause) -> None:
        graph = self.scheduling.graph
        graph.failure = cause
        graph.transition(JobStatus.FAILING, cause.message)
        self.link.observe()
        graph.transition(JobStatus.FAILED)
        await self.link.end()

    async def take(self, kind: SnapshotKind = SnapshotKind.CHECKPOINT) -> str:
        """The pointer to a checkpoint, or why there is none."""
        taking = asyncio.ensure_future(self.link.request(kind, str(self.folder / "savepoints")))
        await self.until(lambda: taking.done() or any(p.plan for p in self.link.coordinator.pending))
        for pending in self.link.coordinator.pending:
            for execution in self.scheduling.graph.executions():
                self.link.handle(
                    AcknowledgeCheckpoint(
                        job_id=JOB.job_id,
                        checkpoint_id=pending.checkpoint_id,
                        attempt_id=execution.attempt_id,
                        states={},
                        metrics=CheckpointMetrics(),
                    )
                )
        try:
            return (await taking).pointer
        except CheckpointFailedError as error:
            return str(error)

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    def complete_folders(self) -> list[str]:
        """Folders may be on their way out at this moment: `os.walk` passes over those that have gone."""
        return sorted(Path(folder).name for folder, _, files in os.walk(self.folder) if "_metadata" in files)


def with_job(
    tmp_path: Path,
    body: Callable[[Job], Coroutine[Any, Any, None]],
    retention: ExternalizedCheckpointRetention = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS,
) -> None:
    async def whole() -> None:
        job = Job(tmp_path, retention)
        await job.start()
        await body(job)
        await job.owner.stop()

    run(whole())


def test_a_checkpoint_is_complete_with_its_pointer_and_ids_are_taken_before_they_are_used(
    tmp_path: Path,
) -> None:
    async def body(job: Job) -> None:
        first, second = await job.take(), await job.take()
        assert [each.path for each in job.store.completed()][-1] == second != first
        await job.until(lambda: job.complete_folders() == ["chk-2"])
        assert job.store.calls == ["use", "add", "use", "add", "discard"]
        assert job.store.next_checkpoint_id() == 3
        told = job.link.coordinator.statistics.metrics()["lastCheckpointMetadataSize"]
        assert told == (Path(second) / "_metadata").stat().st_size

    with_job(tmp_path, body)


def test_restarts_learn_whether_the_first_checkpoint_is_to_come(tmp_path: Path) -> None:
    async def body(job: Job) -> None:
        job.link.begin()
        assert job.told == [], "the job makes no checkpoints"
        job.settings = replace(job.settings, interval=1000.0)
        job.restart()
        job.link.begin()
        assert job.told == [CheckpointFlags(awaits_first=True)]
        pointer = await job.take()
        assert job.told[-1] == CheckpointFlags()
        # A job that a user starts from there has one from its beginning.
        job.told.clear()
        job.settings = replace(job.settings, restore_path=pointer)
        job.restart()
        job.link.begin()
        assert job.told == []

    with_job(tmp_path, body)


def test_a_pointer_that_is_refused_takes_the_checkpoint_with_it(tmp_path: Path) -> None:
    async def body(job: Job) -> None:
        await job.take()
        job.store.failures["add"] = [(RecoveryStoreError("another leads the job"), False)]
        assert "another leads the job" in await job.take()
        await job.until(lambda: job.complete_folders() == ["chk-1"])
        assert job.failed == [] and not job.link.in_doubt
        assert job.link.checkpoint_id == 1
        await job.take()
        assert job.link.checkpoint_id == 3

    with_job(tmp_path, body)


@pytest.mark.parametrize("written", [False, True])
def test_a_pointer_in_doubt_is_removed_before_its_files(tmp_path: Path, written: bool) -> None:
    async def body(job: Job) -> None:
        await job.take()
        lost = UnknownOutcomeError("connection lost")
        job.store.failures = {"add": [(lost, written)], "discard": [(lost, False)]}
        assert "connection lost" in await job.take()
        await job.until(lambda: job.store.calls[-1] == "discard" and bool(job.timers.pending))
        assert job.link.in_doubt and job.complete_folders() == ["chk-1", "chk-2"]
        assert job.told[-1] == CheckpointFlags(in_doubt=True), "no task begins meanwhile"
        # Somebody else would find what there is.
        for pointer in job.store.completed():
            assert (Path(pointer.path) / "_metadata").exists()
        job.timers.advance(2)
        await job.until(lambda: not job.link.in_doubt)
        assert job.told[-1] == CheckpointFlags()
        assert [each.checkpoint_id for each in job.store.completed()] == [1]
        await job.until(lambda: job.complete_folders() == ["chk-1"])

    with_job(tmp_path, body)


def test_what_former_masters_could_not_complete_goes_with_the_job(tmp_path: Path) -> None:
    async def body(job: Job) -> None:
        pointer = Path(await job.take())
        # One whose pointer was never written, one whose metadata were not.
        for number in (2, 3):
            job.store.inner.use_checkpoint_id(number)
            shutil.copytree(pointer, pointer.with_name(f"chk-{number}"))
        (pointer.with_name("chk-3") / "_metadata").unlink()
        await job.ends(JobStatus.CANCELED)
        assert not pointer.parent.exists()

    with_job(tmp_path, body)


def test_beside_a_retained_checkpoint_nothing_is_left_that_nobody_points_to(tmp_path: Path) -> None:
    async def body(job: Job) -> None:
        pointer = Path(await job.take())
        for number in (2, 3, 4):
            job.store.inner.use_checkpoint_id(number)
        for number in (2, 3, 4, 9):
            shutil.copytree(pointer, pointer.with_name(f"chk-{number}"))
        (pointer.with_name("chk-3") / "_metadata").unlink()
        # As if this master had stored it, and not heard that it had.
        job.store.inner.add(4, str(pointer.with_name("chk-4")))
        await job.ends(JobStatus.CANCELED)
        assert job.complete_folders() == ["chk-1", "chk-4", "chk-9"], "9 is of another job of the same id"
        assert not job.link.left_some

    with_job(tmp_path, body, retention=ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION)


@pytest.mark.parametrize("is_final", [True, False])
def test_a_final_failure_keeps_the_last_checkpoint_and_says_where_it_is(
    tmp_path: Path, is_final: bool
) -> None:
    async def body(job: Job) -> None:
        await job.take()
        pointer = await job.take()
        cause = FailureCause(
            exception_name="Lost",
            message="rows are lost",
            stacktrace="Lost: rows are lost",
            is_final=is_final,
        )
        await job.fails(cause)
        kept, marker = tmp_path / JOB.job_id, tmp_path / JOB.job_id / KEPT_FILE
        failure = job.scheduling.graph.failure
        assert failure is not None and not job.link.left_some
        if not is_final:
            assert failure == cause and not kept.exists()
            return
        assert (
            f"yarrow run -s {pointer}" in failure.message and f"yarrow run -s {pointer}" in failure.stacktrace
        )
        assert job.complete_folders() == ["chk-2"] and pointer in marker.read_text()
        # Another job begins from there, and leaves it to the user.
        again = replace(job.settings, restore_path=pointer)
        assert starting_point(JOB, again)[1].next_id == 3

    with_job(tmp_path, body)


def test_a_job_that_is_cancelled_while_it_fails_for_good_promises_no_checkpoint(tmp_path: Path) -> None:
    async def body(job: Job) -> None:
        await job.take()
        graph = job.scheduling.graph
        graph.failure = FailureCause(
            exception_name="Lost", message="rows are lost", stacktrace="Lost: rows are lost", is_final=True
        )
        graph.transition(JobStatus.FAILING, "rows are lost")
        job.link.observe()
        await job.ends(JobStatus.CANCELED)
        assert not (tmp_path / JOB.job_id).exists(), "its retention deletes the checkpoint"
        assert graph.failure.message == "rows are lost"

    with_job(tmp_path, body)


def test_what_cannot_be_deleted_at_the_end_is_left_to_be_tried_again(tmp_path: Path) -> None:
    async def body(job: Job) -> None:
        pointer = Path(await job.take())
        (pointer / "_metadata").unlink()
        # A folder where a file is to be removed: refused, as by storage that is away.
        (pointer / "_metadata" / "in the way").mkdir(parents=True)
        await job.ends(JobStatus.FINISHED)
        assert job.link.left_some

    with_job(tmp_path, body)


def test_a_job_that_goes_on_deletes_what_former_masters_left_to_nobody(tmp_path: Path) -> None:
    async def body(job: Job) -> None:
        kept, left = (tmp_path / JOB.job_id / f"chk-{number}" for number in (7, 8))
        for folder in (kept, left):
            folder.mkdir(parents=True)
        job.restart(CheckpointLocation(directory=str(left)))
        job.link.begin()
        await job.until(lambda: not left.exists())
        assert kept.exists()

    with_job(tmp_path, body)


def test_an_id_that_another_master_has_used_is_not_used_again(tmp_path: Path) -> None:
    async def body(job: Job) -> None:
        job.store.inner.use_checkpoint_id(1)
        assert "not above 1" in await job.take()
        assert job.failed == [] and job.complete_folders() == []
        assert (await job.take()).endswith("chk-2")

    with_job(tmp_path, body)


def test_a_savepoint_is_noted_before_anybody_can_find_it_and_is_no_point_of_return(tmp_path: Path) -> None:
    async def body(job: Job) -> None:
        job.store.failures["note"] = [(RecoveryStoreError("out of reach"), False)]
        assert "out of reach" in await job.take(SnapshotKind.SAVEPOINT)
        assert job.complete_folders() == []
        await job.take(SnapshotKind.SAVEPOINT)
        assert job.store.latest_savepoint_id == 2 and job.store.completed() == ()
        await job.take(SnapshotKind.SAVEPOINT_SUSPEND)
        assert [each.owned for each in job.store.completed()] == [False]

    with_job(tmp_path, body)
