"""The minimum or maximum of numbers and times, over all keys of a subtask.

Owner: the task thread, through VectorizedAggregation. NaN is greater than every number, so that results do not depend
on the order of rows. Must not know keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yarrow.container.operators.columnar.aggregate_state import (
    LEAST,
    AggregateState,
    Bools,
    SeenSlots,
    dated,
    filled,
    integers_of,
    undated,
)
from yarrow.container.operators.columnar.vectorized_index import Slots, grown
from yarrow.runtime.graph.operator_spec import AggregateKind


class _ExtremeState(AggregateState):
    """The best value of each slot that had one."""

    is_exact = True

    #: The best value so far, one entry a slot; the neutral one if none came.
    _best: npt.NDArray[Any]
    #: The value that every other one beats.
    _neutral: Any
    #: Gives the better one of two values.
    _better: np.ufunc

    def __init__(self, kind: AggregateKind, column: pa.DataType) -> None:
        self.type = column
        self._is_min = kind is AggregateKind.MIN
        self._known = 0
        self._seen = SeenSlots()

    def _present(self, slots: Slots, column: pa.Array | None, size: int) -> tuple[Slots, pa.Array]:
        """Slots and values without the nulls, with room for `size` slots."""
        assert column is not None
        slots, column = self._seen.filter(slots, column, size, self._known)
        self._known = size
        self._best = grown(self._best, size, self._neutral)
        return slots, column

    def allow_gaps(self, came: Callable[[], Bools]) -> None:
        self._seen.came = came

    def absorb(self, other: Self, slots: Slots, size: int) -> None:
        self._seen.absorb(other._seen, size)
        self._known = size
        self._best = grown(self._best, size, self._neutral)
        best = other._best[:size]
        with np.errstate(invalid="ignore"):
            self._better(self._best[: len(best)], best, out=self._best[: len(best)])

    def _detach(self, size: int) -> None:
        self._best = grown(self._best, size, self._neutral)[:size].copy()
        self._seen = self._seen.frozen(size)

    def restore(self, entries: list[Any]) -> None:
        self._best = filled(entries, self._best, self._neutral)
        self._seen.restore(entries)
        self._known = len(entries)


class IntegerExtremeState(_ExtremeState):
    """min or max of integers, bools and all times, which are compared as their integers."""

    def __init__(self, kind: AggregateKind, column: pa.DataType) -> None:
        super().__init__(kind, column)
        self._better = np.minimum if self._is_min else np.maximum
        sample = integers_of(pa.array([], column))
        limits = np.iinfo(sample.dtype)
        self._neutral = limits.max if self._is_min else limits.min
        self._best = np.full(LEAST, self._neutral, sample.dtype)

    def update(self, slots: Slots, column: pa.Array | None, size: int) -> None:
        slots, column = self._present(slots, column, size)
        self._better.at(self._best, slots, integers_of(column))

    def values(self, slots: Slots) -> pa.Array:
        result = pa.array(self._best.take(slots), mask=self._seen.nulls(slots))
        return result.cast(self.type) if pa.types.is_boolean(self.type) else result.view(self.type)

    def entries(self, start: int, end: int) -> list[Any]:
        return self._seen.with_nulls(dated(self._best[start:end], self.type), start, end)

    def restore(self, entries: list[Any]) -> None:
        super().restore(undated(entries, self.type))


class FloatExtremeState(_ExtremeState):
    """min or max of floats; NaN is the greatest, -0.0 counts as 0.0."""

    def __init__(self, kind: AggregateKind, column: pa.DataType) -> None:
        super().__init__(kind, column)
        self._neutral = np.nan if self._is_min else -np.inf
        # fmin skips NaN unless nothing else came; maximum lets it win.
        self._better = np.fmin if self._is_min else np.maximum
        self._best = np.full(LEAST, self._neutral, column.to_pandas_dtype())

    def update(self, slots: Slots, column: pa.Array | None, size: int) -> None:
        slots, column = self._present(slots, column, size)
        values = column.to_numpy(zero_copy_only=False) + self._best.dtype.type(0)
        with np.errstate(invalid="ignore"):
            self._better.at(self._best, slots, values)

    def values(self, slots: Slots) -> pa.Array:
        return pa.array(self._best.take(slots), self.type, mask=self._seen.nulls(slots))

    def entries(self, start: int, end: int) -> list[Any]:
        return self._seen.with_nulls(self._best[start:end].astype(np.float64).tolist(), start, end)
