"""A gateway and an endpoint for tests of the transports."""

from __future__ import annotations

import asyncio
from typing import Protocol

from yarrow.runtime.common.errors import JobExecutionError, YarrowError
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.gateway_type import GatewayType
from yarrow.runtime.rpc.gateways import waits
from yarrow.runtime.rpc.messages import Acknowledge, SlotID


class EchoError(YarrowError):
    """An error with a constructor of its own."""

    def __init__(self, one: str, two: int) -> None:
        super().__init__(f"{one} and {two}")
        self.one = one
        self.two = two


class EchoGateway(Protocol):
    """Methods of every shape."""

    async def echo(self, text: str, times: int = 1) -> str: ...

    async def slots(self, slots: tuple[SlotID, ...]) -> dict[str, SlotID]: ...

    async def fail(self, kind: str) -> Acknowledge: ...

    async def blob(self, size: int) -> bytes: ...

    async def tick(self) -> Acknowledge: ...

    @waits
    async def wait(self) -> Acknowledge: ...


ECHO = GatewayType[EchoGateway](EchoGateway)


class Echo(RpcEndpoint):
    """Answers with what it was sent."""

    def __init__(self, name: str = "echo", fencing_token: str | None = None) -> None:
        super().__init__(name, fencing_token)
        self.ticks = 0
        self.gate = asyncio.Event()
        self.waiting = asyncio.Event()

    async def echo(self, text: str, times: int = 1) -> str:
        return text * times

    async def slots(self, slots: tuple[SlotID, ...]) -> dict[str, SlotID]:
        return {str(slot.index): slot for slot in slots}

    async def fail(self, kind: str) -> Acknowledge:
        if kind == "own":
            raise EchoError("salt", 7)
        if kind == "job":
            raise JobExecutionError("it fell over", JobID("ab"))
        raise ValueError("not ours")

    async def blob(self, size: int) -> bytes:
        return b"x" * size

    async def tick(self) -> Acknowledge:
        self.assert_main_thread()
        self.ticks += 1
        return Acknowledge()

    async def wait(self) -> Acknowledge:
        self.waiting.set()
        await self.gate.wait()
        return Acknowledge()
