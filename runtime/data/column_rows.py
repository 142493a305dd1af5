"""Rows of record batches and columns at given positions, views of text and bytes included.

Owner: the calling thread; no state. pyarrow takes no rows of string_view and binary_view: a column of these is made
a large one, and a view again. It must not know why rows are chosen.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_LARGE: Final = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


def rows_of_batch(records: pa.RecordBatch, positions: pa.Array) -> pa.RecordBatch:
    """The rows of a batch at `positions` (integers, 1-d), in that order and in their own memory."""
    if not any(kind in _LARGE for kind in records.schema.types):
        return records.take(positions)
    columns = [rows_of_column(column, positions) for column in records.columns]
    return pa.RecordBatch.from_arrays(columns, schema=records.schema)


def rows_of_column(column: pa.Array, positions: pa.Array) -> pa.Array:
    """The values of a column at `positions` (integers, 1-d), of the column's type."""
    large = _LARGE.get(column.type)
    return column.take(positions) if large is None else column.cast(large).take(positions).cast(column.type)
