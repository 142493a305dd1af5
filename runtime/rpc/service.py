"""RpcService: serves endpoints and makes clients, over one or several transports.

Owner: the loop on which `start` ran; clients work on any loop that the transport allows. Must not interpret
messages. Addresses are `inproc://name` and `grpc://host:port/name`. An endpoint is served on every transport
of the service, and a call to this very service never leaves the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.rpc.endpoint import Receiver, RpcEndpoint
from yarrow.runtime.rpc.gateway_type import Caller, GatewayType

G = TypeVar("G")


class AddressError(YarrowError):
    """No transport of the service understands the address."""


class Transport(Protocol):
    """One way to carry calls."""

    @property
    def scheme(self) -> str:
        """First part of the addresses."""
        ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def bind(self, name: str, receiver: Receiver[Any]) -> str:
        """Serves the receiver under a name and returns its address; refuses a name in use."""
        ...

    def unbind(self, name: str) -> None:
        """Stops serving; no effect if the name is not served."""
        ...

    def owns(self, address: str) -> bool:
        """True if `address` leads to this process's own server."""
        ...

    def caller(self, address: str, fencing_token: str | None) -> Caller:
        """A caller of the endpoint at `address`; it connects at the first call."""
        ...


def endpoint_name(address: str) -> str:
    """The name of the endpoint at an address of any scheme."""
    parts = urlsplit(address)
    return parts.path.lstrip("/") if parts.scheme != "inproc" else parts.netloc


class RpcService:
    """The transports of one process; others get the address of the first."""

    def __init__(self, transports: Sequence[Transport]) -> None:
        if not transports:
            raise ValueError("an RpcService needs a transport")
        self._transports = tuple(transports)
        self._served: dict[str, Receiver[Any]] = {}

    async def start(self) -> None:
        """Starts the transports: ports are bound afterwards."""
        for transport in self._transports:
            await transport.start()

    async def stop(self) -> None:
        """Stops serving and closes connections; the owners have stopped their endpoints before."""
        for transport in reversed(self._transports):
            await transport.stop()

    def serve(self, gateway: GatewayType[G], endpoint: RpcEndpoint, name: str | None = None) -> str:
        """Serves `endpoint`, which implements `G`, and returns the address for others.

        Raises TypeError if the endpoint lacks a method of the gateway.
        """
        name = name or endpoint.name
        receiver: Receiver[G] = Receiver(gateway, endpoint)
        addresses = [transport.bind(name, receiver) for transport in self._transports]
        self._served[name] = receiver
        return addresses[0]

    def stop_serving(self, name: str) -> None:
        """Answers calls to the name with EndpointNotFoundError from now on."""
        self._served.pop(name, None)
        for transport in self._transports:
            transport.unbind(name)

    def connect(self, address: str, gateway: GatewayType[G], fencing_token: str | None = None) -> G:
        """A client of the endpoint at `address`; its calls carry `fencing_token`."""
        return gateway.client(self.caller(address, fencing_token))

    def caller(self, address: str, fencing_token: str | None = None) -> Caller:
        """A caller of the endpoint at `address`. Raises AddressError if no transport understands it."""
        scheme = urlsplit(address).scheme
        for transport in self._transports:
            if transport.scheme == scheme:
                local = self._local(address, fencing_token) if transport.owns(address) else None
                return local or transport.caller(address, fencing_token)
        known = ", ".join(f"{transport.scheme}://" for transport in self._transports)
        raise AddressError(f"no transport for the address {address!r}: this process speaks {known}")

    def _local(self, address: str, fencing_token: str | None) -> Caller | None:
        """The in-process way to an endpoint of this service; None if there is none."""
        for transport in self._transports:
            if transport.scheme == "inproc":
                return transport.caller(f"inproc://{endpoint_name(address)}", fencing_token)
        return None
