"""FrameChannel: the asyncio side of a control connection, which is the supervisor's; see framing for the frames.

Owner: its event loop. It decodes only the given message type, and refuses a length above `MAX_FRAME_BYTES`
before it reads on. Workers must not import it: asyncio would cost each of them megabytes.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from yarrow.container.protocol.errors import FrameError
from yarrow.container.protocol.framing import HEADER, check_length, decode_frame, encode_frame

M = TypeVar("M")


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
        """Queues a frame; a closed channel drops it.

        `on_closed` reports the rest.
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
        """Ends the connection; unread data are lost."""
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
                check_length(length, "a frame")
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
