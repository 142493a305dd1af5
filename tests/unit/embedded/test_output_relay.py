"""Output of tasks on its way to the client: a report waits until the client has written what came before it."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from yarrow.container.supervisor.output_forwarder import OutputForwarder
from yarrow.embedded.output_relay import OutputRelay
from yarrow.runtime.rpc.output_stream import Forwarded, ForwardedOutput, encode_output

LIMIT = 60.0


def test_output_has_drained_when_the_client_has_written_it() -> None:
    written: list[Forwarded] = []
    begun, gate = threading.Event(), threading.Event()

    def write(output: Forwarded) -> None:
        begun.set()
        assert gate.wait(LIMIT)
        written.append(output)

    async def body() -> None:
        relay = OutputRelay(write)
        reading, writing = socket.socketpair()
        relay.attach("t1", reading)
        forwarder = OutputForwarder(lambda congested: None)
        await forwarder.open(writing.detach())
        for number in range(3):
            forwarder.write("stderr", f"line {number}\n")
        # The socket has taken the lines, and the client has read them.
        assert await asyncio.to_thread(begun.wait, LIMIT)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(forwarder.drained(), 0.01)
        gate.set()
        await asyncio.wait_for(forwarder.drained(), LIMIT)
        assert written == [ForwardedOutput("stderr", f"line {number}\n") for number in range(3)]
        forwarder.close()
        await asyncio.to_thread(relay.join, LIMIT)

    asyncio.run(body())


def test_a_writer_that_dies_before_it_reads_confirmations_loses_no_line() -> None:
    lines = [ForwardedOutput("stdout", "first\n"), ForwardedOutput("stdout", "last\n")]
    written: list[Forwarded] = []
    relay = OutputRelay(written.append)
    reading, writing = socket.socketpair()

    relay.attach("t1", reading)
    writing.sendall(encode_output(lines[0]))
    # A confirmation has come; the writer dies without a look at it.
    writing.settimeout(LIMIT)
    assert writing.recv(1, socket.MSG_PEEK)
    writing.sendall(encode_output(lines[1]))
    writing.close()
    relay.join(LIMIT)
    assert written == lines
