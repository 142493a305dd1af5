"""Conversions of rows to record batches and back, which a plan shows where rows and columns meet; letters of rows.

Owner: the task thread. null is None and never NaN. A value that does not fit fails the job, with operator,
row, field, the expected and the received value. Must not guess types: the schema was declared when the graph
was built.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yarrow.common.types import Row, RowKind
from yarrow.common.types import rows_of as rows_with_names
from yarrow.container.operators.bulk_row_operator import BulkRowOperator
from yarrow.container.operators.columnar.arrow_columns import MisfitError, build_columns, build_field
from yarrow.container.operators.columnar_operator import ColumnarOperator
from yarrow.container.operators.registry import runs
from yarrow.runtime.data.arrow_types import in_microseconds
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.data.errors import DataError
from yarrow.runtime.graph.column_spec import ArrowToRowsOperator, RowsToArrowOperator

if TYPE_CHECKING:
    # Most processes leave out no records.
    from yarrow.container.operators.failed_records import FailedRecords

Result = TypeVar("Result")


class ConversionError(DataError):
    """A row does not fit the declared schema, or a column has no Python values."""


@runs(RowsToArrowOperator)
class RowsToArrowConverter(BulkRowOperator):
    """Makes a record batch of each chunk's rows, and passes it to `deliver`, which the chain sets."""

    delivers_batches = True

    def __init__(self, name: str, spec: RowsToArrowOperator) -> None:
        super().__init__(name)
        self.schema: pa.Schema = pa.ipc.read_schema(pa.py_buffer(spec.schema))
        self.deliver = self._undeliverable
        self._fields = [self.schema.field(index) for index in range(len(self.schema))]
        self._converted = 0

    def take_rows(self, rows: list[Any], timestamps: list[int | None] | None) -> None:
        try:
            columns = self._columns(rows)
        except MisfitError as error:
            shown = repr(error.got)
            where = f"field '{error.path}' of row" if error.path else "row"
            raise ConversionError(
                f"operator '{self.name}': {where} {self._converted + error.index} (of this subtask, the first is 0): "
                f"expected {error.expected}, got {type(error.got).__qualname__} "
                f"{shown if len(shown) <= 120 else shown[:117] + '...'}. Emit rows of the declared type, or change the "
                "declaration."
            ) from None
        self._converted += len(rows)
        stamps = None if timestamps is None else pa.array(timestamps, pa.int64())
        self.deliver(
            ArrowBatch(pa.RecordBatch.from_arrays(columns, schema=self.schema), stamps, _kinds_of(rows))
        )

    def _undeliverable(self, batch: ArrowBatch) -> None:
        raise ConversionError(
            f"operator '{self.name}': nobody takes the {len(batch)} rows; set `deliver` first"
        )

    def _columns(self, rows: list[Any]) -> list[pa.Array]:
        fields = self._fields
        if len(fields) == 1 and not _is_structured(rows[0], fields[0]):
            return [build_field(rows, fields[0], fields[0].name)]
        if None in rows:
            raise MisfitError(rows.index(None), "", f"a row with the columns {self.schema.names}", None)
        return build_columns(rows, fields)


def _is_structured(row: Any, field: pa.Field) -> bool:
    """Whether a row for a single column contains the value, or is the value."""
    if isinstance(row, dict):
        return not pa.types.is_map(field.type)
    return isinstance(row, Row | tuple) or (dataclasses.is_dataclass(row) and not isinstance(row, type))


def _kinds_of(rows: Sequence[Any]) -> bytes | None:
    if not isinstance(rows[0], Row):
        return None
    kinds = [row.get_row_kind() if isinstance(row, Row) else RowKind.INSERT for row in rows]
    if kinds.count(RowKind.INSERT) == len(kinds):
        return None
    return bytes([kind.value for kind in kinds])


@runs(ArrowToRowsOperator)
class ArrowToRowsConverter(ColumnarOperator):
    """Makes a Row with the columns' names, or a tuple, of each row of a batch.

    Structs inside become Rows too.
    """

    converts_to_rows = True

    def __init__(self, name: str, spec: ArrowToRowsOperator) -> None:
        super().__init__(name)
        self._as_tuple = spec.as_tuple

    def to_rows(self, batch: ArrowBatch) -> tuple[list[Any], list[int | None] | None]:
        """The rows and, if the batch has them, their timestamps. Raises ConversionError."""
        records = batch.batch
        names = tuple(records.schema.names)
        columns = [self._values(records.column(i), name) for i, name in enumerate(names)]
        rows: list[Any] = list(zip(*columns, strict=True)) if columns else [()] * len(batch)
        if not self._as_tuple:
            self._require_distinct(names)
            rows = rows_of(rows, names)
        if batch.kinds is not None and any(batch.kinds):
            self._set_kinds(rows, batch.kinds)
        stamps = None if batch.timestamps is None else batch.timestamps.to_pylist()
        return rows, stamps

    def _set_kinds(self, rows: list[Any], kinds: bytes) -> None:
        if self._as_tuple:
            raise ConversionError(
                f"operator '{self.name}': the batch holds updates or deletions, which a tuple cannot show; declare the "
                "output as a row (Types.ROW_NAMED)"
            )
        for row, kind in zip(rows, kinds, strict=True):
            row.set_row_kind(RowKind(kind))

    def _require_distinct(self, names: tuple[str, ...]) -> None:
        if len(set(names)) != len(names):
            raise ConversionError(
                f"operator '{self.name}': a Row needs distinct names, the columns are {list(names)}; rename them in "
                "map_batches"
            )

    def _values(self, column: pa.Array, name: str) -> list[Any]:
        try:
            return python_values(column)
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise ConversionError(
                f"operator '{self.name}': column '{name}' of type {column.type} holds a value that no Python"
                f" object stands for: {error}. Cast or filter the column in map_batches before the conversion"
            ) from error


_MICRO = dt.timedelta(microseconds=1)
_FIRST_MICRO = (dt.datetime.min - dt.datetime(1970, 1, 1)) // _MICRO
_LAST_MICRO = (dt.datetime.max - dt.datetime(1970, 1, 1)) // _MICRO


def rows_of(values: Sequence[tuple[Any, ...]], names: tuple[str, ...]) -> list[Row]:
    """Rows with these names, which must be distinct.

    The caller makes the check of set_field_names once.
    """
    return rows_with_names(names, map(list, values), len(values))


def python_values(column: pa.Array) -> list[Any]:
    """The values of a column as Python objects.

    Null becomes None, times become datetimes (never pandas types), and maps become dicts.
    """
    kind = column.type
    numbers = _numpy_values(column, kind)
    if numbers is not None:
        values: list[Any] = numbers.tolist()
        for index in np.flatnonzero(column.is_null()).tolist() if column.null_count else ():
            values[index] = None
        return values
    if pa.types.is_dictionary(kind):
        return _dictionary_values(column)
    plain = in_microseconds(kind)
    if plain != kind:
        column = column.cast(plain)
    values = column.to_pylist()
    change = _change(plain)
    return values if change is None else [None if value is None else change(value) for value in values]


def _numpy_values(column: pa.Array, kind: pa.DataType) -> npt.NDArray[Any] | None:
    """The values as an array, if numpy makes their Python objects faster than Arrow; None for other types.

    The array has the column's length, and arbitrary values in place of nulls.
    """
    types = pa.types
    if types.is_integer(kind) or types.is_floating(kind):
        return (column.fill_null(0) if column.null_count else column).to_numpy()  # type: ignore[no-any-return]
    if types.is_timestamp(kind) and kind.tz is None and kind.unit != "s":
        micros = column.cast(pa.timestamp("us")).view(pa.int64())
        micros = (micros.fill_null(0) if column.null_count else micros).to_numpy()
        if not len(micros) or (micros.min() >= _FIRST_MICRO and micros.max() <= _LAST_MICRO):
            return micros.view("datetime64[us]")  # type: ignore[no-any-return]
    return None


def _dictionary_values(column: pa.Array) -> list[Any]:
    values = python_values(column.dictionary)
    return [None if index is None else values[index] for index in column.indices.to_pylist()]


def _change(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """A function that converts Arrow's structs to Rows and its maps to dicts.

    It is None if there is nothing to convert.
    """
    types = pa.types
    if types.is_struct(kind):
        names = tuple(kind.field(i).name for i in range(kind.num_fields))
        changes = [_change(kind.field(i).type) for i in range(kind.num_fields)]
        return lambda value: rows_of(
            [tuple([_changed(value[n], c) for n, c in zip(names, changes, strict=True)])], names
        )[0]
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = _change(kind.value_type)
        return None if inner is None else lambda value: [_changed(item, inner) for item in value]
    if types.is_map(kind):
        key, item = _change(kind.key_type), _change(kind.item_type)
        return lambda value: {_changed(k, key): _changed(v, item) for k, v in value}
    return None


def _changed(value: Any, change: Callable[[Any], Any] | None) -> Any:
    return value if value is None or change is None else change(value)


class _ShownRow:
    """A row with a value for which Python has no object: a letter holds its text alone."""

    def __init__(self, row: pa.RecordBatch) -> None:
        self._row = row

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={self._row.column(name)[0]}' for name in self._row.schema.names)})"

    def __getitem__(self, name: str) -> Any:
        """Return the value of a column, for the key of a letter. Raises an error of Arrow if Python has no object."""
        return python_values(self._row.column(name))[0]

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("the row has no form in Python")


class RowsPutAside:
    """Leaves out the rows of a batch at which an operator fails, and makes a letter of each."""

    def __init__(self, name: str) -> None:
        """`name`: of the operator."""
        self._rows = ArrowToRowsConverter(name, ArrowToRowsOperator())

    def parts_without_failing_rows(
        self,
        failed: FailedRecords,
        batch: ArrowBatch,
        compute: Callable[[ArrowBatch], Result],
        *,
        stays_whole: bool = False,
    ) -> Iterator[tuple[ArrowBatch, Result]]:
        """The parts of a batch for which `compute` does not fail, with its results; it is called anew for halves.

        `stays_whole`: a batch that fails is not divided. Raises errors that are none of a record.
        """
        try:
            result = compute(batch)
        except Exception as error:
            if failed.is_fatal(error):
                raise
            if len(batch) == 1 or stays_whole:
                self.put_aside(failed, error, batch)
                return
        else:
            yield batch, result
            return
        # Behind the handler, so that errors of the halves do not name this one as their context.
        half = len(batch) // 2
        for part in (batch.sliced(0, half), batch.sliced(half, len(batch))):
            yield from self.parts_without_failing_rows(failed, part, compute, stays_whole=stays_whole)

    def put_aside(self, failed: FailedRecords, error: Exception, batch: ArrowBatch) -> None:
        """Count the rows; send their letters if somebody reads them. Raises `error` if it is none of a record."""
        for row, stamp in self._stamped(batch):
            failed.put_aside(error, 0, row, stamp)

    def put_aside_together(
        self, failed: FailedRecords, error: Exception, index: int, batch: ArrowBatch, told: str
    ) -> None:
        """As `put_aside` for rows that fail together, as those of input `index`: the first letter has the traceback.

        `told` says more of the rows, behind the error.
        """
        for _, letter in failed.letters_of_rows(error, index, self._stamped(batch), told):
            assert failed.send is not None, "somebody reads the letters"
            failed.send([letter], None if letter.timestamp is None else [letter.timestamp])

    def _stamped(self, batch: ArrowBatch) -> Iterator[tuple[Any, int | None]]:
        """The rows of a batch with their timestamps. A row without a form in Python is one that can be shown."""
        try:
            rows, stamps = self._rows.to_rows(batch)
        except ConversionError:
            if len(batch) > 1:
                for at in range(len(batch)):
                    yield from self._stamped(batch.sliced(at, at + 1))
                return
            rows = [_ShownRow(batch.batch)]
            stamps = None if batch.timestamps is None else batch.timestamps.to_pylist()
        yield from zip(rows, stamps or repeat(None), strict=False)
