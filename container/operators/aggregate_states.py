"""The state of one running aggregate over all keys of a subtask: a numpy array with an entry a slot.

Owner: the task thread, through VectorizedAggregation. Sums of integers are exact in 64 bits, an overflow is
an error; NaN is greater than every number, so that results do not depend on the order of rows. Must not know
keys.
"""

from __future__ import annotations

import copy
import decimal
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yarrow.container.state.vectorized_index import Slots, grown
from yarrow.runtime.graph.operator_spec import AggregateKind

Bools = npt.NDArray[np.bool_]

_LOW_BITS: Final = np.int64(0xFFFFFFFF)
_LEAST: Final = 1024
#: More digits than decimal256 holds.
_WIDE: Final = decimal.Context(prec=100)


class UnsupportedColumnError(Exception):
    """An aggregate that has no meaning for a column's type; the operator adds its name."""


class SumOverflowError(Exception):
    """A sum that left its type; the operator adds names and key."""

    def __init__(self, slot: int, value: int, kind: str) -> None:
        super().__init__(slot, value, kind)
        self.slot = slot
        self.value = value
        self.type = kind


class ForeignStateError(Exception):
    """Restored state that is of another type than the column; the operator adds names."""


class AggregateState(ABC):
    """One aggregate."""

    #: Type of the result column.
    type: pa.DataType

    @abstractmethod
    def update(self, slots: Slots, column: pa.Array | None, size: int) -> None:
        """Takes the values of a batch, one a slot; `size` slots exist now."""

    @abstractmethod
    def values(self, slots: Slots) -> pa.Array:
        """The results of these slots."""

    # Snapshots. The state of a slot as plain data: None where no value came.

    def frozen(self, size: int) -> Self:
        """A copy of the first `size` slots, for `entries` alone; another thread may call that."""
        made = copy.copy(self)
        made._detach(size)
        return made

    @abstractmethod
    def _detach(self, size: int) -> None:
        """Replaces arrays by copies of at least `size` slots."""

    @abstractmethod
    def entries(self, start: int, end: int) -> list[Any]:
        """The state of the slots from `start` to `end`, not included."""

    @abstractmethod
    def restore(self, entries: list[Any]) -> None:
        """Begins with these states, of slots 0 and on. Raises ForeignStateError for what it did not write."""


def state_for(kind: AggregateKind, column: pa.DataType | None) -> AggregateState:
    """The state of an aggregate over a column of this type. Raises UnsupportedColumnError."""
    types = pa.types
    if column is not None and types.is_dictionary(column):
        column = column.value_type
    if kind is AggregateKind.COUNT:
        return CountState()
    assert column is not None
    numeric = types.is_integer(column) or types.is_boolean(column)
    if kind is AggregateKind.SUM:
        if numeric or types.is_duration(column):
            return IntegerSumState(column)
        if types.is_floating(column):
            return FloatSumState()
    elif kind is AggregateKind.MEAN:
        if numeric:
            return MeanState(IntegerSumState(column))
        if types.is_floating(column):
            return MeanState(FloatSumState())
    elif numeric or (types.is_temporal(column) and not types.is_interval(column)):
        return IntegerExtremeState(kind, column)
    elif types.is_floating(column):
        return FloatExtremeState(kind, column)
    combined = _combined_state(kind, column)
    if combined is None:
        raise UnsupportedColumnError(
            f"a column of type {column} has no {kind.value}; cast it before, or leave it out"
        )
    return combined


class _Seen:
    """Which slots have had a value: all, as long as no null came."""

    def __init__(self) -> None:
        self._seen: Bools | None = None

    def filter(self, slots: Slots, column: pa.Array, size: int, known: int) -> tuple[Slots, pa.Array]:
        """Slots and values without the nulls; `known` slots existed before this batch."""
        if not column.null_count:
            if self._seen is not None:
                self._seen = grown(self._seen, size, False)
                self._seen[slots] = True
            return slots, column
        if self._seen is None:
            self._seen = np.zeros(max(size, _LEAST), np.bool_)
            self._seen[:known] = True
        self._seen = grown(self._seen, size, False)
        slots = slots[column.is_valid().to_numpy(zero_copy_only=False)]
        self._seen[slots] = True
        return slots, column.drop_null()

    def nulls(self, slots: Slots) -> Bools | None:
        """True where a slot has no value; None when all have one."""
        if self._seen is None:
            return None
        missing = ~self._seen[slots]
        return missing if missing.any() else None

    def frozen(self, size: int) -> _Seen:
        """A copy of the first `size` slots."""
        made = _Seen()
        made._seen = None if self._seen is None else grown(self._seen, size, False)[:size].copy()
        return made

    def with_nulls(self, values: list[Any], start: int, end: int) -> list[Any]:
        """The values of these slots, None where there is none."""
        if self._seen is None:
            return values
        return [
            value if seen else None
            for value, seen in zip(values, self._seen[start:end].tolist(), strict=True)
        ]

    def restore(self, entries: list[Any]) -> None:
        """Slots 0 and on have a value where `entries` has one."""
        seen = np.fromiter((entry is not None for entry in entries), np.bool_, len(entries))
        self._seen = None if seen.all() else seen


class CountState(AggregateState):
    """Rows, or values that are not null where a column is named."""

    type = pa.int64()

    def __init__(self) -> None:
        self.counts = np.zeros(_LEAST, np.int64)

    def update(self, slots: Slots, column: pa.Array | None, size: int) -> None:
        self.counts = grown(self.counts, size)
        if column is not None and column.null_count:
            slots = slots[column.is_valid().to_numpy(zero_copy_only=False)]
        np.add.at(self.counts, slots, 1)

    def values(self, slots: Slots) -> pa.Array:
        return pa.array(self.counts.take(slots))

    def _detach(self, size: int) -> None:
        self.counts = grown(self.counts, size)[:size].copy()

    def entries(self, start: int, end: int) -> list[Any]:
        counts: list[Any] = self.counts[start:end].tolist()
        return counts

    def restore(self, entries: list[Any]) -> None:
        self.counts = filled(entries, self.counts, 0)


class IntegerSumState(AggregateState):
    """Exact sums in int64, of uint64 in uint64.

    `_bound` is at least the magnitude of every sum: as long as it and the batch cannot pass the type
    together, no entry is looked at. Otherwise the batch is summed in halves of 32 bits, which cannot
    overflow, and then checked.
    """

    def __init__(self, column: pa.DataType) -> None:
        unsigned = pa.types.is_uint64(column)
        self.type = column if pa.types.is_duration(column) else pa.uint64() if unsigned else pa.int64()
        self.sums: npt.NDArray[Any] = np.zeros(_LEAST, np.uint64 if unsigned else np.int64)
        self._most = int(np.iinfo(self.sums.dtype).max)
        self._least = int(np.iinfo(self.sums.dtype).min)
        self._bound = 0
        self._known = 0
        self.seen = _Seen()

    def update(self, slots: Slots, column: pa.Array | None, size: int) -> None:
        assert column is not None
        slots, column = self.seen.filter(slots, column, size, self._known)
        self._known = size
        self.sums = grown(self.sums, size)
        if not len(slots):
            return
        values = integers_of(column)
        largest = len(slots) * max(int(values.max()), -int(values.min()))
        if self._bound + largest > self._most:
            sums = self.sums[:size]
            self._bound = max(int(sums.max()), -int(sums.min()))
        if self._bound + largest > self._most:
            self._update_checked(slots, values)
        else:
            self._bound += largest
            np.add.at(self.sums, slots, values.astype(self.sums.dtype, copy=False))

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

    def _detach(self, size: int) -> None:
        self.sums, self.seen = grown(self.sums, size)[:size].copy(), self.seen.frozen(size)

    def entries(self, start: int, end: int) -> list[Any]:
        return self.seen.with_nulls(dated(self.sums[start:end], self.type), start, end)

    def restore(self, entries: list[Any]) -> None:
        entries = undated(entries, self.type)
        self.sums = filled(entries, self.sums, 0)
        self.seen.restore(entries)
        self._known = len(entries)
        self._bound = max((abs(entry) for entry in entries if entry is not None), default=0)


class FloatSumState(AggregateState):
    """Sums in float64."""

    type = pa.float64()

    def __init__(self) -> None:
        self.sums = np.zeros(_LEAST, np.float64)
        self._known = 0
        self.seen = _Seen()

    def update(self, slots: Slots, column: pa.Array | None, size: int) -> None:
        assert column is not None
        slots, column = self.seen.filter(slots, column, size, self._known)
        self._known = size
        self.sums = grown(self.sums, size)
        with np.errstate(invalid="ignore", over="ignore"):
            np.add.at(self.sums, slots, column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False))

    def values(self, slots: Slots) -> pa.Array:
        return pa.array(self.sums.take(slots), mask=self.seen.nulls(slots))

    def _detach(self, size: int) -> None:
        self.sums, self.seen = grown(self.sums, size)[:size].copy(), self.seen.frozen(size)

    def entries(self, start: int, end: int) -> list[Any]:
        return self.seen.with_nulls(self.sums[start:end].tolist(), start, end)

    def restore(self, entries: list[Any]) -> None:
        self.sums = filled(entries, self.sums, 0.0)
        self.seen.restore(entries)
        self._known = len(entries)


class MeanState(AggregateState):
    """The sum, exact for integers, divided by the number of values."""

    type = pa.float64()

    def __init__(self, total: IntegerSumState | FloatSumState) -> None:
        self._total = total
        self._count = CountState()

    def update(self, slots: Slots, column: pa.Array | None, size: int) -> None:
        self._total.update(slots, column, size)
        self._count.update(slots, column, size)

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
            raise ForeignStateError("it holds no pairs of a sum and a count")
        self._total.restore([None if entry is None else entry[0] for entry in entries])
        self._count.restore([0 if entry is None else entry[1] for entry in entries])


class IntegerExtremeState(AggregateState):
    """min or max of integers, bools and all times, which are compared as their integers."""

    def __init__(self, kind: AggregateKind, column: pa.DataType) -> None:
        self.type = column
        self._is_min = kind is AggregateKind.MIN
        self._at = np.minimum.at if self._is_min else np.maximum.at
        sample = integers_of(pa.array([], column))
        limits = np.iinfo(sample.dtype)
        self._neutral = limits.max if self._is_min else limits.min
        self._best = np.full(_LEAST, self._neutral, sample.dtype)
        self._known = 0
        self._seen = _Seen()

    def update(self, slots: Slots, column: pa.Array | None, size: int) -> None:
        assert column is not None
        slots, column = self._seen.filter(slots, column, size, self._known)
        self._known = size
        self._best = grown(self._best, size, self._neutral)
        self._at(self._best, slots, integers_of(column))

    def values(self, slots: Slots) -> pa.Array:
        result = pa.array(self._best.take(slots), mask=self._seen.nulls(slots))
        return result.cast(self.type) if pa.types.is_boolean(self.type) else result.view(self.type)

    def _detach(self, size: int) -> None:
        self._best = grown(self._best, size, self._neutral)[:size].copy()
        self._seen = self._seen.frozen(size)

    def entries(self, start: int, end: int) -> list[Any]:
        return self._seen.with_nulls(dated(self._best[start:end], self.type), start, end)

    def restore(self, entries: list[Any]) -> None:
        entries = undated(entries, self.type)
        self._best = filled(entries, self._best, self._neutral)
        self._seen.restore(entries)
        self._known = len(entries)


class FloatExtremeState(AggregateState):
    """min or max of floats; NaN is the greatest, -0.0 counts as 0.0."""

    def __init__(self, kind: AggregateKind, column: pa.DataType) -> None:
        self.type = column
        self._is_min = kind is AggregateKind.MIN
        self._neutral = np.nan if self._is_min else -np.inf
        self._best: npt.NDArray[Any] = np.full(_LEAST, self._neutral, column.to_pandas_dtype())
        self._known = 0
        self._seen = _Seen()

    def update(self, slots: Slots, column: pa.Array | None, size: int) -> None:
        assert column is not None
        slots, column = self._seen.filter(slots, column, size, self._known)
        self._known = size
        self._best = grown(self._best, size, self._neutral)
        values = column.to_numpy(zero_copy_only=False) + self._best.dtype.type(0)
        with np.errstate(invalid="ignore"):
            # fmin passes over NaN and keeps it only where nothing else came; maximum lets it win.
            (np.fmin if self._is_min else np.maximum).at(self._best, slots, values)

    def values(self, slots: Slots) -> pa.Array:
        return pa.array(self._best.take(slots), self.type, mask=self._seen.nulls(slots))

    def _detach(self, size: int) -> None:
        self._best = grown(self._best, size, self._neutral)[:size].copy()
        self._seen = self._seen.frozen(size)

    def entries(self, start: int, end: int) -> list[Any]:
        return self._seen.with_nulls(self._best[start:end].astype(np.float64).tolist(), start, end)

    def restore(self, entries: list[Any]) -> None:
        self._best = filled(entries, self._best, self._neutral)
        self._seen.restore(entries)
        self._known = len(entries)


class CombinedState(AggregateState):
    """Types that numpy has no numbers for (decimals, strings, binary): Arrow combines the batch, Python the
    results."""

    def __init__(self, kind: pa.DataType, partial: str, combine: Callable[[Any, Any], Any]) -> None:
        self.type = kind
        self._partial = partial
        self._combine = combine
        self._results: npt.NDArray[np.object_] = np.full(_LEAST, None, np.object_)

    def update(self, slots: Slots, column: pa.Array | None, size: int) -> None:
        assert column is not None
        self._results = grown(self._results, size, None)
        if column.null_count:
            slots, column = slots[column.is_valid().to_numpy(zero_copy_only=False)], column.drop_null()
        if self._partial == "sum":
            column = column.cast(self.type)
        table = pa.table({"slot": slots, "value": column})
        grouped = table.group_by("slot", use_threads=False).aggregate([("value", self._partial)])
        results, combine = self._results, self._combine
        partials = grouped.column(f"value_{self._partial}").to_pylist()
        for slot, partial in zip(grouped.column("slot").to_pylist(), partials, strict=True):
            known = results[slot]
            results[slot] = partial if known is None else combine(known, partial)

    def values(self, slots: Slots) -> pa.Array:
        return pa.array(self._results[slots].tolist(), self.type)

    def _detach(self, size: int) -> None:
        self._results = grown(self._results, size, None)[:size].copy()

    def entries(self, start: int, end: int) -> list[Any]:
        results: list[Any] = self._results[start:end].tolist()
        return results

    def restore(self, entries: list[Any]) -> None:
        try:
            pa.array(entries, self.type)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise ForeignStateError(str(error)) from None
        self._results = grown(self._results, len(entries), None)
        self._results[: len(entries)] = np.fromiter(entries, np.object_, len(entries))


def _combined_state(kind: AggregateKind, column: pa.DataType) -> CombinedState | None:
    types = pa.types
    is_decimal = types.is_decimal(column)
    if kind is AggregateKind.SUM and is_decimal:
        make = pa.decimal256 if types.is_decimal256(column) else pa.decimal128
        return CombinedState(make(76 if types.is_decimal256(column) else 38, column.scale), "sum", _exact_sum)
    is_text = types.is_string(column) or types.is_large_string(column)
    is_binary = types.is_binary(column) or types.is_large_binary(column) or types.is_fixed_size_binary(column)
    if kind in (AggregateKind.MIN, AggregateKind.MAX) and (is_decimal or is_text or is_binary):
        return CombinedState(column, kind.value, min if kind is AggregateKind.MIN else max)
    return None


def integers_of(column: pa.Array) -> npt.NDArray[Any]:
    """A column without nulls of integers, bools or times as the integers that stand for its values."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif not pa.types.is_integer(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    numbers: npt.NDArray[Any] = column.to_numpy()
    return numbers


def _exact_sum(first: Any, second: Any) -> Any:
    """A sum of decimals in as many digits as it needs: the default context would round to 28."""
    return _WIDE.add(first, second)


def filled(entries: list[Any], like: npt.NDArray[Any], empty: Any) -> npt.NDArray[Any]:
    """An array of the entries, `empty` where one is None, of the type of `like` and at least as long."""
    array = np.full(max(len(entries), len(like)), empty, like.dtype)
    try:
        array[: len(entries)] = [empty if entry is None else entry for entry in entries]
    except (OverflowError, TypeError, ValueError) as error:
        raise ForeignStateError(f"it holds values that are no {like.dtype}: {error}") from None
    return array


def dated(values: npt.NDArray[Any], kind: pa.DataType) -> list[Any]:
    """Integers that stand for values of an Arrow type; those of times with the type, which names their unit."""
    numbers: list[Any] = values.tolist()
    if pa.types.is_temporal(kind):
        name = str(kind)
        return [(number, name) for number in numbers]
    return numbers


def undated(entries: list[Any], kind: pa.DataType) -> list[Any]:
    """The integers of `dated`. Raises ForeignStateError where they are of another type."""
    name = str(kind) if pa.types.is_temporal(kind) else None
    numbers = []
    for entry in entries:
        number, found = entry if type(entry) is tuple and len(entry) == 2 else (entry, None)
        if entry is not None and (found != name or type(number) is not int):
            raise ForeignStateError(
                f"it holds {'values of type ' + found if found else repr(number)}, not of {kind}"
            )
        numbers.append(number)
    return numbers
