"""Rows of a record batch by the slice of time that contains them.

Owner: the calling thread; pure. Rows are positions in a batch: a range where they stand together, so that columns need
no copy, else an array. Must not know keys or aggregates.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from yarrow.container.operators.columnar.row_times import Times
from yarrow.container.operators.columnar.vectorized_index import Slots
from yarrow.container.operators.time_slices import TimeSlices
from yarrow.runtime.data.column_rows import rows_of_column

#: Positions of rows: a range, or integers of shape (rows,), ascending.
Rows = range | Slots

#: Most slices for which one look at all rows for each is faster than one sort.
_SCANNED: Final = 4


def spanned(times: Times, slices: TimeSlices) -> range:
    """The starts of the slices from the first one with rows to the last; `times` are int64, shape (rows,)."""
    first, last = slices.slice_of(int(times.min())), slices.slice_of(int(times.max()))
    return range(first, last + 1, slices.step)


def slices_in(span: range) -> int:
    """The number of slices of a span, which has one at least; `len` refuses more than 63 bits."""
    return (span[-1] - span[0]) // span.step + 1


def divided(times: Times, slices: TimeSlices) -> list[tuple[int, Rows]]:
    """The start of each slice with rows, and its rows, in order of time; `times` are int64, shape (rows,)."""
    span = spanned(times, slices)
    first, step = span[0], slices.step
    count = slices_in(span)
    if count == 1:
        return [(first, range(len(times)))]
    if count <= _SCANNED:
        scanned = ((start, np.flatnonzero((times >= start) & (times < start + step))) for start in span)
        return [(start, _compact(rows)) for start, rows in scanned if len(rows)]
    # Differences fit 64 bits without a sign, whatever the times are.
    begin = np.array(first, np.int64).view(np.uint64)
    numbers = (times.view(np.uint64) - begin) // np.uint64(step)
    order = np.argsort(numbers, kind="stable")
    ordered = numbers.take(order)
    cuts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    starts = [first + step * int(number) for number in ordered[np.concatenate(([0], cuts))]]
    return list(zip(starts, map(_compact, np.split(order, cuts)), strict=True))


def _compact(rows: Slots) -> Rows:
    """The rows as a range if they stand together."""
    first, last = int(rows[0]), int(rows[-1])
    return range(first, last + 1) if last - first + 1 == len(rows) else rows


def column_part(column: pa.Array, rows: Rows) -> pa.Array:
    """The values of a column in these rows."""
    if isinstance(rows, range):
        return column if len(rows) == len(column) else column.slice(rows.start, len(rows))
    return rows_of_column(column, pa.array(rows))


def slots_part(slots: Slots, rows: Rows) -> Slots:
    """The slots (int64, shape (rows of the batch,)) of these rows, int64, shape (rows,)."""
    return slots[rows.start : rows.stop] if isinstance(rows, range) else slots.take(rows)
