"""Declared types as Arrow columns: the schema of a Row type, and rows turned into record batches.

Owner: the calling thread; no state. None becomes null and nothing else does; a value that does not fit its
column fails naming row and column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from yarrow.common.typeinfo import MapTypeInfo, RowTypeInfo, TypeInformation
from yarrow.common.types import Row, positional_row
from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.datastream.formats.data_types import ANY_DECIMAL, arrow_data_type
from yarrow.datastream.formats.row_fields import stand_in_order, values_in_order
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.arrow_types import NoArrowTypeError, arrow_fields, in_microseconds
from yarrow.table.types import RowType


def arrow_schema(row_type: RowTypeInfo | RowType) -> pa.Schema:
    """A column for each field of a Row type. Raises InvalidProgramError naming a field that has no Arrow type."""
    try:
        if isinstance(row_type, RowType):
            return pa.schema([(f.name, arrow_data_type(f.data_type, f.name)) for f in row_type.fields])
        return pa.schema(arrow_fields(row_type, "", {"BIG_DEC": ANY_DECIMAL}))
    except NoArrowTypeError as error:
        raise InvalidProgramError(
            f"field {error.path!r}: the type {error.declared} has no columnar form; use Types.STRING, BOOLEAN, the "
            "numbers, SQL_DATE, SQL_TIME, SQL_TIMESTAMP, or LIST, MAP and ROW of these"
        ) from None


def as_schema(row_type: RowTypeInfo | RowType | pa.Schema) -> pa.Schema:
    """The Arrow schema of a Row type, or the schema given. Raises TypeError for anything else."""
    if isinstance(row_type, RowTypeInfo | RowType):
        return arrow_schema(row_type)
    if isinstance(row_type, pa.Schema):
        return row_type
    raise TypeError(
        f"a Row type (Types.ROW_NAMED or DataTypes.ROW) or a pyarrow.Schema is expected, not {row_type!r}"
    )


def batch_of_rows(rows: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Rows, tuples, lists or dicts as columns. Raises FileFormatError naming the first that does not fit."""
    return _batch(rows, schema, [None] * len(schema))


def rounded_batch_of_rows(rows: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """The same, with decimals rounded half up to the digits behind the point of their columns, as Flink writes them."""
    return _batch(rows, schema, [_rounding(field.type) for field in schema])


def _batch(
    rows: Sequence[Any], schema: pa.Schema, rounding: Sequence[Callable[[Any], Any] | None]
) -> pa.RecordBatch:
    """Rows as columns; `rounding` has what is called with each value of a column before, None = nothing."""
    columns = zip(_columns_of(rows, schema), schema, rounding, strict=True)
    arrays = [_array(column, field, rounded) for column, field, rounded in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _rounding(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return a function that rounds the decimals in a value of a column; None = the column has none."""
    if pa.types.is_decimal(kind):
        context = Context(prec=kind.precision, rounding=ROUND_HALF_UP)
        unit = Decimal(1).scaleb(-kind.scale)
        return lambda value: _rounded(value, unit, context)
    if pa.types.is_struct(kind):
        parts = [(field.name, rounded) for field in kind if (rounded := _rounding(field.type)) is not None]
        return (lambda value: _rounded_fields(value, parts)) if parts else None
    if pa.types.is_map(kind):
        of_items = _rounding(kind.item_type)
        return of_items and (lambda pairs: pairs and [(key, of_items(item)) for key, item in pairs])
    if pa.types.is_list(kind):
        of_elements = _rounding(kind.value_type)
        return of_elements and (lambda elements: elements and [*map(of_elements, elements)])
    return None


def _rounded(value: Any, unit: Decimal, context: Context) -> Any:
    if not isinstance(value, Decimal):
        return value
    try:
        return value.quantize(unit, context=context)
    except InvalidOperation:
        # It has too many digits before the point. Arrow refuses it.
        return value


def _rounded_fields(value: Any, parts: Sequence[tuple[str, Callable[[Any], Any]]]) -> Any:
    if not isinstance(value, dict):
        return value
    return value | {name: rounded(value[name]) for name, rounded in parts if name in value}


def _columns_of(rows: Sequence[Any], schema: pa.Schema) -> Sequence[Sequence[Any]]:
    """The values of rows by column."""
    kinds, names = set(map(type, rows)), tuple(schema.names)
    if kinds == {dict}:
        return [[row.get(name) for row in rows] for name in names]
    if not (kinds <= {tuple, list} or (kinds == {Row} and stand_in_order(rows, names))):
        rows = [_values_of(index, row, names) for index, row in enumerate(rows)]
    try:
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    except ValueError:
        columns = []
    if len(columns) != len(schema):
        index, row = next((index, row) for index, row in enumerate(rows) if len(row) != len(schema))
        raise FileFormatError(
            f"row {index} of the batch: rows of {len(row)} fields do not fit the {len(schema)} columns"
            f" {schema.names}: {row!r}"
        )
    return columns


def _values_of(index: int, row: Any, names: tuple[str, ...]) -> Sequence[Any]:
    """The values of one row, in the order of the columns."""
    try:
        return values_in_order(row, names)
    except FileFormatError as error:
        raise FileFormatError(f"row {index} of the batch: {error}") from None


def require_no_null(column: pa.Array, field: pa.Field) -> None:
    """Raise FileFormatError for the first null where a column, or a field inside of it, is declared without nulls."""
    found = _forbidden_null(column, field)
    if found is None:
        return
    row = next(row for row in range(len(column)) if _forbidden_null(column.slice(row, 1), field))
    raise FileFormatError(
        f"row {row} of the batch: column {found!r} is declared without nulls, and the row has one"
    )


def _forbidden_null(column: pa.Array, field: pa.Field) -> str | None:
    """Return the path of a field that has a null, and may have none; None = there is none."""
    if not field.nullable and column.null_count:
        return str(field.name)
    if _requires_values(field.type):
        for part, inner in parts_of(column):
            found = _forbidden_null(part, inner)
            if found is not None:
                return f"{field.name}.{found}"
    return None


def _requires_values(kind: pa.DataType) -> bool:
    """Whether a field inside of the type may have no null. Arrow itself refuses null as a key of a map."""
    if not pa.types.is_nested(kind):
        return False
    inner = [kind.item_field] if pa.types.is_map(kind) else [kind.field(at) for at in range(kind.num_fields)]
    return any(not field.nullable or _requires_values(field.type) for field in inner)


def parts_of(column: pa.Array) -> Iterator[tuple[pa.Array, pa.Field]]:
    """The columns directly inside of a nested one, with their fields; without what lies in its nulls."""
    kind, types = column.type, pa.types
    if types.is_struct(kind):
        yield from zip(column.drop_null().flatten(), kind, strict=True)
    elif types.is_map(kind):
        # Entries of a null are not written.
        column = column.drop_null()
        first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
        yield column.keys.slice(first, last - first), kind.key_field
        yield column.items.slice(first, last - first), kind.item_field
    elif (
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    ):
        yield column.flatten(), kind.value_field


def _array(values: Sequence[Any], field: pa.Field, rounded: Callable[[Any], Any] | None) -> pa.Array:
    """The values of a column as an array. `rounded` is called with each value before."""

    def made(part: Sequence[Any]) -> pa.Array:
        plain = _plain(part, field.type)
        return pa.array(plain if rounded is None else [*map(rounded, plain)], field.type)

    try:
        array = made(values)
    except (pa.ArrowException, FileFormatError, TypeError, ValueError, OverflowError) as whole:
        for index, value in enumerate(values):
            try:
                made([value])
            except (pa.ArrowException, FileFormatError, TypeError, ValueError, OverflowError) as error:
                raise FileFormatError(
                    f"row {index} of the batch: {value!r} does not fit column {field.name!r} of type "
                    f"{field.type}: {error}"
                ) from error
        raise FileFormatError(f"column {field.name!r} of type {field.type}: {whole}") from whole
    require_no_null(array, field)
    return array


def _plain(values: Sequence[Any], target: pa.DataType) -> Sequence[Any]:
    """Nested Rows as dicts, which Arrow knows."""
    if not pa.types.is_nested(target):
        return values
    return [_plain_value(value, target) for value in values]


def _plain_value(value: Any, target: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(target) and isinstance(value, Row | tuple):
        fields = list(target)
        parts = zip(values_in_order(value, tuple([field.name for field in fields])), fields, strict=True)
        return {field.name: _plain_value(part, field.type) for part, field in parts}
    if pa.types.is_list(target):
        return [_plain_value(part, target.value_type) for part in value]
    if pa.types.is_map(target) and isinstance(value, dict):
        return [(key, _plain_value(part, target.item_type)) for key, part in value.items()]
    return value


def rows_of_batch(batch: pa.RecordBatch, row_type: RowTypeInfo | None) -> list[Row]:
    """The rows of a batch, named by its columns. Raises FileFormatError where a time is finer than a microsecond."""
    template = Row(*batch.schema.names)
    given = [
        _python_values(column, name) for column, name in zip(batch.columns, batch.schema.names, strict=True)
    ]
    if row_type is None:
        return [template(*values) for values in zip(*given, strict=True)]
    readers = [_value_of_arrow(field) for field in row_type.get_field_types()]
    columns = [[read(value) for value in values] for read, values in zip(readers, given, strict=True)]
    return [template(*values) for values in zip(*columns, strict=True)]


def _python_values(column: pa.Array, name: str) -> list[Any]:
    """The values, of Python's own types whether pandas is installed or not."""
    kind = in_microseconds(column.type)
    if kind != column.type:
        try:
            column = column.cast(kind)
        except pa.ArrowInvalid as error:
            raise FileFormatError(
                f"column {name!r} of type {column.type}: Python's times have no nanoseconds, so rows would"
                f" lose digits; read the file as columns (columnar=True): {error}"
            ) from error
    return column.to_pylist()  # type: ignore[no-any-return]


def _value_of_arrow(type_info: TypeInformation) -> Callable[[Any], Any]:
    """Return a function that turns Arrow's Python value of a column into the value of its declared type."""
    if isinstance(type_info, RowTypeInfo):
        names = type_info.get_field_names()
        readers = [_value_of_arrow(field) for field in type_info.get_field_types()]
        template = Row(*names) if type_info.is_named else None

        def read_row(value: Any) -> Any:
            if value is None:
                return None
            parts = [read(value[name]) for name, read in zip(names, readers, strict=True)]
            return positional_row(parts) if template is None else template(*parts)

        return read_row
    if isinstance(type_info, MapTypeInfo):
        read_item = _value_of_arrow(type_info.value_type_info)
        return lambda value: None if value is None else {key: read_item(item) for key, item in value}
    element = getattr(type_info, "element_type", None)
    if isinstance(element, RowTypeInfo | MapTypeInfo):
        read_element = _value_of_arrow(element)
        return lambda value: None if value is None else [read_element(item) for item in value]
    return lambda value: value
