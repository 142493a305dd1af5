"""Columns of a stream: conversion between rows and Arrow record batches, and functions of whole batches.

Owner: the thread that builds the program. A conversion is an operator in the plan, and needs a declared type or a
schema; a function of batches never makes objects of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from yarrow.datastream.arrow_schemas import schema_bytes
from yarrow.datastream.batch_functions import container_of
from yarrow.datastream.program_stream import ProgramStream
from yarrow.datastream.user_functions import declares_blocking
from yarrow.runtime.graph.operator_spec import BatchContainer, BatchFunctionOperator, BatchShape, StreamKind

if TYPE_CHECKING:
    import pyarrow as pa

    from yarrow.datastream.data_stream import DataStream


class StreamColumns(ProgramStream):
    """The methods that convert, or take functions of batches."""

    def to_arrow(self, schema: pa.Schema | None = None) -> DataStream:
        """Return the stream as Arrow record batches of `schema`, or of the declared type of the rows.

        Raises InvalidProgramError when neither is there.
        """
        if self.is_columnar:
            return cast("DataStream", self)
        wanted = None if schema is None else schema_bytes(schema)
        return self._stream(self._builder.as_columns(self.transformation, "to_arrow()", wanted))

    def to_rows(self, as_tuple: bool = False) -> DataStream:
        """Return a columnar stream as Rows named like its columns, or as tuples."""
        return self._stream(self._builder.as_rows(self.transformation, as_tuple))

    def map_batches(
        self,
        fn: Callable[[Any], Any],
        schema: pa.Schema | None = None,
        container: BatchContainer | str | None = None,
    ) -> DataStream:
        """Return the stream of `fn`'s result for each batch.

        `fn` takes and returns a pyarrow RecordBatch or Table, or a polars or pandas DataFrame. The annotation
        of its first parameter says which, else `container` ("pyarrow", "polars", "pandas"); the default is a
        RecordBatch. With a schema, each result must have it.
        """
        return self._batch_function("Map Batches", BatchShape.MAP_BATCHES, fn, schema, container)

    def filter_batches(
        self, fn: Callable[[Any], Any], container: BatchContainer | str | None = None
    ) -> DataStream:
        """Return the stream of the rows for which `fn` gives true, a boolean column for each batch."""
        return self._batch_function("Filter Batches", BatchShape.FILTER_BATCHES, fn, None, container)

    def _batch_function(
        self,
        name: str,
        shape: BatchShape,
        fn: Callable[[Any], Any],
        schema: pa.Schema | None,
        container: BatchContainer | str | None,
    ) -> DataStream:
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
