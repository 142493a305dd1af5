"""TakenRows: the rows that partial matches of a plain sequence have taken, as columns, by their numbers.

Owner: the task thread; the snapshot thread reads what a cut has frozen. Rows stand in few batches, whose neighbours
become one. Rows that nobody holds any more go once they are as many as the others. Must not know keys or time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yarrow.container.operators.columnar_pattern.pending_batches import (
    FrozenRows,
    Numbers,
    WaitingColumns,
    joined,
)
from yarrow.runtime.data.column_rows import rows_of_batch

#: Rows below which no sweep is worth its time.
LEAST_SWEEP: Final = 1024


class NumberedRows(NamedTuple):
    """Rows with their numbers, which rise: int64, shape (rows,)."""

    rows: WaitingColumns
    numbers: Numbers


class TakenRows:
    """The rows of all partial matches of a pattern."""

    def __init__(self) -> None:
        #: In order of their numbers.
        self._batches: list[NumberedRows] = []
        #: Number of rows, also of those that nobody holds.
        self.count = 0

    def add(self, rows: WaitingColumns, numbers: Numbers) -> None:
        """Adds rows behind all others; numbers are int64, shape (rows,)."""
        batches = self._batches
        batches.append(NumberedRows(rows, numbers))
        self.count += len(numbers)
        while len(batches) > 1 and len(batches[-2].numbers) <= 2 * len(batches[-1].numbers):
            last, before = batches.pop(), batches.pop()
            both = joined([before.rows, last.rows])
            assert both is not None
            batches.append(NumberedRows(both, np.concatenate([before.numbers, last.numbers])))

    def keep(self, numbers: Numbers) -> None:
        """Keeps the rows with these numbers alone: int64, shape (rows,), rising."""
        self._batches, former = [], self._batches
        self.count = 0
        for batch in former:
            places = np.flatnonzero(_are_in(numbers, batch.numbers))
            rows = batch.rows.at(places)
            if rows is not None:
                self.add(rows, batch.numbers[places])

    def records(self, numbers: Numbers, others: Sequence[NumberedRows]) -> pa.RecordBatch:
        """The rows with these numbers, at least one, in this order: int64, shape (rows,).

        `others`: further rows, behind those here.
        """
        batches = [*self._batches, *others]
        firsts = np.array([batch.numbers[0] for batch in batches])
        of_batch = np.searchsorted(firsts, numbers, side="right") - 1
        found: list[pa.RecordBatch] = []
        order: list[Numbers] = []
        for at, batch in enumerate(batches):
            wanted = np.flatnonzero(of_batch == at)
            if not len(wanted):
                continue
            places = np.searchsorted(batch.numbers, numbers[wanted])
            found.append(rows_of_batch(batch.rows.records, pa.array(places)))
            order.append(wanted)
        if len(found) == 1:
            return found[0]
        places = np.empty(len(numbers), np.int64)
        places[np.concatenate(order)] = np.arange(len(numbers))
        return rows_of_batch(pa.concat_batches(found), pa.array(places))

    def frozen(self, numbers: Numbers) -> list[FrozenRows]:
        """The rows with these numbers (int64, shape (rows,), rising), to be read later in another thread."""
        return [FrozenRows(batch.rows, _are_in(numbers, batch.numbers)) for batch in self._batches]

    def clear(self) -> None:
        """Forgets all rows."""
        self._batches.clear()
        self.count = 0


def _are_in(numbers: Numbers, looked_for: Numbers) -> npt.NDArray[np.bool_]:
    """Which of some numbers are among others, both rising: bool, shape (looked_for,)."""
    if not len(numbers):
        return np.zeros(len(looked_for), np.bool_)
    places = np.minimum(np.searchsorted(numbers, looked_for), len(numbers) - 1)
    found: npt.NDArray[np.bool_] = numbers[places] == looked_for
    return found
