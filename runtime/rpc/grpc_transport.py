"""Calls between processes: grpc.aio with mutual TLS, a handshake, keepalive and a size limit.

A peer may call what the role in its certificate allows (roles.py).

Owner: the loop on which `start` ran. gRPC is imported when a transport starts or first connects, never with
this module, and never in a process that forks workers. One gRPC method serves all gateways. A call is a
fingerprint of the handshake (compared first), then endpoint, method, fencing token and arguments.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any
from urllib.parse import urlsplit

import msgspec

from yarrow.runtime.rpc.bootstrap import PemIdentity
from yarrow.runtime.rpc.endpoint import Receiver
from yarrow.runtime.rpc.errors import (
    AnswerTooLargeError,
    CallerNotAllowedError,
    EndpointNotFoundError,
    HandshakeError,
    InvalidMessageError,
    MessageTooLargeError,
    RpcError,
    RpcTimeoutError,
    RpcUnavailableError,
    WireError,
    to_wire,
)
from yarrow.runtime.rpc.gateway_type import MethodSchema
from yarrow.runtime.rpc.handshake import check_offers, decode_offer, encode_offer, fingerprint, own_offer
from yarrow.runtime.rpc.limits import DEFAULT_MAX_MESSAGE_BYTES, check_size
from yarrow.runtime.rpc.roles import SERVED_BY, Role, may_call, role_in
from yarrow.runtime.rpc.service import AddressError

_SCHEME = "grpc"
_CALL = "/yarrow.Rpc/Call"
_HANDSHAKE = "/yarrow.Rpc/Handshake"
_FINGERPRINT_BYTES = 8
#: Bytes for endpoint, method and token beside the arguments, so that our own limit applies first.
_ENVELOPE_BYTES = 64 * 1024
#: Milliseconds in which a new connection must prove itself, and the most such connections.
_HANDSHAKE_MS = 10_000
_MAX_CONNECTIONS = 2048


class _Envelope(msgspec.Struct, frozen=True, array_like=True):
    endpoint: str
    method: str
    token: str | None
    arguments: bytes


class GrpcSettings(msgspec.Struct, frozen=True):
    """Settings of the transport; seconds and bytes."""

    application_id: str
    #: Address to bind, and the name that peers use; None = this process only calls and serves nobody.
    bind_host: str | None = None
    host: str = "127.0.0.1"
    #: 0 = a free port.
    port: int = 0
    #: Empty = no TLS: only for tests and processes of one host.
    identity: PemIdentity = msgspec.field(default_factory=PemIdentity)
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    #: Deadline of a call (akka.ask.timeout); methods marked `@waits` have none.
    ask_timeout: float = 10.0
    #: Seconds of one attempt to connect to a peer, with its handshake (rpc.connect.timeout).
    connect_timeout: float = 20.0
    keepalive_seconds: float = 20.0


class GrpcTransport:
    """Serves on one port and keeps one channel to each peer."""

    def __init__(self, settings: GrpcSettings) -> None:
        self._settings = settings
        self._offer = own_offer(settings.application_id)
        self._fingerprint = fingerprint(self._offer)
        self._receivers: dict[str, Receiver[Any]] = {}
        self._server: Any = None
        self._port = settings.port
        self._channels: dict[tuple[str, Role | None], _Channel] = {}

    @property
    def scheme(self) -> str:
        return _SCHEME

    @property
    def port(self) -> int:
        """The bound port; 0 before `start`."""
        return self._port

    async def start(self) -> None:
        """Binds the port. Raises AddressError if it is in use."""
        settings = self._settings
        if settings.bind_host is None:
            return
        grpc = _import_grpc()

        self._server = grpc.aio.server(options=self._options(server=True))
        self._server.add_generic_rpc_handlers((self._handlers(grpc),))
        where = f"{settings.bind_host}:{settings.port}"
        try:
            if settings.identity.is_empty:
                self._port = self._server.add_insecure_port(where)
            else:
                identity = settings.identity
                credentials = grpc.ssl_server_credentials(
                    [(identity.private_key, identity.certificate)],
                    root_certificates=identity.ca_certificate,
                    require_client_auth=True,
                )
                self._port = self._server.add_secure_port(where, credentials)
        except RuntimeError:
            self._port = 0
        if self._port == 0:
            self._server = None
            raise AddressError(f"cannot listen on {where} for RPC: is the port taken? Choose another, or 0")
        await self._server.start()

    async def stop(self) -> None:
        """Closes channels and the server; running calls end with RpcUnavailableError."""
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()
        if self._server is not None:
            await self._server.stop(grace=None)
            self._server = None

    def bind(self, name: str, receiver: Receiver[Any]) -> str:
        if self._settings.bind_host is None:
            raise AddressError(f"cannot serve {name!r}: this process was given no address to listen on")
        if name in self._receivers:
            raise AddressError(f"an endpoint named {name!r} is already served at {self._authority()}")
        self._receivers[name] = receiver
        return f"{_SCHEME}://{self._authority()}/{name}"

    def unbind(self, name: str) -> None:
        self._receivers.pop(name, None)

    def owns(self, address: str) -> bool:
        return self._server is not None and urlsplit(address).netloc == self._authority()

    def caller(self, address: str, fencing_token: str | None) -> GrpcCaller:
        parts = urlsplit(address)
        authority, name = parts.netloc, parts.path.lstrip("/")
        if not authority or not name:
            raise AddressError(f"{address!r} is no RPC address: expected grpc://host:port/name")
        return GrpcCaller(self, authority, name, fencing_token, self._settings)

    def channel(self, authority: str, gateway: str) -> _Channel:
        """The connection to the process at an address that serves a gateway."""
        role = SERVED_BY.get(gateway)
        channel = self._channels.get((authority, role))
        if channel is None:
            channel = self._channels[authority, role] = _Channel(authority, role, self)
        return channel

    def _authority(self) -> str:
        return f"{self._settings.host}:{self._port}"

    def _options(self, server: bool) -> list[tuple[str, Any]]:
        size = self._settings.max_message_bytes + _ENVELOPE_BYTES
        keepalive = int(self._settings.keepalive_seconds * 1000)
        options: list[tuple[str, Any]] = [
            ("grpc.max_send_message_length", size),
            ("grpc.max_receive_message_length", size),
            ("grpc.keepalive_time_ms", keepalive),
            ("grpc.keepalive_timeout_ms", keepalive),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.enable_http_proxy", 0),
        ]
        if server:
            return [
                *options,
                ("grpc.so_reuseport", 0),
                ("grpc.http2.min_ping_interval_without_data_ms", 1000),
                ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
                ("grpc.max_allowed_incoming_connections", _MAX_CONNECTIONS),
            ]
        return [
            *options,
            ("grpc.enable_retries", 0),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2000),
            # gRPC's name for the time limit of one connection attempt.
            ("grpc.min_reconnect_backoff_ms", int(self._settings.connect_timeout * 1000)),
        ]

    def open_channel(self, authority: str, role: Role | None) -> Any:
        """A gRPC channel to `host:port` with our certificates; TLS fails if the other end does not have that role."""
        grpc = _import_grpc()

        identity = self._settings.identity
        if identity.is_empty:
            return grpc.aio.insecure_channel(authority, options=self._options(server=False))
        credentials = grpc.ssl_channel_credentials(
            identity.ca_certificate, identity.private_key, identity.certificate
        )
        has_roles = identity.role is not None and role is not None
        expected = role.server_name if role is not None and has_roles else identity.server_name
        options = [*self._options(server=False), ("grpc.ssl_target_name_override", expected)]
        return grpc.aio.secure_channel(authority, credentials, options=options)

    @property
    def connect_timeout(self) -> float:
        """Seconds to connect to a peer."""
        return self._settings.connect_timeout

    @property
    def offer(self) -> dict[str, str]:
        """This process's offer in the handshake."""
        return self._offer

    def _handlers(self, grpc: Any) -> Any:
        call = grpc.unary_unary_rpc_method_handler(self._serve_call)
        handshake = grpc.unary_unary_rpc_method_handler(self._serve_handshake)
        known = {_CALL: call, _HANDSHAKE: handshake}

        class Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
            def service(self, details: Any) -> Any:
                return known.get(details.method)

        return Handlers()

    async def _serve_handshake(self, request: bytes, context: Any) -> bytes:
        return encode_offer(self._offer)

    async def _serve_call(self, request: bytes, context: Any) -> bytes:
        if request[:_FINGERPRINT_BYTES] != self._fingerprint:
            return _error_reply(HandshakeError("the caller made no handshake, or is of another version"))
        try:
            envelope = _ENVELOPE.decode(memoryview(request)[_FINGERPRINT_BYTES:])
        except msgspec.DecodeError as error:
            return _error_reply(InvalidMessageError(f"a call does not decode: {error}"))
        receiver = self._receivers.get(envelope.endpoint)
        if receiver is None:
            text = f"{envelope.method}: no endpoint {envelope.endpoint!r} at {self._authority()}"
            return _error_reply(EndpointNotFoundError(text))
        gateway = receiver.gateway_name
        if self._settings.identity.role is not None:
            role = _role_of(context)
            if not may_call(role, gateway, envelope.method):
                who = f"a {role.value}" if role is not None else "a process without a role"
                return _error_reply(CallerNotAllowedError(f"{who} may not call {gateway}.{envelope.method}"))
        try:
            reply = await receiver.receive(envelope.method, envelope.token, envelope.arguments)
        except RpcError as error:
            return _error_reply(error)
        limit = self._settings.max_message_bytes
        if len(reply) > limit:
            title = f"{envelope.endpoint}.{envelope.method}"
            text = f"{title}: the reply has {len(reply)} bytes, the limit of a message is {limit} bytes"
            return _error_reply(AnswerTooLargeError(f"{text} (akka.framesize)"))
        return reply

    def envelope(self, name: str, method: MethodSchema, token: str | None, arguments: bytes) -> bytes:
        """The encoded form of one call."""
        return self._fingerprint + _ENCODER.encode(_Envelope(name, method.name, token, arguments))


def _import_grpc() -> Any:
    """Imports gRPC with its asyncio part; its own log is off unless requested."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    import grpc
    import grpc.aio

    return grpc


_ENVELOPE = msgspec.msgpack.Decoder(_Envelope)
_ENCODER = msgspec.msgpack.Encoder()


def _role_of(context: Any) -> Role | None:
    """The role in the peer's certificate."""
    names = context.auth_context().get("x509_subject_alternative_name", ())
    return role_in(name.decode("ascii", "replace") for name in names)


def _error_reply(error: RpcError) -> bytes:
    wire: WireError = to_wire(error)
    return b"\x01" + _ENCODER.encode(wire)


class _Channel:
    """The connection to one peer; the first call opens it and makes the handshake."""

    def __init__(self, authority: str, role: Role | None, transport: GrpcTransport) -> None:
        self.authority = authority
        self._role = role
        self.transport = transport
        self._channel: Any = None
        self._call: Any = None
        self._agreed = False
        self._lock = asyncio.Lock()

    async def unary(self, method: MethodSchema, request: bytes, deadline: float | None) -> bytes:
        """Sends one request. Raises RpcUnavailableError, RpcTimeoutError or HandshakeError."""
        if not self._agreed:
            async with self._lock:
                if not self._agreed:
                    await self._shake_hands()
        return await self._send(self._call, request, deadline, method.title)

    async def _shake_hands(self) -> None:
        if self._channel is None:
            self._channel = self.transport.open_channel(self.authority, self._role)
            self._call = self._channel.unary_unary(_CALL)
        shake = self._channel.unary_unary(_HANDSHAKE)
        deadline = self.transport.connect_timeout
        answer = await self._send(shake, encode_offer(self.transport.offer), deadline, "handshake")
        check_offers(self.transport.offer, decode_offer(answer), self.authority)
        self._agreed = True

    async def _send(self, call: Any, request: bytes, deadline: float | None, title: str) -> bytes:
        grpc = _import_grpc()

        try:
            reply: bytes = await call(request, timeout=deadline)
            return reply
        except grpc.aio.UsageError as error:
            raise RpcUnavailableError(f"{title} to {self.authority}: the connection is closed") from error
        except grpc.aio.AioRpcError as error:
            code, details = error.code(), error.details()
            if code == grpc.StatusCode.DEADLINE_EXCEEDED:
                raise RpcTimeoutError(f"{title} to {self.authority}: no answer within {deadline} s") from None
            if code == grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise MessageTooLargeError(f"{title} to {self.authority}: {details}") from None
            # A restarted peer may have another version: shake hands again.
            self._agreed = False
            raise RpcUnavailableError(f"{title} to {self.authority}: {code.name}: {details}") from None

    async def close(self) -> None:
        """Closes the connection; running calls end with RpcUnavailableError."""
        if self._channel is not None:
            await self._channel.close()
            self._channel = None


class GrpcCaller:
    """Sends calls to one endpoint of a peer."""

    def __init__(
        self, transport: GrpcTransport, authority: str, name: str, token: str | None, settings: GrpcSettings
    ) -> None:
        self._transport = transport
        self._authority = authority
        self._name = name
        self._token = token
        self._settings = settings

    async def call(self, method: MethodSchema, arguments: bytes) -> bytes:
        check_size(method, "request", len(arguments), self._settings.max_message_bytes)
        channel = self._transport.channel(self._authority, method.gateway)
        request = self._transport.envelope(self._name, method, self._token, arguments)
        ask = self._settings.ask_timeout
        return await channel.unary(method, request, None if method.waits else ask)
