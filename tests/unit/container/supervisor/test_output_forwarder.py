"""Output waits until a slow client confirms it, makes workers wait past a limit, and is never cut or lost."""

from __future__ import annotations

import asyncio
import socket

from tests.unit.container.supervisor.conftest import eventually, run, within
from yarrow.container.supervisor.output_forwarder import HIGH_WATER, OutputForwarder
from yarrow.runtime.rpc.output_stream import (
    ForwardedOutput,
    encode_confirmation,
    encode_output,
    read_output,
)


def test_a_slow_client_makes_workers_wait_and_loses_nothing() -> None:
    async def body() -> None:
        reading, writing = socket.socketpair()
        congested: list[bool] = []
        forwarder = OutputForwarder(congested.append)
        await forwarder.open(writing.detach())
        await within(forwarder.drained())
        text = "x" * 1023 + "\n"
        sent = 2 * HIGH_WATER // len(text)
        for _ in range(sent):
            forwarder.write("stdout", text)
        assert congested == [True]
        drained = asyncio.ensure_future(forwarder.drained())
        with reading, reading.makefile("rb") as stream:
            for _ in range(sent):
                assert await asyncio.to_thread(read_output, stream) == ForwardedOutput("stdout", text)
            await eventually(lambda: congested == [True, False], "workers go on")
            assert not drained.done()
            for confirmed in (1, sent - 1, sent):
                assert not drained.done()
                confirmation = encode_confirmation(
                    confirmed * len(encode_output(ForwardedOutput("stdout", text)))
                )
                reading.sendall(confirmation[:3])
                reading.sendall(confirmation[3:])
            await within(drained)
            forwarder.close()
            assert await asyncio.to_thread(read_output, stream) is None

    run(body())


def test_a_client_that_is_gone_holds_nothing_up() -> None:
    async def body() -> None:
        reading, writing = socket.socketpair()
        congested: list[bool] = []
        forwarder = OutputForwarder(congested.append)
        await forwarder.open(writing.detach())
        forwarder.write("stdout", "x" * 2 * HIGH_WATER)
        assert congested == [True]
        reading.close()
        await within(forwarder.drained())
        await eventually(lambda: congested == [True, False], "workers go on")
        forwarder.write("stdout", "for nobody\n")

    run(body())
