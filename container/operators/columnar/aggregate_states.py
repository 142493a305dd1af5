"""Chooses the state of an aggregate over a column: a numpy array with one entry for each slot.

Owner: the task thread, through VectorizedAggregation. It chooses once, by the type of the column alone, and
must not know keys or rows.
"""

from __future__ import annotations

import pyarrow as pa

from yarrow.container.operators.columnar.aggregate_state import AggregateState, UnsupportedColumnError
from yarrow.container.operators.columnar.combined_states import combined_state
from yarrow.container.operators.columnar.extreme_states import FloatExtremeState, IntegerExtremeState
from yarrow.container.operators.columnar.sum_states import (
    CountState,
    FloatSumState,
    IntegerSumState,
    MeanState,
)
from yarrow.runtime.graph.operator_spec import AggregateKind


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
    combined = combined_state(kind, column)
    if combined is None:
        raise UnsupportedColumnError(
            f"a column of type {column} has no {kind.value}; cast it before, or leave it out"
        )
    return combined
