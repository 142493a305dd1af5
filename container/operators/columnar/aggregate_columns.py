"""AggregateColumns: the columns that aggregates by key read, checked in each batch, and the states over them.

Owner: the task thread, through the operator of these aggregates. The first batch fixes the types. Errors name operator,
column and key. Must not know slots of keys, windows or snapshots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from yarrow.container.operators.columnar.aggregate_state import (
    AggregateState,
    ForeignStateError,
    SumOverflowError,
    UnsupportedColumnError,
)
from yarrow.container.operators.columnar.aggregate_states import state_for
from yarrow.runtime.common.errors import UnsupportedFeatureError, YarrowError
from yarrow.runtime.data.batch_key import BatchKey
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.graph.operator_spec import AggregateKind, ColumnAggregate, KeyColumns


class AggregationError(YarrowError):
    """The aggregation cannot take a record batch.

    The message names operator, column and, for an overflow, the key.
    """


class AggregateColumns:
    """The key columns and the aggregated columns of one operator."""

    def __init__(
        self, operator: str, key_column: KeyColumns, aggregates: Sequence[ColumnAggregate], *, what: str
    ) -> None:
        """`what` names these aggregates in messages: "running aggregates", for example."""
        self._operator = operator
        self._what = what
        self.key = BatchKey(key_column)
        self.aggregates = tuple(aggregates)
        #: Types of the read columns, fixed by the first batch.
        self.types: dict[str, pa.DataType] = {}
        for aggregate in self.aggregates:
            if aggregate.kind in (AggregateKind.MIN_BY, AggregateKind.MAX_BY):
                raise UnsupportedFeatureError(
                    f"operator '{operator}': {aggregate.kind.value} keeps whole rows, which {what} of"
                    " columns do not. Use min and max of the columns wanted, or min_by and max_by on a stream"
                    " of rows"
                )
            if aggregate.column is None and aggregate.kind is not AggregateKind.COUNT:
                raise AggregationError(
                    f"operator '{operator}': {aggregate.kind.value} '{aggregate.name}' names no column; name one,"
                    " since only count needs none"
                )
        self.names = tuple(
            dict.fromkeys([*self.key.names, *(a.column for a in self.aggregates if a.column is not None)])
        )

    def check(self, schema: pa.Schema) -> None:
        """Raises AggregationError unless a batch has each column once, of the type that it had before."""
        for name in self.names:
            indexes = schema.get_all_field_indices(name)
            if len(indexes) != 1:
                found = "no column" if not indexes else f"{len(indexes)} columns"
                raise AggregationError(
                    f"operator '{self._operator}': the batch has {found} named '{name}'; its columns are "
                    f"{schema.names}"
                )
            kind = schema.field(indexes[0]).type
            known = self.types.setdefault(name, kind)
            if known != kind:
                raise AggregationError(
                    f"operator '{self._operator}': column '{name}' is of type {kind}, in earlier batches it was"
                    f" {known}. Declare the schema of map_batches, so that each batch has the same types"
                )

    def refuse_changes(self, batch: ArrowBatch) -> None:
        """Raises AggregationError for a batch with updates or deletions."""
        if batch.kinds is not None and any(batch.kinds):
            raise AggregationError(
                f"operator '{self._operator}': {self._what} of columns take new rows only, and this batch"
                " holds updates or deletions. Aggregate before the operator that emits updates or deletions"
            )

    def key_columns(self, records: pa.RecordBatch) -> list[pa.Array]:
        """The key columns of a checked batch."""
        return [records.column(name) for name in self.key.names]

    def value_column(self, records: pa.RecordBatch, aggregate: ColumnAggregate) -> pa.Array | None:
        """The column that an aggregate reads in a checked batch; None for a count of rows."""
        if aggregate.column is None:
            return None
        column = records.column(aggregate.column)
        return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column

    def new_states(self) -> list[AggregateState]:
        """An empty state for each aggregate, for the types of the first batch. Raises AggregationError."""
        return [self._new_state(aggregate) for aggregate in self.aggregates]

    def _new_state(self, aggregate: ColumnAggregate) -> AggregateState:
        kind = None if aggregate.column is None else self.types[aggregate.column]
        try:
            return state_for(aggregate.kind, kind)
        except UnsupportedColumnError as error:
            raise AggregationError(
                f"operator '{self._operator}': {aggregate.kind.value} of column '{aggregate.column}': {error}"
            ) from None

    @property
    def state_names(self) -> list[str]:
        """The name of each aggregate in snapshots, by what it computes, not by the name of its result."""
        return [f"{a.kind.value}({'*' if a.column is None else a.column})" for a in self.aggregates]

    def restore(self, states: Sequence[AggregateState], values: Sequence[dict[str, Any] | None]) -> None:
        """Restores states for slots 0 and on, from their entries by `state_names`; None = nothing of that slot.

        Raises AggregationError for entries of other aggregates.
        """
        for name, state in zip(self.state_names, states, strict=True):
            try:
                state.restore([None if value is None else value[name] for value in values])
            except KeyError:
                held = next(value for value in values if value is not None and name not in value)
                raise AggregationError(
                    f"operator '{self._operator}': the restored state has no aggregate {name}, only"
                    f" {', '.join(held)}. Keep the aggregates as they were, or give the operator another"
                    " uid to start with empty state"
                ) from None
            except ForeignStateError as error:
                raise AggregationError(
                    f"operator '{self._operator}': the restored state of {name} does not fit its column: {error}."
                    " Keep the type of the column as it was when the state was written"
                ) from None

    def misfit(self, error: ValueError) -> AggregationError:
        """The error for restored keys that the key columns cannot hold."""
        return AggregationError(
            f"operator '{self._operator}': the restored keys do not fit the {self.key}: {error}; "
            "keep the columns and their types as they were when the state was written"
        )

    def overflow(
        self, error: SumOverflowError, keys: Sequence[pa.Array], row: int, where: str = ""
    ) -> AggregationError:
        """The error for a sum that has become too large, for the key in a row of the key columns.

        `where` names the window.
        """
        aggregate = self.aggregates[error.aggregate]
        values = tuple(key[row].as_py() for key in keys)
        shown = values if self.key.is_tuple else values[0]
        return AggregationError(
            f"operator '{self._operator}': the sum of column '{aggregate.column}' for the key"
            f" {shown!r}{where} is {error.value}, which does not fit {error.type}. Cast the"
            " column to decimal128(38, 0) or to float64 before the aggregation"
        )
