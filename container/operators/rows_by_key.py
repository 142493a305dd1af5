"""Rows of many keys for a snapshot: each key gets a list of tuples, and all lists are made by calls on columns.

Owner: the snapshot thread. A step a row in Python would cost a snapshot several times as much. Must not know operators,
windows or stored forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from yarrow.container.state.frozen_shard import PIECE
from yarrow.container.state.pacing import Pacing
from yarrow.runtime.data.serializers.nested import FieldColumn, TupleColumns
from yarrow.runtime.snapshot.key_columns import Numbers, Objects, numbers_of, objects_of

#: An order of rows: intp, shape (rows,).
RowOrder = npt.NDArray[np.intp]


def key_column(keys: list[Any]) -> Numbers | list[Any]:
    """The keys: int64, shape (keys,), if all of them are ints of 64 bits. It takes piece by piece."""
    numbers = [numbers_of(keys[start : start + PIECE]) for start in range(0, len(keys), PIECE)]
    found = [piece for piece in numbers if piece is not None]
    return np.concatenate(found) if found and len(found) == len(numbers) else keys


def ids_of(keys: Numbers | list[Any]) -> Numbers:
    """A number for each key of a key_column; equal keys have the same number: int64, shape (keys,)."""
    if isinstance(keys, np.ndarray):
        return keys
    place: dict[Any, int] = {}
    return np.array([place.setdefault(key, len(place)) for key in keys], dtype=np.int64)


def key_list(keys: Numbers | list[Any]) -> list[Any]:
    """The keys of a key_column (int64, shape (keys,), or a list) as a list."""
    return keys.tolist() if isinstance(keys, np.ndarray) else keys


def keys_at(keys: Numbers | list[Any], places: Sequence[int]) -> list[Any]:
    """The keys of a key_column (int64, shape (keys,), or a list) at some places."""
    return keys[places].tolist() if isinstance(keys, np.ndarray) else [keys[at] for at in places]


def order_by_key_and_time(ids: Numbers, times: Numbers) -> RowOrder:
    """The order of rows by the numbers of their keys, then by time; rows that are equal in both stay as they came.

    `ids` and `times`: int64, shape (rows,), with a row at least.
    """
    first, begin = int(ids.min()), int(times.min())
    span = int(times.max()) - begin + 1
    if (int(ids.max()) - first + 1) * span < 1 << 63:
        # One number a row is sorted in half of the time.
        return np.argsort((ids - first) * span + (times - begin), kind="stable")
    return np.lexsort((times, ids))


def rows_in_order(rows: Sequence[Any], order: RowOrder, pacing: Pacing) -> Objects:
    """The rows in an order (intp, shape (rows,)): dtype object, shape (rows,).

    It takes piece by piece, since a call of C holds the interpreter.
    """
    column, found = np.empty(len(rows), dtype=object), np.empty(len(rows), dtype=object)
    parts = [slice(start, start + PIECE) for start in range(0, len(rows), PIECE)]
    for part in parts:
        column[part] = objects_of(rows[part])
        pacing.step()
    for part in parts:
        found[part] = column[order[part]]
        pacing.step()
    return found


def lists_of_keys(
    ids: Numbers, order: RowOrder, columns: Sequence[FieldColumn], *, as_columns: bool
) -> tuple[list[int], list[Any]]:
    """The place of a row of each key, and the list of its tuples.

    `ids`: the number of each row's key (int64, shape (rows,)). `order` (intp, shape (rows,)) puts rows of a key beside
    each other. `columns`: the fields of the tuples in this order, see TupleColumns. With `as_columns` a list is a
    TupleColumns, which only a declared type can write.
    """
    firsts = np.concatenate(([0], np.flatnonzero(np.diff(ids[order])) + 1))
    bounds = firsts.tolist()
    runs = list(map(slice, bounds, [*bounds[1:], len(order)]))
    lists: list[Any]
    if as_columns:
        lists = [TupleColumns(*(column[run] for column in columns)) for run in runs]
    else:
        tuples = TupleColumns(*columns).tolist()
        lists = [tuples[run] for run in runs]
    return order[firsts].tolist(), lists
