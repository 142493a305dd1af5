"""Frames on a stream socket: a 4-byte little-endian length, then one msgpack struct.

Owner: FramedSocket belongs to one reading thread, any thread may send; FrameChannel belongs to its event
loop. Neither decodes anything but the message type it was given, and both refuse a length above
`MAX_FRAME_BYTES` before they read on.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from yarrow.container.errors import FrameError
from yarrow.container.worker_protocol import MAX_FRAME_BYTES

M = TypeVar("M")
HEADER = struct.Struct("<I")
_ENCODER = msgspec.msgpack.Encoder()


def encode_frame(message: msgspec.Struct) -> bytes:
    """The message as one frame; FrameError when it is above the limit."""
    frame = bytearray(HEADER.size)
    _ENCODER.encode_into(message, frame, HEADER.size)
    length = len(frame) - HEADER.size
    _check_length(length, type(message).__name__)
    HEADER.pack_into(frame, 0, length)
    return bytes(frame)


def _check_length(length: int, what: str) -> None:
    if length > MAX_FRAME_BYTES:
        raise FrameError(
            f"{what} takes {length} bytes, above the limit of {MAX_FRAME_BYTES} bytes of a control frame: "
            "ship large data as a file of the job"
        )


class FramedSocket(Generic[M]):
    """Blocking side: `receive` from one thread, `send` from any."""

    def __init__(self, sock: socket.socket, message_type: type[M]) -> None:
        sock.setblocking(True)
        self._socket = sock
        self._decoder: msgspec.msgpack.Decoder[M] = msgspec.msgpack.Decoder(message_type)
        self._send_lock = threading.Lock()

    def send(self, message: msgspec.Struct) -> None:
        """Writes the whole frame; OSError when the other side is gone."""
        frame = encode_frame(message)
        with self._send_lock:
            self._socket.sendall(frame)

    def receive(self) -> M | None:
        """The next message; None when the other side has closed, FrameError when it did so in a frame."""
        header = self._read(HEADER.size, at_start=True)
        if header is None:
            return None
        (length,) = HEADER.unpack(header)
        _check_length(length, "a frame")
        body = self._read(length, at_start=False)
        assert body is not None
        return decode_frame(self._decoder, body)

    def close(self) -> None:
        """Closes the socket: a `receive` of the other side then returns None."""
        self._socket.close()

    def _read(self, length: int, *, at_start: bool) -> bytearray | None:
        data = bytearray(length)
        view = memoryview(data)
        filled = 0
        while filled < length:
            try:
                count = self._socket.recv_into(view[filled:])
            except ConnectionResetError:
                count = 0
            if count == 0:
                if at_start and filled == 0:
                    return None
                raise FrameError(f"the connection ended inside a frame, after {filled} of {length} bytes")
            filled += count
        return data


def decode_frame(decoder: msgspec.msgpack.Decoder[M], body: bytes | bytearray | memoryview) -> M:
    """The struct of a frame's body; FrameError when it is none that the decoder knows."""
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise FrameError(
            f"a control frame of {len(body)} bytes is no message of this protocol: {error}"
        ) from error


class FrameChannel(asyncio.Protocol, Generic[M]):
    """asyncio side: calls `on_message` for each frame and `on_closed` once, both on the loop.

    A broken frame closes the channel; `on_closed` gets the FrameError then, None at a plain end.
    """

    def __init__(
        self,
        message_type: type[M],
        on_message: Callable[[M], None],
        on_closed: Callable[[FrameError | None], None],
    ) -> None:
        self._decoder: msgspec.msgpack.Decoder[M] = msgspec.msgpack.Decoder(message_type)
        self._on_message = on_message
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._error: FrameError | None = None

    async def open(self, sock: socket.socket) -> None:
        """Takes the connected socket over."""
        sock.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=sock)

    def send(self, message: msgspec.Struct) -> None:
        """Queues a frame; after the channel has closed it is dropped, for `on_closed` tells what became of
        the rest.
        """
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode_frame(message))

    def pause(self) -> None:
        """Stops reading: the other side will block once the socket's buffer is full."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Reads again."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        """Ends the connection; what was not read is lost."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= HEADER.size:
            (length,) = HEADER.unpack_from(buffer, start)
            end = start + HEADER.size + length
            try:
                _check_length(length, "a frame")
                if len(buffer) < end:
                    break
                with memoryview(buffer) as view, view[start + HEADER.size : end] as body:
                    message = decode_frame(self._decoder, body)
            except FrameError as error:
                self._error = error
                self.close()
                return
            start = end
            self._on_message(message)
        del buffer[:start]

    def connection_lost(self, exc: Exception | None) -> None:
        self._buffer.clear()
        self._on_closed(self._error)
