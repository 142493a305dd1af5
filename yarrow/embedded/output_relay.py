"""OutputRelay: writes TaskExecutors' user output and log records to the client's streams and `logging`.

Owner: one thread for each TaskExecutor reads its socket, writes and confirms; any thread may call `drain`. Lines are
written whole. A slow terminal delays that thread alone: the socket fills, and the workers behind it wait.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

from yarrow.client.client_logging import log_to_client
from yarrow.runtime.rpc.output_stream import Forwarded, LoggedRecord, encode_confirmation, read_output

_CHUNK = 1 << 18
_LENGTH = struct.Struct("<I")


def _ignore(error: OSError) -> None:
    """Ignores the error."""


class ClientOutput:
    """The client's streams and `logging`: an OutputSink, and the receiver of everything that comes through a socket."""

    def __init__(self, on_lost: Callable[[OSError], None] = _ignore) -> None:
        """`on_lost` is called once, on the writing thread, when standard output takes nothing more."""
        self._on_lost = on_lost
        self._lost = False

    def write(self, stream: str, text: str) -> None:
        """Writes whole lines to the present sys.stdout or sys.stderr."""
        if self._lost and stream != "stderr":
            return
        target = sys.stderr if stream == "stderr" else sys.stdout
        # A stream that the program has closed or removed gets nothing.
        with contextlib.suppress(ValueError, AttributeError):
            try:
                target.write(text)
                target.flush()
            except OSError as error:
                if stream != "stderr":
                    self._lost = True
                    self._on_lost(error)

    def write_record(self, record: LoggedRecord) -> None:
        """Logs a record."""
        log_to_client(record)

    def take(self, forwarded: Forwarded) -> None:
        """Writes lines, logs records."""
        if isinstance(forwarded, LoggedRecord):
            self.write_record(forwarded)
        else:
            self.write(forwarded.stream, forwarded.text)


class _Frames:
    """Cuts received bytes into frames; an incomplete frame waits for its end."""

    def __init__(self) -> None:
        self._data = bytearray()
        #: Bytes of all frames that were handed out.
        self.taken = 0

    def feed(self, data: bytes) -> Iterator[Forwarded]:
        self._data += data
        while len(self._data) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._data)[0]
            if len(self._data) < end:
                return
            frame = bytes(self._data[:end])
            del self._data[:end]
            output = read_output(io.BytesIO(frame))
            if output is not None:
                yield output
            self.taken += end


class _OutputReader(threading.Thread):
    def __init__(self, name: str, connection: socket.socket, write: Callable[[Forwarded], None]) -> None:
        super().__init__(name=f"yarrow output of {name}", daemon=True)
        self._connection = connection
        self._write = write
        self._frames = _Frames()
        self._lock = threading.Lock()
        self._tickets: list[Future[None]] = []
        self._closed = False
        self._wake_reader, self._wake_writer = os.pipe()

    def drain(self) -> Future[None]:
        """Done when everything in the socket now has been written."""
        ticket: Future[None] = Future()
        with self._lock:
            if self._closed:
                ticket.set_result(None)
            else:
                self._tickets.append(ticket)
                os.write(self._wake_writer, b"\0")
        return ticket

    def run(self) -> None:
        poll = select.poll()
        for descriptor in (self._connection.fileno(), self._wake_reader):
            poll.register(descriptor, select.POLLIN)
        try:
            while True:
                ready = [descriptor for descriptor, _ in poll.poll()]
                tickets: list[Future[None]] = []
                if self._wake_reader in ready:
                    os.read(self._wake_reader, _CHUNK)
                    with self._lock:
                        tickets, self._tickets = self._tickets, []
                more = self._read_available()
                for ticket in tickets:
                    ticket.set_result(None)
                if not more:
                    return
        finally:
            self._close()

    def _read_available(self) -> bool:
        """Reads until the socket is empty; False at its end."""
        while True:
            try:
                data = self._connection.recv(_CHUNK, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return True
            except ConnectionResetError:
                # The TaskExecutor died before it had read the confirmations; its output was read.
                return False
            if not data:
                return False
            taken = self._frames.taken
            for output in self._frames.feed(data):
                self._write(output)
            if self._frames.taken != taken:
                with contextlib.suppress(ConnectionError):
                    self._connection.sendall(encode_confirmation(self._frames.taken))

    def _close(self) -> None:
        with self._lock:
            self._closed = True
            self._connection.close()
            for descriptor in (self._wake_reader, self._wake_writer):
                os.close(descriptor)
        for ticket in self._tickets:
            ticket.set_result(None)


class OutputRelay:
    """The readers of one cluster's TaskExecutors; LocalProcessDriver attaches each socket."""

    def __init__(self, write: Callable[[Forwarded], None]) -> None:
        self._write = write
        self._readers: list[_OutputReader] = []

    def attach(self, name: str, connection: socket.socket) -> None:
        """Takes over the reading end of a TaskExecutor's standard output."""
        reader = _OutputReader(name, connection, self._write)
        self._readers = [other for other in self._readers if other.is_alive()] + [reader]
        reader.start()

    def drain(self) -> list[Future[None]]:
        """Futures that are done when all output so far has been written."""
        return [reader.drain() for reader in self._readers]

    def join(self, timeout: float) -> None:
        """Waits for the readers of ended TaskExecutors."""
        for reader in self._readers:
            reader.join(timeout)
