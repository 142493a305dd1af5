"""What tests ask of keys beside what the engine needs: one key alone, keys without their classes, key groups in bulk.

Owner: none (pure).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yarrow.runtime.data.errors import KeyDecodeError
from yarrow.runtime.data.key_encoding import _Decoder, decode_key_from
from yarrow.runtime.data.key_groups import key_hash
from yarrow.runtime.data.vectorized_keys import key_hashes
from yarrow.runtime.data.vectorized_tuples import key_hashes_of_columns


class RecordKey(NamedTuple):
    """The form of a frozen dataclass key whose class is not at hand.

    It serves inspection only, and is never in state.
    """

    class_name: str
    fields: tuple[tuple[str, Any], ...]


class EnumKey(NamedTuple):
    """What an Enum key is read as where its class is not at hand (inspection only, never in state)."""

    class_name: str
    member: str


def decode_key(data: bytes) -> Any:
    """The canonical key of an encoding.

    Raises KeyDecodeError, also when bytes are left over or a class is gone.
    """
    key, end = decode_key_from(data, 0)
    if end != len(data):
        raise KeyDecodeError(f"a key encoding of {end} bytes is followed by {len(data) - end} more")
    return key


def inspect_key(data: bytes) -> Any:
    """As decode_key, for tools without the job's classes: these come as RecordKey and EnumKey.

    Raises KeyDecodeError.
    """
    key, end = _Decoder(data, lambda name, items: RecordKey(name, tuple(items)), EnumKey).decode(0)
    if end != len(data):
        raise KeyDecodeError(f"a key encoding of {end} bytes is followed by {len(data) - end} more")
    return key


def key_group(encoded: bytes, max_parallelism: int) -> int:
    """The key group, 0 to max_parallelism - 1, of a key encoding."""
    return key_hash(encoded) % max_parallelism


def key_groups(column: pa.Array | pa.ChunkedArray, max_parallelism: int) -> npt.NDArray[np.int32]:
    """The key group of each value of a column.

    Raises ColumnKeyError for a type or value that no row key equals.
    """
    return (key_hashes(column) % np.uint64(max_parallelism)).astype(np.int32)


def key_groups_of_columns(columns: Sequence[pa.Array], max_parallelism: int) -> npt.NDArray[np.int32]:
    """The key group of each row, the key being the tuple of these columns' values. Raises ColumnKeyError."""
    return (key_hashes_of_columns(columns) % np.uint64(max_parallelism)).astype(np.int32)
