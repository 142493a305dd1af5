"""KeySlots: the slots of an operator's keys, and the values of the key columns by slot, which results show.

Owner: the task thread; frozen keys may be read by another. No Python object is made of a row. `kept` makes the slots
anew for some of the keys, so that keys which are gone take no memory. It must not know windows or aggregates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from yarrow.container.operators.columnar.arrow_columns import MisfitError, build_array
from yarrow.container.operators.columnar.tuple_index import index_of_keys
from yarrow.container.operators.columnar.vectorized_index import Slots, is_word, word_column
from yarrow.runtime.data.column_rows import rows_of_column
from yarrow.runtime.data.keys import user_key


class KeySlots:
    """Numbers the keys of one subtask in the order of their first appearance."""

    def __init__(self, types: Sequence[pa.DataType], *, tuples: bool) -> None:
        """`types` are those of the key columns; `tuples`: a key is the tuple of their values."""
        self._given_types = types
        self._tuples = tuples
        self._index = index_of_keys(types, tuples=tuples)
        #: Types of the columns that `columns_at` gives: values in place of dictionaries.
        self.types = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in types]
        #: The values of each column by slot, in pieces.
        self._pieces: list[list[pa.Array]] = [[] for _ in types]

    @property
    def size(self) -> int:
        """Number of slots."""
        return self._index.size

    def slots_of(self, columns: Sequence[pa.Array]) -> Slots:
        """The slot of each row's key, int64, shape (rows,); new keys get the next numbers. Raises ColumnKeyError."""
        before = self._index.size
        slots = self._index.slots_of(columns)
        added = self._index.size - before
        if added:
            rows = np.flatnonzero(slots >= before)
            row_of_new = np.empty(added, np.int64)
            row_of_new[slots.take(rows) - before] = rows
            self._append([rows_of_column(column, pa.array(row_of_new)) for column in columns])
        return slots

    def _append(self, columns: Sequence[pa.Array]) -> None:
        for pieces, column in zip(self._pieces, columns, strict=True):
            pieces.append(column.dictionary_decode() if pa.types.is_dictionary(column.type) else column)

    def columns_at(self, slots: Slots) -> list[pa.Array]:
        """The key columns of these slots (int64, shape (slots,)), each of that length."""
        positions = pa.array(slots)
        for pieces in self._pieces:
            if len(pieces) > 1:
                pieces[:] = [pa.concat_arrays(pieces)]
        return [rows_of_column(pieces[0], positions) for pieces in self._pieces]

    def kept(self, slots: Slots) -> tuple[KeySlots, Slots]:
        """Slots for some of the keys alone, and the new slot of each; both int64, shape (slots,)."""
        made = KeySlots(self._given_types, tuples=self._tuples)
        columns = self.columns_at(slots) if len(slots) else []
        return made, made.slots_of(columns) if columns else slots

    # ------------------------------------------------------------------ snapshots

    def frozen_keys(self) -> Callable[[int, int], list[Any]]:
        """A function from (first slot, slot behind the last) to canonical keys; another thread may call it."""
        return self._index.frozen_keys()

    def restore(self, keys: list[Any]) -> Slots:
        """Adds different canonical keys to the empty slots; returns the slot of each, int64, shape (keys,).

        Raises ValueError for keys that the columns' types cannot hold.
        """
        slots = self._index.restore(keys)
        values = list(zip(*keys, strict=True)) if self._tuples else [keys]
        in_order = pa.array(np.argsort(slots))
        self._append(
            [
                rows_of_column(_column_of(list(column), kind), in_order)
                for column, kind in zip(values, self.types, strict=True)
            ]
        )
        return slots


def _column_of(keys: list[Any], kind: pa.DataType) -> pa.Array:
    """Canonical keys as a column. Raises ValueError for keys that the type cannot hold."""
    if is_word(kind):
        return word_column(keys, kind).cast(kind)
    if pa.types.is_decimal(kind):
        # A canonical number is an int or a float where it can be.
        keys = [None if key is None else Decimal(key) for key in keys]
    try:
        return build_array([user_key(key) for key in keys], kind, "")
    except MisfitError as error:
        raise ValueError(f"the key {error.got!r} is not {error.expected}") from None
