"""The file `_metadata` of a checkpoint or savepoint: its bytes, and every fault that they can have.

Layout: magic, version, length of the body, SHA-256 over version, length and body, then the body in
MessagePack. With a secret, a seal over all that follows (see docs/design/0011-snapshot-format.md). Owner: the
calling thread; pure. It must not open files: the given path is for messages.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import struct
from typing import Final

import msgspec

from yarrow.runtime.snapshot.errors import CorruptSnapshotError
from yarrow.runtime.snapshot.handles import METADATA_VERSION, CheckpointMetadata

#: Name of the file; a checkpoint with this file is complete.
METADATA_FILE: Final = "_metadata"
#: Not text, so that its first bytes show a copy with translated line ends.
MAGIC: Final = b"\x89YRW\r\n\x1a\n"
_HEAD: Final = struct.Struct("<IQ")
_HASH_SIZE: Final = 32
_BODY_AT: Final = len(MAGIC) + _HEAD.size + _HASH_SIZE
_SEAL_MAGIC: Final = b"HMAC"
_SEAL_SIZE: Final = len(_SEAL_MAGIC) + _HASH_SIZE

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(CheckpointMetadata)


class Seal(enum.Enum):
    """Whether the writer of a metadata file had the secret."""

    #: No secret was given to check it.
    UNCHECKED = "unchecked"
    ABSENT = "absent"
    #: Made with another secret, or over other bytes.
    WRONG = "wrong"
    VALID = "valid"


def encode_metadata(metadata: CheckpointMetadata, secret: bytes = b"") -> bytes:
    """The bytes of the file; sealed if there is a secret."""
    body = _ENCODER.encode(metadata)
    head = _HEAD.pack(METADATA_VERSION, len(body))
    data = b"".join((MAGIC, head, hashlib.sha256(head + body).digest(), body))
    return data + _SEAL_MAGIC + _seal(data, secret) if secret else data


def metadata_size(metadata: CheckpointMetadata) -> int:
    """Bytes of the file without a seal."""
    return _BODY_AT + len(_ENCODER.encode(metadata))


def seal_of(data: bytes, secret: bytes) -> Seal:
    """Whether the writer of a file had the secret; `decode_metadata` must have accepted its bytes."""
    if not secret:
        return Seal.UNCHECKED
    _, length = _HEAD.unpack_from(data, len(MAGIC))
    sealed, seal = data[: _BODY_AT + length], data[_BODY_AT + length :]
    if not seal:
        return Seal.ABSENT
    expected = _SEAL_MAGIC + _seal(sealed, secret)
    return Seal.VALID if hmac.compare_digest(seal, expected) else Seal.WRONG


def _seal(data: bytes, secret: bytes) -> bytes:
    return hmac.new(secret, data, hashlib.sha256).digest()


def decode_metadata(data: bytes, path: str) -> CheckpointMetadata:
    """The metadata in a file's bytes. Raises CorruptSnapshotError with `path` and the fault."""
    if not data:
        raise CorruptSnapshotError(path, "the file is empty")
    if data[: len(MAGIC)] != MAGIC[: len(data)]:
        raise CorruptSnapshotError(
            path, "it is no metadata of a checkpoint or savepoint (its first bytes differ)",
            "Name the folder of a checkpoint or savepoint, or its _metadata file.",
        )  # fmt: skip
    if len(data) < _BODY_AT:
        raise CorruptSnapshotError(path, f"it ends after {len(data)} bytes, within its head of {_BODY_AT}")
    version, length = _HEAD.unpack_from(data, len(MAGIC))
    if version > METADATA_VERSION:
        raise CorruptSnapshotError(
            path, f"its version is {version} and this release reads up to {METADATA_VERSION}",
            "Restore with the release that wrote it or a later one; if that is this release, the file is damaged.",
        )  # fmt: skip
    end = _BODY_AT + length
    sealed = len(data) == end + _SEAL_SIZE and data[end : end + len(_SEAL_MAGIC)] == _SEAL_MAGIC
    if len(data) != end and not sealed:
        raise CorruptSnapshotError(
            path, f"it has {len(data)} bytes where {end} were written: truncated or torn"
        )
    stored = data[_BODY_AT - _HASH_SIZE : _BODY_AT]
    head = data[len(MAGIC) : len(MAGIC) + _HEAD.size]
    if hashlib.sha256(head + data[_BODY_AT:end]).digest() != stored:
        raise CorruptSnapshotError(path, "its bytes are not those that were written (SHA-256 differs)")
    try:
        return _DECODER.decode(data[_BODY_AT:end])
    except msgspec.MsgspecError as error:
        raise CorruptSnapshotError(path, f"its content is of another form ({error})") from error
