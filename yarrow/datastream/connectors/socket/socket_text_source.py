"""SocketTextSource: lines of text from a TCP server, for trying things out.

Owner: a thread of its own (the source is `blocking`). What was read cannot be read again: after a failure
lines are lost, and the source says so by `replay`.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.datastream.connectors.base import (
    Boundedness,
    NothingAvailable,
    Replay,
    Source,
    SourceReaderContext,
    SourceRecords,
    SourceSplit,
    SplitEnumeratorContext,
)
from yarrow.datastream.connectors.split_reading import OneByOneReader, OnRequestEnumerator, unassigned_or
from yarrow.runtime.common.errors import YarrowError

#: A poll gives up after so many seconds without data, so that the task can be cancelled.
_READ_TIMEOUT = 0.1
_CONNECT_TIMEOUT = 5.0
_RECONNECT_AFTER = 0.5
_CHUNK = 1 << 16
_LONGEST_LINE = 16 << 20


class SocketSourceError(YarrowError):
    """The server cannot be reached, or sends bytes that are no text."""


@dataclass(frozen=True, slots=True)
class SocketSplit(SourceSplit):
    """The one connection."""

    @property
    def split_id(self) -> str:
        return "socket"


class SocketTextSource(Source[str, SocketSplit]):
    """Lines from `hostname`:`port`, without their delimiter; ends when the server closes the connection.

    With `max_retry` above 0 a connection that ends or fails is retried that often, counted from the last
    data. Retries are half a second apart. With -1 it is retried for ever. Give the operator parallelism 1.
    """

    blocking = True
    replay = Replay.NONE

    def __init__(self, hostname: str, port: int, delimiter: str = "\n", max_retry: int = 0) -> None:
        if not 0 < port < 65536:
            raise ValueError(f"SocketTextSource: port must be between 1 and 65535, not {port}")
        if not delimiter:
            raise ValueError("SocketTextSource: delimiter must not be empty")
        if max_retry < -1:
            raise ValueError(f"SocketTextSource: max_retry must be -1 (for ever) or more, not {max_retry}")
        self._address = (hostname, port)
        self._delimiter = delimiter
        self._max_retry = max_retry

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(
        self, context: SplitEnumeratorContext[SocketSplit], checkpoint: Any = None
    ) -> OnRequestEnumerator[SocketSplit]:
        """Return an enumerator of one split, for the first reader that asks."""
        return OnRequestEnumerator(context, unassigned_or(checkpoint, [SocketSplit()]))

    def create_reader(self, context: SourceReaderContext) -> SocketTextReader:
        """A reader with a connection of its own."""
        return SocketTextReader(context, self._address, self._delimiter, self._max_retry)

    def produced_type(self) -> TypeInformation:
        """Types.STRING()."""
        return Types.STRING()


class SocketTextReader(OneByOneReader[str, SocketSplit]):
    """Reads the bytes that have arrived and cuts them into lines."""

    def __init__(
        self, context: SourceReaderContext, address: tuple[str, int], delimiter: str, max_retry: int
    ) -> None:
        super().__init__(context)
        self._address = address
        self._delimiter = delimiter.encode()
        self._max_retry = max_retry
        self._retries = 0
        self._ended = False
        self._connection: socket.socket | None = None
        self._lines: list[bytes] = []
        self._rest = b""

    def open_split(self, split: SocketSplit) -> None:
        self._ended = False

    def current_split(self) -> SocketSplit:
        return SocketSplit()

    def close_split(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def read_split(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        if not self._lines and not self._ended:
            wait = self._receive()
            if wait is not None and not self._lines:
                return wait
        if not self._lines:
            return None if self._ended else NothingAvailable(0.0)
        taken, self._lines = self._lines[:max_rows], self._lines[max_rows:]
        return SourceRecords([self._text(line) for line in taken], split_id="socket")

    def _receive(self) -> NothingAvailable | None:
        """Add the bytes that have arrived to `_lines`; a NothingAvailable says when to try again."""
        try:
            if self._connection is None:
                self._connection = socket.create_connection(self._address, _CONNECT_TIMEOUT)
                self._connection.settimeout(_READ_TIMEOUT)
            data = self._connection.recv(_CHUNK)
        except TimeoutError:
            if self._connection is not None:
                return NothingAvailable(0.0)
            return self._lost("no answer")
        except OSError as error:
            return self._lost(str(error))
        if not data:
            return self._lost(None)
        self._retries = 0
        *lines, self._rest = (self._rest + data).split(self._delimiter)
        self._lines.extend(lines)
        if len(self._rest) > _LONGEST_LINE:
            raise SocketSourceError(
                f"{self._name}: no delimiter {self._delimiter!r} within {_LONGEST_LINE} bytes; check the"
                " delimiter"
            )
        return None

    def _lost(self, error: str | None) -> NothingAvailable | None:
        """The connection failed (`error`) or was closed by the server."""
        self.close_split()
        if self._rest:
            self._lines.append(self._rest)
            self._rest = b""
        if self._max_retry == -1 or self._retries < self._max_retry:
            self._retries += 1
            return NothingAvailable(_RECONNECT_AFTER)
        if error is not None:
            raise SocketSourceError(
                f"{self._name}: {error}, after {self._retries} retries; start the server first (for example "
                f"`nc -lk {self._address[1]}`) or set max_retry"
            )
        self._ended = True
        return None

    def _text(self, line: bytes) -> str:
        if self._delimiter == b"\n":
            line = line.removesuffix(b"\r")
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            raise SocketSourceError(f"{self._name}: a line is not UTF-8: {error}: {line[:80]!r}") from error

    @property
    def _name(self) -> str:
        return f"socket {self._address[0]}:{self._address[1]}"
