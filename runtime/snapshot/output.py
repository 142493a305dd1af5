"""SnapshotOutput: takes the bytes of a snapshot's asynchronous part.

Owner: the worker's snapshot thread. State backends know this Protocol alone; the worker chooses the storage
behind it, and the file of each piece.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from yarrow.runtime.snapshot.handles import FileStateHandle, StateHandle


class SnapshotOutput(Protocol):
    """One checkpoint's output of one task; every call may block and raises SnapshotStorageError or OSError."""

    def write(self, chunks: Iterable[bytes]) -> StateHandle:
        """Stores the chunks as one piece: inline when small, else in the worker's file of this checkpoint.

        The chunks are consumed one by one, so that a generator keeps little in memory.
        """
        ...

    def write_shared_file(self, local_path: str) -> FileStateHandle:
        """Uploads a local file that later checkpoints may reference, under a unique name."""
        ...

    def write_own_file(self, local_path: str) -> StateHandle:
        """Uploads a local file of this checkpoint alone; small ones become inline."""
        ...
