"""Columns of canonical keys: their key groups in bulk, and their bytes in the canonical form of keyed state.

Owner: the calling thread (a snapshot thread, or the task thread at restore); no state. Keys must be canonical
(runtime.data.keys); the form of a column must depend on its keys alone.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from yarrow.runtime.data.errors import KeyDecodeError
from yarrow.runtime.data.key_groups import hash_of_key
from yarrow.runtime.data.keys import decode_key_from, encode_key
from yarrow.runtime.data.vectorized_hashes import mix64_array

#: Forms of a column of keys; a stored format.
INT64: Final = 1
TEXT: Final = 2
ENCODED: Final = 3
_INT64_BYTES: Final = 8

#: The key group of each key: uint16, shape (keys,).
Groups = npt.NDArray[np.uint16]
#: Keys: int64, shape (keys,).
Numbers = npt.NDArray[np.int64]
#: Keys or values: dtype object, shape (keys,).
Objects = npt.NDArray[np.object_]

_ENCODER: Final = msgspec.msgpack.Encoder()
_TEXTS: Final = msgspec.msgpack.Decoder(list[str])
_xxh3 = xxhash.xxh3_64_intdigest
#: Bytes before a text in its key encoding, by the text's length in bytes.
_HEADS: Final = [encode_key("x" * size)[: -size or None] for size in range(256)]


def key_groups_of(keys: Sequence[Any] | Objects, max_parallelism: int) -> Groups:
    """The key group of each canonical key (a sequence, or dtype object, shape (keys,)): uint16, shape (keys,)."""
    return key_groups_of_column(keys, numbers_of(keys), max_parallelism)


def key_groups_of_column(
    keys: Sequence[Any] | Objects, numbers: Numbers | None, max_parallelism: int
) -> Groups:
    """`key_groups_of` with what `numbers_of` returned for the keys: uint16, shape (keys,)."""
    if numbers is not None:
        return (mix64_array(numbers.view(np.uint64)) % np.uint64(max_parallelism)).astype(np.uint16)
    hashes: npt.NDArray[np.uint64] | None = None
    if set(map(type, keys)) == {str}:
        try:
            heads, hash_of = _HEADS, _xxh3
            found = [hash_of(heads[len(text)] + text) for text in map(str.encode, keys)]
            hashes = np.array(found, dtype=np.uint64)
        except (IndexError, UnicodeEncodeError):
            pass  # a long text; a lone surrogate
    if hashes is None:
        hashes = np.fromiter(map(hash_of_key, keys), dtype=np.uint64, count=len(keys))
    return (hashes % np.uint64(max_parallelism)).astype(np.uint16)


def numbers_of(keys: Sequence[Any] | Objects) -> Numbers | None:
    """The keys as int64, shape (keys,); None unless all of them are ints of 64 bits."""
    packed = _packed_ints(keys) if set(map(type, keys)) == {int} else None
    return None if packed is None else np.frombuffer(packed, dtype="<i8")


def _packed_ints(keys: Sequence[int] | Objects) -> bytes | None:
    """The ints as little-endian int64; None if some need more than 64 bits."""
    with suppress(struct.error):
        return struct.pack(f"<{len(keys)}q", *keys)
    return None


def split_by_key_group(
    keys: Sequence[Any] | Objects, max_parallelism: int, *columns: Sequence[Any] | Objects
) -> Iterator[tuple[int, tuple[list[Any], ...]]]:
    """Key groups in order, each with its keys and matching entries of `columns` (dtype object, shape (keys,))."""
    order, places = order_by_key_group(key_groups_of(keys, max_parallelism))
    taken = [objects_of(column)[order] for column in (keys, *columns)]
    for group, run in places:
        yield group, tuple(column[run].tolist() for column in taken)


def order_by_key_group(groups: Groups) -> tuple[npt.NDArray[np.intp], list[tuple[int, slice]]]:
    """The order of keys (intp, shape (keys,)) by their groups (uint16, shape (keys,)), and each group's place in it.

    Keys of a group stay in the order that they have.
    """
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=np.int32(-1)))
    ends = [*starts[1:].tolist(), len(groups)]
    runs = map(slice, starts.tolist(), ends)
    return order, list(zip(ordered[starts].tolist(), runs, strict=True))


def objects_of(column: Collection[Any] | Objects) -> Objects:
    """The elements as an array, dtype object, shape (elements,), which garbage collections do not walk.

    Walking a list of many thousand uncached elements costs a collection milliseconds.
    """
    if isinstance(column, np.ndarray):
        return column
    return np.fromiter(column, dtype=object, count=len(column))


def dump_keys(keys: Sequence[Any]) -> tuple[int, bytes]:
    """The form of a column and its bytes."""
    kinds = set(map(type, keys))
    if kinds == {int}:
        packed = _packed_ints(keys)
        if packed is not None:
            return INT64, packed
    elif kinds == {str}:
        try:
            return TEXT, _ENCODER.encode(keys)
        except UnicodeEncodeError:
            pass
    return ENCODED, b"".join(map(encode_key, keys))


def key_runs(column: Numbers | Objects, runs: Sequence[slice]) -> Iterator[tuple[Any, int, bytes]]:
    """The first key of each run, the form of its keys and their bytes.

    `column`: the keys by key group, shape (keys,); int64 if all are ints of 64 bits, else dtype object.
    """
    if column.dtype == np.object_:
        for run in runs:
            yield column[run.start], *dump_keys(column[run].tolist())
        return
    packed, firsts = column.tobytes(), column[[run.start for run in runs]].tolist()
    for first, run in zip(firsts, runs, strict=True):
        yield first, INT64, packed[run.start * _INT64_BYTES : run.stop * _INT64_BYTES]


def load_keys(form: int, data: memoryview, count: int) -> list[Any]:
    """The keys of a column.

    Raises ValueError for bytes that are no such column, KeyDecodeError for a key class that is gone or
    changed.
    """
    keys: list[Any]
    if form == INT64:
        keys = np.frombuffer(data, dtype="<i8").tolist()
    elif form == TEXT:
        try:
            keys = _TEXTS.decode(data)
        except msgspec.MsgspecError as error:
            raise ValueError(f"a column of text keys cannot be read: {error}") from error
    elif form == ENCODED:
        keys = _decoded(bytes(data), count)
    else:
        raise ValueError(f"columns of keys of form {form} are unknown to this release")
    if len(keys) != count:
        raise ValueError(f"a column of {count} keys holds {len(keys)}")
    return keys


def key_like_first(form: int, data: memoryview) -> Any:
    """A key like the column's first one, without reading the others; raises the errors of `load_keys`."""
    if form == INT64:
        return 0
    if form == TEXT:
        return ""
    if form == ENCODED:
        return decode_key_from(bytes(data), 0)[0]
    raise ValueError(f"columns of keys of form {form} are unknown to this release")


def _decoded(data: bytes, count: int) -> list[Any]:
    keys, at = [], 0
    for _ in range(count):
        key, at = decode_key_from(data, at)
        keys.append(key)
    if at != len(data):
        raise KeyDecodeError(f"{len(data) - at} bytes follow a column of {count} keys")
    return keys
