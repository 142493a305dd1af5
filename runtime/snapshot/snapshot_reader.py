"""Reads the pieces of a snapshot: paths are resolved against the folder of its metadata, and bytes are verified.

Owner: any thread; calls block. A reader holds no open files. It returns bytes only if their length and
SHA-256 are those of the handle.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from typing import Final

from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.common.paths import join, scheme_of
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.snapshot.errors import CorruptSnapshotError, SnapshotStorageError
from yarrow.runtime.snapshot.handles import FileStateHandle, InlineStateHandle, StateHandle

_CHUNK: Final = 1 << 20


def resolve(path: str, directory: str) -> str:
    """The path of a handle: itself if absolute or with a scheme, else below `directory`.

    Raises CorruptSnapshotError for a relative path that leads out of the folder.
    """
    if path.startswith(("/", "file:")) or scheme_of(path) != "file":
        return path
    if ".." in path.split("/"):
        raise CorruptSnapshotError(directory, f"its metadata name a file outside of the folder: {path!r}")
    return join(directory, path)


class SnapshotReader:
    """Pieces of one checkpoint or savepoint; `directory` is the folder of its `_metadata`.

    A storage without files overrides `where` and `stored`; this class verifies their bytes.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def read(self, handle: StateHandle, of: str = "") -> bytes:
        """The bytes of a handle; `of` names their owner in errors, for instance "operator 'x', state 'y'".

        Raises CorruptSnapshotError for wrong bytes, SnapshotStorageError for unreadable ones.
        """
        if isinstance(handle, InlineStateHandle):
            return handle.data
        return b"".join(self._chunks(handle, of))

    def of(self, owner: str) -> Callable[[StateHandle], bytes]:
        """`read` with a fixed owner."""
        return lambda handle: self.read(handle, owner)

    def copy(self, handle: StateHandle, local_path: str, of: str = "") -> None:
        """Copies the bytes of a handle to a new local file, which is removed again if they are wrong."""
        try:
            with open(local_path, "xb") as target:
                if isinstance(handle, InlineStateHandle):
                    target.write(handle.data)
                else:
                    for chunk in self._chunks(handle, of):
                        target.write(chunk)
        except FileExistsError:
            raise
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(local_path)
            raise

    def where(self, handle: FileStateHandle) -> str:
        """The whole name of a handle's content; storages without files have their own names."""
        return resolve(handle.path, self._directory)

    def stored(self, handle: FileStateHandle) -> Iterator[bytes]:
        """The stored bytes, unverified and no more than were written. Raises OSError if there are none."""
        path, left = self.where(handle), handle.length
        with file_system_for(path).open(path) as stream:
            stream.seek(handle.offset)
            while left:
                chunk = stream.read(min(left, _CHUNK))
                if not chunk:
                    break
                left -= len(chunk)
                yield chunk

    def _chunks(self, handle: FileStateHandle, of: str) -> Iterator[bytes]:
        """The bytes piece by piece; the error for wrong bytes comes after the last."""
        path = self.where(handle)
        whose = f"{of}: " if of else ""
        digest = hashlib.sha256()
        left = handle.length
        try:
            for chunk in self.stored(handle):
                left -= len(chunk)
                digest.update(chunk)
                yield chunk
        except (OSError, FileSystemError) as error:
            raise SnapshotStorageError(
                f"{whose}the state file {path} cannot be read ({error}). Put the file back or make it readable, or "
                "restore from another checkpoint or savepoint."
            ) from error
        if left:
            raise CorruptSnapshotError(
                path,
                f"{whose}{handle.length} bytes at {handle.offset} were written, {left} of them are missing: truncated",
            )
        if digest.digest() != handle.sha256:
            raise CorruptSnapshotError(
                path,
                f"{whose}the {handle.length} bytes at {handle.offset} are not those written (SHA-256 differs)",
            )
