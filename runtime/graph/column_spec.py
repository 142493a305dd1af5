"""Specs of operators of record batches, and of conversions between rows and batches. Owner: none (frozen values).

Windows and joins of columns stand with those of rows. Must not import operators or call user functions, as
operator_spec says.
"""

from __future__ import annotations

from enum import StrEnum

from yarrow.common.values.conditions import AnyCondition
from yarrow.common.values.operator_shapes import BatchContainer
from yarrow.runtime.graph.operator_spec import ColumnAggregate, KeyColumns, KeyedAggregates, OperatorSpec


class ColumnTimestampsOperator(OperatorSpec, frozen=True, kw_only=True, tag="column_timestamps"):
    """Takes timestamps from a column of record batches and makes watermarks, by a WatermarkStrategy."""

    strategy: bytes

    @property
    def keeps_schema(self) -> bool:
        return True


class BatchShape(StrEnum):
    """Forms of columnar user functions: a batch to a batch, or a batch to a boolean column."""

    MAP_BATCHES = "map_batches"
    FILTER_BATCHES = "filter_batches"


class BatchFunctionOperator(OperatorSpec, frozen=True, kw_only=True, tag="batch_function"):
    """map_batches or filter_batches; `schema` is the declared Arrow output schema (IPC bytes) or None."""

    on_error_inputs = (0,)
    shape: BatchShape
    function: bytes
    container: BatchContainer
    schema: bytes | None = None

    @property
    def emitted_schema(self) -> bytes | None:
        return None if self.keeps_schema else self.schema

    @property
    def keeps_schema(self) -> bool:
        return self.shape is BatchShape.FILTER_BATCHES

    @property
    def keeps_rows(self) -> bool:
        return self.shape is BatchShape.FILTER_BATCHES


class ColumnFilterOperator(OperatorSpec, frozen=True, kw_only=True, tag="column_filter"):
    """Keeps the rows for which a condition is true."""

    keeps_schema = True
    keeps_rows = True

    row_condition: AnyCondition

    @property
    def condition(self) -> AnyCondition:
        return self.row_condition


class ColumnSelectionOperator(OperatorSpec, frozen=True, kw_only=True, tag="column_selection"):
    """Keeps some columns, in the order given."""

    columns: tuple[str, ...]

    @property
    def selected_columns(self) -> tuple[str, ...]:
        return self.columns


class ArrowAggregateOperator(OperatorSpec, frozen=True, kw_only=True, tag="arrow_aggregate"):
    """Running vectorised aggregates by key: emits the row of every key touched, once a batch."""

    is_rolling = True
    keeps_state_as = "a running aggregate"

    key_column: KeyColumns
    aggregates: tuple[ColumnAggregate, ...]
    #: As of ReduceOperator.
    last_only: bool = False

    @property
    def keyed_aggregates(self) -> KeyedAggregates:
        return KeyedAggregates(self.key_column, self.aggregates)


class SqlResultsOperator(OperatorSpec, frozen=True, kw_only=True, tag="sql_results"):
    """In the place of a source of a bounded job: takes the aggregates that Spark SQL has computed over its files."""

    #: The Arrow schema of the source's batches (IPC bytes).
    schema: bytes
    aggregates: KeyedAggregates


class AggregatedColumnsOperator(OperatorSpec, frozen=True, kw_only=True, tag="aggregated_columns"):
    """In the place of aggregates, filters and selections of columns in a bounded job: hands on what was computed."""


class RowsToArrowOperator(OperatorSpec, frozen=True, kw_only=True, tag="rows_to_arrow"):
    """Conversion of declared rows to record batches of `schema` (IPC bytes); shown in the plan."""

    is_conversion = True
    keeps_time = True

    schema: bytes

    @property
    def emitted_schema(self) -> bytes:
        return self.schema


class ArrowToRowsOperator(OperatorSpec, frozen=True, kw_only=True, tag="arrow_to_rows"):
    """Conversion of record batches to Rows (or the declared tuple type)."""

    is_conversion = True
    keeps_time = True

    as_tuple: bool = False
