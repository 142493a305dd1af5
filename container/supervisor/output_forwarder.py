"""OutputForwarder: sends user output to this TaskExecutor's client: frames on a socket, with back-pressure.

Owner: the TaskExecutor's event loop. Must not lose or cut lines: while the client reads slowly, the workers
wait.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

from yarrow.runtime.rpc.output_stream import (
    Confirmations,
    Forwarded,
    ForwardedOutput,
    LoggedRecord,
    encode_output,
)

#: Bytes that may wait for the client before workers have to wait.
HIGH_WATER = 1024 * 1024


class OutputGate(Protocol):
    """Tells when the client has this process's user output."""

    async def drained(self) -> None:
        """Returns when the client has written out everything so far, or nobody reads it."""
        ...


class NoForwarding:
    """The gate of a TaskExecutor that writes to its files only."""

    async def drained(self) -> None:
        """Returns at once: files are written before the next message is read."""


class OutputForwarder(asyncio.Protocol):
    """Writes frames to a socket; the client answers with the number of bytes that it has written out."""

    def __init__(self, on_congested: Callable[[bool], None]) -> None:
        """`on_congested(True)` is called when too much waits, `on_congested(False)` when all of it has gone."""
        self._on_congested = on_congested
        self._congested = False
        self._transport: asyncio.WriteTransport | None = None
        self._written = 0
        self._confirmations = Confirmations()
        self._all_confirmed = asyncio.Event()
        self._all_confirmed.set()

    async def open(self, descriptor: int) -> None:
        """Takes over the descriptor of a connected socket."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(lambda: self, sock=socket.socket(fileno=descriptor))
        # With both limits 0, `resume_writing` means that nothing waits at all.
        transport.set_write_buffer_limits(high=0, low=0)
        self._transport = transport

    def write(self, stream: str, text: str) -> None:
        """OutputSink: forwards whole lines."""
        self._forward(ForwardedOutput(stream, text))

    def write_record(self, record: LoggedRecord) -> None:
        """OutputSink: forwards a log record of user code."""
        self._forward(record)

    def _forward(self, forwarded: Forwarded) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        frame = encode_output(forwarded)
        self._written += len(frame)
        self._all_confirmed.clear()
        transport.write(frame)
        if not self._congested and transport.get_write_buffer_size() > HIGH_WATER:
            self._congested = True
            self._on_congested(True)

    async def drained(self) -> None:
        """Returns when the client has written out everything so far."""
        await self._all_confirmed.wait()

    def close(self) -> None:
        """Closes the socket after waiting output was written."""
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        if self._confirmations.feed(data) >= self._written:
            self._all_confirmed.set()

    def resume_writing(self) -> None:
        if self._congested:
            self._congested = False
            self._on_congested(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._all_confirmed.set()
        self.resume_writing()
