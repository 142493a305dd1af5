"""HeapBuffer: rows of a keyed stream that wait in memory, by time alone, and are stored by second and key at a cut.

Owner: the task thread; the snapshot thread makes the stored form. A state backend on the heap keeps all rows in memory
anyhow, so there is no second structure by key. Rows get their numbers when they are stored: those of a time stand in
the order of their arrival. Must not know user functions. See docs/design/0037-event-time-order.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.event_time_order.keyed_buffer import LENGTH, KeyedBuffer, second_of
from yarrow.container.operators.event_time_order.keyed_rows_by_time import KeyedRowsByTime, RowsOfTime
from yarrow.container.operators.event_time_order.row_addition import generate_added
from yarrow.container.operators.pair_form import PairForm, waiting_in_order
from yarrow.container.operators.rows_by_key import ids_of, key_column, keys_at, lists_of_keys
from yarrow.container.state.frozen_windows import WindowContent
from yarrow.container.state.pacing import Pacing
from yarrow.container.state.window_tables import WindowTables
from yarrow.datastream.window_types import TimeWindow
from yarrow.runtime.data.elements import MIN_TIMESTAMP
from yarrow.runtime.data.keys import canonicalize


class HeapBuffer(KeyedBuffer):
    """Rows that wait for the watermark, in memory."""

    def __init__(
        self,
        context: OperatorContext,
        name: str,
        tables: WindowTables[TimeWindow],
        form: PairForm | None,
        *,
        typed: bool,
    ) -> None:
        """`form`: that in which rows wait, see KeyedRowsByTime. `typed`: the type of rows is declared."""
        super().__init__(context, name, tables)
        #: True = a snapshot gets a key's rows as TupleColumns, and writes them as a list of tuples.
        self._as_columns = typed
        self._in_order = KeyedRowsByTime(form)
        #: The first number of stored rows: behind those of all rows that had left before the restore.
        self._first_number = self._restored.next_number
        self._take_restored()
        tables.store_also(self)

    def _take_restored(self) -> None:
        """Takes the restored rows out of the tables, without those that had left before the snapshot."""
        waiting: list[tuple[int, int, Any, Any]] = []
        for second in self._tables.windows():
            for keys, values in self._tables.rows(second):
                for key, entries in zip(keys, values, strict=True):
                    waiting += [(time, number, key, row) for time, number, row in self._left_of(key, entries)]
            self._tables.drop(second)
        waiting.sort(key=lambda entry: entry[:2])
        for time, _, key, row in waiting:
            self._in_order.add(key, time, row)

    # ------------------------------------------------------------------ rows

    def add(self, key: Any, time: int, row: Any) -> None:
        self._in_order.add(canonicalize(key), time, row)

    def generate_add(self, code: CodeWriter, key: str, time: str, row: str) -> None:
        generate_added(code, self._in_order, key, time, row)

    @property
    def is_due(self) -> bool:
        first = self._in_order.first_time
        return first is not None and first <= self.watermark

    def take(self) -> Iterator[tuple[list[Any], list[int]]]:
        return self._in_order.take_until(self.watermark)

    # ------------------------------------------------------------------ stored

    def snapshot(self) -> None:
        # No row that has left is stored.
        self._store_position((MIN_TIMESTAMP, -1), self._first_number + self._in_order.count)

    @property
    def entries(self) -> int:
        """See StoredAtCut."""
        return self._in_order.count

    def freeze(self) -> Iterator[WindowContent[TimeWindow]]:
        """See StoredAtCut."""
        return _stored(self._in_order.freeze(), self._in_order.form, self._first_number, self._as_columns)


def _stored(
    frozen: Iterator[RowsOfTime], form: PairForm | None, number: int, as_columns: bool
) -> Iterator[WindowContent[TimeWindow]]:
    """Frozen rows by second and key. `number`: that of the first row. Snapshot thread."""
    pacing = Pacing()
    for start, of_second in groupby(frozen, key=lambda rows: rows.time - rows.time % LENGTH):
        keys, rows, times, counts = list[Any](), list[Any](), list[int](), list[int]()
        for time, entries, begin, end in of_second:
            keys += entries[begin:end:2]
            rows += entries[begin + 1 : end : 2]
            times.append(time)
            counts.append((end - begin) // 2)
            pacing.step()
        column = key_column(keys)
        ids = ids_of(column)
        order = np.argsort(ids, kind="stable")
        columns = (
            np.repeat(np.array(times, dtype=np.int64), counts)[order],
            order.astype(np.int64) + number,
            waiting_in_order(form, column, rows, order, pacing),
        )
        number += len(rows)
        places, lists = lists_of_keys(ids, order, columns, as_columns=as_columns)
        of_keys = keys_at(column, places)
        # No reference here keeps the lists alive while the second is written.
        del keys, column, rows
        yield second_of(start), of_keys, lists
        pacing.step()
