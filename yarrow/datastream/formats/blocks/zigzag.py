"""Zigzag numbers of variable length, as Avro writes its longs, and registries the indexes of Protobuf messages.

Owner: any thread; pure. Source: "Primitive Types" of the Avro specification.
"""

from __future__ import annotations


def zigzag_bytes(number: int) -> bytes:
    """Return the bytes of a number of at least 0."""
    rest, parts = number << 1, bytearray()
    while rest > 0x7F:
        parts.append(rest & 0x7F | 0x80)
        rest >>= 7
    parts.append(rest)
    return bytes(parts)


def zigzag_at(content: bytes, start: int, longest: int) -> tuple[int, int]:
    """Return the number at a place, and the place behind it. Raises ValueError if `longest` bytes do not end it."""
    found = 0
    for place, part in enumerate(content[start : start + longest]):
        found |= (part & 0x7F) << 7 * place
        if not part & 0x80:
            return found >> 1 ^ -(found & 1), start + place + 1
    raise ValueError("a number without an end")
