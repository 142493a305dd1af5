"""CombinedState: aggregates of types without numpy numbers: decimals, strings, binary.

Owner: the task thread, through VectorizedAggregation. It holds a Python object for each slot: slower than the
others, and only for columns that these cannot take. Must not know keys.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yarrow.container.operators.columnar.aggregate_state import LEAST, AggregateState, ForeignStateError
from yarrow.container.operators.columnar.vectorized_index import Slots, grown
from yarrow.runtime.graph.operator_spec import AggregateKind

#: More digits than decimal256 holds.
_WIDE: Final = decimal.Context(prec=100)


class CombinedState(AggregateState):
    """Aggregates of types without numpy numbers: decimals, strings, binary.

    Arrow combines each batch, and Python combines the results.
    """

    def __init__(self, kind: pa.DataType, partial: str, combine: Callable[[Any, Any], Any]) -> None:
        self.type = kind
        self._partial = partial
        self._combine = combine
        self._results: npt.NDArray[np.object_] = np.full(LEAST, None, np.object_)

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


def combined_state(kind: AggregateKind, column: pa.DataType) -> CombinedState | None:
    """The state of an aggregate over a column of this type; None if it is not defined."""
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


def _exact_sum(first: Any, second: Any) -> Any:
    """A sum of decimals with all its digits: the default context would round to 28."""
    return _WIDE.add(first, second)
