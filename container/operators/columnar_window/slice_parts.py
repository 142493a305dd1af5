"""What a batch brings to each slice of time: its rows, or what their aggregates come to.

Owner: the calling thread; no state. Where aggregates are exact and keys few, one pass aggregates all slices of a batch,
in arrays by slice and key. Each slice then takes its part. That costs less than to divide the rows. Must not know
watermarks or windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from yarrow.container.operators.columnar.aggregate_state import SumOverflowError
from yarrow.container.operators.columnar.row_times import Times
from yarrow.container.operators.columnar.vectorized_index import Slots
from yarrow.container.operators.columnar_window.divided_rows import (
    column_part,
    divided,
    slices_in,
    slots_part,
    spanned,
)
from yarrow.container.operators.columnar_window.slice_states import SliceStates
from yarrow.container.operators.time_slices import TimeSlices


class BatchRows(NamedTuple):
    """The rows of a batch: arrays and columns have shape (rows,)."""

    times: Times
    #: The slots of their keys, int64.
    slots: Slots
    #: The column that each aggregate reads; None for a count.
    columns: Sequence[pa.Array | None]
    #: Number of slots that exist.
    size: int


@dataclass(frozen=True, slots=True)
class SlicePart:
    """The aggregates of a batch for the slice with this start."""

    start: int
    #: The slots that have rows, int64, shape (rows or slots,).
    slots: Slots
    #: Adds it to the slice; raises SumOverflowError.
    add_to: Callable[[SliceStates], None]


def parts_of(rows: BatchRows, layout: TimeSlices, make: Callable[[], SliceStates]) -> Iterator[SlicePart]:
    """The parts of a batch, in order of time; `make` gives empty states."""
    span = spanned(rows.times, layout)
    aggregated = None
    if (count := slices_in(span)) > 1 and count * rows.size <= len(rows.times):
        aggregated = _aggregated(rows, span, make())
    if aggregated is not None:
        yield from _parts(aggregated, span, rows.size)
        return
    for start, chosen in divided(rows.times, layout):
        slots = slots_part(rows.slots, chosen)
        columns = [None if column is None else column_part(column, chosen) for column in rows.columns]

        def add(states: SliceStates, slots: Slots = slots, columns: list[pa.Array | None] = columns) -> None:
            states.update(slots, columns, rows.size)

        yield SlicePart(start, slots, add)


def _aggregated(rows: BatchRows, span: range, states: SliceStates) -> SliceStates | None:
    """The aggregates of a batch by slice and key, in empty states: slots are those of keys, a slice behind the other.

    None if the rows have to be divided: aggregates would not be the same, or a sum is too large.
    """
    if not all(state.is_exact for state in states.states):
        return None
    slots = (rows.times - span.start) // span.step * rows.size + rows.slots
    try:
        states.update(slots, rows.columns, len(span) * rows.size)
    except SumOverflowError:
        return None
    return states


def _parts(aggregated: SliceStates, span: range, size: int) -> Iterator[SlicePart]:
    for number, start in enumerate(span):
        slots = aggregated.slots_between(number * size, (number + 1) * size)

        def add(states: SliceStates, slots: Slots = slots, first: int = number * size) -> None:
            states.merge(slots, aggregated, slots + first, size)

        if len(slots):
            yield SlicePart(start, slots, add)
