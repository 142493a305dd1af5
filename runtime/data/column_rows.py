"""Rows of record batches and columns, at given positions or where a mask is true, of columns of any type.

Owner: the calling thread; no state. pyarrow takes no rows of string_view, binary_view and run-end-encoded columns, nor
of nested ones with these inside. Views are made large values, and views again. Of columns with runs, slices are put
together; with views beside the runs, each slice brings all their buffers again. It must not know why rows are chosen.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_LARGE: Final = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


def rows_of_batch(records: pa.RecordBatch, positions: pa.Array) -> pa.RecordBatch:
    """The rows of a batch at `positions` (integers, 1-d), in that order and in their own memory."""
    if all(_is_taken(kind) for kind in records.schema.types):
        return records.take(positions)
    columns = [rows_of_column(column, positions) for column in records.columns]
    return pa.RecordBatch.from_arrays(columns, schema=records.schema)


def rows_where(records: pa.RecordBatch, mask: pa.BooleanArray) -> pa.RecordBatch:
    """The rows of a batch for which `mask`, as long as the batch, is true; a null drops a row."""
    if all(_is_taken(kind) for kind in records.schema.types):
        return records.filter(mask)
    return rows_of_batch(records, pc.indices_nonzero(mask))


def rows_of_column(column: pa.Array, positions: pa.Array) -> pa.Array:
    """The values of a column at `positions` (integers, 1-d), of the column's type."""
    kind = column.type
    if _is_taken(kind):
        return column.take(positions)
    large = _without_views(kind)
    return (
        column.cast(large).take(positions).cast(kind) if _is_taken(large) else _slices_of(column, positions)
    )


def _is_taken(kind: pa.DataType) -> bool:
    """True if pyarrow takes rows of a column of that type."""
    # An extension type of a program has no hash.
    return _is_taken(kind.storage_type) if isinstance(kind, pa.BaseExtensionType) else _is_plain_taken(kind)


@lru_cache(maxsize=1024)
def _is_plain_taken(kind: pa.DataType) -> bool:
    """The same for a type that is no extension."""
    if kind in _LARGE or pa.types.is_run_end_encoded(kind):
        return False
    # A list view moves no values.
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return True
    return all(_is_taken(kind.field(number).type) for number in range(kind.num_fields))


def _without_views(kind: pa.DataType) -> pa.DataType:
    """The type with large values in place of views; the same where Arrow has no cast to it and back."""
    if isinstance(kind, pa.BaseExtensionType):
        return kind
    if kind in _LARGE:
        return _LARGE[kind]
    fields = [kind.field(number) for number in range(kind.num_fields)]
    large = [field.with_type(_without_views(field.type)) for field in fields]
    if pa.types.is_struct(kind):
        return pa.struct(large)
    if pa.types.is_list(kind):
        return pa.list_(large[0])
    if pa.types.is_large_list(kind):
        return pa.large_list(large[0])
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(large[0], kind.list_size)
    if pa.types.is_map(kind):
        entries = large[0].type
        return pa.map_(entries.field(0), entries.field(1), keys_sorted=kind.keys_sorted)
    return kind


def _slices_of(column: pa.Array, positions: pa.Array) -> pa.Array:
    """The values as slices of neighbours, which Arrow puts together whatever their type."""
    places = positions.to_numpy(zero_copy_only=False).astype(np.int64)
    if not len(places):
        return column.slice(0, 0)
    starts = np.flatnonzero(np.diff(places, prepend=places[0] - 2) != 1)
    sizes = np.diff(starts, append=len(places))
    return pa.concat_arrays(
        [
            column.slice(start, size)
            for start, size in zip(places[starts].tolist(), sizes.tolist(), strict=True)
        ]
    )
