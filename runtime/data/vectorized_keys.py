"""Key groups of Arrow columns: the same as those of the row keys the values stand for, without a Python row.

Integers, bool, floats, dates, times and timestamps are hashed by numpy; all other types once a distinct
value. A struct stands for a Row with the struct's field names; of several columns see vectorized_tuples. Owner:
the calling thread; no state. It must not differ from canonicalize + key_group for any value: a property test
holds both together.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yarrow.runtime.data.column_numbers import (
    days_of,
    durations_of,
    micros_of,
    nulls_of,
    numbers_of,
    times_of_day,
)
from yarrow.runtime.data.column_payloads import ColumnPayloads, payloads_of
from yarrow.runtime.data.errors import ColumnKeyError
from yarrow.runtime.data.key_classes import RowKey
from yarrow.runtime.data.key_groups import SALTS, hash_of_key
from yarrow.runtime.data.keys import canonicalize
from yarrow.runtime.data.vectorized_hashes import mix64_array

#: The hash or payload of each row: uint64, shape (rows,).
Hashes = npt.NDArray[np.uint64]
#: The code of each row: int64, shape (rows,).
Codes = npt.NDArray[np.int64]

#: The salt of each tag of a 64-bit payload, by the tag; shape (256,).
_SALT_OF_TAG: Final = np.zeros(256, np.uint64)
for _tag, _salt in SALTS.items():
    _SALT_OF_TAG[_tag] = _salt
_NONE_HASH: Final = hash_of_key(None)
#: Codes of several columns are made small again before their product could pass 64 bits.
_MAX_CODE: Final = 1 << 62


def key_hashes(column: pa.Array | pa.ChunkedArray) -> Hashes:
    """The hash of each value of a column: uint64, shape (rows,). Raises ColumnKeyError."""
    if isinstance(column, pa.ChunkedArray):
        parts = [key_hashes(chunk) for chunk in column.chunks]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint64)
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _with_none(_dictionary_hashes(column), column)
    words = payloads_of(column)
    if words is not None:
        return _with_none(_hashes_of_payloads(column, words), column)
    codes, keys = distinct_keys(column)
    return _hashes_of(keys)[codes]


def distinct_keys(column: pa.Array | pa.ChunkedArray) -> tuple[Codes, list[Any]]:
    """A code for each row, int64, shape (rows,), and the canonical key of each code.

    Codes may repeat a key (1 and 1.0, 0.0 and -0.0).

    Raises ColumnKeyError.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # several dictionaries cannot always be made one array
            column = pa.concat_arrays(column.chunks)
    kind = column.type
    if pa.types.is_null(kind):
        return np.zeros(len(column), dtype=np.int64), [None]
    if pa.types.is_struct(kind):
        return _distinct_structs(column)
    if pa.types.is_dictionary(kind):
        codes, keys = distinct_keys(column.dictionary)
        return _with_null_code(codes, keys, column.indices)
    column = _plain(column)
    if not _is_leaf(column.type):
        raise ColumnKeyError(
            f"a column of Arrow type {kind} cannot be a key. Key by a number, bool, string, binary, decimal,"
            " date, time, timestamp, duration, UUID or struct of these, or select one of its parts"
        )
    encoded = column.dictionary_encode()
    values = encoded.dictionary
    keys = [canonicalize(value) for value in _scalars(values, kind)]
    return _with_null_code(np.arange(len(values), dtype=np.int64), keys, encoded.indices)


def distinct_tuples(columns: Sequence[pa.Array | pa.ChunkedArray]) -> tuple[Codes, list[tuple[Any, ...]]]:
    """Codes (int64, shape (rows,)) and keys as distinct_keys, for tuples of several columns. Raises ColumnKeyError."""
    if not columns:
        raise ColumnKeyError("a key needs at least one column; name one in key_by")
    parts = [distinct_keys(column) for column in columns]
    if len({len(codes) for codes, _ in parts}) != 1:
        raise ColumnKeyError(f"key columns differ in length: {[len(codes) for codes, _ in parts]}")
    rows, chosen = combined_codes([codes for codes, _ in parts], [len(keys) for _, keys in parts])
    values = [[keys[code] for code in codes.tolist()] for (_, keys), codes in zip(parts, chosen, strict=True)]
    return rows, list(zip(*values, strict=True))


def combined_codes(columns: Sequence[Codes], sizes: Sequence[int]) -> tuple[Codes, list[Codes]]:
    """A number for each row's combination of codes, int64, shape (rows,), and each column's code in each.

    Codes of a column are below its size. Combinations are numbered in the order in which they first appear.
    """
    combined, bound = columns[0], max(1, sizes[0])
    for codes, size in zip(columns[1:], sizes[1:], strict=True):
        factor = max(1, size)
        if bound > _MAX_CODE // factor:
            _, combined = np.unique(combined, return_inverse=True)
            bound = len(combined) + 1
        combined = combined * factor + codes
        bound *= factor
    encoded = pa.array(combined).dictionary_encode()
    rows: Codes = encoded.indices.to_numpy().astype(np.int64)
    row_of = np.empty(len(encoded.dictionary), np.int64)
    row_of[rows] = np.arange(len(rows))
    return rows, [codes[row_of] for codes in columns]


def _distinct_structs(column: pa.Array) -> tuple[Codes, list[Any]]:
    names = tuple(column.type.names)
    if not names:
        return _with_null_code(np.zeros(1, dtype=np.int64), [RowKey(None, ())], _zeros_like(column))
    codes, tuples = distinct_tuples(column.flatten())
    keys: list[Any] = [RowKey(names, values) for values in tuples]
    absent = nulls_of(column)
    if absent is not None:
        codes = np.where(absent, len(keys), codes)
        keys.append(None)
    return codes, keys


def _zeros_like(column: pa.Array) -> pa.Array:
    return pa.array(np.zeros(len(column), dtype=np.int64), mask=nulls_of(column))


def _with_null_code(codes: Codes, keys: list[Any], indices: pa.Array) -> tuple[Codes, list[Any]]:
    """Codes of the rows that `indices` choose, a null among these having a code of its own."""
    absent = nulls_of(indices)
    rows = numbers_of(indices)
    if absent is None:
        return codes[rows], keys
    return np.append(codes, len(keys))[np.where(absent, len(codes), rows)], [*keys, None]


def _hashes_of(keys: Sequence[Any]) -> Hashes:
    return np.fromiter(map(hash_of_key, keys), dtype=np.uint64, count=len(keys))


def _dictionary_hashes(column: pa.Array) -> Hashes:
    hashes = key_hashes(column.dictionary)
    if not len(hashes):  # all rows are null
        return np.zeros(len(column), dtype=np.uint64)
    return hashes[numbers_of(column.indices)]


def _with_none(hashes: Hashes, column: pa.Array) -> Hashes:
    absent = nulls_of(column)
    if absent is not None:
        hashes[absent] = _NONE_HASH
    return hashes


def _hashes_of_payloads(column: pa.Array, words: ColumnPayloads) -> Hashes:
    """Hashes by numpy, rubbish where a value is null; of longer values one hash a distinct value."""
    tags = words.tags
    salts = np.uint64(SALTS[tags]) if isinstance(tags, int) else _SALT_OF_TAG[tags]
    hashes = mix64_array(words.payloads ^ salts)
    if words.longer is not None:
        rows = np.flatnonzero(words.longer)
        codes, keys = distinct_keys(column.take(pa.array(rows)))
        hashes[rows] = _hashes_of(keys)[codes]
    return hashes


def _plain(column: pa.Array) -> pa.Array:
    """A column of a type that dictionary_encode knows and whose scalars are Python's.

    Values are checked where they must be.
    """
    kind = column.type
    mask = nulls_of(column)
    if pa.types.is_date(kind):
        return pa.array(days_of(column).astype(np.int32), pa.int32(), mask=mask).view(pa.date32())
    if pa.types.is_time(kind):
        return pa.array(times_of_day(column), pa.int64(), mask=mask).view(pa.time64("us"))
    if pa.types.is_timestamp(kind):
        # As UTC: a zone of this machine's tables could move or refuse an instant that the column holds.
        zone = None if kind.tz is None else "UTC"
        return pa.array(micros_of(column), pa.int64(), mask=mask).view(pa.timestamp("us", zone))
    if pa.types.is_duration(kind):
        return durations_of(column)
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        return column.cast(pa.decimal128(kind.precision, kind.scale))
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if str(kind) == "string_view":
        return column.cast(pa.large_string())
    if str(kind) == "binary_view":
        return column.cast(pa.large_binary())
    if isinstance(kind, pa.UuidType):
        return column.storage
    return column


def _is_leaf(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_decimal(kind)
        or types.is_date32(kind)
        or types.is_time64(kind)
        or types.is_timestamp(kind)
        or types.is_duration(kind)
    )


def _scalars(values: pa.Array, kind: pa.DataType) -> list[Any]:
    python: list[Any] = values.to_pylist()
    if isinstance(kind, pa.UuidType):
        return [None if value is None else uuid.UUID(bytes=value) for value in python]
    return python
