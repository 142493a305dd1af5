"""InProcessTransport: calls within one process, still encoded.

Owner: services on several loops may share a network; a call moves to the endpoint's loop and back. Must not
skip serialization: a value that cannot be encoded must fail here as between processes.
"""

from __future__ import annotations

from typing import Any

from yarrow.runtime.rpc.endpoint import Receiver
from yarrow.runtime.rpc.errors import (
    EndpointNotFoundError,
    MessageTooLargeError,
)
from yarrow.runtime.rpc.gateway_type import Caller, MethodSchema
from yarrow.runtime.rpc.limits import check_size
from yarrow.runtime.rpc.service import AddressError

_SCHEME = "inproc"


class InProcessNetwork:
    """The names that in-process transports share."""

    def __init__(self) -> None:
        self.receivers: dict[str, Receiver[Any]] = {}

    def caller(self, name: str, token: str | None, limit: int | None) -> Caller:
        """Sends calls to one name; `limit`: most bytes of a message."""
        return InProcessCaller(self, name, token, limit)


class InProcessTransport:
    """Serves and calls endpoints of one InProcessNetwork."""

    def __init__(self, network: InProcessNetwork | None = None, max_message_bytes: int | None = None) -> None:
        self._network = network if network is not None else InProcessNetwork()
        self._limit = max_message_bytes
        self._own: set[str] = set()

    @property
    def scheme(self) -> str:
        return _SCHEME

    async def start(self) -> None:
        """Does nothing: there is nothing to open."""

    async def stop(self) -> None:
        for name in list(self._own):
            self.unbind(name)

    def bind(self, name: str, receiver: Receiver[Any]) -> str:
        if name in self._network.receivers:
            raise AddressError(f"an endpoint named {name!r} is already served in this process")
        self._network.receivers[name] = receiver
        self._own.add(name)
        return f"{_SCHEME}://{name}"

    def unbind(self, name: str) -> None:
        if name in self._own:
            self._own.discard(name)
            self._network.receivers.pop(name, None)

    def owns(self, address: str) -> bool:
        return False

    def caller(self, address: str, fencing_token: str | None) -> Caller:
        return self._network.caller(address.removeprefix(f"{_SCHEME}://"), fencing_token, self._limit)


class InProcessCaller:
    """Sends calls to one name of a network."""

    def __init__(self, network: InProcessNetwork, name: str, token: str | None, limit: int | None) -> None:
        self._network = network
        self._name = name
        self._token = token
        self._limit = limit

    async def call(self, method: MethodSchema, arguments: bytes) -> bytes:
        check_size(method, "request", len(arguments), self._limit)
        receiver = self._network.receivers.get(self._name)
        if receiver is None:
            raise EndpointNotFoundError(f"{method.title}: no endpoint {self._name!r} in this process")
        reply = await receiver.receive(method.name, self._token, arguments)
        try:
            check_size(method, "reply", len(reply), self._limit)
        except MessageTooLargeError as error:
            return method.encode_error(error)
        return reply
