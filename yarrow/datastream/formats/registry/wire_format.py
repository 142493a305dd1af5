"""The head of a message with a schema of a registry: a zero byte and the schema's id in four bytes, big-endian.

Owner: any thread; pure. Source: "Wire format" of Confluent's documentation of its schema registry. Must not know the
forms of messages behind the head.
"""

from __future__ import annotations

import struct
from typing import Final

from yarrow.datastream.formats.registry.errors import RegistryMessageError

HEAD_BYTES: Final = 5
_MAGIC: Final = 0
_HEAD: Final = struct.Struct(">bI")


def head_of(schema_id: int) -> bytes:
    """Return the head of messages of a schema."""
    return _HEAD.pack(_MAGIC, schema_id)


def schema_id_of(message: bytes) -> int:
    """Return the id in a message's head. Raises RegistryMessageError for a message without such a head."""
    if len(message) < HEAD_BYTES or message[0] != _MAGIC:
        raise RegistryMessageError(
            f"a message of {len(message)} bytes does not begin with a zero byte and the id of a schema:"
            f" {bytes(message[:20])!r}. Its writer uses no schema registry, so read it with a schema without one"
        )
    schema_id: int = _HEAD.unpack_from(message)[1]
    return schema_id
