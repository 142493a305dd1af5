"""FaultyNetwork: an InProcessNetwork whose messages a test loses, delays, repeats or reorders.

Owner: as InProcessNetwork; the fault is asked on the caller's loop.
"""

from __future__ import annotations

from typing import Protocol

from yarrow.runtime.rpc.errors import RpcTimeoutError
from yarrow.runtime.rpc.gateway_type import Caller, MethodSchema
from yarrow.runtime.rpc.in_process import InProcessNetwork


class MessageFault(Protocol):
    """Decides the fate of messages in tests.

    Waiting inside delays the message and lets others overtake it.
    """

    async def request(self, endpoint: str, method: str) -> bool:
        """False = the request is lost: the receiver never sees it."""
        ...

    async def reply(self, endpoint: str, method: str) -> bool:
        """False = the receiver acts, but the caller never hears of it."""
        ...

    async def repeats(self, endpoint: str, method: str) -> bool:
        """True = the request arrives twice; the caller gets the second answer."""
        ...


class FaultyNetwork(InProcessNetwork):
    """A network with a fault."""

    def __init__(self, fault: MessageFault) -> None:
        super().__init__()
        self.fault = fault

    def caller(self, name: str, token: str | None, limit: int | None) -> Caller:
        return _FaultyCaller(super().caller(name, token, limit), self.fault, name)


class _FaultyCaller:
    """Sends calls as the fault decides."""

    def __init__(self, caller: Caller, fault: MessageFault, name: str) -> None:
        self._caller, self._fault, self._name = caller, fault, name

    async def call(self, method: MethodSchema, arguments: bytes) -> bytes:
        if not await self._fault.request(self._name, method.name):
            raise RpcTimeoutError(f"{method.title} to {self._name}: no answer (request dropped by the test)")
        reply = await self._caller.call(method, arguments)
        if await self._fault.repeats(self._name, method.name):
            reply = await self._caller.call(method, arguments)
        if not await self._fault.reply(self._name, method.name):
            raise RpcTimeoutError(f"{method.title} to {self._name}: no answer (reply dropped by the test)")
        return reply
