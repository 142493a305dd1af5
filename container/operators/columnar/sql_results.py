"""Aggregates that Spark SQL has computed, on their way into the engine: columns of the declared names and types.

Owner: the task thread. `SqlResults` stands where the source of the files stood, `AggregatedColumns` where the
aggregates stood. Must not know who has computed the columns: their positions and types are agreed upon here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from yarrow.container.operators.columnar.aggregate_states import state_for
from yarrow.container.operators.columnar.lossless_cast import LossyCastError, lossless_cast
from yarrow.container.operators.columnar_operator import ColumnarOperator
from yarrow.container.operators.registry import runs
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.graph.column_spec import AggregatedColumnsOperator, SqlResultsOperator
from yarrow.runtime.graph.operator_spec import AggregateKind, ColumnAggregate, KeyedAggregates


class SqlResultError(YarrowError):
    """Spark has typed a column otherwise than the engine does; the message names column and types."""


class Computed(NamedTuple):
    """One column that is computed over the rows of a key: `sum`, `min` or `max` of a column, or a `count`."""

    what: AggregateKind
    #: None = rows are counted.
    column: str | None


def computed_columns(aggregates: KeyedAggregates) -> list[Computed]:
    """What has to be computed for each key, behind the key columns. A mean needs its sum and its count."""
    found: list[Computed] = []
    for aggregate in aggregates.aggregates:
        found += _parts(aggregate)
    return found


def _parts(aggregate: ColumnAggregate) -> tuple[Computed, ...]:
    if aggregate.kind is AggregateKind.MEAN:
        return Computed(AggregateKind.SUM, aggregate.column), Computed(AggregateKind.COUNT, aggregate.column)
    return (Computed(aggregate.kind, aggregate.column),)


@runs(SqlResultsOperator)
class SqlResults(ColumnarOperator):
    """Gives the computed columns (keys, then `computed_columns`) the names and types of the operator's results."""

    def __init__(self, name: str, spec: SqlResultsOperator) -> None:
        super().__init__(name)
        source = pa.ipc.read_schema(pa.py_buffer(spec.schema))
        self._aggregates = spec.aggregates
        fields = [source.field(key) for key in spec.aggregates.key_names]
        for aggregate in spec.aggregates.aggregates:
            column = None if aggregate.column is None else source.field(aggregate.column).type
            fields.append(pa.field(aggregate.name, state_for(aggregate.kind, column).type))
        #: The schema of the results.
        self.schema = pa.schema(fields)

    def process_batch(self, batch: ArrowBatch) -> Iterable[ArrowBatch]:
        if not len(batch):
            return ()
        columns = [
            self._fitted(column, field)
            for column, field in zip(self._made(batch.batch), self.schema, strict=True)
        ]
        return (ArrowBatch(pa.RecordBatch.from_arrays(columns, schema=self.schema)),)

    def _made(self, records: pa.RecordBatch) -> Iterator[pa.Array]:
        computed = iter(records.columns)
        for _ in self._aggregates.key_names:
            yield next(computed)
        for aggregate in self._aggregates.aggregates:
            column = next(computed)
            if aggregate.kind is AggregateKind.MEAN:
                yield _mean(column, next(computed))
            elif pa.types.is_floating(column.type):
                # The engine's own states take -0.0 for 0.0.
                yield pa.array(
                    column.to_numpy(zero_copy_only=False) + column.type.to_pandas_dtype()(0),
                    column.type,
                    mask=column.is_null().to_numpy(zero_copy_only=False),
                )
            else:
                yield column

    def _fitted(self, column: pa.Array, field: pa.Field) -> pa.Array:
        if pa.types.is_timestamp(field.type) and pa.types.is_timestamp(column.type):
            # Both count from the same instant: the zone is a name.
            column = column.view(pa.timestamp(column.type.unit, field.type.tz))
        try:
            return lossless_cast(column, field.type)
        except LossyCastError as error:
            raise SqlResultError(
                f"operator '{self.name}': Spark SQL gives column '{field.name}' the type {column.type}, and"
                f" {field.type} is expected{error}. Set execution.batch.spark.sql to false and report this"
            ) from None


def _mean(sums: pa.Array, counts: pa.Array) -> pa.Array:
    """As MeanState divides; a key without values has none."""
    nulls = sums.is_null().to_numpy(zero_copy_only=False)
    totals = sums.fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(totals / np.maximum(counts.to_numpy(zero_copy_only=False), 1), mask=nulls)


@runs(AggregatedColumnsOperator)
class AggregatedColumns(ColumnarOperator):
    """Hands on rows that hold all of their key already."""

    mixes_keys = True

    def __init__(self, name: str, spec: AggregatedColumnsOperator) -> None:
        super().__init__(name)

    def process_batch(self, batch: ArrowBatch) -> Sequence[ArrowBatch]:
        return (batch,)
