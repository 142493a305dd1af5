"""Message indexes: which message of a schema's file a Protobuf message is, told behind the id in its head.

Owner: any thread; pure. A path of positions: that of the message in its file, then in the message around it. The path
is its length and its positions as zigzag numbers of variable length; a single zero stands for the first message of the
file. Source: "Wire format" of Confluent's documentation of its schema registry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from yarrow.datastream.formats.blocks.zigzag import zigzag_at, zigzag_bytes

#: The path of the first message of a file, and its bytes.
FIRST: Final = (0,)
FIRST_BYTES: Final = b"\0"
#: Messages are nested less deeply than this; a longer path is damage.
_DEEPEST: Final = 64
_LONGEST_NUMBER: Final = 5


def encoded(indexes: Sequence[int]) -> bytes:
    """Return the bytes of a path."""
    if tuple(indexes) == FIRST:
        return FIRST_BYTES
    return b"".join(map(zigzag_bytes, (len(indexes), *indexes)))


def indexes_at(message: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Return the path that begins at a position of a message, and the position behind it.

    Raises ValueError for bytes that are no path.
    """
    count, end = _number_at(message, start)
    if count == 0:
        return FIRST, end
    if not 0 < count <= _DEEPEST:
        raise ValueError(f"{count} message indexes")
    indexes = []
    for _ in range(count):
        index, end = _number_at(message, end)
        if index < 0:
            raise ValueError(f"the message index {index}")
        indexes.append(index)
    return tuple(indexes), end


def _number_at(message: bytes, start: int) -> tuple[int, int]:
    try:
        return zigzag_at(message, start, _LONGEST_NUMBER)
    except ValueError:
        raise ValueError("message indexes without an end") from None
