"""SnapshotOutput: where the asynchronous part of a snapshot writes its bytes.

Owner: the worker's snapshot thread. State backends know this Protocol alone; which storage lies behind it, and which
file a piece goes to, is the worker's.
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
        """Uploads a local file that later checkpoints may refer to, under a name used once."""
        ...

    def write_own_file(self, local_path: str) -> StateHandle:
        """Uploads a local file that belongs to this checkpoint alone; small ones become inline."""
        ...
