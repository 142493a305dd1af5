"""Frames on a stream socket: a 4-byte little-endian length, then one msgpack struct.

Owner: FramedSocket belongs to one reading thread; any thread may send. It decodes only the given message
type, and refuses a length above `MAX_FRAME_BYTES` before it reads on. The side with an event loop is in
frame_channel, because workers do without asyncio.
"""

from __future__ import annotations

import socket
import struct
import threading
from typing import Generic, TypeVar

import msgspec

from yarrow.container.protocol.errors import FrameError
from yarrow.container.protocol.worker_protocol import MAX_FRAME_BYTES

M = TypeVar("M")
HEADER = struct.Struct("<I")
_ENCODER = msgspec.msgpack.Encoder()


def encode_frame(message: msgspec.Struct) -> bytes:
    """The message as one frame. Raises FrameError if it is above the limit."""
    frame = bytearray(HEADER.size)
    _ENCODER.encode_into(message, frame, HEADER.size)
    length = len(frame) - HEADER.size
    check_length(length, type(message).__name__)
    HEADER.pack_into(frame, 0, length)
    return bytes(frame)


def check_length(length: int, what: str) -> None:
    """Raises FrameError if a frame is above the limit."""
    if length > MAX_FRAME_BYTES:
        raise FrameError(
            f"{what} takes {length} bytes, above the limit of {MAX_FRAME_BYTES} bytes of a control frame: "
            "ship large data as a file of the job"
        )


class FramedSocket(Generic[M]):
    """Blocking side: `receive` from one thread, `send` from any."""

    def __init__(self, sock: socket.socket, decoder: msgspec.msgpack.Decoder[M]) -> None:
        sock.setblocking(True)
        self._socket = sock
        self._decoder = decoder
        self._send_lock = threading.Lock()

    def send(self, message: msgspec.Struct) -> None:
        """Writes the whole frame. Raises OSError if the other side is gone."""
        frame = encode_frame(message)
        with self._send_lock:
            self._socket.sendall(frame)

    def receive(self) -> M | None:
        """The next message; None when the other side has closed. Raises FrameError if it closed within a frame."""
        header = self._read(HEADER.size, at_start=True)
        if header is None:
            return None
        (length,) = HEADER.unpack(header)
        check_length(length, "a frame")
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
    """The struct in a frame's body. Raises FrameError if the decoder does not know it."""
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise FrameError(
            f"a control frame of {len(body)} bytes is no message of this protocol: {error}"
        ) from error
