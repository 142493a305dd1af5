"""What a worker has stored for a checkpoint that is given up goes, also when the worker ends at that moment."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from yarrow.container.chain.pending_snapshot import (
    OperatorPart,
    PendingSubtaskSnapshot,
    TaskName,
)
from yarrow.container.protocol.worker_protocol import CheckpointDeclined, CoordinatorAcknowledged, FromWorker
from yarrow.container.task.checkpointing.snapshot_thread import SnapshotThread
from yarrow.container.task.checkpointing.worker_checkpoints import WorkerCheckpoints
from yarrow.runtime.common.ids import ExecutionAttemptID, JobID, OperatorID
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointOptions, SnapshotKind
from yarrow.runtime.data.elements import CheckpointBarrier
from yarrow.runtime.fs.retries import Retries, TransientError
from yarrow.runtime.rpc.messages import CheckpointMetrics
from yarrow.runtime.snapshot.handles import OperatorStateHandle
from yarrow.runtime.snapshot.output import SnapshotOutput
from yarrow.runtime.snapshot.worker_file import FileSystemWorkerStorage, SnapshotFile

JOB = JobID("job")
#: Seconds for what takes milliseconds.
PATIENCE = 30


class Worker:
    """The checkpoints of one worker over a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[FromWorker] = []
        #: Opening a file waits for it.
        self.may_open = threading.Event()
        self.may_open.set()
        self.opening = threading.Event()
        #: What storage says before it opens a file.
        self.refusals: list[str] = []
        self.thread = SnapshotThread()
        self.checkpoints = WorkerCheckpoints(self.thread, self._open, self.said.append)

    def _open(self, job_id: JobID, location: CheckpointLocation) -> SnapshotFile:
        self.opening.set()
        assert self.may_open.wait(PATIENCE)

        def attempt(failures: int) -> None:
            if failures < len(self.refusals):
                raise TransientError(self.refusals[failures])

        paths = [text.partition(": ")[0] for text in self.refusals]
        Retries(PATIENCE, "a.key", wait=lambda seconds: None).run(attempt, *paths)
        return FileSystemWorkerStorage().open_output(location)

    def options(self, checkpoint_id: int) -> CheckpointOptions:
        return CheckpointOptions(
            kind=SnapshotKind.CHECKPOINT,
            location=CheckpointLocation(
                directory=str(self.folder / f"chk-{checkpoint_id}"), inline_threshold=0
            ),
        )

    def deliver(self, checkpoint_id: int) -> None:
        options = self.options(checkpoint_id)
        self.checkpoints.deliver_coordinator(JOB, OperatorID("s"), "source", checkpoint_id, options, b"state")

    def settle(self) -> None:
        """Returns when all that was asked for is done."""
        done = threading.Event()
        self.thread.run_soon(done.set)
        assert done.wait(PATIENCE)

    def files(self) -> list[str]:
        return sorted(path.parent.name for path in self.folder.rglob("state-*"))


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    running = Worker(tmp_path)
    yield running
    running.may_open.set()
    running.thread.stop(PATIENCE)


def test_what_was_stored_goes_with_its_checkpoint(worker: Worker) -> None:
    for checkpoint_id in (1, 2):
        worker.deliver(checkpoint_id)
    worker.settle()
    assert worker.files() == ["chk-1", "chk-2"]
    assert all(isinstance(message, CoordinatorAcknowledged) for message in worker.said)
    worker.checkpoints.aborted(JOB, 2)
    worker.settle()
    assert worker.files() == ["chk-1"]


def test_what_is_complete_stays(worker: Worker) -> None:
    worker.deliver(1)
    worker.checkpoints.completed(JOB, 1)
    worker.checkpoints.aborted(JOB, 1)
    worker.settle()
    assert worker.files() == ["chk-1"]


def test_nothing_is_stored_behind_the_word_that_it_was_given_up(worker: Worker) -> None:
    worker.checkpoints.aborted(JOB, 1)
    worker.deliver(1)
    worker.settle()
    assert worker.files() == [] and worker.said == []


def test_a_worker_that_ends_while_it_writes_leaves_nothing(worker: Worker) -> None:
    worker.may_open.clear()
    worker.deliver(1)
    assert worker.opening.wait(PATIENCE)
    worker.checkpoints.aborted(JOB, 1)
    worker.deliver(2)
    worker.thread.stop(0)
    worker.may_open.set()
    worker.thread.stop(PATIENCE)
    assert worker.files() == []
    assert [message.acknowledgement.checkpoint_id for message in worker.said
            if isinstance(message, CoordinatorAcknowledged)] == [1]  # fmt: skip


def test_the_master_hears_why_storage_is_tried_again_and_when_it_is_over(worker: Worker) -> None:
    folder = worker.folder / "chk-1"
    worker.refusals = [f"hdfs://nn:1{folder}/state: {why}" for why in ("safe mode", "safe mode", "standby")]
    worker.deliver(1)
    worker.settle()
    tried = [message.decline for message in worker.said if isinstance(message, CheckpointDeclined)]
    assert all(decline.still_tried and decline.checkpoint_id == 1 for decline in tried)
    assert [decline.cause.message.rpartition(": ")[2] for decline in tried] == ["safe mode", "standby", ""]
    assert isinstance(worker.said[-1], CoordinatorAcknowledged)


def test_what_other_folders_are_tried_again_for_is_not_told(worker: Worker) -> None:
    worker.refusals = ["hdfs://nn:1/elsewhere/chk-1: safe mode"]
    worker.deliver(1)
    worker.settle()
    assert [type(message) for message in worker.said] == [CoordinatorAcknowledged]


class Frozen:
    """State of one operator."""

    def write(self, output: SnapshotOutput) -> tuple[OperatorStateHandle, ...]:
        output.write([b"frozen"])
        return ()

    def discard(self) -> None:
        return None


def open_below(folder: Path) -> list[str]:
    """Files that this process has open."""
    descriptors = Path("/proc/self/fd")
    found = [os.readlink(path) for path in descriptors.iterdir() if path.is_symlink()]
    return [path for path in found if path.startswith(str(folder))]


def test_a_worker_that_ends_closes_the_file_whose_other_parts_have_not_come(worker: Worker) -> None:
    names = [TaskName(JOB, ExecutionAttemptID(attempt), 0, "map", 0) for attempt in "ab"]
    for name in names:
        worker.checkpoints.task_started(name)
    settled = threading.Event()
    worker.checkpoints.deliver(
        PendingSubtaskSnapshot(
            names[0],
            CheckpointBarrier(1, 0),
            worker.options(1),
            [OperatorPart(OperatorID("o"), "map", None, Frozen())],
            CheckpointMetrics(),
            finished=False,
            settled=settled.set,
        )
    )
    worker.settle()
    assert len(open_below(worker.folder)) == 1 and not settled.is_set()
    worker.checkpoints.end()
    worker.thread.stop(PATIENCE)
    assert open_below(worker.folder) == [] and worker.files() == []
    assert settled.is_set() and worker.said == []
