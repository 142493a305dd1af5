"""hdfs:// files through WebHDFS.

Owner: any thread. A session is used by one thread at a time: each call, each open stream borrows one and gives it
back. `hdfs://host:port/` names the RPC port of a name node. The HTTP address comes from Hadoop's own configuration
(hdfs_settings) or is the same host at the default HTTP port. What may not be sent twice is looked at first; errors and
repeats are those of webhdfs_requests.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, BinaryIO, TypeVar, cast
from urllib.parse import urlsplit

from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.fs.file_system import FileStatus
from yarrow.runtime.fs.hdfs_settings import hadoop_configuration, http_addresses, named_folders
from yarrow.runtime.fs.webhdfs_requests import UnknownRequestOutcomeError, length_of, our_error, repeated
from yarrow.runtime.fs.webhdfs_sessions import SessionPool, pool_of
from yarrow.runtime.fs.webhdfs_streams import WebHdfsReader, WebHdfsWriter

T = TypeVar("T")
_CHUNK = 1 << 20


class WebHdfsFileSystem:
    """Paths of one HDFS; `pool` has the sessions."""

    def __init__(self, pool: SessionPool, prefix: str) -> None:
        self._pool = pool
        self._prefix = prefix

    @staticmethod
    def for_path(path: str) -> WebHdfsFileSystem:
        """The file system that an `hdfs://` or `webhdfs://` URL names."""
        address = urlsplit(path)
        prefix = f"{address.scheme}://{address.netloc}"
        return WebHdfsFileSystem(pool_of(prefix, _addresses(prefix, named_folders())), prefix)

    def status(self, path: str) -> FileStatus:
        """The status of `path`."""
        return self._as_status(path, self._ask(path, lambda client: client.status(self._plain(path))))

    def list(self, path: str) -> list[FileStatus]:
        """The entries of a folder, by name."""
        entries = self._ask(path, lambda client: client.list(self._plain(path), status=True))
        base = path.rstrip("/")
        return [self._as_status(f"{base}/{name}", entry) for name, entry in sorted(entries)]

    def open(self, path: str) -> BinaryIO:
        """A seekable stream; each jump opens a new request."""
        size = self.status(path).size
        return cast(
            BinaryIO, io.BufferedReader(WebHdfsReader(self._pool, self._plain(path), path, size), _CHUNK)
        )

    def create(self, path: str, replication: int = 0) -> BinaryIO:
        """A stream to a new file; visible while it is written, so callers write under a hidden name."""
        if self._find(path) is not None:
            raise FileExistsError(f"{path} exists; files are never overwritten")
        writer = WebHdfsWriter(self._pool, self._plain(path), path, replication)
        return cast(BinaryIO, io.BufferedWriter(writer, _CHUNK))

    def rename(self, source: str, target: str) -> None:
        """Gives a file another name; the name node refuses an existing target."""
        if self._find(target) is not None:
            raise FileExistsError(f"{target} exists; rename does not replace its target")
        self.status(source)
        self.make_dirs(target.rpartition("/")[0] or self._prefix)
        sent = False

        def attempt(client: Any) -> None:
            nonlocal sent
            # An earlier attempt may have been carried out, its answer lost.
            if sent and self._is_there(client, target) and not self._is_there(client, source):
                return
            try:
                client.rename(self._plain(source), self._plain(target))
            except Exception as error:
                sent = sent or isinstance(
                    our_error(f"{source} -> {target}", error), UnknownRequestOutcomeError
                )
                raise

        self._ask(source, attempt, target)

    def delete(self, path: str, recursive: bool = False) -> bool:
        """Remove the file or folder at `path`; False if there was none."""
        plain = self._plain(path)
        return bool(self._ask(path, lambda client: client.delete(plain, recursive=recursive)))

    def make_dirs(self, path: str) -> None:
        """Makes a folder and those above it."""
        self._ask(path, lambda client: client.makedirs(self._plain(path)))

    def touch(self, path: str, accessed_ms: int) -> None:
        """Set the time of the last use.

        The time of modification stays: YARN takes a file with another one for another file.

        Refused where dfs.namenode.accesstime.precision is 0.
        """
        plain = self._plain(path)
        self._ask(path, lambda client: client.set_times(plain, access_time=accessed_ms))

    def home(self) -> str:
        """The URL of the home directory of whom HDFS takes this process for."""
        found = self._ask(self._prefix, lambda client: client.resolve("."))
        return f"{self._prefix}{found}"

    def _ask(self, path: str, request: Callable[[Any], T], *others: str) -> T:
        return repeated(self._pool, path, request, *others)

    def _find(self, path: str) -> FileStatus | None:
        try:
            return self.status(path)
        except FileNotFoundError:
            return None

    def _is_there(self, client: Any, path: str) -> bool:
        return length_of(client, self._plain(path), path) is not None

    def _plain(self, path: str) -> str:
        if not path.startswith(self._prefix):
            raise FileSystemError(
                f"{path} lies outside of {self._prefix}: take the file system of its own URL"
            )
        return path[len(self._prefix) :] or "/"

    @staticmethod
    def _as_status(path: str, entry: Mapping[str, Any]) -> FileStatus:
        return FileStatus(
            path,
            entry["type"] == "DIRECTORY",
            int(entry["length"]),
            int(entry["modificationTime"]),
            int(entry.get("accessTime", 0)),
        )


@lru_cache(maxsize=64)
def _addresses(prefix: str, folders: tuple[str, ...]) -> tuple[str, ...]:
    """Hadoop's files are read once for each HDFS, not once for each path: nobody changes them under a process."""
    return tuple(http_addresses(f"{prefix}/", hadoop_configuration()))
