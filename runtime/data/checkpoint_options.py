"""The options of a checkpoint in its barrier: kind, place of its files, treatment of records in flight.

Owner: none (frozen values). They travel with the barrier, so that a task far from any source knows them too.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

import msgspec


class SnapshotKind(IntEnum):
    """The kind of snapshot requested; tasks finish when one of the last three is complete."""

    CHECKPOINT = 0
    SAVEPOINT = 1
    #: stop-with-savepoint: sources emit nothing behind the barrier, tasks finish when the savepoint is complete.
    SAVEPOINT_SUSPEND = 2
    #: The same with drain: the largest watermark is sent before the barrier, so that all timers fire.
    SAVEPOINT_TERMINATE = 3
    #: An ordinary checkpoint after which, as with SAVEPOINT_SUSPEND, nothing is processed: the job continues
    #: from it at another parallelism.
    RESCALE = 4

    @property
    def is_savepoint(self) -> bool:
        """True for a snapshot that is full and owned by the user."""
        return self not in (SnapshotKind.CHECKPOINT, SnapshotKind.RESCALE)

    @property
    def stops_job(self) -> bool:
        """True for the kinds with which all tasks end."""
        return self in (
            SnapshotKind.SAVEPOINT_SUSPEND,
            SnapshotKind.SAVEPOINT_TERMINATE,
            SnapshotKind.RESCALE,
        )


class CheckpointType(StrEnum):
    """How much of earlier checkpoints a checkpoint may refer to, if the backend shares files between them."""

    #: As the job is configured (execution.checkpointing.incremental).
    CONFIGURED = "CONFIGURED"
    #: No files: the checkpoint writes all anew; later checkpoints may refer to it.
    FULL = "FULL"
    #: Existing files, also in a job that is not so configured.
    INCREMENTAL = "INCREMENTAL"


class CheckpointLocation(msgspec.Struct, frozen=True, kw_only=True):
    """The place of the files of one checkpoint; sizes in bytes.

    With an empty `directory` (JobManagerCheckpointStorage) all state travels inline to the JobMaster.
    """

    #: The checkpoint's own folder; exists before the checkpoint is triggered.
    directory: str
    #: Folder of files that several checkpoints share; "" where there are none.
    shared_directory: str = ""
    #: State up to this size goes into the metadata.
    inline_threshold: int = 20 * 1024
    #: A larger inline state fails the checkpoint by name; -1 = no limit of its own.
    max_inline_size: int = -1


class CheckpointOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one checkpoint, equal for all its tasks."""

    kind: SnapshotKind
    location: CheckpointLocation
    #: False = at least once: tasks do not wait for the barriers of their other channels.
    exactly_once: bool = True
    #: Barriers may overtake records, which then belong to the checkpoint.
    unaligned: bool = False
    #: How long an unaligned checkpoint stays aligned at each task, ms.
    aligned_timeout_ms: int = 0
    #: Of a savepoint: in the backend's own form instead of the canonical one, sharing no files.
    native: bool = False
    #: A checkpoint that is no savepoint.
    checkpoint_type: CheckpointType = CheckpointType.CONFIGURED
    #: The oldest completed checkpoint that is kept: new checkpoints must not refer to shared files of earlier
    #: ones.
    oldest_kept: int = -1


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(CheckpointOptions)


def encode_checkpoint_options(options: CheckpointOptions) -> bytes:
    """The options as msgpack."""
    return _ENCODER.encode(options)


def decode_checkpoint_options(data: bytes | memoryview) -> CheckpointOptions:
    """The options from msgpack; msgspec.ValidationError for anything else."""
    return _DECODER.decode(data)
