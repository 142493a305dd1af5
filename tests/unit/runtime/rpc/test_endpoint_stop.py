"""An endpoint that two stop at once: its last words are said once, and nobody's are cut off."""

from __future__ import annotations

import asyncio
import threading

from tests.unit.runtime.rpc.loops import run, settled
from yarrow.runtime.rpc.endpoint import RpcEndpoint


class Slow(RpcEndpoint):
    """Has something to do in a thread before it ends."""

    def __init__(self) -> None:
        super().__init__("slow")
        self.may_end = threading.Event()
        self.ends = 0

    async def on_stop(self) -> None:
        await self.run_blocking(self.may_end.wait)
        self.ends += 1


def test_who_stops_what_another_stops_waits_for_that() -> None:
    async def body() -> None:
        endpoint = Slow()
        await endpoint.start()
        first, second = (asyncio.ensure_future(endpoint.stop()) for _ in range(2))
        await settled()
        endpoint.may_end.set()
        await asyncio.gather(first, second)
        assert (endpoint.ends, endpoint.is_running) == (1, False)

    run(body())
