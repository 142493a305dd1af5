"""What a barrier says about its checkpoint: its kind, where its files go, how it treats records in flight.

Owner: none (frozen values). They travel with the barrier, so that a task far from any source knows them too.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

import msgspec


class SnapshotKind(IntEnum):
    """What is asked for; tasks finish when one of the last three is complete."""

    CHECKPOINT = 0
    SAVEPOINT = 1
    #: stop-with-savepoint: sources emit nothing behind the barrier, tasks finish when the savepoint is complete.
    SAVEPOINT_SUSPEND = 2
    #: The same with drain: the largest watermark is sent before the barrier, so that all timers fire.
    SAVEPOINT_TERMINATE = 3
    #: An ordinary checkpoint behind which, as with SAVEPOINT_SUSPEND, nothing is processed: the job goes on from it at
    #: another parallelism.
    RESCALE = 4

    @property
    def is_savepoint(self) -> bool:
        """True for what is full and owned by the user."""
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
    """How much of earlier checkpoints a checkpoint may refer to, where the backend shares files between them."""

    #: As the job is configured (execution.checkpointing.incremental).
    CONFIGURED = "CONFIGURED"
    #: Nothing: all is written anew; later checkpoints may refer to it.
    FULL = "FULL"
    #: To what is there already, also in a job that is not so configured.
    INCREMENTAL = "INCREMENTAL"


class CheckpointLocation(msgspec.Struct, frozen=True, kw_only=True):
    """Where the files of one checkpoint go; sizes in bytes.

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
    """The same for all tasks of a checkpoint."""

    kind: SnapshotKind
    location: CheckpointLocation
    #: False = at least once: tasks do not wait for the barriers of their other channels.
    exactly_once: bool = True
    #: Barriers may overtake records, which then belong to the checkpoint.
    unaligned: bool = False
    #: How long an unaligned checkpoint stays aligned at each task, ms.
    aligned_timeout_ms: int = 0
    #: Of a savepoint: in the backend's own form instead of the canonical one, sharing no file with anything.
    native: bool = False
    #: Of a checkpoint that is no savepoint.
    checkpoint_type: CheckpointType = CheckpointType.CONFIGURED
    #: The oldest completed checkpoint that is kept: shared files of earlier ones are not to be referred to.
    oldest_kept: int = -1


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(CheckpointOptions)


def encode_checkpoint_options(options: CheckpointOptions) -> bytes:
    """The options as msgpack."""
    return _ENCODER.encode(options)


def decode_checkpoint_options(data: bytes | memoryview) -> CheckpointOptions:
    """The options from msgpack; msgspec.ValidationError for anything else."""
    return _DECODER.decode(data)
