"""Events of a CheckpointCoordinator, and its actions.

Owner: none (values). jobmaster/checkpoints/checkpoint_link.py carries actions out in order.
"""

from __future__ import annotations

import msgspec

from yarrow.am.checkpoint.completed import CompletedCheckpoint, Dropped
from yarrow.runtime.common.ids import ExecutionAttemptID, OperatorID
from yarrow.runtime.data.checkpoint_options import (
    CheckpointLocation,
    CheckpointOptions,
    CheckpointType,
    SnapshotKind,
)
from yarrow.runtime.rpc.messages import (
    AcknowledgeCheckpoint,
    AcknowledgeCoordinator,
    CheckpointNotice,
    DeclineCheckpoint,
    FailureCause,
)
from yarrow.runtime.snapshot.handles import CheckpointMetadata

# Events.


class Wake(msgspec.Struct, frozen=True):
    """Time has passed, or tasks have changed their states."""


class Requested(msgspec.Struct, frozen=True, kw_only=True):
    """A user or the job requests a checkpoint or savepoint."""

    request_id: str
    kind: SnapshotKind
    #: Folder of a savepoint.
    directory: str = ""
    #: Cancel the job when it is complete.
    cancel_job: bool = False
    #: Write the state backend's own form instead of the canonical one.
    native: bool = False
    checkpoint_type: CheckpointType = CheckpointType.CONFIGURED
    #: Number of checkpoints for this request that met a task which was just ending.
    tries: int = 0


class LocationReady(msgspec.Struct, frozen=True):
    """The folder of a checkpoint is there."""

    checkpoint_id: int
    location: CheckpointLocation


class LocationFailed(msgspec.Struct, frozen=True):
    """The folder of a checkpoint could not be made."""

    checkpoint_id: int
    cause: FailureCause
    #: False = neither the job nor its storage is at fault.
    counts: bool = True


class MetadataStored(msgspec.Struct, frozen=True):
    """A checkpoint's metadata is durable and whole."""

    checkpoint_id: int
    pointer: str
    #: Bytes of the metadata; -1 = unknown.
    size: int = -1


class MetadataFailed(msgspec.Struct, frozen=True):
    """A checkpoint's metadata, or the pointer to them, could not be written."""

    checkpoint_id: int
    cause: FailureCause
    #: False = neither the job nor its storage is at fault.
    counts: bool = True
    #: Where the metadata lie nevertheless; "" = nowhere.
    pointer: str = ""
    #: Another master may find the pointer: until that is settled, no file that it needs is deleted.
    in_doubt: bool = False


class DoubtSettled(msgspec.Struct, frozen=True):
    """No master will find this checkpoint."""

    checkpoint_id: int


class TasksFinished(msgspec.Struct, frozen=True):
    """These tasks ended by themselves. They will send no further acknowledgements."""

    #: The latest checkpoint that each task has cut or declined: it ended before the barriers of later ones.
    attempts: dict[ExecutionAttemptID, int]


class TasksRestart(msgspec.Struct, frozen=True):
    """Tasks are cancelled and will restart: no pending checkpoint can complete."""

    cause: str


class JobEndEvent(msgspec.Struct, frozen=True):
    """The job does not run any more."""

    cause: str


Event = (
    Wake
    | Requested
    | LocationReady
    | LocationFailed
    | MetadataStored
    | MetadataFailed
    | DoubtSettled
    | TasksFinished
    | TasksRestart
    | JobEndEvent
    | AcknowledgeCheckpoint
    | AcknowledgeCoordinator
    | DeclineCheckpoint
)

# Actions.


class PrepareLocation(msgspec.Struct, frozen=True):
    """Make the folder; LocationReady or LocationFailed follows."""

    checkpoint_id: int
    kind: SnapshotKind
    #: The folder that a savepoint request names.
    directory: str


class TriggerCoordinators(msgspec.Struct, frozen=True):
    """Ask split enumerators for their states."""

    checkpoint_id: int
    timestamp_ms: int
    options: CheckpointOptions
    coordinators: tuple[OperatorID, ...]


class TriggerTasks(msgspec.Struct, frozen=True):
    """Tell tasks to send barriers."""

    checkpoint_id: int
    timestamp_ms: int
    options: CheckpointOptions
    attempts: tuple[ExecutionAttemptID, ...]


class StoreMetadata(msgspec.Struct, frozen=True):
    """Write the metadata; MetadataStored or MetadataFailed follows."""

    checkpoint_id: int
    location: CheckpointLocation
    metadata: CheckpointMetadata


class SettleDoubt(msgspec.Struct, frozen=True):
    """Make sure that no master will find this checkpoint; DoubtSettled follows in the end."""

    checkpoint_id: int


class Notify(msgspec.Struct, frozen=True):
    """Tell all tasks and enumerators whether a checkpoint was completed or aborted."""

    checkpoint_id: int
    notice: CheckpointNotice
    latest_completed: int


class DiscardLocation(msgspec.Struct, frozen=True):
    """Delete the folder of an aborted checkpoint, and its shared files that no other checkpoint needs."""

    checkpoint_id: int
    location: CheckpointLocation
    shared: tuple[str, ...]


class Discard(msgspec.Struct, frozen=True):
    """Delete a completed checkpoint that is not kept any more."""

    dropped: Dropped


class Succeeded(msgspec.Struct, frozen=True):
    """The requested checkpoint is complete."""

    request: Requested
    checkpoint: CompletedCheckpoint


class Refused(msgspec.Struct, frozen=True):
    """The request was refused, or its checkpoint failed."""

    request: Requested
    cause: FailureCause


class FailJob(msgspec.Struct, frozen=True):
    """More checkpoints failed than are tolerated."""

    cause: FailureCause


Action = (
    PrepareLocation
    | TriggerCoordinators
    | TriggerTasks
    | StoreMetadata
    | SettleDoubt
    | Notify
    | DiscardLocation
    | Discard
    | Succeeded
    | Refused
    | FailJob
)
