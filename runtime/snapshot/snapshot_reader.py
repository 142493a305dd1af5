"""Reading the pieces of a snapshot: resolved against the folder of its metadata, and verified.

Owner: any thread; calls block. A reader holds no open files. Bytes leave it only when their length and SHA-256 are
those that the handle says.
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
    """The path of a handle: itself when absolute or with a scheme, else below `directory`.

    Raises CorruptSnapshotError for a relative path that leads out of the folder.
    """
    if path.startswith(("/", "file:")) or scheme_of(path) != "file":
        return path
    if ".." in path.split("/"):
        raise CorruptSnapshotError(directory, f"its metadata name a file outside of the folder: {path!r}")
    return join(directory, path)


class SnapshotReader:
    """Pieces of one checkpoint or savepoint; `directory` is the folder of its `_metadata`.

    A storage without files overrides `where` and `stored`; what they give is verified here.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def read(self, handle: StateHandle, of: str = "") -> bytes:
        """The bytes of a handle; `of` names in errors whose they are, for instance "operator 'x', state 'y'".

        Raises CorruptSnapshotError where they are not those written, SnapshotStorageError where they cannot be read.
        """
        if isinstance(handle, InlineStateHandle):
            return handle.data
        return b"".join(self._chunks(handle, of))

    def of(self, owner: str) -> Callable[[StateHandle], bytes]:
        """`read` with the name of whose bytes they are."""
        return lambda handle: self.read(handle, owner)

    def copy(self, handle: StateHandle, local_path: str, of: str = "") -> None:
        """The bytes of a handle as a new local file, which is removed again where they are not those written."""
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
        """The whole name of what a handle points at; storages without files have names of their own."""
        return resolve(handle.path, self._directory)

    def stored(self, handle: FileStateHandle) -> Iterator[bytes]:
        """The bytes as they are stored, unverified and no more than were written; OSError where there are none."""
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
        """The bytes piece by piece; the error that they are wrong comes after the last."""
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
