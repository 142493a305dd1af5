"""Connection: one data connection with its handshake, frame parsing, and queue of outgoing frames.

Owner: the I/O thread, except `send`, which any thread may call. The calling thread writes to a Unix socket
while the queue is empty, which saves a thread switch a frame. Only the I/O thread writes to TLS sockets,
since one SSL object must not be read and written at once. Must not decode payloads or know tasks.
"""

from __future__ import annotations

import mmap
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from yarrow.container.network.element_codec import Buffer
from yarrow.container.network.frames import (
    HEADER,
    FrameHeader,
    FrameType,
    WireProtocolError,
    decode_header,
    encode_header,
)
from yarrow.container.network.handshake import ClientHandshake, ServerHandshake

_RECEIVE_BYTES = 256 * 1024
#: Bytes from which on a payload is received into its own buffer.
_LARGE_PAYLOAD = 64 * 1024
_MAX_PARTS = 64
_WOULD_BLOCK = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class ConnectionListener(Protocol):
    """Takes received frames; called on the I/O thread."""

    def on_authenticated(self, connection: Connection) -> None: ...

    def on_frame(self, connection: Connection, header: FrameHeader, payload: Buffer) -> None: ...

    def on_closed(self, connection: Connection, reason: str) -> None: ...


class Connection:
    """A connection to one peer worker."""

    def __init__(
        self,
        sock: socket.socket,
        handshake: ClientHandshake | ServerHandshake,
        listener: ConnectionListener,
        request_write: Callable[[Connection], None],
        peer_id: str = "",
        max_payload: int = 1 << 28,
    ) -> None:
        #: Most payload bytes of a batch, in both directions.
        self.max_payload = max_payload
        self.socket = sock
        self.peer_id = peer_id
        self._handshake = handshake
        self._listener = listener
        self._request_write = request_write
        self._is_tls = isinstance(sock, ssl.SSLSocket)
        self.tls_ready = not self._is_tls
        self.authenticated = False
        self.closed = False
        #: The reason for channels that come too late to fail with the connection.
        self.closed_because = ""
        self._lock = threading.Lock()
        #: Frames that wait for the end of the handshake.
        self._held: list[Buffer] = []
        self._outgoing: deque[Buffer] = deque()
        # Of the kernel, which gives a page when something is written there: an idle connection has next to none.
        self._view = memoryview(mmap.mmap(-1, _RECEIVE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        self._filled = 0
        self._large: bytearray | None = None
        self._large_header: FrameHeader | None = None
        self._large_filled = 0

    def start(self) -> None:
        """Begins the handshake: the transport is up, and the client sends its hello."""
        self.tls_ready = True
        if isinstance(self._handshake, ClientHandshake):
            self._send_raw(FrameType.HELLO, self._handshake.hello())

    # ------------------------------------------------------------------ sending

    def send(self, parts: list[Buffer]) -> None:
        """Queues a whole frame. Any thread. A closed connection drops frames: its tasks are failing."""
        with self._lock:
            if self.closed:
                return
            if not self.authenticated:
                self._held += parts
                return
            idle = not self._outgoing
            self._outgoing.extend(parts)
            if idle and not self._is_tls:
                self._write_some()
            if not self._outgoing:
                return
        self._request_write(self)

    def _send_raw(self, frame_type: FrameType, payload: bytes) -> None:
        with self._lock:
            self._outgoing.extend((encode_header(frame_type, 0, len(payload)), payload))
        self._request_write(self)

    def flush(self) -> bool:
        """Writes as much as the socket takes; True when nothing is left. I/O thread."""
        with self._lock:
            if not self.closed:
                self._write_some()
            return not self._outgoing

    def _write_some(self) -> None:
        outgoing = self._outgoing
        try:
            while outgoing:
                if self._is_tls:
                    self._advance(self.socket.send(outgoing[0]))
                else:
                    parts = [outgoing[i] for i in range(min(len(outgoing), _MAX_PARTS))]
                    self._advance(self.socket.sendmsg(parts))
        except _WOULD_BLOCK:
            return
        except OSError:
            # The reading side sees the same end, and closes the connection with its reason.
            outgoing.clear()

    def _advance(self, sent: int) -> None:
        outgoing = self._outgoing
        while outgoing:
            head = outgoing[0]
            if sent < len(head):
                if sent:
                    outgoing[0] = memoryview(head)[sent:]
                return
            sent -= len(head)
            outgoing.popleft()

    # ------------------------------------------------------------------ receiving

    def receive(self) -> None:
        """Reads available bytes and forwards whole frames.

        Raises WireProtocolError or OSError at the end. I/O thread.
        """
        while True:
            # One buffer serves all reads: a new one for each would cost more than the read.
            large = self._large
            target = self._view[self._filled :] if large is None else memoryview(large)[self._large_filled :]
            try:
                count = self.socket.recv_into(target)
            except _WOULD_BLOCK:
                return
            if count == 0:
                raise ConnectionResetError("the peer closed the connection")
            if large is not None:
                self._fill_large(count)
            else:
                self._filled += count
                self._parse()
            if not self._is_tls and count < len(target):
                return

    def _fill_large(self, count: int) -> None:
        assert self._large is not None and self._large_header is not None
        self._large_filled += count
        if self._large_filled == len(self._large):
            header, payload = self._large_header, self._large
            self._large = self._large_header = None
            self._dispatch(header, payload)

    def _parse(self) -> None:
        view, available = self._view, self._filled
        position = 0
        while available - position >= HEADER.size:
            header = decode_header(
                view, position, authenticated=self.authenticated, max_payload=self.max_payload
            )
            start = position + HEADER.size
            end = start + header.length
            if end > available:
                if header.length >= _LARGE_PAYLOAD:
                    self._begin_large(header, view[start:available])
                    position = available
                break
            position = end
            self._dispatch(header, bytes(view[start:end]))
        # The rest is less than a frame of `_LARGE_PAYLOAD`, so there is always room behind it.
        self._filled = available - position
        if position and self._filled:
            view[: self._filled] = bytes(view[position:available])

    def _begin_large(self, header: FrameHeader, start: memoryview) -> None:
        self._large = bytearray(header.length)
        self._large[: len(start)] = start
        self._large_filled = len(start)
        self._large_header = header

    def _dispatch(self, header: FrameHeader, payload: Buffer) -> None:
        if self.authenticated:
            if header.type in (FrameType.HELLO, FrameType.CHALLENGE, FrameType.PROOF):
                raise WireProtocolError(f"data connection: {header.type.name} after the handshake was done")
            self._listener.on_frame(self, header, payload)
            return
        self._shake_hands(header, bytes(payload))

    def _shake_hands(self, header: FrameHeader, payload: bytes) -> None:
        handshake = self._handshake
        if isinstance(handshake, ClientHandshake) and header.type is FrameType.CHALLENGE:
            self._send_raw(FrameType.PROOF, handshake.answer(payload))
        elif isinstance(handshake, ServerHandshake) and header.type is FrameType.HELLO:
            self._send_raw(FrameType.CHALLENGE, handshake.challenge(payload))
            return
        elif isinstance(handshake, ServerHandshake) and header.type is FrameType.PROOF:
            self.peer_id = handshake.verify(payload)
        else:
            raise WireProtocolError(f"data connection: unexpected {header.type.name} in the handshake")
        with self._lock:
            self.authenticated = True
            self._outgoing.extend(self._held)
            self._held.clear()
        self._listener.on_authenticated(self)
        self._request_write(self)

    def close(self) -> None:
        """Closes the socket and drops queued frames."""
        with self._lock:
            self.closed = True
            self._outgoing.clear()
            self._held.clear()
        self.socket.close()
