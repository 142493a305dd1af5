"""Columns of a stream: conversion between rows and Arrow record batches, and functions of whole batches.

Owner: the thread that builds the program. A conversion is an operator in the plan, and needs a declared type or a
schema; a function of batches never makes objects of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from yarrow.common.values.conditions import AnyCondition
from yarrow.datastream.program.arrow_schemas import (
    check_column,
    check_time_column,
    read_schema,
    schema_bytes,
    selected_schema,
)
from yarrow.datastream.program.user_functions import declares_blocking
from yarrow.datastream.program_stream import ProgramStream, S
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.column_spec import (
    BatchFunctionOperator,
    BatchShape,
    ColumnFilterOperator,
    ColumnSelectionOperator,
    ColumnTimestampsOperator,
)
from yarrow.runtime.graph.operator_spec import BatchContainer, OperatorSpec, StreamKind
from yarrow.runtime.graph.transformations import Transformation

if TYPE_CHECKING:
    import pyarrow as pa

    from yarrow.common.watermark_strategy import WatermarkStrategy


class StreamColumns(ProgramStream[S]):
    """The methods that convert, or take functions of batches."""

    def to_arrow(self, schema: pa.Schema | None = None) -> S:
        """Return the stream as Arrow record batches of `schema`, or of the declared type of the rows.

        Raises InvalidProgramError when neither is there.
        """
        if self.is_columnar:
            return cast("S", self)
        wanted = None if schema is None else schema_bytes(schema)
        return self._stream(self._builder.as_columns(self.transformation, "to_arrow()", wanted))

    def to_rows(self, as_tuple: bool = False) -> S:
        """Return a columnar stream as Rows named like its columns, or as tuples."""
        return self._stream(self._builder.as_rows(self.transformation, as_tuple))

    def map_batches(
        self,
        fn: Callable[[Any], Any],
        schema: pa.Schema | None = None,
        container: BatchContainer | str | None = None,
    ) -> S:
        """Return the stream of `fn`'s result for each batch.

        `fn` takes and returns a pyarrow RecordBatch or Table, or a polars or pandas DataFrame. The annotation
        of its first parameter says which, else `container` ("pyarrow", "polars", "pandas"); the default is a
        RecordBatch. With a schema, each result must have it.
        """
        return self._batch_function("Map Batches", BatchShape.MAP_BATCHES, fn, schema, container)

    def filter_batches(self, fn: Callable[[Any], Any], container: BatchContainer | str | None = None) -> S:
        """Return the stream of the rows for which `fn` gives true, a boolean column for each batch."""
        return self._batch_function("Filter Batches", BatchShape.FILTER_BATCHES, fn, None, container)

    def select(self, *columns: str) -> S:
        """Return the stream with these columns alone, in this order, as record batches.

        Raises InvalidProgramError for a column that is named twice, or that a known schema does not have.
        """
        if not columns or not all(isinstance(column, str) for column in columns):
            raise InvalidProgramError(f"select takes names of columns, not {columns!r}")
        twice = sorted({column for column in columns if columns.count(column) > 1})
        if twice:
            raise InvalidProgramError(f"select: the columns {twice} are named twice; name each once")
        read = self._builder.as_columns(self.transformation, "select()")
        for column in columns:
            check_column(read.output_schema, column, "select")
        known = read.output_schema
        output = None if known is None else selected_schema(known, columns)
        return self._column_step("Select", ColumnSelectionOperator(columns=columns), read, output)

    def _timestamps_from_column(self, strategy: WatermarkStrategy) -> S:
        """The stream with timestamps from the strategy's column, as record batches."""
        column, read = strategy.timestamp_column, self.transformation
        assert column is not None
        if not self.is_columnar:
            raise InvalidProgramError(
                f"with_timestamp_column({column!r}): only a columnar stream has columns to name. Convert with"
                " to_arrow() first, or give the strategy a timestamp assigner"
            )
        if strategy.has_own_generator:
            raise InvalidProgramError(
                f"with_timestamp_column({column!r}): a generator of your own sees each record, and columns have none."
                " Use for_bounded_out_of_orderness or for_monotonous_timestamps, or give the strategy a timestamp"
                " assigner"
            )
        check_time_column(read.output_schema, column, "with_timestamp_column")
        name = "Timestamps/Watermarks"
        spec = ColumnTimestampsOperator(strategy=self._builder.pickle(strategy, name, "watermark strategy"))
        return self._column_step(name, spec, read, read.output_schema)

    def _filter_columns(self, condition: AnyCondition) -> S:
        """The rows for which a condition over columns is true, as record batches."""
        read = self._builder.as_columns(self.transformation, "filter()")
        if read.output_schema is not None:
            # Few programs have a condition.
            from yarrow.runtime.columns.condition_checks import why_not_compared

            why = why_not_compared(condition, read_schema(read.output_schema))
            if why:
                raise InvalidProgramError(f"filter: {why}")
        spec = ColumnFilterOperator(row_condition=condition)
        return self._column_step("Filter", spec, read, read.output_schema)

    def _column_step(self, name: str, spec: OperatorSpec, read: Transformation, schema: bytes | None) -> S:
        made = self._builder.one_input(
            read, name, spec, output_kind=StreamKind.COLUMNAR, output_schema=schema
        )
        return self._stream(made)

    def _batch_function(
        self,
        name: str,
        shape: BatchShape,
        fn: Callable[[Any], Any],
        schema: pa.Schema | None,
        container: BatchContainer | str | None,
    ) -> S:
        # Most programs have no functions of batches.
        from yarrow.datastream.program.batch_functions import container_of

        chosen = container_of(fn, container, shape.value)
        read = self._builder.as_columns(self.transformation, f"{shape.value}()")
        output = schema_bytes(schema) if schema is not None else None
        spec = BatchFunctionOperator(
            shape=shape, function=self._builder.pickle(fn, name), container=chosen, schema=output
        )
        made = self._builder.one_input(
            read,
            name,
            spec,
            output_kind=StreamKind.COLUMNAR,
            output_schema=read.output_schema if shape is BatchShape.FILTER_BATCHES else output,
            blocking=declares_blocking(fn),
        )
        return self._stream(made)
