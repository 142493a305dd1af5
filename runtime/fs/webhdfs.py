"""hdfs:// files through WebHDFS: the one module that knows the HDFS client.

Owner: any thread. A session is used by one thread at a time: each call, each open stream borrows one and gives it
back. `hdfs://host:port/` names the RPC port of a name node; the HTTP address comes from Hadoop's own configuration
(hdfs_settings) or is the same host at the default HTTP port. What fails because HDFS restarts, fails over or is in safe
mode is repeated for a while; what may not be sent twice is looked at first. Errors of the client do not leave this
module: they become OSErrors of the matching kind or FileSystemError.
"""

from __future__ import annotations

import io
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, BinaryIO, TypeVar, cast
from urllib.parse import urlsplit

from yarrow.runtime.config.options import cluster
from yarrow.runtime.fs.file_system import FileStatus, FileSystemError
from yarrow.runtime.fs.hdfs_settings import (
    hadoop_configuration,
    hdfs_settings,
    http_addresses,
    named_folders,
)
from yarrow.runtime.fs.retries import Retries, TransientError
from yarrow.runtime.fs.webhdfs_sessions import SessionPool, pool_of

T = TypeVar("T")
_CHUNK = 1 << 20
#: Chunks that may wait for the data node before `write` waits too.
_WAITING_CHUNKS = 4
#: Chunks kept until the file is whole, so that they can be sent again where HDFS took none of them.
_KEPT_CHUNKS = 4

_ERRORS: Mapping[str, type[OSError]] = {
    "FileNotFoundException": FileNotFoundError,
    "FileAlreadyExistsException": FileExistsError,
    "AccessControlException": PermissionError,
    "PathIsNotEmptyDirectoryException": OSError,
}
_SAFE_MODE = "SafeModeException"
#: What nodes answer while they, or those they ask, are on their way down or up. None of it has changed anything.
_PASSING = frozenset(
    {
        _SAFE_MODE,
        "StandbyException",
        "RetriableException",
        "ConnectException",
        "NoRouteToHostException",
        "ConnectTimeoutException",
        "BlockMissingException",
    }
)
#: The connection between two nodes broke in the middle of a request: whether it has changed something is not known.
_BROKEN = frozenset({"EOFException", "SocketException", "SocketTimeoutException", "ClosedChannelException"})
#: An answer with one of these: no data node has come back yet, or a web server is up before what it serves.
_NOT_READY = (
    "could only be written to 0 of",
    "Failed to find datanode",
    "No active nodes contain this block",
    "No active and not excluded nodes contain this block",
    "Service Unavailable",
)
#: An answer with the first means the second.
_NOT_LET_IN = (
    (
        "SecretManager$InvalidToken",
        "HDFS does not know the delegation token (any more): it was cancelled, or has reached its maximum lifetime;"
        " start the application, or log in, anew",
    ),
    (
        "Authentication failure",
        "HDFS asks for Kerberos, and the Hadoop configuration of this process does not: HADOOP_CONF_DIR must name"
        " the cluster's own (hadoop.security.authentication: kerberos)",
    ),
)


class _UnknownOutcomeError(TransientError):
    """Failed after the request was sent: it may have been carried out."""


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
        """What `path` is."""
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
            BinaryIO, io.BufferedReader(_HdfsReader(self._pool, self._plain(path), path, size), _CHUNK)
        )

    def create(self, path: str, replication: int = 0) -> BinaryIO:
        """A stream to a new file; visible while it is written, so callers write under a hidden name."""
        if self._find(path) is not None:
            raise FileExistsError(f"{path} exists; files are never overwritten")
        writer = _HdfsWriter(self._pool, self._plain(path), path, replication)
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
                sent = sent or isinstance(_our_error(f"{source} -> {target}", error), _UnknownOutcomeError)
                raise

        self._ask(f"{source} -> {target}", attempt)

    def delete(self, path: str, recursive: bool = False) -> bool:
        """Removes what is at `path`; False when nothing was."""
        plain = self._plain(path)
        return bool(self._ask(path, lambda client: client.delete(plain, recursive=recursive)))

    def make_dirs(self, path: str) -> None:
        """Makes a folder and those above it."""
        self._ask(path, lambda client: client.makedirs(self._plain(path)))

    def touch(self, path: str, accessed_ms: int) -> None:
        """Sets the time of the last use. That of modification stays: YARN takes a file for another one without it.

        Refused where dfs.namenode.accesstime.precision is 0.
        """
        plain = self._plain(path)
        self._ask(path, lambda client: client.set_times(plain, access_time=accessed_ms))

    def home(self) -> str:
        """The URL of the home directory of whom HDFS takes this process for."""
        found = self._ask(self._prefix, lambda client: client._get_home_directory("/").json()["Path"])
        return f"{self._prefix}{found}"

    def _ask(self, path: str, request: Callable[[Any], T]) -> T:
        return _repeated(self._pool, path, request)

    def _find(self, path: str) -> FileStatus | None:
        try:
            return self.status(path)
        except FileNotFoundError:
            return None

    def _is_there(self, client: Any, path: str) -> bool:
        return _length(client, self._plain(path), path) is not None

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


def _retries() -> Retries:
    return Retries(hdfs_settings().retry_seconds, cluster.WEBHDFS_RETRY_TIMEOUT.key)


def _repeated(pool: SessionPool, path: str, request: Callable[[Any], T]) -> T:
    """The answer to a request that may be sent twice."""

    def attempt(failures: int) -> T:
        with pool.session() as client, _translated(path):
            return request(client)

    return _retries().run(attempt)


def _length(client: Any, plain: str, path: str) -> int | None:
    """Of a file; None where there is nothing."""
    with _translated(path):
        try:
            return int(client.status(plain)["length"])
        except Exception as error:
            if isinstance(_our_error(path, error), FileNotFoundError):
                return None
            raise


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Turns errors of the client into ours."""
    try:
        yield
    except Exception as error:
        ours = _our_error(path, error)
        if ours is error:
            raise
        raise ours from error


def _our_error(path: str, error: Exception) -> Exception:
    """What an error of the client is to callers; others stay what they are."""
    import hdfs
    import requests
    import urllib3.exceptions

    if isinstance(error, hdfs.HdfsError):
        return _refusal(path, error.exception or "", str(error))
    if isinstance(error, requests.RequestException | urllib3.exceptions.HTTPError):
        text = (
            f"{path}: WebHDFS cannot be reached ({error}); check the address, that dfs.webhdfs.enabled is "
            "true, and that the names of the data nodes resolve from here"
        )
        never_sent = isinstance(error, requests.ConnectTimeout) or "NewConnectionError" in repr(error)
        return TransientError(text) if never_sent else _UnknownOutcomeError(text)
    if isinstance(error, ConnectionError):
        return _UnknownOutcomeError(f"{path}: the connection to HDFS broke: {error}")
    return error


def _refusal(path: str, exception: str, said: str) -> Exception:
    for sign, sentence in _NOT_LET_IN:
        if sign in said:
            return FileSystemError(f"{path}: {sentence}")
    kind = _ERRORS.get(exception)
    if kind is None and "does not exist" in said:
        kind = FileNotFoundError
    if kind is not None:
        return kind(f"{path}: {said}")
    if exception == _SAFE_MODE or "in safe mode" in said:
        return TransientError(
            f"{path}: the NameNode is in safe mode and takes no changes: it leaves it once enough DataNodes have"
            f" reported, or by `hdfs dfsadmin -safemode leave` ({said})"
        )
    if exception in _PASSING or any(sign in said for sign in _NOT_READY):
        return TransientError(f"{path}: HDFS cannot answer yet: {exception}: {said}")
    if exception in _BROKEN:
        return _UnknownOutcomeError(f"{path}: HDFS broke off: {exception}: {said}")
    return FileSystemError(f"{path}: HDFS refused: {said}")


class _HdfsReader(io.RawIOBase):
    """Random access over a sequential protocol: reads on while positions follow each other."""

    def __init__(self, pool: SessionPool, path: str, name: str, size: int) -> None:
        super().__init__()
        self._pool = pool
        self._path = path
        self._name = name
        self._size = size
        self._position = 0
        self._client: Any = None
        self._request: Any = None
        self._stream: Any = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = (0, self._position, self._size)[whence]
        if base + offset != self._position:
            self._end_request()
            self._position = base + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        if self._position >= self._size:
            return 0
        data = _retries().run(lambda failures: self._read(len(buffer)))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def _read(self, size: int) -> bytes:
        try:
            with _translated(self._name):
                if self._stream is None:
                    self._client = self._pool.take()
                    self._request = self._client.read(self._path, offset=self._position)
                    self._stream = self._request.__enter__()
                data = cast(bytes, self._stream.read(size))
        except BaseException:
            self._end_request()
            raise
        if not data:
            self._end_request()
            raise TransientError(f"{self._name}: ended at byte {self._position} of {self._size}")
        return data

    def close(self) -> None:
        if not self.closed:
            self._end_request()
            super().close()

    def _end_request(self) -> None:
        request, entered = self._request, self._stream is not None
        client, self._client, self._request, self._stream = self._client, None, None, None
        if request is not None and entered:
            request.__exit__(None, None, None)
        if client is not None:
            self._pool.give_back(client)


class _HdfsWriter(io.RawIOBase):
    """A stream whose bytes a thread of its own sends; `write` waits when the data node is slower."""

    def __init__(self, pool: SessionPool, path: str, name: str, replication: int) -> None:
        super().__init__()
        self._pool = pool
        self._path = path
        self._name = name
        self._replication = replication or None
        self._chunks: queue.Queue[bytes | None] = queue.Queue(_WAITING_CHUNKS)
        #: What was taken from the queue, while that is little enough to be kept.
        self._kept: list[bytes | None] = []
        self._taken = 0
        self._error: BaseException | None = None
        self._written = 0
        self._sender = threading.Thread(target=self._send, name=f"webhdfs {path}", daemon=True)
        self._sender.start()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        chunk = bytes(data)
        if chunk:
            self._put(chunk)
            self._written += len(chunk)
        return len(chunk)

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        self._put(None)
        self._sender.join()
        self._raise_error()
        length = _repeated(self._pool, self._name, lambda client: _length(client, self._path, self._name))
        if length != self._written:
            held = "no such file" if length is None else length
            raise FileSystemError(f"{self._name}: {self._written} bytes were written, HDFS holds {held}")

    def _send(self) -> None:
        try:
            _retries().run(self._attempt)
        except BaseException as error:
            self._error = error

    def _attempt(self, failures: int) -> None:
        with self._pool.session() as client:
            try:
                with _translated(self._name):
                    client.write(
                        self._path, data=self._data(), overwrite=False, replication=self._replication
                    )
            except TransientError as error:
                if self._taken > len(self._kept):
                    raise FileSystemError(f"{error}; what was sent of it cannot be sent again") from error
                if isinstance(error, _UnknownOutcomeError) and self._has_begun(client):
                    raise FileSystemError(f"{error}; a part of it may be there") from error
                raise

    def _has_begun(self, client: Any) -> bool:
        """Whether HDFS made the file; where that cannot be known now, it may have."""
        try:
            return _length(client, self._path, self._name) is not None
        except FileSystemError:
            return True

    def _data(self) -> Iterator[bytes]:
        """What was sent in vain before, then what comes."""
        for chunk in tuple(self._kept):
            if chunk is None:
                return
            yield chunk
        while True:
            chunk = self._chunks.get()
            self._taken += 1
            if len(self._kept) == self._taken - 1 and self._taken <= _KEPT_CHUNKS:
                self._kept.append(chunk)
            else:
                self._kept.clear()
            if chunk is None:
                return
            yield chunk

    def _put(self, chunk: bytes | None) -> None:
        while self._sender.is_alive():
            try:
                self._chunks.put(chunk, timeout=0.5)
            except queue.Full:
                continue
            return
        self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error
