"""SnapshotFiles: what checkpoints of one job ask of a storage. Blocking: called in the JobMaster's blocking threads.

Owner: whichever thread calls; implementations hold no state that two calls could spoil. Errors are YarrowError or
OSError and name the path.
"""

from __future__ import annotations

from typing import Protocol

from yarrow.am.checkpoint.completed import Dropped
from yarrow.runtime.snapshot.handles import CheckpointMetadata
from yarrow.runtime.snapshot.options import CheckpointLocation, SnapshotKind


class SnapshotFiles(Protocol):
    """Files of the checkpoints and savepoints of one job."""

    def begin(self, checkpoint_id: int, kind: SnapshotKind, directory: str) -> CheckpointLocation:
        """Makes the folder of a checkpoint; of a savepoint below `directory`."""
        ...

    def complete(self, location: CheckpointLocation, metadata: CheckpointMetadata) -> str:
        """Writes the metadata, whole or not at all; returns the pointer to it, "" where it is in memory only."""
        ...

    def discard(self, location: CheckpointLocation, shared: tuple[str, ...]) -> None:
        """Deletes what a checkpoint that was not completed has left, and these shared files."""
        ...

    def discard_completed(self, dropped: Dropped) -> None:
        """Deletes a completed checkpoint with the shared files that go with it; one that is not ours stays."""
        ...


class MemoryFiles:
    """No files: all state travels inline to the JobMaster and dies with it."""

    def __init__(self, max_state_size: int) -> None:
        """`max_state_size`: bytes of one state, above which its checkpoint fails by name."""
        self._max_state_size = max_state_size

    def begin(self, checkpoint_id: int, kind: SnapshotKind, directory: str) -> CheckpointLocation:
        return CheckpointLocation(directory="", max_inline_size=self._max_state_size)

    def complete(self, location: CheckpointLocation, metadata: CheckpointMetadata) -> str:
        return ""

    def discard(self, location: CheckpointLocation, shared: tuple[str, ...]) -> None:
        """Nothing is left."""

    def discard_completed(self, dropped: Dropped) -> None:
        """Nothing is left."""
