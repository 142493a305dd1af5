"""Messages of checkpoints and savepoints: what is asked for, acknowledged, declined and made known.

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

    `coordinators` name sources whose split enumerator lives in that TaskExecutor and is to be snapshotted. It comes in
    a message before the one that names the tasks, and is acknowledged by AcknowledgeCoordinator.
    """

    job_id: JobID
    checkpoint_id: int
    timestamp_ms: int
    options: CheckpointOptions
    attempts: tuple[ExecutionAttemptID, ...] = ()
    coordinators: tuple[OperatorID, ...] = ()


class CheckpointNotice(enum.StrEnum):
    """What became of a checkpoint."""

    COMPLETED = "completed"
    ABORTED = "aborted"
    #: A later one is complete; this one's files that are not shared are gone.
    SUBSUMED = "subsumed"


class NotifyCheckpoint(Message, frozen=True, kw_only=True):
    """JobMaster -> TaskExecutor, for all tasks and coordinators of the job; a later COMPLETED covers earlier ones."""

    job_id: JobID
    checkpoint_id: int
    notice: CheckpointNotice
    #: The latest completed checkpoint, -1 when there is none.
    latest_completed: int = -1


class CheckpointMetrics(Message, frozen=True, kw_only=True):
    """What a checkpoint took at one task: milliseconds and bytes."""

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
    #: True where the end of the task's input lies before its cut: it ends when this checkpoint is complete.
    finished: bool = False


class AcknowledgeCoordinator(Message, frozen=True, kw_only=True):
    """Split enumerator -> JobMaster."""

    job_id: JobID
    checkpoint_id: int
    operator_id: OperatorID
    state: StateHandle


class DeclineCheckpoint(Message, frozen=True, kw_only=True):
    """Task or enumerator -> JobMaster: it cannot take part; the checkpoint is aborted, the task lives.

    With `still_tried` it may be able to yet, and nothing is aborted.
    """

    job_id: JobID
    checkpoint_id: int
    #: The task; "" where an enumerator declined.
    attempt_id: ExecutionAttemptID
    cause: FailureCause
    #: It has just ended or does not run yet: no failure, and not counted as one.
    not_ready: bool = False
    #: Its part could not be stored and is tried again: what is to be said should time be over before. A cause without
    #: a message takes back an earlier one.
    still_tried: bool = False


class ResetSubtask(Message, frozen=True, kw_only=True):
    """JobMaster -> the enumerator of a source: a reader starts again from that checkpoint (-1: from nothing)."""

    job_id: JobID
    operator_id: OperatorID
    subtask: int
    #: The reader's attempt that has ended: what a later one has said or was given stays.
    attempt_id: ExecutionAttemptID
    checkpoint_id: int


class SavepointFormat(enum.StrEnum):
    """In which form the state of a savepoint is written."""

    #: The same for every backend, each of which restores it.
    CANONICAL = "CANONICAL"
    #: The backend's own, which is written and restored faster and by this backend only.
    NATIVE = "NATIVE"


class SavepointRequest(Message, frozen=True, kw_only=True):
    """What a client asks for; without a `target_directory` `execution.checkpointing.savepoint-dir` counts."""

    kind: SnapshotKind
    target_directory: str | None = None
    #: cancel-with-savepoint (Flink 1.x).
    cancel_job: bool = False
    format_type: SavepointFormat = SavepointFormat.CANONICAL
