"""Hashes of keys that are tuples of several columns' values: the same as those of the tuples as row keys.

Rows whose values are all one 64-bit payload are encoded and hashed by numpy. Of all other rows each distinct tuple is
hashed once, from encodings that are made once a distinct value. Owner: the calling thread; no state. It must not differ
from canonicalize + hash_of_key for any tuple: a property test holds both together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from yarrow.runtime.data.column_numbers import (
    PER_US,
    days_of,
    durations_of,
    floats_of,
    micros_of,
    nulls_of,
    numbers_of,
    times_of_day,
)
from yarrow.runtime.data.errors import ColumnKeyError
from yarrow.runtime.data.key_encoding import DATE, DATETIME, DURATION, FLOAT, INSTANT, INT, NAN_BITS, TIME
from yarrow.runtime.data.keys import encode_key
from yarrow.runtime.data.vectorized_keys import Codes, Hashes, combined_codes, distinct_keys
from yarrow.runtime.data.vectorized_xxh3 import LEAST_LENGTH, MOST_LENGTH, xxh3_64_array

_TWO_63: Final = 2.0**63
_xxh3 = xxhash.xxh3_64_intdigest
#: Bytes of a value of one payload in an encoding: its tag and 64 bits.
_WORD_BYTES: Final = 9


class _Words(NamedTuple):
    """A column whose values are one 64-bit payload each."""

    payloads: npt.NDArray[np.uint64]
    #: One tag for all rows, or the tag of each.
    tags: int | npt.NDArray[np.uint8]
    #: True where a value is no such payload after all (null, beyond 64 bits); None where all are.
    others: npt.NDArray[np.bool_] | None


def key_hashes_of_columns(columns: Sequence[pa.Array]) -> Hashes:
    """The 64-bit hash of each row, the key being the tuple of these columns' values. Raises ColumnKeyError."""
    if not columns:
        raise ColumnKeyError("a key needs at least one column; name one in key_by")
    if len({len(column) for column in columns}) != 1:
        raise ColumnKeyError(f"key columns differ in length: {[len(column) for column in columns]}")
    head = _head(len(columns))
    if not LEAST_LENGTH <= len(head) + _WORD_BYTES * len(columns) <= MOST_LENGTH:
        return _hashes_of_distinct(columns)
    words: list[_Words] = []
    for column in columns:
        found = _words_of(column)
        if found is None:
            return _hashes_of_distinct(columns)
        words.append(found)
    hashes = xxh3_64_array(_encoded(head, words))
    masks = [each.others for each in words if each.others is not None]
    if masks:
        rows = np.flatnonzero(np.logical_or.reduce(masks))
        hashes[rows] = _hashes_of_distinct([column.take(pa.array(rows)) for column in columns])
    return hashes


def key_groups_of_columns(columns: Sequence[pa.Array], max_parallelism: int) -> npt.NDArray[np.int32]:
    """The key group of each row, the key being the tuple of these columns' values. Raises ColumnKeyError."""
    return (key_hashes_of_columns(columns) % np.uint64(max_parallelism)).astype(np.int32)


def _head(count: int) -> bytes:
    """What stands in front of the elements in the encoding of a tuple: version, tag, number of elements."""
    return encode_key((None,) * count)[:-count]


def _encoded(head: bytes, words: Sequence[_Words]) -> npt.NDArray[np.void]:
    """The encoding of each row's tuple; rubbish where a value is no payload."""
    fields: list[tuple[str, str]] = [("head", f"V{len(head)}")] if head else []
    for number in range(len(words)):
        fields += [(f"tag{number}", "u1"), (f"payload{number}", ">u8")]
    rows = np.empty(len(words[0].payloads), np.dtype(fields))
    if head:
        rows["head"] = np.void(head)
    for number, (payloads, tags, _) in enumerate(words):
        rows[f"tag{number}"] = tags
        rows[f"payload{number}"] = payloads
    return rows


def _hashes_of_distinct(columns: Sequence[pa.Array]) -> Hashes:
    """The hash of each distinct tuple, made once, for all rows that have it."""
    parts = [_distinct_encodings(column) for column in columns]
    rows, chosen = combined_codes([codes for codes, _ in parts], [len(found) for _, found in parts])
    found = [_head(len(columns))] * len(chosen[0])
    for (_, encoded), codes in zip(parts, chosen, strict=True):
        found = [front + encoded[code] for front, code in zip(found, codes.tolist(), strict=True)]
    return np.fromiter(map(_xxh3, found), np.uint64, len(found))[rows]


def _distinct_encodings(column: pa.Array) -> tuple[Codes, list[bytes]]:
    """A code for each row and, without version byte, the encoding of each code. Raises ColumnKeyError."""
    words = _words_of(column)
    if words is None or words.others is not None or not isinstance(words.tags, int):
        codes, keys = distinct_keys(column)
        return codes, [encode_key(key)[1:] for key in keys]
    distinct = pa.array(words.payloads).dictionary_encode()
    rows = _encoded(b"", [_Words(distinct.dictionary.to_numpy(), words.tags, None)])
    return distinct.indices.to_numpy().astype(np.int64), rows.view(f"V{_WORD_BYTES}").tolist()


def _words_of(column: pa.Array) -> _Words | None:
    """The payloads of a column of a type of 64 bits; None for any other type. Raises ColumnKeyError."""
    kind, absent = column.type, nulls_of(column)
    if pa.types.is_uint64(kind):
        numbers = numbers_of(column)  # beyond int64 they wrap to negative numbers
        return _Words(numbers.view(np.uint64), INT, _either(numbers < 0, absent))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return _Words(numbers_of(column.cast(pa.int64())).view(np.uint64), INT, absent)
    if pa.types.is_floating(kind):
        return _words_of_floats(column)
    if pa.types.is_date(kind):
        return _Words(days_of(column).view(np.uint64), DATE, absent)
    if pa.types.is_time(kind):
        return _Words(times_of_day(column).view(np.uint64), TIME, absent)
    if pa.types.is_timestamp(kind):
        return _Words(micros_of(column).view(np.uint64), DATETIME if kind.tz is None else INSTANT, absent)
    if pa.types.is_duration(kind):
        lengths = durations_of(column)
        numbers, factor = numbers_of(lengths.view(pa.int64())), PER_US[lengths.type.unit]
        limit = np.iinfo(np.int64).max // factor
        large = (numbers > limit) | (numbers < -limit)
        return _Words((numbers * factor).view(np.uint64), DURATION, _either(large, absent))
    return None


def _words_of_floats(column: pa.Array) -> _Words:
    """Whole numbers of 64 bits are integers, as in row keys; larger ones have longer encodings."""
    values = floats_of(column)
    with np.errstate(invalid="ignore"):
        whole = np.isfinite(values) & (np.trunc(values) == values)
        small = whole & (values >= -_TWO_63) & (values < _TWO_63)
        payloads = values.view(np.uint64).copy()
        payloads[np.isnan(values)] = NAN_BITS
        payloads[small] = values[small].astype(np.int64).view(np.uint64)
    tags = np.where(small, np.uint8(INT), np.uint8(FLOAT))
    return _Words(payloads, tags, _either(whole & ~small, nulls_of(column)))


def _either(
    these: npt.NDArray[np.bool_], absent: npt.NDArray[np.bool_] | None
) -> npt.NDArray[np.bool_] | None:
    others = these if absent is None else these | absent
    return others if others.any() else None
