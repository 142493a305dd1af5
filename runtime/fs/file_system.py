"""One small interface over local and hdfs:// files, for connectors, blob stores and snapshots.

Owner: any thread (file systems hold no state but a connection); every call may block. A path is a local path, a
`file://` URL or an `hdfs://` URL. Must not know who reads or writes (no formats, no buckets here), nor which file
systems there are: `registry` finds the one of a path. Calls raise FileSystemError for a request that storage
refuses. Writing is create-once: nothing is ever appended to or overwritten, and `rename` never replaces its
target.
"""

from __future__ import annotations

import posixpath
from typing import BinaryIO, Protocol

import msgspec


class FileStatus(msgspec.Struct, frozen=True):
    """One entry of a listing; `path` is complete, in the form that the caller used."""

    path: str
    is_dir: bool
    size: int
    modified_ms: int
    #: Time of the last use, as exact as storage keeps it (HDFS: an hour); it may be the time of the last
    #: change.
    accessed_ms: int = 0

    @property
    def name(self) -> str:
        """The last part of the path."""
        return posixpath.basename(self.path.rstrip("/"))


class FileSystem(Protocol):
    """The interface of a storage. Missing paths raise FileNotFoundError, existing targets FileExistsError."""

    def status(self, path: str) -> FileStatus:
        """The status of `path`."""
        ...

    def list(self, path: str) -> list[FileStatus]:
        """The entries of a folder, by name."""
        ...

    def open(self, path: str) -> BinaryIO:
        """A seekable, buffered stream of the file's bytes."""
        ...

    def create(self, path: str, replication: int = 0) -> BinaryIO:
        """A stream to a new file, made with its folders; what was written is durable when `close` returns.

        `replication`: copies to keep, where storage keeps several; 0 = as it is set up.
        """
        ...

    def rename(self, source: str, target: str) -> None:
        """Gives a file another name in one step.

        A reader sees the old name or the new one, and the whole file.
        """
        ...

    def delete(self, path: str, recursive: bool = False) -> bool:
        """Removes a file, an empty folder, or with `recursive` a whole one; False when it was not there."""
        ...

    def make_dirs(self, path: str) -> None:
        """Make a folder and its parents; no error if the folder exists."""
        ...

    def touch(self, path: str, accessed_ms: int) -> None:
        """Sets the time of the last use of a file, and nothing else of it. FileSystemError where storage keeps none."""
        ...


def exists(file_system: FileSystem, path: str) -> bool:
    """Whether there is a file or folder at `path`."""
    try:
        file_system.status(path)
    except FileNotFoundError:
        return False
    return True
