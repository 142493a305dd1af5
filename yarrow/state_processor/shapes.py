"""Shapes: the Arrow type of a state's values, and the conversion between values and cells.

A declared type gives its shape at once. Values of no declared type, and decimals, are looked at first
(`ObservedTypes`), all of them, so that every batch of a table has one schema.
Owner: the calling thread. It must not know states or files.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from yarrow.common.typeinfo import (
    BasicTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    SqlTimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from yarrow.common.types import Row
from yarrow.runtime.data.arrow_types import NoArrowTypeError, arrow_type
from yarrow.runtime.data.key_classes import RowKey
from yarrow.runtime.data.map_keys import map_key

Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of one column. None as a conversion: the value is the cell."""

    type: pa.DataType
    to_cell: Convert | None = None
    from_cell: Convert | None = None
    #: False where cells are texts of values of several kinds: they cannot be made values again.
    reversible: bool = True

    def array(self, values: list[Any]) -> pa.Array:
        """The values as a column. Raises pyarrow.ArrowInvalid for values of another shape."""
        to_cell = self.to_cell
        cells = values if to_cell is None else [None if v is None else to_cell(v) for v in values]
        return pa.array(cells, self.type)

    def values(self, column: pa.Array | pa.ChunkedArray) -> list[Any]:
        """The values of a column of this type."""
        cells: list[Any] = column.to_pylist()
        from_cell = self.from_cell
        return cells if from_cell is None else [None if c is None else from_cell(c) for c in cells]


def _same(value: Any) -> Any:
    return value


def _each(convert: Convert | None) -> Convert:
    """The conversion with None left alone."""
    if convert is None:
        return _same
    return lambda value: None if value is None else convert(value)


def list_shape(element: Shape, container: type = list) -> Shape:
    """A list of values of one shape."""
    to_element, from_element = _each(element.to_cell), _each(element.from_cell)
    plain = element.to_cell is None and container is list
    return Shape(
        pa.list_(element.type),
        None if plain else lambda value: [to_element(item) for item in value],
        None
        if element.from_cell is None and container is list
        else lambda cell: container([from_element(item) for item in cell]),
        element.reversible,
    )


def map_shape(key: Shape, value: Shape, container: Callable[..., Any] = dict) -> Shape:
    """A dict whose keys have one shape and whose values have one."""
    # Without `_each`: a key that is None has a text, or none of the keys is.
    to_key, to_value = key.to_cell or _same, _each(value.to_cell)
    from_key, from_value = _each(key.from_cell), _each(value.from_cell)
    return Shape(
        pa.map_(key.type, value.type),
        lambda found: [(to_key(k), to_value(v)) for k, v in found.items()],
        lambda cell: container({map_key(from_key(k)): from_value(v) for k, v in cell}),
        key.reversible and value.reversible,
    )


def struct_shape(
    names: list[str],
    shapes: list[Shape],
    take: Callable[[Any], list[Any]],
    make: Callable[[list[Any]], Any],
) -> Shape:
    """A value with fields: `take` gives them in the order of `names`, `make` a value of them."""
    to_cells = [_each(shape.to_cell) for shape in shapes]
    from_cells = [_each(shape.from_cell) for shape in shapes]

    def to_cell(value: Any) -> dict[str, Any]:
        fields = take(value)
        return {name: to(field) for name, to, field in zip(names, to_cells, fields, strict=True)}

    def from_cell(cell: dict[str, Any]) -> Any:
        return make([from_(cell.get(name)) for name, from_ in zip(names, from_cells, strict=True)])

    fields = [pa.field(name, shape.type) for name, shape in zip(names, shapes, strict=True)]
    return Shape(pa.struct(fields), to_cell, from_cell, all(shape.reversible for shape in shapes))


def row_of(names: list[str] | None, values: list[Any]) -> Row:
    """A Row with these fields."""
    row = Row(*values)
    if names is not None:
        row.set_field_names(names)
    return row


def row_values(row: Any) -> list[Any]:
    """The fields of a Row, be it in its form for dicts."""
    return list(row.values) if row.__class__ is RowKey else list(row)


def positions(count: int) -> list[str]:
    """Names of fields that have none: f0, f1, ..."""
    return [f"f{place}" for place in range(count)]


# ---------------------------------------------------------------------- declared types

_TEXT: Final = Shape(pa.string())


def declared_shape(declared: TypeInformation | None) -> Shape | None:
    """The shape of a declared type; None where the values must be looked at (no type, decimals, big integers)."""
    match declared:
        case RowTypeInfo():
            shapes = _all(declared.get_field_types())
            if shapes is None:
                return None
            names = declared.get_field_names()
            own = names if declared.is_named else None
            return struct_shape(names, shapes, row_values, lambda values: row_of(own, values))
        case TupleTypeInfo():
            shapes = _all(declared.get_field_types())
            return None if shapes is None else struct_shape(positions(len(shapes)), shapes, list, tuple)
        case MapTypeInfo():
            parts = _all([declared.key_type_info, declared.value_type_info])
            return None if parts is None else map_shape(parts[0], parts[1])
        case BasicTypeInfo() | SqlTimeTypeInfo():
            return _leaf(declared)
    element = getattr(declared, "element_type", None)
    if isinstance(element, TypeInformation) and declared is not None:
        if declared.python_type is bytes:
            return Shape(pa.binary())
        found = declared_shape(element)
        return None if found is None else list_shape(found)
    return None


def _all(types: list[TypeInformation]) -> list[Shape] | None:
    found = [declared_shape(each) for each in types]
    kept = [shape for shape in found if shape is not None]
    return kept if len(kept) == len(found) else None


def _leaf(declared: TypeInformation) -> Shape | None:
    try:
        return Shape(arrow_type(declared, "", {}))
    except NoArrowTypeError:
        return None


# ---------------------------------------------------------------------- leaves

_MOST_DIGITS: Final = 76


def decimal_shape(integer_digits: int, scale: int) -> Shape | None:
    """The shape of decimals with so many digits before and behind the point; None for more than Arrow has."""
    precision = max(1, integer_digits + scale)
    if precision > _MOST_DIGITS:
        return None
    kind = pa.decimal128 if precision <= 38 else pa.decimal256
    return Shape(kind(precision, scale))


def integer_shape(least: int, most: int) -> Shape | None:
    """Whole numbers in that range."""
    if least >= -(2**63) and most < 2**63:
        return Shape(pa.int64())
    found = decimal_shape(max(len(str(abs(least))), len(str(abs(most)))), 0)
    return None if found is None else Shape(found.type, Decimal, int)


def text_shape(write: Convert, read: Convert | None) -> Shape:
    """Values that are shown as texts; `read` None: which are not made values again."""
    return Shape(pa.string(), write, read, read is not None)


SIMPLE: Final[dict[str, Shape]] = {
    "bool": Shape(pa.bool_()),
    "float": Shape(pa.float64()),
    "str": _TEXT,
    "bytes": Shape(pa.binary()),
    "bytearray": Shape(pa.binary(), bytes, bytearray),
    "date": Shape(pa.date32()),
    "time": Shape(pa.time64("us")),
    "datetime": Shape(pa.timestamp("us")),
    "instant": Shape(pa.timestamp("us", "UTC"), lambda value: value.astimezone(dt.UTC)),
    "timedelta": Shape(pa.duration("us")),
    "null": Shape(pa.null()),
}
