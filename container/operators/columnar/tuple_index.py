"""From keys that are tuples of several columns' values to slots: an index a column, and one a pair of their slots.

Owner: the task thread; a frozen index may be read by another. No Python object is made of a row; of a value only where
the index of its column makes one. It must not know what the slots are used for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from yarrow.container.operators.columnar.vectorized_index import (
    ColumnIndex,
    KeyIndex,
    Slots,
    WordIndex,
    key_index,
)

#: A word holds two slots: slots are below 2**31.
_SECOND_BITS: Final = 32
_SECOND: Final = (1 << _SECOND_BITS) - 1


def index_of_keys(types: Sequence[pa.DataType], *, tuples: bool) -> KeyIndex:
    """The index of keys in columns of these types: tuples of their values, or the values of a single column."""
    return TupleIndex([key_index(kind) for kind in types]) if tuples else key_index(types[0])


class TupleIndex(KeyIndex):
    """Numbers the tuples of several columns' values.

    The slots of the first two columns make a word. Its slot and that of the third column make the next word,
    and so on. Each word is looked up like a key of one machine word.
    """

    def __init__(self, columns: Sequence[ColumnIndex]) -> None:
        """`columns` are the empty indexes of at least two columns."""
        super().__init__()
        self._columns = tuple(columns)
        self._pairs = tuple(WordIndex() for _ in self._columns[1:])

    def slots_of(self, columns: Sequence[pa.Array]) -> Slots:
        return self._combined(
            [index.slots(column) for index, column in zip(self._columns, columns, strict=True)]
        )

    def _combined(self, parts: Sequence[Slots]) -> Slots:
        found = parts[0]
        for pair, part in zip(self._pairs, parts[1:], strict=True):
            found = pair.slots_of_words((found << _SECOND_BITS) | part)
        self.size = self._pairs[-1].size
        return found

    def frozen_keys(self) -> Callable[[int, int], list[Any]]:
        words = [pair.frozen_words() for pair in reversed(self._pairs)]
        lookups = [index.frozen_lookup() for index in self._columns]

        def keys(start: int, end: int) -> list[Any]:
            parts: list[Slots] = []
            slots: Slots = np.arange(start, end)
            for of_pair in words:
                pairs = of_pair.take(slots)
                parts.append(pairs & _SECOND)
                slots = pairs >> _SECOND_BITS
            parts.append(slots)
            values = [lookup(part) for lookup, part in zip(lookups, reversed(parts), strict=True)]
            return list(zip(*values, strict=True))

        return keys

    def restore(self, keys: list[Any]) -> Slots:
        count = len(self._columns)
        for key in keys:
            if type(key) is not tuple or len(key) != count:
                raise ValueError(f"the key {key!r} is no tuple of {count} values")
        parts: list[Slots] = []
        for index, values in zip(self._columns, zip(*keys, strict=True), strict=True):
            distinct = list(dict.fromkeys(values))
            slot_of = dict(zip(distinct, index.restore(distinct).tolist(), strict=True))
            parts.append(np.fromiter(map(slot_of.__getitem__, values), np.int64, len(values)))
        slots = self._combined(parts)
        if self.size != len(keys):
            raise ValueError("different keys are equal in the types of the columns")
        return slots
