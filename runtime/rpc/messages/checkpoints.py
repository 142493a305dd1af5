"""Messages of checkpoints and savepoints: requests, acknowledgements, refusals and notifications.

Owner: none (frozen values). State appears as handles only, or inline where it is small.
"""

from __future__ import annotations

import enum

from yarrow.runtime.common.ids import ExecutionAttemptID, JobID, OperatorID
from yarrow.runtime.data.checkpoint_options import CheckpointOptions, SnapshotKind
from yarrow.runtime.rpc.messages.base import Message
from yarrow.runtime.rpc.messages.tasks import FailureCause
from yarrow.runtime.snapshot.handles import OperatorSubtaskState, StateHandle


class TriggerCheckpoint(Message, frozen=True, kw_only=True):
    """JobMaster -> TaskExecutor: begin a checkpoint at these tasks (sources, and tasks whose inputs have all ended).

    `coordinators` name sources whose split enumerator in that TaskExecutor must be snapshotted. They come in
    a message before the one with the tasks; AcknowledgeCoordinator answers.
    """

    job_id: JobID
    checkpoint_id: int
    timestamp_ms: int
    options: CheckpointOptions
    attempts: tuple[ExecutionAttemptID, ...] = ()
    coordinators: tuple[OperatorID, ...] = ()


class CheckpointNotice(enum.StrEnum):
    """The outcome of a checkpoint."""

    COMPLETED = "completed"
    ABORTED = "aborted"
    #: A later one is complete; this one's unshared files are deleted.
    SUBSUMED = "subsumed"


class NotifyCheckpoint(Message, frozen=True, kw_only=True):
    """JobMaster -> TaskExecutor, for all tasks and coordinators of the job; a later COMPLETED covers earlier ones."""

    job_id: JobID
    checkpoint_id: int
    notice: CheckpointNotice
    #: The latest completed checkpoint, -1 when there is none.
    latest_completed: int = -1


class CheckpointMetrics(Message, frozen=True, kw_only=True):
    """The cost of a checkpoint at one task: milliseconds and bytes."""

    sync_ms: float = 0.0
    async_ms: float = 0.0
    alignment_ms: float = 0.0
    #: From the checkpoint's trigger to the first barrier at this task.
    start_delay_ms: float = 0.0
    processed_bytes: int = 0
    persisted_bytes: int = 0
    #: Uploaded by this checkpoint; the state may be larger.
    checkpointed_size: int = 0
    unaligned: bool = False


class AcknowledgeCheckpoint(Message, frozen=True, kw_only=True):
    """Task -> JobMaster: its part of a checkpoint is stored."""

    job_id: JobID
    checkpoint_id: int
    attempt_id: ExecutionAttemptID
    states: dict[OperatorID, OperatorSubtaskState]
    metrics: CheckpointMetrics
    #: True if the end of the task's input lies before its cut: the task ends when this checkpoint is
    #: complete.
    finished: bool = False


class AcknowledgeCoordinator(Message, frozen=True, kw_only=True):
    """Split enumerator -> JobMaster."""

    job_id: JobID
    checkpoint_id: int
    operator_id: OperatorID
    state: StateHandle


class DeclineCheckpoint(Message, frozen=True, kw_only=True):
    """Task or enumerator -> JobMaster: it cannot take part; the checkpoint is aborted, the task lives.

    With `still_tried` it may yet be able to, and nothing is aborted.
    """

    job_id: JobID
    checkpoint_id: int
    #: The task; "" if an enumerator declined.
    attempt_id: ExecutionAttemptID
    cause: FailureCause
    #: It has just ended or does not run yet: this is not counted as a failure.
    not_ready: bool = False
    #: Its part could not be stored and is being retried: the text to report if the checkpoint expires first.
    #: A cause without a message withdraws an earlier one.
    still_tried: bool = False


class ResetSubtask(Message, frozen=True, kw_only=True):
    """JobMaster -> the enumerator of a source: a reader restarts from that checkpoint (-1: from nothing)."""

    job_id: JobID
    operator_id: OperatorID
    subtask: int
    #: The reader's ended attempt: messages and splits of a later one stay.
    attempt_id: ExecutionAttemptID
    checkpoint_id: int


class SavepointFormat(enum.StrEnum):
    """The form of a savepoint's state."""

    #: The same form for every backend, each of which restores it.
    CANONICAL = "CANONICAL"
    #: The backend's own form, which is faster and which only this backend restores.
    NATIVE = "NATIVE"


class SavepointRequest(Message, frozen=True, kw_only=True):
    """A client's request; without a `target_directory`, `execution.checkpointing.savepoint-dir` is used."""

    kind: SnapshotKind
    target_directory: str | None = None
    #: cancel-with-savepoint (Flink 1.x).
    cancel_job: bool = False
    format_type: SavepointFormat = SavepointFormat.CANONICAL
