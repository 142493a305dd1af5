"""BatchAdapter: converts batches to and from the containers of columnar functions: pyarrow, polars and pandas.

Owner: the task thread. An adapter is made once for each operator, and imports its library then. Pandas
columns are backed by Arrow, so that an integer with nulls stays an integer and null never becomes NaN. Must
not call user functions.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from yarrow.container.operators.columnar.lossless_cast import lossless_cast
from yarrow.runtime.common.errors import UnsupportedFeatureError
from yarrow.runtime.graph.operator_spec import BatchContainer


class UnknownContainerError(Exception):
    """A result is no batch or mask; the operator adds its name."""

    def __init__(self, expected: str, got: str) -> None:
        super().__init__(expected, got)
        self.expected = expected
        self.got = got


def adapter_for(container: BatchContainer) -> BatchAdapter:
    """The adapter of a container. Raises UnsupportedFeatureError if its library is not installed."""
    if container is BatchContainer.POLARS:
        return PolarsAdapter()
    if container is BatchContainer.PANDAS:
        return PandasAdapter()
    return TableAdapter() if container is BatchContainer.PYARROW_TABLE else RecordBatchAdapter()


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UnsupportedFeatureError(
            f"a columnar function takes {name} batches, but {name} cannot be imported here ({error}). Run `pip"
            f" install 'yarrow[{name}]'` in the environment of the workers, or let the function take"
            " pyarrow.RecordBatch"
        ) from error


class BatchAdapter(ABC):
    """Converts to and from one container."""

    #: The allowed results of a function.
    expected = "a pyarrow RecordBatch or Table (or a list or generator of them)"

    @abstractmethod
    def from_arrow(self, batch: pa.RecordBatch) -> Any:
        """The batch in the function's container."""

    def to_arrow(self, result: Any, given: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The batches of a function's result; `given` is the schema of its input.

        Raises UnknownContainerError.
        """
        own = self._own_to_arrow(result, given)
        if own is not None:
            yield own
        elif isinstance(result, pa.RecordBatch):
            yield result
        elif isinstance(result, pa.Table):
            yield from result.combine_chunks().to_batches()
        elif isinstance(result, list | tuple | Iterator):
            for part in result:
                yield from self.to_arrow(part, given)
        else:
            raise UnknownContainerError(
                self.expected, f"{type(result).__module__}.{type(result).__qualname__}"
            )

    def to_mask(self, result: Any, batch: pa.RecordBatch) -> pa.Array:
        """A filter's result as an Arrow array. Raises UnknownContainerError."""
        own = self._own_to_mask(result, batch)
        if own is not None:
            return own
        if isinstance(result, pa.ChunkedArray):
            return result.combine_chunks()
        if isinstance(result, pa.Array):
            return result
        if isinstance(result, np.ndarray) and result.ndim == 1:
            return pa.array(result)
        if isinstance(result, Sequence) and not isinstance(result, str | bytes):
            try:
                return pa.array(result)
            except (pa.ArrowException, TypeError, ValueError) as error:
                raise UnknownContainerError(
                    "a boolean column", f"a {type(result).__qualname__} ({error})"
                ) from error
        raise UnknownContainerError(
            "a boolean column", f"{type(result).__module__}.{type(result).__qualname__}"
        )

    def _own_to_arrow(self, result: Any, given: pa.Schema) -> pa.RecordBatch | None:
        return None

    def _own_to_mask(self, result: Any, batch: pa.RecordBatch) -> pa.Array | None:
        return None


class RecordBatchAdapter(BatchAdapter):
    """Passes pyarrow.RecordBatch."""

    def from_arrow(self, batch: pa.RecordBatch) -> Any:
        return batch


class TableAdapter(BatchAdapter):
    """Passes pyarrow.Table."""

    def from_arrow(self, batch: pa.RecordBatch) -> Any:
        return pa.Table.from_batches([batch])


class PolarsAdapter(BatchAdapter):
    """Passes polars.DataFrame; a returned LazyFrame is collected, an expression as a mask is evaluated.

    polars has only large strings: a column that came as string leaves as string.
    """

    expected = "a polars DataFrame (or a list or generator of them)"

    def __init__(self) -> None:
        self._polars = _library("polars")

    def from_arrow(self, batch: pa.RecordBatch) -> Any:
        return self._polars.from_arrow(batch)

    def _own_to_arrow(self, result: Any, given: pa.Schema) -> pa.RecordBatch | None:
        if isinstance(result, self._polars.LazyFrame):
            result = result.collect()
        if not isinstance(result, self._polars.DataFrame):
            return None
        return with_given_strings(record_batch_of(result.to_arrow()), given)

    def _own_to_mask(self, result: Any, batch: pa.RecordBatch) -> pa.Array | None:
        if isinstance(result, self._polars.Expr):
            frame = self._polars.from_arrow(batch).select(result)
            if frame.width != 1:
                raise UnknownContainerError("an expression of one column", f"one of {frame.width} columns")
            result = frame.to_series()
            if len(result) == 1 and batch.num_rows != 1:  # a literal or an aggregate applies to all rows
                result = result.new_from_index(0, batch.num_rows)
        return result.to_arrow() if isinstance(result, self._polars.Series) else None


class PandasAdapter(BatchAdapter):
    """Passes pandas.DataFrame with Arrow-backed columns.

    Results are read column by column. NaN in a float column stays NaN. In an object column it becomes null,
    because pandas itself uses it for missing values there. Pd.NA, None and NaT become null. An index without
    a name is dropped. A named index is refused: it would be a forgotten column.
    """

    expected = "a pandas DataFrame (or a list or generator of them)"

    def __init__(self) -> None:
        self._pandas = _library("pandas")

    def from_arrow(self, batch: pa.RecordBatch) -> Any:
        return batch.to_pandas(types_mapper=self._pandas.ArrowDtype)

    def _own_to_arrow(self, result: Any, given: pa.Schema) -> pa.RecordBatch | None:
        if not isinstance(result, self._pandas.DataFrame):
            return None
        if any(name is not None for name in result.index.names):
            raise UnknownContainerError(
                self.expected,
                f"one whose index is named {list(result.index.names)} (call reset_index() to keep it)",
            )
        names = list(result.columns)
        if not all(isinstance(name, str) for name in names):
            raise UnknownContainerError("column names that are text", f"the names {names}")
        columns = [self._column(result.iloc[:, index], name) for index, name in enumerate(names)]
        if not names:
            raise UnknownContainerError("at least one column", "a DataFrame without columns")
        return pa.RecordBatch.from_arrays(columns, names=names)

    def _column(self, series: Any, name: str) -> pa.Array:
        try:
            made = pa.array(series, from_pandas=series.dtype == object)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise UnknownContainerError(f"values of one type in column '{name}'", str(error)) from error
        return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made

    def _own_to_mask(self, result: Any, batch: pa.RecordBatch) -> pa.Array | None:
        if not isinstance(result, self._pandas.Series):
            return None
        return self._column(result, "mask")


def record_batch_of(table: pa.Table) -> pa.RecordBatch:
    """All rows of a table as one batch."""
    columns = [_combined(column) for column in table.columns]
    if not columns:
        raise UnknownContainerError("at least one column", "a frame without columns")
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def _combined(column: pa.ChunkedArray) -> pa.Array:
    return (
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays(column.chunks)
        if column.num_chunks
        else (pa.array([], column.type))
    )


def with_given_strings(batch: pa.RecordBatch, given: pa.Schema) -> pa.RecordBatch:
    """The batch with its large strings and binaries in the former types of the columns with those names."""
    columns, fields = [], []
    for index, field in enumerate(batch.schema):
        before = given.field(field.name).type if given.names.count(field.name) == 1 else None
        column = batch.column(index)
        if str(before) in ("string", "binary") and str(field.type) in _LARGE[str(before)]:
            column, field = lossless_cast(column, before), field.with_type(before)
        columns.append(column)
        fields.append(field)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


_LARGE = {"string": ("large_string", "string_view"), "binary": ("large_binary", "binary_view")}
