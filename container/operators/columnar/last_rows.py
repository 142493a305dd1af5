"""LastRows: the last row of each key of bounded columnar input, by event time, until its keys end.

Owner: the task thread, through VectorizedAggregation. It keeps slots, key columns and timestamps, and drops rows
that later ones replace. Must not know aggregates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from yarrow.container.operators.columnar.vectorized_index import Slots
from yarrow.runtime.data.column_rows import rows_of_column
from yarrow.runtime.data.elements import MIN_TIMESTAMP

#: Kept rows above which replaced ones are dropped, in addition to twice the rows that stayed the last time.
_LEAST: Final = 64 * 1024


class KeptRows(NamedTuple):
    """Rows of keys: `slots` (1-d, integers), one array for each key column, and timestamps (int64, or None)."""

    slots: Slots
    keys: Sequence[pa.Array]
    timestamps: pa.Array | None


class LastRows:
    """Collects rows; `take` gives the last one of each slot."""

    def __init__(self) -> None:
        self._kept: list[KeptRows] = []
        self._rows = 0
        self._limit = _LEAST

    def add(self, rows: KeptRows) -> None:
        """Adds rows that come behind all others."""
        self._kept.append(rows)
        self._rows += len(rows.slots)
        if self._rows > self._limit:
            last = self._last()
            self._kept, self._rows = [last], len(last.slots)
            self._limit = _LEAST + 2 * self._rows

    def take(self) -> KeptRows | None:
        """The last row of each slot, in order of time, and forgets all; None if there is none."""
        if not self._kept:
            return None
        last = self._last()
        self._kept, self._rows, self._limit = [], 0, _LEAST
        return last

    def _last(self) -> KeptRows:
        kept = self._kept
        slots = np.concatenate([rows.slots for rows in kept])
        keys = [pa.concat_arrays(columns) for columns in zip(*(rows.keys for rows in kept), strict=True)]
        timed = any(rows.timestamps is not None for rows in kept)
        stamps = pa.concat_arrays(list(map(_stamps_of, kept))) if timed else None
        order = np.arange(len(slots), dtype=np.int64)
        if stamps is not None:
            order = order_of_times(stamps)
        sorted_slots = slots[order]
        position = np.full(int(slots.max()) + 1, -1, np.int64)
        position[sorted_slots] = np.arange(len(order))
        rows = order[position[sorted_slots] == np.arange(len(order))]
        taken = pa.array(rows)
        return KeptRows(
            slots[rows],
            [rows_of_column(key, taken) for key in keys],
            None if stamps is None else stamps.take(taken),
        )


def order_of_times(stamps: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The positions of rows (int64, shape (rows,)) in order of their times; rows without a time stand first.

    The order is stable: of equal times the row that came last counts.
    """
    return np.argsort(stamps.fill_null(MIN_TIMESTAMP).to_numpy(), kind="stable")


def _stamps_of(rows: KeptRows) -> pa.Array:
    return pa.nulls(len(rows.slots), pa.int64()) if rows.timestamps is None else rows.timestamps
