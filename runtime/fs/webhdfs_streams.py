"""Streams to and from files of WebHDFS.

Owner: the thread that opened the stream, which borrows a session for as long as a request lasts. A writer has a thread
of its own that sends. What was sent is not sent again unless all of it was kept. They must not know folders or names
of other files.
"""

from __future__ import annotations

import io
import queue
import threading
from collections.abc import Iterator
from typing import Any, cast

from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.fs.retries import TransientError
from yarrow.runtime.fs.webhdfs_requests import (
    UnknownRequestOutcomeError,
    length_of,
    repeated,
    retries,
    translated,
)
from yarrow.runtime.fs.webhdfs_sessions import SessionPool

#: Chunks that may wait for the data node before `write` waits too.
_WAITING_CHUNKS = 4
#: Chunks kept until the file is whole, so that they can be sent again if HDFS took none of them.
_KEPT_CHUNKS = 4


class WebHdfsReader(io.RawIOBase):
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
        data = retries().run(lambda failures: self._read(len(buffer)), self._name)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def _read(self, size: int) -> bytes:
        try:
            with translated(self._name):
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
            raise TransientError(
                f"{self._name}: the answer of HDFS ended at byte {self._position} of {self._size}"
            )
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


class WebHdfsWriter(io.RawIOBase):
    """A stream whose bytes a thread of its own sends; `write` waits when the data node is slower."""

    def __init__(self, pool: SessionPool, path: str, name: str, replication: int) -> None:
        super().__init__()
        self._pool = pool
        self._path = path
        self._name = name
        self._replication = replication or None
        self._chunks: queue.Queue[bytes | None] = queue.Queue(_WAITING_CHUNKS)
        #: The chunks taken from the queue, while they are few enough to keep.
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
        length = repeated(self._pool, self._name, lambda client: length_of(client, self._path, self._name))
        if length != self._written:
            held = "no such file" if length is None else length
            raise FileSystemError(f"{self._name}: {self._written} bytes were written, HDFS holds {held}")

    def _send(self) -> None:
        try:
            retries().run(self._attempt, self._name)
        except BaseException as error:
            self._error = error

    def _attempt(self, failures: int) -> None:
        with self._pool.session() as client:
            try:
                with translated(self._name):
                    client.write(
                        self._path, data=self._data(), overwrite=False, replication=self._replication
                    )
            except TransientError as error:
                if self._taken > len(self._kept):
                    raise FileSystemError(
                        f"{error}; the part of the file that was sent cannot be sent again"
                    ) from error
                if isinstance(error, UnknownRequestOutcomeError) and self._has_begun(client):
                    raise FileSystemError(f"{error}; a part of the file may exist") from error
                raise

    def _has_begun(self, client: Any) -> bool:
        """Whether HDFS made the file; where that cannot be known now, it may have."""
        try:
            return length_of(client, self._path, self._name) is not None
        except FileSystemError:
            return True

    def _data(self) -> Iterator[bytes]:
        """The bytes of a former request that failed, then the new ones."""
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
