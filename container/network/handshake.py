"""The mutual proof of a data connection: both ends show that they hold the application's data secret.

Owner: the I/O thread. Challenge and response are HMAC-SHA-256 over both nonces and both names, so that
nothing can be replayed. Before the proof, an end sends only handshake frames. No pickle here.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import TypeVar

import msgspec

from yarrow.container.network.frames import WireProtocolError

_NONCE_BYTES = 32
_T = TypeVar("_T")


class Hello(msgspec.Struct, frozen=True):
    """The client's name, the name of the wanted server, and a nonce."""

    worker_id: str
    target_id: str
    nonce: bytes


class Challenge(msgspec.Struct, frozen=True):
    """The server's nonce and proof."""

    nonce: bytes
    proof: bytes


class Proof(msgspec.Struct, frozen=True):
    """The client's proof."""

    proof: bytes


def _proof(secret: bytes, role: str, hello: Hello, server_nonce: bytes) -> bytes:
    parts = (role.encode(), hello.worker_id.encode(), hello.target_id.encode(), hello.nonce, server_nonce)
    message = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
    return hmac.new(secret, message, hashlib.sha256).digest()


class ClientHandshake:
    """The handshake of the connecting end."""

    def __init__(self, secret: bytes, worker_id: str, target_id: str) -> None:
        self._secret = secret
        self._hello = Hello(worker_id, target_id, os.urandom(_NONCE_BYTES))

    def hello(self) -> bytes:
        """Payload of the first frame."""
        return msgspec.msgpack.encode(self._hello)

    def answer(self, payload: bytes) -> bytes:
        """Checks the server's proof and returns the payload of PROOF. Raises WireProtocolError."""
        challenge = _decode(payload, Challenge)
        expected = _proof(self._secret, "server", self._hello, challenge.nonce)
        if not hmac.compare_digest(expected, challenge.proof):
            raise WireProtocolError("data connection: the peer does not belong to this application")
        return msgspec.msgpack.encode(Proof(_proof(self._secret, "client", self._hello, challenge.nonce)))


class ServerHandshake:
    """The handshake of the accepting end."""

    def __init__(self, secret: bytes, worker_id: str) -> None:
        self._secret = secret
        self._worker_id = worker_id
        self._nonce = os.urandom(_NONCE_BYTES)
        self._hello: Hello | None = None

    def challenge(self, payload: bytes) -> bytes:
        """The payload of CHALLENGE for a HELLO. Raises WireProtocolError if the client wants another worker."""
        if self._hello is not None:
            raise WireProtocolError("data connection: a second HELLO")
        hello = _decode(payload, Hello)
        if hello.target_id != self._worker_id:
            raise WireProtocolError(
                f"data connection: meant for worker {hello.target_id}, not {self._worker_id}"
            )
        self._hello = hello
        return msgspec.msgpack.encode(
            Challenge(self._nonce, _proof(self._secret, "server", hello, self._nonce))
        )

    def verify(self, payload: bytes) -> str:
        """Checks the client's proof and returns its worker id. Raises WireProtocolError."""
        if self._hello is None:
            raise WireProtocolError("data connection: PROOF before HELLO")
        proof = _decode(payload, Proof)
        if not hmac.compare_digest(_proof(self._secret, "client", self._hello, self._nonce), proof.proof):
            raise WireProtocolError("data connection: the peer does not belong to this application")
        return self._hello.worker_id


def _decode(payload: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.msgpack.decode(payload, type=kind)
    except msgspec.MsgspecError as error:
        raise WireProtocolError(f"data connection: malformed {kind.__name__}: {error}") from error
