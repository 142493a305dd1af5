"""hdfs:// files through WebHDFS: the one module that knows the HDFS client.

Owner: any thread; a connection belongs to the thread that asked for it, because an HTTP session is not shared
between threads. `hdfs://host:port/` names the RPC port of a name node; the HTTP address comes from Hadoop's
own configuration (HADOOP_CONF_DIR) or is the same host at the default HTTP port. Errors of the client do
not leave this module: they become OSErrors of the matching kind or FileSystemError.
"""

from __future__ import annotations

import getpass
import io
import os
import queue
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

from yarrow.runtime.fs.file_system import FileStatus, FileSystemError

#: Default of `dfs.namenode.http-address` since Hadoop 3.
DEFAULT_HTTP_PORT = 9870
_CHUNK = 1 << 20
#: Chunks that may wait for the data node before `write` waits too.
_WAITING_CHUNKS = 4
_CONNECT_AND_READ_SECONDS = (10.0, 120.0)

_ERRORS: Mapping[str, type[OSError]] = {
    "FileNotFoundException": FileNotFoundError,
    "FileAlreadyExistsException": FileExistsError,
    "AccessControlException": PermissionError,
    "PathIsNotEmptyDirectoryException": OSError,
}
_connections = threading.local()


class WebHdfsFileSystem:
    """Paths of one HDFS; `client` is a client of the package `hdfs`."""

    def __init__(self, client: Any, prefix: str) -> None:
        self._client = client
        self._prefix = prefix

    @staticmethod
    def for_path(path: str) -> WebHdfsFileSystem:
        """The file system that an `hdfs://` or `webhdfs://` URL names, on this thread's connection."""
        address = urlsplit(path)
        prefix = f"{address.scheme}://{address.netloc}"
        known: dict[str, Any] = _connections.__dict__.setdefault("clients", {})
        if prefix not in known:
            known[prefix] = _connect(http_addresses(path, hadoop_configuration()))
        return WebHdfsFileSystem(known[prefix], prefix)

    def status(self, path: str) -> FileStatus:
        """What `path` is."""
        with _translated(path):
            return self._as_status(path, self._client.status(self._plain(path)))

    def list(self, path: str) -> list[FileStatus]:
        """The entries of a folder, by name."""
        with _translated(path):
            entries = self._client.list(self._plain(path), status=True)
        base = path.rstrip("/")
        return [self._as_status(f"{base}/{name}", entry) for name, entry in sorted(entries)]

    def open(self, path: str) -> BinaryIO:
        """A seekable stream; each jump opens a new request."""
        size = self.status(path).size
        return cast(BinaryIO, io.BufferedReader(_HdfsReader(self._client, self._plain(path), size), _CHUNK))

    def create(self, path: str) -> BinaryIO:
        """A stream to a new file; visible while it is written, so callers write under a hidden name."""
        with _translated(path):
            if self._client.status(self._plain(path), strict=False) is not None:
                raise FileExistsError(f"{path} exists; files are never overwritten")
        return cast(BinaryIO, io.BufferedWriter(_HdfsWriter(self._client, self._plain(path), path), _CHUNK))

    def rename(self, source: str, target: str) -> None:
        """Gives a file another name; the name node refuses an existing target."""
        with _translated(f"{source} -> {target}"):
            if self._client.status(self._plain(target), strict=False) is not None:
                raise FileExistsError(f"{target} exists; rename does not replace its target")
            self._client.status(self._plain(source))
            self._client.makedirs(self._plain(target).rpartition("/")[0] or "/")
            self._client.rename(self._plain(source), self._plain(target))

    def delete(self, path: str, recursive: bool = False) -> bool:
        """Removes what is at `path`; False when nothing was."""
        with _translated(path):
            return bool(self._client.delete(self._plain(path), recursive=recursive))

    def make_dirs(self, path: str) -> None:
        """Makes a folder and those above it."""
        with _translated(path):
            self._client.makedirs(self._plain(path))

    def _plain(self, path: str) -> str:
        if not path.startswith(self._prefix):
            raise FileSystemError(
                f"{path} lies outside of {self._prefix}: take the file system of its own URL"
            )
        return path[len(self._prefix) :] or "/"

    @staticmethod
    def _as_status(path: str, entry: Mapping[str, Any]) -> FileStatus:
        return FileStatus(
            path, entry["type"] == "DIRECTORY", int(entry["length"]), int(entry["modificationTime"])
        )


def hadoop_configuration() -> dict[str, str]:
    """Properties of core-site.xml and hdfs-site.xml in HADOOP_CONF_DIR; empty where there is none."""
    folder = os.environ.get("HADOOP_CONF_DIR")
    properties: dict[str, str] = {}
    for name in ("core-site.xml", "hdfs-site.xml") if folder else ():
        file = Path(folder or "") / name
        if not file.exists():
            continue
        for entry in ElementTree.parse(file).getroot().iter("property"):
            properties[entry.findtext("name", "").strip()] = entry.findtext("value", "").strip()
    return properties


def http_addresses(path: str, properties: Mapping[str, str]) -> list[str]:
    """The WebHDFS addresses of the name nodes that `path` means, in the order to try them.

    Raises FileSystemError for `hdfs:///path` when no default file system is configured.
    """
    address = urlsplit(path)
    if address.scheme == "webhdfs" and address.netloc:
        return [f"http://{address.netloc}"]
    if not address.netloc:
        default = urlsplit(properties.get("fs.defaultFS", ""))
        if default.scheme != "hdfs" or not default.netloc:
            raise FileSystemError(
                f"{path} names no name node and fs.defaultFS is not set: write hdfs://host:port/... or set "
                "HADOOP_CONF_DIR to the folder of core-site.xml"
            )
        address = default
    secure = properties.get("dfs.http.policy") == "HTTPS_ONLY"
    scheme, key = ("https", "dfs.namenode.https-address") if secure else ("http", "dfs.namenode.http-address")
    name_nodes = properties.get(f"dfs.ha.namenodes.{address.netloc}", "")
    if name_nodes:
        named = [properties.get(f"{key}.{address.netloc}.{node.strip()}") for node in name_nodes.split(",")]
        return [f"{scheme}://{node}" for node in named if node]
    host_port = properties.get(key, "")
    host, _, port = host_port.rpartition(":")
    if host in ("", "0.0.0.0"):
        host = address.hostname or "localhost"
    return [f"{scheme}://{host}:{port or DEFAULT_HTTP_PORT}"]


def _connect(addresses: list[str]) -> Any:
    import hdfs

    user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    return hdfs.InsecureClient(";".join(addresses), user=user, timeout=_CONNECT_AND_READ_SECONDS)


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Turns errors of the client into ours."""
    import hdfs
    import requests

    try:
        yield
    except hdfs.HdfsError as error:
        kind = _ERRORS.get(error.exception or "")
        if kind is None and "does not exist" in str(error):
            kind = FileNotFoundError
        if kind is not None:
            raise kind(f"{path}: {error}") from error
        raise FileSystemError(f"{path}: HDFS refused: {error}") from error
    except requests.RequestException as error:
        raise FileSystemError(
            f"{path}: WebHDFS cannot be reached ({error}); check the address, that dfs.webhdfs.enabled is "
            "true, and that the names of the data nodes resolve from here"
        ) from error


class _HdfsReader(io.RawIOBase):
    """Random access over a sequential protocol: reads on while positions follow each other."""

    def __init__(self, client: Any, path: str, size: int) -> None:
        super().__init__()
        self._client = client
        self._path = path
        self._size = size
        self._position = 0
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
        with _translated(self._path):
            if self._stream is None:
                self._request = self._client.read(self._path, offset=self._position)
                self._stream = self._request.__enter__()
            data = self._stream.read(len(buffer))
        if not data:
            raise FileSystemError(f"{self._path}: ended at byte {self._position} of {self._size}")
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._end_request()
            super().close()

    def _end_request(self) -> None:
        request, self._request, self._stream = self._request, None, None
        if request is not None:
            request.__exit__(None, None, None)


class _HdfsWriter(io.RawIOBase):
    """A stream whose bytes a thread of its own sends; `write` waits when the data node is slower."""

    def __init__(self, client: Any, path: str, name: str) -> None:
        super().__init__()
        self._client = client
        self._path = path
        self._name = name
        self._chunks: queue.Queue[bytes | None] = queue.Queue(_WAITING_CHUNKS)
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
        with _translated(self._name):
            length = self._client.status(self._path)["length"]
        if length != self._written:
            raise FileSystemError(f"{self._name}: {self._written} bytes were written, HDFS holds {length}")

    def _send(self) -> None:
        try:
            with _translated(self._name):
                self._client.write(self._path, data=iter(self._chunks.get, None), overwrite=False)
        except BaseException as error:
            self._error = error

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
