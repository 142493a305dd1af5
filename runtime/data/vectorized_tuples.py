"""Hashes of keys that are tuples of several columns' values: the same as those of the tuples as row keys.

Rows whose values are all one 64-bit payload are encoded and hashed by numpy. Of all other rows each distinct tuple is
hashed once, from encodings that are made once a distinct value. Owner: the calling thread; no state. It must not differ
from canonicalize + hash_of_key for any tuple: a property test holds both together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from yarrow.runtime.data.column_numbers import nulls_of
from yarrow.runtime.data.column_payloads import ColumnPayloads, payloads_of
from yarrow.runtime.data.errors import ColumnKeyError
from yarrow.runtime.data.keys import encode_key
from yarrow.runtime.data.vectorized_hashes import LEAST_LENGTH, MOST_LENGTH, xxh3_64_array
from yarrow.runtime.data.vectorized_keys import Codes, Hashes, combined_codes, distinct_keys

_xxh3 = xxhash.xxh3_64_intdigest
#: Bytes of a value of one payload in an encoding: its tag and 64 bits.
_WORD_BYTES: Final = 9


def key_hashes_of_columns(columns: Sequence[pa.Array]) -> Hashes:
    """The hash of each row's tuple of these columns' values: uint64, shape (rows,). Raises ColumnKeyError."""
    if not columns:
        raise ColumnKeyError("a key needs at least one column; name one in key_by")
    if len({len(column) for column in columns}) != 1:
        raise ColumnKeyError(f"key columns differ in length: {[len(column) for column in columns]}")
    head = _head(len(columns))
    if not LEAST_LENGTH <= len(head) + _WORD_BYTES * len(columns) <= MOST_LENGTH:
        return _hashes_of_distinct(columns)
    words: list[ColumnPayloads] = []
    for column in columns:
        found = payloads_of(column)
        if found is None:
            return _hashes_of_distinct(columns)
        words.append(found)
    hashes = xxh3_64_array(_encoded(head, words))
    masks = [mask for mask in (nulls_of(column) for column in columns) if mask is not None]
    masks += [each.longer for each in words if each.longer is not None]
    if masks:
        rows = np.flatnonzero(np.logical_or.reduce(masks))
        hashes[rows] = _hashes_of_distinct([column.take(pa.array(rows)) for column in columns])
    return hashes


def _head(count: int) -> bytes:
    """The bytes in front of the elements in the encoding of a tuple: version, tag, number of elements."""
    return encode_key((None,) * count)[:-count]


def _encoded(head: bytes, words: Sequence[ColumnPayloads]) -> npt.NDArray[np.void]:
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
    words = payloads_of(column)
    if words is None or words.longer is not None or column.null_count or not isinstance(words.tags, int):
        codes, keys = distinct_keys(column)
        return codes, [encode_key(key)[1:] for key in keys]
    distinct = pa.array(words.payloads).dictionary_encode()
    rows = _encoded(b"", [ColumnPayloads(distinct.dictionary.to_numpy(), words.tags)])
    return distinct.indices.to_numpy().astype(np.int64), rows.view(f"V{_WORD_BYTES}").tolist()
