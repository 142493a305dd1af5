"""Output waits for a slow client, makes workers wait past a limit, and is never cut or lost."""

from __future__ import annotations

import asyncio
import os

from tests.unit.container.supervisor.conftest import eventually, run, within
from yarrow.container.supervisor.output_forwarder import HIGH_WATER, OutputForwarder
from yarrow.runtime.rpc.output_stream import ForwardedOutput, read_output


def test_a_slow_client_makes_workers_wait_and_loses_nothing() -> None:
    async def body() -> None:
        reading, writing = os.pipe()
        congested: list[bool] = []
        forwarder = OutputForwarder(congested.append)
        await forwarder.open(writing)
        await within(forwarder.drained())
        text = "x" * 1023 + "\n"
        sent = 2 * HIGH_WATER // len(text)
        for _ in range(sent):
            forwarder.write("stdout", text)
        assert congested == [True]
        drained = asyncio.ensure_future(forwarder.drained())
        with os.fdopen(reading, "rb") as pipe:
            for number in range(sent):
                assert await asyncio.to_thread(read_output, pipe) == ForwardedOutput("stdout", text)
                if number == 0:
                    assert not drained.done()
            await within(drained)
            assert congested == [True, False]
            forwarder.close()
            assert await asyncio.to_thread(read_output, pipe) is None

    run(body())


def test_a_client_that_is_gone_holds_nothing_up() -> None:
    async def body() -> None:
        reading, writing = os.pipe()
        congested: list[bool] = []
        forwarder = OutputForwarder(congested.append)
        await forwarder.open(writing)
        forwarder.write("stdout", "x" * 2 * HIGH_WATER)
        assert congested == [True]
        os.close(reading)
        await within(forwarder.drained())
        await eventually(lambda: congested == [True, False], "workers go on")
        forwarder.write("stdout", "for nobody\n")

    run(body())
