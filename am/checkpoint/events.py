"""What a CheckpointCoordinator hears of, and what it wants done.

Owner: none (values). Actions are carried out in order by jobmaster.checkpoint_link.
"""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Wake:
    """Time has passed, or tasks have changed their states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """Somebody asks for a checkpoint or savepoint."""

    request_id: str
    kind: SnapshotKind
    #: Folder of a savepoint.
    directory: str = ""
    #: The job is cancelled when it is complete.
    cancel_job: bool = False
    #: In the form of the state backend instead of the canonical one.
    native: bool = False
    checkpoint_type: CheckpointType = CheckpointType.CONFIGURED
    #: Checkpoints begun for it that met a task that was just ending.
    tries: int = 0


@dataclass(frozen=True, slots=True)
class LocationReady:
    """The folder of a checkpoint is there."""

    checkpoint_id: int
    location: CheckpointLocation


@dataclass(frozen=True, slots=True)
class LocationFailed:
    """The folder of a checkpoint could not be made."""

    checkpoint_id: int
    cause: FailureCause
    #: False = through no fault of the job or its storage.
    counts: bool = True


@dataclass(frozen=True, slots=True)
class MetadataStored:
    """A checkpoint's metadata is durable and whole."""

    checkpoint_id: int
    pointer: str
    #: Bytes of the metadata, -1 = not known.
    size: int = -1


@dataclass(frozen=True, slots=True)
class MetadataFailed:
    """A checkpoint's metadata, or the pointer to them, could not be written."""

    checkpoint_id: int
    cause: FailureCause
    #: False = through no fault of the job or its storage.
    counts: bool = True
    #: Where the metadata are all the same, "" = nowhere.
    pointer: str = ""
    #: Another master may find the pointer: nothing that it needs is deleted before that is settled.
    in_doubt: bool = False


@dataclass(frozen=True, slots=True)
class DoubtSettled:
    """No master will find this checkpoint."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class TasksFinished:
    """These ended by themselves: what they have not acknowledged they never will."""

    attempts: frozenset[ExecutionAttemptID]


@dataclass(frozen=True, slots=True)
class TasksRestart:
    """Tasks are cancelled and will start again: no pending checkpoint can be completed."""

    cause: str


@dataclass(frozen=True, slots=True)
class JobEndEvent:
    """The job runs no more."""

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


@dataclass(frozen=True, slots=True)
class PrepareLocation:
    """Make the folder: LocationReady or LocationFailed follows."""

    checkpoint_id: int
    kind: SnapshotKind
    #: Folder asked for a savepoint.
    directory: str


@dataclass(frozen=True, slots=True)
class TriggerCoordinators:
    """Ask split enumerators for their states."""

    checkpoint_id: int
    timestamp_ms: int
    options: CheckpointOptions
    coordinators: tuple[OperatorID, ...]


@dataclass(frozen=True, slots=True)
class TriggerTasks:
    """Have barriers sent."""

    checkpoint_id: int
    timestamp_ms: int
    options: CheckpointOptions
    attempts: tuple[ExecutionAttemptID, ...]


@dataclass(frozen=True, slots=True)
class StoreMetadata:
    """Write the metadata: MetadataStored or MetadataFailed follows."""

    checkpoint_id: int
    location: CheckpointLocation
    metadata: CheckpointMetadata


@dataclass(frozen=True, slots=True)
class SettleDoubt:
    """See to it that no master will find this checkpoint: DoubtSettled follows, in the end."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Notify:
    """Tell all tasks and enumerators what became of a checkpoint."""

    checkpoint_id: int
    notice: CheckpointNotice
    latest_completed: int


@dataclass(frozen=True, slots=True)
class DiscardLocation:
    """Delete the folder of a checkpoint that was not completed, and shared files of it that nobody needs."""

    checkpoint_id: int
    location: CheckpointLocation
    shared: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Discard:
    """Delete a completed checkpoint that is not kept any more."""

    dropped: Dropped


@dataclass(frozen=True, slots=True)
class Succeeded:
    """What was asked for is complete."""

    request: Requested
    checkpoint: CompletedCheckpoint


@dataclass(frozen=True, slots=True)
class Refused:
    """What was asked for was not, or could not be, done."""

    request: Requested
    cause: FailureCause


@dataclass(frozen=True, slots=True)
class FailJob:
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
