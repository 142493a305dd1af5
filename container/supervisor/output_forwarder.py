"""OutputForwarder: sends user output to this TaskExecutor's client: frames on a pipe, with back-pressure.

Owner: the TaskExecutor's event loop. Must not lose or cut lines: while the client reads slowly, the workers
wait.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Protocol

from yarrow.runtime.rpc.output_stream import Forwarded, ForwardedOutput, LoggedRecord, encode_output

#: Bytes that may wait for the client before workers have to wait.
HIGH_WATER = 1024 * 1024


class OutputGate(Protocol):
    """Tells when user output has left this process."""

    async def drained(self) -> None:
        """Returns when everything written before has been forwarded, or nobody reads it."""
        ...


class NoForwarding:
    """The gate of a TaskExecutor that writes to its files only."""

    async def drained(self) -> None:
        """Returns at once: files are written before the next message is read."""


class OutputForwarder(asyncio.Protocol):
    """Writes frames to a pipe."""

    def __init__(self, on_congested: Callable[[bool], None]) -> None:
        """`on_congested(True)` is called when too much waits, `on_congested(False)` when all of it has gone."""
        self._on_congested = on_congested
        self._congested = False
        self._transport: asyncio.WriteTransport | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    async def open(self, fd: int) -> None:
        """Takes over the descriptor of a pipe's writing end."""
        loop = asyncio.get_running_loop()
        pipe = os.fdopen(fd, "wb", buffering=0)
        transport, _ = await loop.connect_write_pipe(lambda: self, pipe)
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
        transport.write(encode_output(forwarded))
        if not self._congested and transport.get_write_buffer_size() > HIGH_WATER:
            self._congested = True
            self._on_congested(True)

    async def drained(self) -> None:
        """Returns when the pipe has taken everything."""
        await self._empty.wait()

    def close(self) -> None:
        """Closes the pipe after waiting output was written."""
        if self._transport is not None:
            self._transport.close()

    def pause_writing(self) -> None:
        self._empty.clear()

    def resume_writing(self) -> None:
        self._empty.set()
        if self._congested:
            self._congested = False
            self._on_congested(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self.resume_writing()
