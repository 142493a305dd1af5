"""Counts, sums and means over all keys of a subtask.

Owner: the task thread, through VectorizedAggregation. Sums of integers are exact in 64 bits, an overflow is an error.
Must not know keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yarrow.container.operators.columnar.aggregate_state import (
    LEAST,
    AggregateState,
    Bools,
    ForeignStateError,
    SeenSlots,
    SumOverflowError,
    dated,
    filled,
    integers_of,
    undated,
)
from yarrow.container.operators.columnar.vectorized_index import Slots, grown

_LOW_BITS: Final = np.int64(0xFFFFFFFF)


class CountState(AggregateState):
    """Counts rows or, if a column is named, its values without nulls."""

    type = pa.int64()
    is_exact = True

    def __init__(self) -> None:
        self.counts = np.zeros(LEAST, np.int64)

    def update(self, slots: Slots, column: pa.Array | None, size: int) -> None:
        self.counts = grown(self.counts, size)
        if column is not None and column.null_count:
            slots = slots[column.is_valid().to_numpy(zero_copy_only=False)]
        np.add.at(self.counts, slots, 1)

    def values(self, slots: Slots) -> pa.Array:
        return pa.array(self.counts.take(slots))

    def merge(self, slots: Slots, columns: Sequence[pa.Array], size: int) -> None:
        self.counts = grown(self.counts, size)
        np.add.at(self.counts, slots, columns[0].to_numpy())

    def absorb(self, other: Self, slots: Slots, size: int) -> None:
        self.counts = grown(self.counts, size)
        counts = other.counts[:size]
        self.counts[: len(counts)] += counts

    def _detach(self, size: int) -> None:
        self.counts = grown(self.counts, size)[:size].copy()

    def entries(self, start: int, end: int) -> list[Any]:
        counts: list[Any] = self.counts[start:end].tolist()
        return counts

    def restore(self, entries: list[Any]) -> None:
        self.counts = filled(entries, self.counts, 0)


class _SumState(AggregateState):
    """The sum of each slot that had a value."""

    sums: npt.NDArray[Any]

    def __init__(self) -> None:
        self._known = 0
        self.seen = SeenSlots()

    def _present(self, slots: Slots, column: pa.Array | None, size: int) -> tuple[Slots, pa.Array]:
        """Slots and values without the nulls, with room for `size` slots."""
        assert column is not None
        slots, column = self.seen.filter(slots, column, size, self._known)
        self._known = size
        self.sums = grown(self.sums, size)
        return slots, column

    def allow_gaps(self, came: Callable[[], Bools]) -> None:
        self.seen.came = came

    def absorb(self, other: Self, slots: Slots, size: int) -> None:
        self.seen.absorb(other.seen, size)
        self._known = size
        self.sums = grown(self.sums, size)
        sums = other.sums[:size]
        with np.errstate(invalid="ignore", over="ignore"):
            self.sums[: len(sums)] += sums

    def _detach(self, size: int) -> None:
        self.sums, self.seen = grown(self.sums, size)[:size].copy(), self.seen.frozen(size)

    def restore(self, entries: list[Any]) -> None:
        self.sums = filled(entries, self.sums, 0)
        self.seen.restore(entries)
        self._known = len(entries)


class IntegerSumState(_SumState):
    """Exact sums in int64, of uint64 in uint64.

    `_bound` is at least the magnitude of every sum. While it and the batch together cannot exceed the type,
    no entry is checked. Otherwise the batch is summed in halves of 32 bits, which cannot overflow, and then
    checked.
    """

    is_exact = True

    def __init__(self, column: pa.DataType) -> None:
        super().__init__()
        unsigned = pa.types.is_uint64(column)
        self.type = column if pa.types.is_duration(column) else pa.uint64() if unsigned else pa.int64()
        self.sums = np.zeros(LEAST, np.uint64 if unsigned else np.int64)
        self._most = int(np.iinfo(self.sums.dtype).max)
        self._least = int(np.iinfo(self.sums.dtype).min)
        self._bound = 0

    def update(self, slots: Slots, column: pa.Array | None, size: int) -> None:
        slots, column = self._present(slots, column, size)
        if not len(slots):
            return
        values = integers_of(column)
        largest = len(slots) * max(int(values.max()), -int(values.min()))
        if self._bound + largest > self._most:
            sums = self.sums[:size]
            self._bound = _largest(sums)
        if self._bound + largest > self._most:
            self._update_checked(slots, values)
        else:
            self._bound += largest
            np.add.at(self.sums, slots, values.astype(self.sums.dtype, copy=False))

    def absorb(self, other: Self, slots: Slots, size: int) -> None:
        if self._bound + other._bound > self._most:
            self._bound, other._bound = _largest(self.sums), _largest(other.sums)
        before = self.sums.copy() if self._bound + other._bound > self._most else None
        super().absorb(other, slots, size)
        self._bound = min(self._bound + other._bound, self._most)
        if before is not None:
            self._refuse_wrapped(before, other.sums)

    def _refuse_wrapped(self, before: npt.NDArray[Any], added: npt.NDArray[Any]) -> None:
        """Raises SumOverflowError if a sum has left its type; both of the dtype of sums, shape (some slots,)."""
        count = min(len(before), len(added))
        before, sums, into = before[:count], added[:count], self.sums[:count]
        # A sum that has left the type is on the wrong side of what was added.
        wrong = np.flatnonzero((into < before) != (sums < 0))
        if len(wrong):
            slot = int(wrong[0])
            raise SumOverflowError(slot, int(before[slot]) + int(sums[slot]), str(self.type))

    def has_room_for(self, column: pa.Array | None) -> bool:
        assert column is not None
        if column.null_count:
            column = column.drop_null()
        if not len(column):
            return True
        values = integers_of(column)
        return self._bound + len(values) * max(int(values.max()), -int(values.min())) <= self._most

    def _update_checked(self, slots: Slots, values: npt.NDArray[Any]) -> None:
        values = values.astype(self.sums.dtype, copy=False)
        touched, places = np.unique(slots, return_inverse=True)
        low, high = np.zeros((2, len(touched)), np.int64)
        np.add.at(low, places, (values & values.dtype.type(_LOW_BITS)).astype(np.int64))
        np.add.at(high, places, (values >> values.dtype.type(32)).astype(np.int64))
        before = self.sums[touched].tolist()
        after = [b + (h << 32) + w for b, h, w in zip(before, high.tolist(), low.tolist(), strict=True)]
        for slot, value in zip(touched.tolist(), after, strict=True):
            if not self._least <= value <= self._most:
                raise SumOverflowError(slot, value, str(self.type))
        self.sums[touched] = np.array(after, self.sums.dtype)
        self._bound = self._most

    def values(self, slots: Slots) -> pa.Array:
        return pa.array(self.sums.take(slots), mask=self.seen.nulls(slots)).cast(self.type)

    def entries(self, start: int, end: int) -> list[Any]:
        return self.seen.with_nulls(dated(self.sums[start:end], self.type), start, end)

    def restore(self, entries: list[Any]) -> None:
        entries = undated(entries, self.type)
        super().restore(entries)
        self._bound = max((abs(entry) for entry in entries if entry is not None), default=0)


def _largest(sums: npt.NDArray[Any]) -> int:
    """The magnitude of the largest sum; any int dtype, shape (slots,)."""
    return max(int(sums.max()), -int(sums.min()))


class FloatSumState(_SumState):
    """Sums in float64."""

    type = pa.float64()

    def __init__(self) -> None:
        super().__init__()
        self.sums = np.zeros(LEAST, np.float64)

    def update(self, slots: Slots, column: pa.Array | None, size: int) -> None:
        slots, column = self._present(slots, column, size)
        with np.errstate(invalid="ignore", over="ignore"):
            np.add.at(self.sums, slots, column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False))

    def values(self, slots: Slots) -> pa.Array:
        return pa.array(self.sums.take(slots), mask=self.seen.nulls(slots))

    def entries(self, start: int, end: int) -> list[Any]:
        return self.seen.with_nulls(self.sums[start:end].tolist(), start, end)


class MeanState(AggregateState):
    """The sum, exact for integers, divided by the number of values."""

    type = pa.float64()

    def __init__(self, total: IntegerSumState | FloatSumState) -> None:
        self._total = total
        self._count = CountState()
        self.is_exact = total.is_exact

    def update(self, slots: Slots, column: pa.Array | None, size: int) -> None:
        self._total.update(slots, column, size)
        self._count.update(slots, column, size)

    def partials(self, slots: Slots) -> list[pa.Array]:
        return [self._total.values(slots), self._count.values(slots)]

    def merge(self, slots: Slots, columns: Sequence[pa.Array], size: int) -> None:
        self._total.merge(slots, columns[:1], size)
        self._count.merge(slots, columns[1:], size)

    def absorb(self, other: Self, slots: Slots, size: int) -> None:
        # Both are sums of one column.
        self._total.absorb(other._total, slots, size)  # type: ignore[arg-type]
        self._count.absorb(other._count, slots, size)

    def allow_gaps(self, came: Callable[[], Bools]) -> None:
        self._total.allow_gaps(came)

    @property
    def partial_columns(self) -> int:
        return 2

    def has_room_for(self, column: pa.Array | None) -> bool:
        return self._total.has_room_for(column)

    def values(self, slots: Slots) -> pa.Array:
        counts = self._count.counts.take(slots)
        with np.errstate(invalid="ignore"):
            means = self._total.sums.take(slots) / np.maximum(counts, 1)
        return pa.array(means, mask=self._total.seen.nulls(slots))

    def _detach(self, size: int) -> None:
        self._total, self._count = self._total.frozen(size), self._count.frozen(size)

    def entries(self, start: int, end: int) -> list[Any]:
        totals, counts = self._total.entries(start, end), self._count.entries(start, end)
        return [
            None if total is None else (total, count) for total, count in zip(totals, counts, strict=True)
        ]

    def restore(self, entries: list[Any]) -> None:
        if not all(entry is None or (type(entry) is tuple and len(entry) == 2) for entry in entries):
            raise ForeignStateError("the state holds no pairs of a sum and a count")
        self._total.restore([None if entry is None else entry[0] for entry in entries])
        self._count.restore([0 if entry is None else entry[1] for entry in entries])
