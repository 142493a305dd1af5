"""One small interface over local and hdfs:// files: what connectors, blob stores and snapshots do with
storage.

Owner: any thread (file systems hold no state but a connection); every call may block. A path is a local
path, a `file://` URL or an `hdfs://` URL. Must not know who reads or writes: no formats, no buckets here.
Writing is create-once: nothing is ever appended to or overwritten, and `rename` never replaces its target.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol
from urllib.parse import urlsplit

from yarrow.runtime.common.errors import YarrowError

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://")
#: Flink writes local files as file:/path too.
_NAMES_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:/")
_GLOB = re.compile(r"[*?\[]")


class FileSystemError(YarrowError):
    """A path that cannot be used: unknown scheme, unreachable name node, a refused operation."""


@dataclass(frozen=True, slots=True)
class FileStatus:
    """One entry of a listing; `path` is complete, in the form that the caller used."""

    path: str
    is_dir: bool
    size: int
    modified_ms: int
    #: Of the last use, as exact as storage keeps it (HDFS: an hour); it may be that of the last change.
    accessed_ms: int = 0

    @property
    def name(self) -> str:
        """The last part of the path."""
        return posixpath.basename(self.path.rstrip("/"))


class FileSystem(Protocol):
    """What storage must do. Missing paths raise FileNotFoundError, existing targets FileExistsError."""

    def status(self, path: str) -> FileStatus:
        """What `path` is."""
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
        """Gives a file another name in one step: a reader sees the old name or the new one, and the whole
        file.
        """
        ...

    def delete(self, path: str, recursive: bool = False) -> bool:
        """Removes a file, an empty folder, or with `recursive` a whole one; False when it was not there."""
        ...

    def make_dirs(self, path: str) -> None:
        """Makes a folder and those above it; no error when it is there."""
        ...

    def touch(self, path: str, accessed_ms: int) -> None:
        """Sets the time of the last use of a file, and nothing else of it. FileSystemError where storage keeps none."""
        ...


def scheme_of(path: str) -> str:
    """The scheme of a path in lower case; `file` for a plain path."""
    found = _SCHEME.match(path)
    return found.group(1).lower() if found else "file"


def with_default_scheme(path: str, default: str | None) -> str:
    """`path` as it is where it names its scheme; a plain one lies in the file system `default`, Flink's
    fs.default-scheme (`hdfs://host:port/`, None = local).

    Raises FileSystemError for a relative path, which only a local process has a folder for.
    """
    if default is None or scheme_of(default) == "file" or _NAMES_SCHEME.match(path):
        return path
    if not path.startswith("/"):
        raise FileSystemError(
            f"{path}: a relative path, while fs.default-scheme is {default}: write the whole path, such as"
            f" {default.rstrip('/')}/{path}, or file:///... for a local one"
        )
    found = urlsplit(default)
    return f"{found.scheme}://{found.netloc}{path}"


def file_system_for(path: str) -> FileSystem:
    """The file system of a path, by its scheme.

    Raises FileSystemError for a scheme without one.
    """
    scheme = scheme_of(path)
    if scheme == "file":
        from yarrow.runtime.fs.local import LocalFileSystem

        return LocalFileSystem()
    if scheme in ("hdfs", "webhdfs"):
        from yarrow.runtime.fs.webhdfs import WebHdfsFileSystem

        return WebHdfsFileSystem.for_path(path)
    raise FileSystemError(
        f"{path}: no file system for the scheme {scheme!r}; use a local path, file:///... or hdfs://host:port/..."
    )


def exists(file_system: FileSystem, path: str) -> bool:
    """Whether there is a file or folder at `path`."""
    try:
        file_system.status(path)
    except FileNotFoundError:
        return False
    return True


def join(base: str, *parts: str) -> str:
    """`base` with further parts, whatever its scheme; empty parts are left out."""
    return posixpath.join(base, *[part for part in parts if part])


def is_hidden(name: str) -> bool:
    """Names that begin with a dot or an underscore belong to writers at work, not to readers."""
    return name.startswith((".", "_"))


def find_files(path: str) -> list[FileStatus]:
    """The files that `path` stands for, by path: a file, a folder with all below it, or a pattern of `*?[`.

    Hidden files and folders are left out unless `path` names one itself. Raises FileNotFoundError naming
    the path when a plain path is missing; a pattern that matches nothing gives an empty list.
    """
    file_system = file_system_for(path)
    if _GLOB.search(path) and not exists(file_system, path):
        roots = list(_matches(file_system, path))
    else:
        roots = [file_system.status(path)]
    found = [file for root in roots for file in _files_below(file_system, root)]
    return sorted(found, key=lambda file: file.path)


def _files_below(file_system: FileSystem, root: FileStatus) -> Iterator[FileStatus]:
    if not root.is_dir:
        yield root
        return
    for entry in file_system.list(root.path):
        if not is_hidden(entry.name):
            yield from _files_below(file_system, entry)


def _matches(file_system: FileSystem, pattern: str) -> Iterator[FileStatus]:
    """Entries that match, level by level: `*` does not cross a folder, as in a shell."""
    scheme = _SCHEME.match(pattern)
    authority_end = pattern.find("/", scheme.end()) if scheme else -1
    prefix, rest = (pattern[:authority_end], pattern[authority_end:]) if scheme else ("", pattern)
    parts = rest.split("/")
    fixed = next(index for index, part in enumerate(parts) if _GLOB.search(part))
    start = prefix + "/".join(parts[:fixed]) if fixed else "."
    if fixed and not start.strip("/"):
        start = "/"
    try:
        level = [file_system.status(start)]
    except FileNotFoundError:
        return
    for part in parts[fixed:]:
        level = [
            entry
            for folder in level
            if folder.is_dir
            for entry in file_system.list(folder.path)
            if fnmatch.fnmatchcase(entry.name, part)
            and (part.startswith((".", "_")) or not is_hidden(entry.name))
        ]
    yield from level
