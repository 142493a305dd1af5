"""RowLists: the rows of each slot as the state of an aggregate of users, in record batches until a window fires.

Owner: the task thread; of a frozen copy, the thread that takes its entries. No Python object is made of a row. A result
is a list of rows. Must not know keys, windows or the function that gets the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from yarrow.container.operators.columnar.aggregate_state import (
    LEAST,
    AggregateState,
    Bools,
    ForeignStateError,
)
from yarrow.container.operators.columnar.vectorized_index import Slots, grown
from yarrow.runtime.data.column_rows import rows_of_column


class _Piece(NamedTuple):
    """Some rows and their slots: int64, shape (rows,)."""

    slots: Slots
    rows: pa.StructArray

    def chosen(self, slots: Slots) -> _Piece:
        """The rows whose new slot is 0 or more, with their new slots; int64, shape (rows,)."""
        mask = slots >= 0
        if mask.all():
            return _Piece(slots, self.rows)
        return _Piece(slots[mask], rows_of_column(self.rows, pa.array(np.flatnonzero(mask))))


def _joined(pieces: Sequence[_Piece]) -> _Piece:
    """The rows of several pieces in their order."""
    if len(pieces) == 1:
        return pieces[0]
    return _Piece(np.concatenate([p.slots for p in pieces]), pa.concat_arrays([p.rows for p in pieces]))


class RowLists(AggregateState):
    """The rows of each slot in the order in which they came, as structs."""

    def __init__(self, schema: pa.Schema) -> None:
        """`schema` is that of the rows."""
        self._schema = schema
        self._struct = pa.struct(list(schema))
        self.type = pa.large_list(self._struct)
        #: Slots (int64, shape (rows,)) and their rows, in pieces that become fewer as they grow. No piece is changed.
        self._pieces: list[_Piece] = []
        #: The slots whose rows may go; bool, shape (any number of slots,).
        self._forgotten: Bools = np.zeros(LEAST, np.bool_)

    def update(self, slots: Slots, column: pa.Array | None, size: int) -> None:
        assert column is not None
        pieces = self._pieces
        if len(slots):
            pieces.append(_Piece(slots, column))
        while len(pieces) > 1 and len(pieces[-2].slots) < 2 * len(pieces[-1].slots):
            pieces[-2:] = [_joined(pieces[-2:])]

    def values(self, slots: Slots) -> pa.Array:
        places, rows = self._rows_of(slots)
        offsets = np.searchsorted(places, np.arange(len(slots) + 1))
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), rows)

    def _rows_of(self, slots: Slots) -> _Piece:
        """The rows of some slots (int64, shape (slots,)), by the places of these; they stand in this order."""
        place_of = np.full(
            max((int(piece.slots.max()) for piece in self._pieces), default=0) + 1, -1, np.int64
        )
        known = slots < len(place_of)
        place_of[slots[known]] = np.flatnonzero(known)
        found = [piece.chosen(place_of.take(piece.slots)) for piece in self._pieces]
        found = [piece for piece in found if len(piece.slots)]
        if not found:
            return _Piece(np.zeros(0, np.int64), pa.array([], self._struct))
        places, rows = _joined(found)
        if (places[1:] >= places[:-1]).all():
            return _Piece(places, rows)
        order = np.argsort(places, kind="stable")
        return _Piece(places.take(order), rows_of_column(rows, pa.array(order)))

    def merge(self, slots: Slots, columns: Sequence[pa.Array], size: int) -> None:
        lengths = columns[0].value_lengths().to_numpy()
        self.update(np.repeat(slots, lengths), columns[0].flatten(), size)

    def forget(self, slots: Slots) -> None:
        # The rows that are left are copied when they are no more than those that go.
        most = max([int(slots.max()), *(int(piece.slots.max()) for piece in self._pieces)])
        self._forgotten = grown(self._forgotten, most + 1, False)
        self._forgotten[slots] = True
        gone = [self._forgotten.take(piece.slots) for piece in self._pieces]
        rows = sum(len(piece.slots) for piece in self._pieces)
        if 2 * sum(int(np.count_nonzero(each)) for each in gone) >= rows:
            kept = [
                piece.chosen(np.where(each, -1, piece.slots))
                for piece, each in zip(self._pieces, gone, strict=True)
            ]
            self._pieces = [piece for piece in kept if len(piece.slots)]
            self._forgotten = np.zeros(LEAST, np.bool_)

    # ------------------------------------------------------------------ snapshots

    def _detach(self, size: int) -> None:
        # Pieces are never changed.
        self._pieces = list(self._pieces)

    def entries(self, start: int, end: int) -> list[Any]:
        """For each slot its rows: a record batch without its schema, in bytes of Arrow's IPC format."""
        places, rows = self._rows_of(np.arange(start, end))
        bounds = np.searchsorted(places, np.arange(end - start + 1)).tolist()
        return [
            None
            if first == behind
            else pa.RecordBatch.from_struct_array(rows.slice(first, behind - first)).serialize().to_pybytes()
            for first, behind in pairwise(bounds)
        ]

    def restore(self, entries: list[Any]) -> None:
        held = [slot for slot, entry in enumerate(entries) if entry is not None]
        try:
            batches = [pa.ipc.read_record_batch(pa.py_buffer(entries[slot]), self._schema) for slot in held]
        except (pa.ArrowException, TypeError) as error:
            raise ForeignStateError(
                f"the state holds no record batches of {self._schema.names}: {error}"
            ) from None
        if held:
            slots = np.repeat(np.array(held, np.int64), [batch.num_rows for batch in batches])
            rows = pa.concat_arrays([batch.to_struct_array() for batch in batches])
            self._pieces = [_Piece(slots, rows)]
