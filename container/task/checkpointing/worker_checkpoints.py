"""WorkerCheckpoints: writes the frozen state of a worker's tasks, one file a checkpoint, and tells the job.

Owner: the snapshot thread, which does everything here. Any thread may call the public methods, which only
queue work for it. A checkpoint's file is closed when every live task of the job in this worker has delivered
its part or ended. Acknowledgements are sent after that, so that a handle which the JobMaster knows names
stored bytes. Files of an aborted checkpoint are deleted here, because an ending job hears no late
acknowledgement. Must not know operators, channels or transport.
"""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator

import msgspec

from yarrow.container.chain.pending_snapshot import PendingSubtaskSnapshot, TaskName
from yarrow.container.protocol.errors import NotReadyForCheckpointError
from yarrow.container.protocol.failure import OperatorFailure, failure_cause
from yarrow.container.protocol.worker_protocol import (
    CheckpointAcknowledged,
    CheckpointDeclined,
    CoordinatorAcknowledged,
    FromWorker,
)
from yarrow.container.task.checkpointing.snapshot_thread import SnapshotThread
from yarrow.runtime.common import fault_points
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.common.ids import ExecutionAttemptID, JobID, OperatorID
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointOptions
from yarrow.runtime.fs import retries
from yarrow.runtime.rpc.messages import (
    AcknowledgeCheckpoint,
    AcknowledgeCoordinator,
    DeclineCheckpoint,
    FailureCause,
)
from yarrow.runtime.snapshot.worker_file import SnapshotFile

_log = logging.getLogger(__name__)


#: Opens this worker's output for a job's checkpoint at a location.
OpenSnapshotFile = Callable[[JobID, CheckpointLocation], SnapshotFile]


class _Checkpoint(msgspec.Struct):
    """The state of one checkpoint of a job in this worker."""

    file: SnapshotFile
    #: Live tasks that have not delivered.
    missing: set[ExecutionAttemptID]
    #: Delivered and written parts; they are acknowledged when the file is closed.
    written: list[tuple[PendingSubtaskSnapshot, AcknowledgeCheckpoint]] = msgspec.field(default_factory=list)


class _Job(msgspec.Struct):
    """The checkpoints of one job in this worker."""

    live: dict[ExecutionAttemptID, TaskName] = msgspec.field(default_factory=dict)
    checkpoints: dict[int, _Checkpoint] = msgspec.field(default_factory=dict)
    #: Closed files by checkpoint, until it is complete or aborted; without files that other checkpoints may
    #: share.
    stored: defaultdict[int, list[SnapshotFile]] = msgspec.field(default_factory=lambda: defaultdict(list))
    #: Aborted checkpoints that are later than the latest complete one.
    aborted: set[int] = msgspec.field(default_factory=set)
    completed: int = -1


class WorkerCheckpoints:
    """All checkpoints of one worker."""

    def __init__(
        self, thread: SnapshotThread, open_file: OpenSnapshotFile, send: Callable[[FromWorker], None]
    ) -> None:
        self._thread = thread
        self._open_file = open_file
        self._send = send
        self._jobs: dict[JobID, _Job] = {}

    # ------------------------------------------------------------------ any thread

    def task_started(self, task: TaskName) -> None:
        """Adds a task to later checkpoints."""
        self._thread.run_soon(lambda: self._start(task))

    def task_ended(self, task: TaskName) -> None:
        """Removes a task, which will deliver nothing any more."""
        self._thread.run_soon(lambda: self._end(task))

    def deliver(self, snapshot: PendingSubtaskSnapshot) -> None:
        """Takes a task's part: it is written, and acknowledged with the file."""
        self._thread.run_soon(lambda: self._deliver(snapshot))

    def decline(self, task: TaskName, checkpoint_id: int, error: BaseException) -> None:
        """Declines a checkpoint for a task."""
        self._thread.run_soon(lambda: self._decline(task, checkpoint_id, error))

    def deliver_coordinator(
        self,
        job_id: JobID,
        operator_id: OperatorID,
        operator_name: str,
        checkpoint_id: int,
        options: CheckpointOptions,
        state: bytes,
    ) -> None:
        """Writes an enumerator's snapshot to a file of its own, because readers wait for its answer."""
        self._thread.run_soon(
            lambda: self._deliver_coordinator(
                job_id, operator_id, operator_name, checkpoint_id, options, state
            )
        )

    def decline_coordinator(self, job_id: JobID, checkpoint_id: int, error: BaseException) -> None:
        """Declines a checkpoint for a split enumerator."""
        self._thread.run_soon(
            lambda: self._tell_declined(job_id, checkpoint_id, ExecutionAttemptID(""), error)
        )

    def aborted(self, job_id: JobID, checkpoint_id: int) -> None:
        """Aborts a checkpoint: its files are deleted, and late parts are dropped."""
        self._thread.run_soon(lambda: self._abort(job_id, checkpoint_id), at_the_end_too=True)

    def completed(self, job_id: JobID, checkpoint_id: int) -> None:
        """Completes a checkpoint; no part of it or of earlier ones is missing any more."""
        self._thread.run_soon(lambda: self._complete(job_id, checkpoint_id))

    def end(self) -> None:
        """Ends the worker: unfinished files are closed and deleted, because nobody was told of them."""
        self._thread.run_soon(self._end_all, at_the_end_too=True)

    # ------------------------------------------------------------------ snapshot thread

    def _job(self, job_id: JobID) -> _Job:
        return self._jobs.setdefault(job_id, _Job())

    def _start(self, task: TaskName) -> None:
        self._job(task.job_id).live[task.attempt_id] = task

    def _end(self, task: TaskName) -> None:
        job = self._jobs.get(task.job_id)
        if job is None:
            return
        job.live.pop(task.attempt_id, None)
        for checkpoint_id in list(job.checkpoints):
            self._arrived(task.job_id, checkpoint_id, task.attempt_id)
        # The job stays known: enumerators may outlive tasks, and aborted checkpoints must stay aborted.

    def _deliver(self, snapshot: PendingSubtaskSnapshot) -> None:
        task, number = snapshot.task, snapshot.checkpoint_id
        job = self._job(task.job_id)
        if number in job.aborted or number <= job.completed:
            snapshot.discard()
            snapshot.settled()
            return
        try:
            with self._tells_retries(task.job_id, number, task.attempt_id, snapshot.options.location):
                checkpoint = self._checkpoint(task.job_id, number, snapshot.options)
                before = checkpoint.file.uploaded
                states = snapshot.write(checkpoint.file)
        except Exception as error:
            snapshot.discard()
            self._decline(task, number, error)
            snapshot.settled()
            return
        size = checkpoint.file.uploaded - before
        metrics = msgspec.structs.replace(
            snapshot.metrics,
            async_ms=1000 * (perf_counter() - snapshot.cut_at),
            checkpointed_size=size,
            persisted_bytes=snapshot.persisted_bytes,
        )
        acknowledgement = AcknowledgeCheckpoint(
            job_id=task.job_id,
            checkpoint_id=number,
            attempt_id=task.attempt_id,
            states=states,
            metrics=metrics,
            finished=snapshot.finished,
        )
        checkpoint.written.append((snapshot, acknowledgement))
        self._arrived(task.job_id, number, task.attempt_id)

    def _checkpoint(self, job_id: JobID, checkpoint_id: int, options: CheckpointOptions) -> _Checkpoint:
        job = self._job(job_id)
        checkpoint = job.checkpoints.get(checkpoint_id)
        if checkpoint is None:
            file = self._open_file(job_id, options.location)
            checkpoint = job.checkpoints[checkpoint_id] = _Checkpoint(file, set(job.live))
        return checkpoint

    def _arrived(self, job_id: JobID, checkpoint_id: int, attempt: ExecutionAttemptID) -> None:
        job = self._jobs[job_id]
        checkpoint = job.checkpoints.get(checkpoint_id)
        if checkpoint is None:
            return
        checkpoint.missing.discard(attempt)
        if not checkpoint.missing:
            del job.checkpoints[checkpoint_id]
            self._close(job_id, checkpoint_id, checkpoint)

    def _close(self, job_id: JobID, checkpoint_id: int, checkpoint: _Checkpoint) -> None:
        try:
            with self._tells_retries_of_close(job_id, checkpoint_id, checkpoint):
                checkpoint.file.close()
        except Exception as error:
            checkpoint.file.discard()
            for snapshot, _ in checkpoint.written:
                task = snapshot.task
                where = _part(task, checkpoint_id)
                self._tell_declined(job_id, checkpoint_id, task.attempt_id, error, where)
                snapshot.settled()
            return
        states = [state for _, part in checkpoint.written for state in part.states.values()]
        if not any(True for state in states for _ in state.shared_files()):
            self._job(job_id).stored[checkpoint_id].append(checkpoint.file)
        for snapshot, acknowledgement in checkpoint.written:
            try:
                self._acknowledge(snapshot, acknowledgement)
            except Exception as error:
                self._tell_declined(job_id, checkpoint_id, snapshot.task.attempt_id, error)
            finally:
                snapshot.settled()

    def _acknowledge(self, snapshot: PendingSubtaskSnapshot, acknowledgement: AcknowledgeCheckpoint) -> None:
        detail = snapshot.task.detail(acknowledgement.checkpoint_id)
        fault_points.reach("checkpoint.before-acknowledge", **detail)
        self._send(CheckpointAcknowledged(acknowledgement=acknowledgement))
        fault_points.reach("checkpoint.after-acknowledge", **detail)

    def _decline(self, task: TaskName, checkpoint_id: int, error: BaseException) -> None:
        job = self._job(task.job_id)
        if checkpoint_id in job.aborted or checkpoint_id <= job.completed:
            return
        where = _part(task, checkpoint_id)
        self._tell_declined(task.job_id, checkpoint_id, task.attempt_id, error, where)
        self._arrived(task.job_id, checkpoint_id, task.attempt_id)

    def _tell_declined(
        self,
        job_id: JobID,
        checkpoint_id: int,
        attempt: ExecutionAttemptID,
        error: BaseException,
        where: str = "",
    ) -> None:
        cause = _named(failure_cause(error, where or f"checkpoint {checkpoint_id}"), where)
        why = error.cause if isinstance(error, OperatorFailure) else error
        not_ready = isinstance(why, NotReadyForCheckpointError)
        level = logging.DEBUG if not_ready else logging.WARNING
        _log.log(level, "job %s: checkpoint %d declined: %s", job_id, checkpoint_id, cause.message)
        decline = DeclineCheckpoint(
            job_id=job_id,
            checkpoint_id=checkpoint_id,
            attempt_id=attempt,
            cause=cause,
            not_ready=not_ready,
        )
        self._send(CheckpointDeclined(decline=decline))

    def _deliver_coordinator(
        self,
        job_id: JobID,
        operator_id: OperatorID,
        operator_name: str,
        checkpoint_id: int,
        options: CheckpointOptions,
        state: bytes,
    ) -> None:
        job = self._job(job_id)
        if checkpoint_id in job.aborted or checkpoint_id <= job.completed:
            return
        file: SnapshotFile | None = None
        try:
            with self._tells_retries(job_id, checkpoint_id, ExecutionAttemptID(""), options.location):
                file = self._open_file(job_id, options.location)
                handle = file.write([state])
                file.close()
        except Exception as error:
            if file is not None:
                file.discard()
            where = f"the split enumerator of '{operator_name}'"
            self._tell_declined(job_id, checkpoint_id, ExecutionAttemptID(""), error, where)
            return
        job.stored[checkpoint_id].append(file)
        acknowledgement = AcknowledgeCoordinator(
            job_id=job_id, checkpoint_id=checkpoint_id, operator_id=operator_id, state=handle
        )
        self._send(CoordinatorAcknowledged(acknowledgement=acknowledgement))

    def _tells_retries_of_close(
        self, job_id: JobID, checkpoint_id: int, checkpoint: _Checkpoint
    ) -> contextlib.AbstractContextManager[None]:
        """Reports retries of closing the file. All its parts wait for that, so one report serves them all."""
        if not checkpoint.written:
            return contextlib.nullcontext()
        snapshot, acknowledgement = checkpoint.written[0]
        return self._tells_retries(
            job_id, checkpoint_id, acknowledgement.attempt_id, snapshot.options.location
        )

    @contextlib.contextmanager
    def _tells_retries(
        self, job_id: JobID, checkpoint_id: int, attempt: ExecutionAttemptID, location: CheckpointLocation
    ) -> Iterator[None]:
        """Reports to the JobMaster why storage is being retried, and when that ends: the checkpoint may expire."""
        told = [""]

        def tell(reason: str) -> None:
            if reason != told[-1]:
                told.append(reason)
                cause = FailureCause(exception_name="", message=reason, stacktrace="")
                decline = DeclineCheckpoint(
                    job_id=job_id,
                    checkpoint_id=checkpoint_id,
                    attempt_id=attempt,
                    cause=cause,
                    still_tried=True,
                )
                self._send(CheckpointDeclined(decline=decline))

        with contextlib.ExitStack() as stack:
            for directory in {location.directory, location.shared_directory} - {""}:
                stack.enter_context(retries.listening(directory, tell))
            yield
        tell("")

    def _abort(self, job_id: JobID, checkpoint_id: int) -> None:
        job = self._job(job_id)
        if checkpoint_id <= job.completed:
            return
        job.aborted.add(checkpoint_id)
        checkpoint = job.checkpoints.pop(checkpoint_id, None)
        if checkpoint is not None:
            self._drop(checkpoint)
        for file in job.stored.pop(checkpoint_id, ()):
            file.discard()

    def _complete(self, job_id: JobID, checkpoint_id: int) -> None:
        job = self._job(job_id)
        if checkpoint_id <= job.completed:
            return
        job.completed = checkpoint_id
        for number in [number for number in job.stored if number <= checkpoint_id]:
            del job.stored[number]
        job.aborted = {number for number in job.aborted if number > checkpoint_id}
        for number in [number for number in job.checkpoints if number <= checkpoint_id]:
            # An overtaken checkpoint: the JobMaster waits for none of its parts any more.
            self._drop(job.checkpoints.pop(number))

    def _end_all(self) -> None:
        for job in self._jobs.values():
            while job.checkpoints:
                self._drop(job.checkpoints.popitem()[1])

    @staticmethod
    def _drop(checkpoint: _Checkpoint) -> None:
        checkpoint.file.discard()
        for snapshot, _ in checkpoint.written:
            snapshot.settled()


def _part(task: TaskName, checkpoint_id: int) -> str:
    """A task's part of a checkpoint, for messages."""
    return f"checkpoint {checkpoint_id} of task '{task.name}' (subtask {task.subtask + 1})"


def _named(cause: FailureCause, where: str) -> FailureCause:
    """The cause with the task's name in its message: statistics and REST show no more of a failed checkpoint."""
    place = f"operator '{cause.operator_name}'" if cause.operator_name else where
    if not place or place in cause.message:
        return cause
    return msgspec.structs.replace(cause, message=f"{place}: {cause.message}")
