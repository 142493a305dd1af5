"""Rows of a bucket as runs of the canonical form, column by column, where keys and values need no Python value.

The runs are those that `encode_run` makes of the rows, byte for byte. Owner: a task's thread; pure. Knows nothing of
Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from yarrow.runtime.data.arrow_types import arrow_type
from yarrow.runtime.data.serializers.arrow_columns import dump_column, has_columns
from yarrow.runtime.snapshot.key_columns import INT64, TEXT, dump_keys
from yarrow.runtime.snapshot.key_group_form import (
    KINDS_OF_ONE_VALUE,
    MAX_RUN,
    EncodedRun,
    StateForm,
    contents_of_part,
)
from yarrow.state_processor.keyed_tables import KEY, VALUE
from yarrow.state_processor.spark.key_buckets import Numbers
from yarrow.state_processor.spark.keyed_columns import KeyedColumns
from yarrow.state_processor.table_cells import Column, cast_to

#: Lengths of texts from which MessagePack needs more bytes before them.
_SHORT: Final = 32
_MEDIUM: Final = 256

Bytes = npt.NDArray[np.uint8]
_Dump = Callable[[pa.Array], tuple[int, bytes]]


def encoded_columns(
    columns: KeyedColumns, form: StateForm, table: pa.Table, groups: Numbers
) -> list[EncodedRun] | None:
    """The runs of rows in order of their key `groups` (int64, shape (rows,)).

    None where rows must be looked at one by one. Raises StateProcessorError for values that do not fit.
    """
    declared, kind = columns.target.value_type, columns.target.kind
    if (
        kind not in KINDS_OF_ONE_VALUE
        or columns.target.ttl
        or not has_columns(declared)
        or not table.num_rows
    ):
        return None
    keys, values = _whole(table.column(KEY)), table.column(VALUE)
    dump_key = _key_dump(keys.type)
    if dump_key is None or values.null_count or not _are_distinct(keys):
        return None
    # Whole once, because slices of many chunks take longer.
    values = _whole(cast_to(values, arrow_type(declared, "", {}), columns.what))
    runs: list[EncodedRun] = []
    for start, end in _cuts(groups):
        own_keys, own_values = _whole(keys[start:end]), _whole(values[start:end])
        if isinstance(own_keys, pa.ChunkedArray) or isinstance(own_values, pa.ChunkedArray):
            return None
        dumped = dump_column(declared, own_values)
        if dumped is None:
            return None
        key_form, key_bytes = dump_key(own_keys)
        group = int(groups[start])
        runs.append(EncodedRun(0, group, end - start, key_form, key_bytes, contents_of_part(dumped)))
    return runs


def _whole(column: Column) -> Column:
    """The rows in one array, but for texts of more bytes than an array holds (2 GiB)."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    try:
        return pa.concat_arrays(column.chunks)
    except pa.ArrowInvalid:
        return column


def _cuts(groups: Numbers) -> Iterator[tuple[int, int]]:
    """Where the rows of each run begin and end."""
    borders = [0, *(np.flatnonzero(groups[1:] != groups[:-1]) + 1).tolist(), len(groups)]
    for start, end in pairwise(borders):
        for first in range(start, end, MAX_RUN):
            yield first, min(first + MAX_RUN, end)


def _key_dump(kind: pa.DataType) -> _Dump | None:
    """The function that encodes keys of a type, if no key of that type needs another form first."""
    if pa.types.is_signed_integer(kind):
        return _whole_numbers
    return _texts if pa.types.is_string(kind) else None


def _are_distinct(keys: Column) -> bool:
    if pa.types.is_string(keys.type):
        return bool(pc.count_distinct(keys).as_py() == len(keys))
    ordered = np.sort(keys.to_numpy(zero_copy_only=False))
    return not bool(np.any(ordered[1:] == ordered[:-1]))


def _whole_numbers(keys: pa.Array) -> tuple[int, bytes]:
    return INT64, keys.to_numpy(zero_copy_only=False).astype("<i8", copy=False).tobytes()


def _texts(keys: pa.Array) -> tuple[int, bytes]:
    """One array of MessagePack, as `dump_keys` writes it."""
    count = len(keys)
    offsets: npt.NDArray[Any] = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset :][: count + 1]
    lengths = np.diff(offsets)
    if int(lengths.max()) >= _MEDIUM:
        return dump_keys(keys.to_pylist())
    long = lengths >= _SHORT
    heads = 1 + long.astype(np.int64)
    size = int(offsets[-1] - offsets[0])
    out = np.empty(size + int(heads.sum()), np.uint8)
    is_text = np.ones(len(out), np.bool_)
    places = np.cumsum(heads) - heads + (offsets[:-1] - offsets[0])
    out[places] = np.where(long, 0xD9, 0xA0 | lengths)
    is_text[places] = False
    if long.any():
        seconds = places[long] + 1
        out[seconds] = lengths[long]
        is_text[seconds] = False
    if size:
        out[is_text] = np.frombuffer(keys.buffers()[2], np.uint8, size, int(offsets[0]))
    return TEXT, _array_head(count) + out.tobytes()


def _array_head(count: int) -> bytes:
    if count < 16:
        return bytes((0x90 | count,))
    return b"\xdc" + count.to_bytes(2, "big") if count < 1 << 16 else b"\xdd" + count.to_bytes(4, "big")
