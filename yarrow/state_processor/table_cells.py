"""Cells of Arrow columns as values of states: by a declared type where there is one, by the column's own otherwise.

Owner: the calling thread; pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pyarrow as pa

from yarrow.common.typeinfo import BasicTypeInfo, TypeInformation
from yarrow.common.types import Row
from yarrow.runtime.data.arrow_types import in_microseconds
from yarrow.runtime.data.map_keys import map_key as in_dict
from yarrow.runtime.snapshot.handles import StateKind
from yarrow.state_processor.errors import StateProcessorError
from yarrow.state_processor.keyed_tables import ACCESS_TYPE
from yarrow.state_processor.keyed_writing import KeyedTarget
from yarrow.state_processor.shapes import Shape, declared_shape, list_shape, map_shape, row_of

#: A pa.Array or pa.ChunkedArray.
Column = Any


def column_of(table: pa.Table, name: str, what: str) -> pa.ChunkedArray:
    """A column by name. Raises StateProcessorError naming the present columns."""
    if name not in table.column_names:
        raise StateProcessorError(f"{what}: the table has no column '{name}', only {table.column_names}")
    return table.column(name)


def contents_of(column: Column, target: KeyedTarget, what: str) -> list[Any]:
    """The contents of a state's column of values.

    A list state takes a column of lists, or of single elements. Raises StateProcessorError for a column of another
    type.
    """
    value = declared_shape(target.value_type)
    kind = target.kind
    if kind is StateKind.MAP:
        if not (pa.types.is_map(column.type) or pa.types.is_struct(column.type)):
            raise StateProcessorError(f"{what}: map state takes a column of maps, not of {column.type}")
        map_key = None if target.map_key_type is None else declared_shape(target.map_key_type)
        shape = None if value is None or map_key is None else map_shape(map_key, value)
        return values_of(column, shape, None, what)
    if kind is StateKind.LIST:
        if is_list(column.type):
            return values_of(column, None if value is None else list_shape(value), None, what)
        elements = values_of(column, value, target.value_type, what)
        return [None if element is None else [element] for element in elements]
    return values_of(column, value, target.value_type, what)


def values_of(column: Column, shape: Shape | None, declared: TypeInformation | None, what: str) -> list[Any]:
    """The values of a column; `shape` None: by the column's own type."""
    if shape is None:
        convert = _plain(column.type)
        if isinstance(declared, BasicTypeInfo) and declared.tag == "BIG_INT":
            convert = int
        elif isinstance(declared, BasicTypeInfo) and declared.tag == "BIG_DEC":
            convert = Decimal
        return [None if cell is None else convert(cell) for cell in _python_cells(column, what)]
    column = cast_to(column, shape.type, what)
    with decoding(what):
        return shape.values(column)


def cast_to(column: Column, kind: pa.DataType, what: str) -> Column:
    """The column as one of that type. Raises StateProcessorError naming both types."""
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except pa.ArrowException as error:
        raise StateProcessorError(
            f"{what}: a column of {column.type} is no column of {kind}: {error}"
        ) from error


def _python_cells(column: Column, what: str) -> list[Any]:
    """The cells as Python's own values, with pandas and without it. Raises StateProcessorError for finer times."""
    kind = in_microseconds(column.type)
    if kind != column.type:
        try:
            column = column.cast(kind)
        except pa.ArrowInvalid as error:
            raise StateProcessorError(
                f"{what}: Python's times have no nanoseconds, so values of {column.type} would lose some; round them "
                f"to microseconds before (pyarrow.compute.round_temporal): {error}"
            ) from error
    with decoding(what):
        cells: list[Any] = column.to_pylist()
    return cells


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """Raises StateProcessorError for a text of other bytes than UTF-8, which Arrow may hold."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise StateProcessorError(
            f"{what}: a text holds bytes that are no UTF-8 ({error}); decode them before, or keep them as binary"
        ) from error


def changed_keys(column: Column, what: str, shape: Shape, key_type: TypeInformation | None) -> list[Any]:
    """Keys that a function made from keys of that shape; `key_type` says that they are others.

    Raises StateProcessorError for keys that were texts of several kinds: the job would look for none of these texts.
    """
    if not shape.reversible and key_type is None:
        raise StateProcessorError(
            f"{what}: its keys are of several kinds. In the table they are texts, which cannot be made keys again: "
            "give key_type, the type of the keys that the function makes"
        )
    return keys_of(column, what, shape)


def keys_of(column: Column, what: str, shape: Shape | None = None) -> list[Any]:
    """Keys of a column, by the shape of the keys that were read, if the column still has its type.

    Otherwise structs with fields f0, f1, ... are tuples, and other structs are Rows. `what` is for errors.
    """
    if shape is not None and shape.reversible and column.type == shape.type:
        with decoding(what):
            return shape.values(column)
    convert = _plain(column.type)
    return [None if cell is None else _key(convert(cell)) for cell in _python_cells(column, what)]


def _key(value: Any) -> Any:
    if isinstance(value, dict):
        parts = [_key(part) for part in value.values()]
        names = list(value)
        return tuple(parts) if names == [f"f{i}" for i in range(len(names))] else row_of(names, parts)
    return value


def access_times_of(column: Column, kind: StateKind, map_key: Shape | None) -> list[Any]:
    """Times of last access in ms, formed as the contents are."""
    stamp = Shape(pa.int64())
    if kind is StateKind.LIST:
        return list_shape(stamp).values(column.cast(pa.list_(ACCESS_TYPE)).cast(pa.list_(pa.int64())))
    if kind is StateKind.MAP:
        key = map_key or Shape(column.type.key_type)
        cells = _python_cells(column, "times of access")
        read = key.from_cell or (lambda cell: cell)
        return [None if cell is None else {in_dict(read(k)): _ms(v) for k, v in cell} for cell in cells]
    return [_ms(cell) for cell in _python_cells(column, "times of access")]


def _ms(cell: Any) -> int | None:
    return None if cell is None else round(cell.timestamp() * 1000)


def rows_of(table: pa.Table) -> list[Any]:
    """Rows of a table for functions: Rows with the columns' names, structs within them too."""
    names = table.column_names
    columns = [
        [None if cell is None else convert(cell) for cell in _python_cells(column, f"column '{name}'")]
        for name, column, convert in (
            (name, column, _plain(column.type)) for name, column in zip(names, table.columns, strict=True)
        )
    ]
    return [row_of(names, list(values)) for values in zip(*columns, strict=True)] if columns else []


def field_of(row: Any, name: str) -> Any:
    """A field of a Row, a dict or an object."""
    if isinstance(row, Row | dict):
        return row[name]
    return getattr(row, name)


def is_list(kind: pa.DataType) -> bool:
    """Whether cells of the type are lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _plain(kind: pa.DataType) -> Callable[[Any], Any]:
    """Makes values of cells as `to_pylist` gives them: dicts of maps, dicts of structs."""
    if pa.types.is_map(kind):
        key, item = _plain(kind.key_type), _plain(kind.item_type)
        return lambda cell: {key(k): None if v is None else item(v) for k, v in cell}
    if is_list(kind):
        element = _plain(kind.value_type)
        return lambda cell: [None if each is None else element(each) for each in cell]
    if pa.types.is_struct(kind):
        fields = {field.name: _plain(field.type) for field in kind}
        return lambda cell: {
            name: None if cell[name] is None else convert(cell[name]) for name, convert in fields.items()
        }
    return lambda cell: cell
