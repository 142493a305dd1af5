"""JoinedSide: the rows of one side of a columnar join as keyed state: one value a key, which is a record batch.

Owner: the task thread; the snapshot thread reads what a cut has frozen. Rows live in memory on every backend, as those
of columnar aggregates do. Must not know watermarks, or which rows meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from yarrow.container.operators.columnar.vectorized_index import KeyIndex, Slots
from yarrow.container.operators.columnar_join.row_words import RowWords
from yarrow.container.operators.columnar_join.sorted_runs import SortedRun, SortedRuns, merged

#: Slots whose keys become Python objects at once while a snapshot is written.
_PIECE: Final = 10_000
_TIME: Final = pa.field("time", pa.int64())
#: Whether a row has met one: what a join notes of its rows.
MET: Final = pa.field("has met", pa.bool_())


class JoinedSide:
    """The rows of one side; a KeyedSection."""

    #: Bytes: a record batch without its schema, with time and mark in front of the columns.
    value_type = None

    def __init__(
        self, schema: pa.Schema, mark: pa.Field, index: Callable[[], tuple[KeyIndex, RowWords]]
    ) -> None:
        """`mark`: what the join notes of each row. `index` gives the present keys of both sides, and their words."""
        self.rows = SortedRuns(schema)
        self._stored = pa.schema([_TIME, mark, *schema])
        self._index = index
        #: Restored canonical keys and values, until the operator takes them.
        self._restored: tuple[list[Any], list[bytes]] = ([], [])

    @property
    def entry_count(self) -> int:
        """Number of keys with rows."""
        if self._restored[0]:
            return len(self._restored[0])
        words = [run.words for run in self.rows.runs]
        return len(np.unique(RowWords.slots(np.concatenate(words)))) if words else 0

    def freeze_entries(self) -> Iterable[tuple[list[Any], list[Any]]]:
        """The present keys, each with its rows."""
        if self._restored[0]:
            return iter((self._restored,))
        if not self.rows.runs:
            return iter(())
        index, ordering = self._index()
        # The marks change in place.
        runs = [run._replace(marks=run.marks.copy()) for run in self.rows.runs]
        return self._entries(index.frozen_keys(), index.size, ordering, runs)

    def _entries(
        self, keys_of: Callable[[int, int], list[Any]], size: int, ordering: RowWords, runs: list[SortedRun]
    ) -> Iterator[tuple[list[Any], list[Any]]]:
        run = merged(ordering, runs)
        columns = [pa.array(ordering.times(run.words)), pa.array(run.marks), *run.rows.columns]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._stored)
        slots = ordering.slots(run.words)
        for start in range(0, size, _PIECE):
            end = min(start + _PIECE, size)
            bounds = np.searchsorted(slots, np.arange(start, end + 1)).tolist()
            found = [at for at in range(end - start) if bounds[at] < bounds[at + 1]]
            if found:
                keys = keys_of(start, end)
                parts = [rows.slice(bounds[at], bounds[at + 1] - bounds[at]) for at in found]
                yield [keys[at] for at in found], [part.serialize().to_pybytes() for part in parts]

    def restore_entries(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Keeps entries until the operator takes them."""
        keys, values = self._restored
        for key, value in entries:
            keys.append(key)
            values.append(value)

    def restored_rows(self) -> tuple[list[Any], list[pa.RecordBatch]]:
        """The restored canonical keys, and for each its rows with time and mark."""
        keys, values = self._restored
        self._restored = ([], [])
        return keys, [pa.ipc.read_record_batch(pa.py_buffer(value), self._stored) for value in values]

    def add_restored(self, ordering: RowWords, slots: Slots, rows: list[pa.RecordBatch]) -> None:
        """Adds restored rows; `slots`: that of each batch, int64, shape (batches,)."""
        if not rows:
            return
        joined = pa.Table.from_batches(rows).combine_chunks().to_batches()[0]
        lengths = [batch.num_rows for batch in rows]
        times = joined.column(0).to_numpy()
        marks = joined.column(1).to_numpy(zero_copy_only=False).copy()
        # By position: rows may have columns of the same names as time and mark.
        columns = joined.select(range(2, joined.num_columns))
        self.rows.add(ordering, ordering.words(np.repeat(slots, lengths), times), columns, marks)
