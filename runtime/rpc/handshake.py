"""The handshake: two processes compare engine, protocol, Python and application before anything else is decoded.

Owner: none (pure). The offer itself stays a msgpack map of texts for ever, so that any version can read any
other's.
"""

from __future__ import annotations

import hashlib
import sys

import msgspec

from yarrow import __version__
from yarrow.runtime.rpc.errors import HandshakeError
from yarrow.runtime.rpc.messages import PROTOCOL_VERSION

#: The compared facts in the order of reports, each with its remedy.
_REMEDIES = {
    "application": "it belongs to another cluster: look at the address",
    "engine": "install the same version of Yarrow on both sides",
    "protocol": "install the same build of Yarrow on both sides",
    "python": "functions travel between them, so both must run the same Python minor version",
}


def own_offer(application_id: str) -> dict[str, str]:
    """The offer of this process."""
    return {
        "application": application_id,
        "engine": __version__,
        "protocol": str(PROTOCOL_VERSION),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }


def encode_offer(offer: dict[str, str]) -> bytes:
    """Encodes an offer."""
    return msgspec.msgpack.encode(offer)


def decode_offer(data: bytes) -> dict[str, str]:
    """Decodes an offer. Raises HandshakeError for anything else."""
    try:
        return msgspec.msgpack.decode(data, type=dict[str, str])
    except msgspec.DecodeError:
        raise HandshakeError(
            "the peer's first message is no handshake: is this the port of another service?"
        ) from None


def check_offers(own: dict[str, str], peer: dict[str, str], address: str) -> None:
    """Raises HandshakeError with the first difference and its remedy."""
    for name, remedy in _REMEDIES.items():
        if own[name] != peer.get(name):
            raise HandshakeError(
                f"{address} has {name} {peer.get(name, 'unknown')}, this process has {own[name]}: {remedy}"
            )


def fingerprint(offer: dict[str, str]) -> bytes:
    """Eight bytes before every call, which a receiver compares before it decodes the call."""
    return hashlib.sha256(encode_offer(dict(sorted(offer.items())))).digest()[:8]
