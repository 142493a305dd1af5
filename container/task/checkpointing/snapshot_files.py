"""Where a worker's snapshots go and where restored state comes from, by the location that a checkpoint names.

Owner: the snapshot thread. Must not know tasks or checkpoints' course.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from yarrow.container.task.checkpointing.restoring import ReadState
from yarrow.container.task.checkpointing.worker_checkpoints import SnapshotFile
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.snapshot.errors import CorruptSnapshotError, StateTooLargeError
from yarrow.runtime.snapshot.handles import FileStateHandle, InlineStateHandle, StateHandle
from yarrow.runtime.snapshot.options import CheckpointLocation, CheckpointOptions


class InlineSnapshotFile:
    """A checkpoint that travels inside messages alone: there is no file."""

    def __init__(self, location: CheckpointLocation) -> None:
        self._limit = location.max_inline_size
        self.uploaded = 0

    def write(self, chunks: Iterable[bytes]) -> StateHandle:
        """The chunks as one inline handle; StateTooLargeError above the limit."""
        data = b"".join(chunks)
        if 0 <= self._limit < len(data):
            raise StateTooLargeError(
                f"a state of {len(data)} bytes cannot stay in the master process, which takes {self._limit} bytes of "
                "one state; use a FileSystemCheckpointStorage (execution.checkpointing.dir)"
            )
        self.uploaded += len(data)
        return InlineStateHandle(data=data)

    def write_shared_file(self, local_path: str) -> FileStateHandle:
        """Refused: there is no folder for shared files."""
        raise StateTooLargeError(
            f"{local_path}: incremental checkpoints need a folder; use a FileSystemCheckpointStorage "
            "(execution.checkpointing.dir)"
        )

    def write_own_file(self, local_path: str) -> StateHandle:
        """The file's bytes inline."""
        return self.write([Path(local_path).read_bytes()])

    def close(self) -> None:
        """Nothing to close."""

    def discard(self) -> None:
        """Nothing to remove."""


def open_snapshot_file(job_id: JobID, checkpoint_id: int, options: CheckpointOptions) -> SnapshotFile:
    """The file of this worker for a checkpoint."""
    return InlineSnapshotFile(options.location)


def state_reader(directory: str) -> ReadState:
    """Reads handles whose relative paths begin at `directory`."""

    def read(handle: StateHandle) -> bytes:
        if isinstance(handle, InlineStateHandle):
            return handle.data
        raise CorruptSnapshotError(
            handle.path, f"it lies in {directory or 'no folder'}, and files cannot be read yet"
        )

    return read
