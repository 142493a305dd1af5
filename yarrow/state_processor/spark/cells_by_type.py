"""Values of states as cells of a column whose Arrow type is given: by the savepoint, or by whoever reads it.

Owner: a task's thread; pure. It must not know states.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from yarrow.common.types import Row, own_names
from yarrow.runtime.data.key_classes import RowKey
from yarrow.state_processor.errors import StateProcessorError
from yarrow.state_processor.shapes import row_values
from yarrow.state_processor.table_cells import is_list

_types = pa.types
Convert = Callable[[Any], Any]
_MISFITS = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)


def cells(values: list[Any], kind: pa.DataType, what: str) -> pa.Array:
    """A column of that type. Raises StateProcessorError, naming `what`, for values of another shape."""
    if not _types.is_nested(kind):
        try:
            return pa.array(values, kind)
        except _MISFITS:
            pass  # values that are no cells as they are: enums, bool as 0 and 1
    try:
        convert = _converter(kind)
        return pa.array([None if value is None else convert(value) for value in values], kind)
    except _MISFITS as error:
        raise StateProcessorError(
            f"{what}: its values do not fit a column of {kind}: {error}. Give a schema that they fit, or none."
        ) from error


def _converter(kind: pa.DataType) -> Convert:
    """Makes a cell of a value that is not None."""
    if _types.is_struct(kind):
        return _struct(kind)
    if _types.is_map(kind):
        key, item = _nullable(kind.key_type), _nullable(kind.item_type)
        return lambda value: [(key(k), item(v)) for k, v in value.items()]
    if is_list(kind):
        element = _nullable(kind.value_type)
        return lambda value: [
            element(item) for item in (value.tolist() if isinstance(value, np.ndarray) else value)
        ]
    if _types.is_string(kind) or _types.is_large_string(kind):
        return _text
    if _types.is_boolean(kind):
        return bool
    if _types.is_binary(kind) or _types.is_large_binary(kind):
        return bytes
    if _types.is_decimal(kind):
        return Decimal
    return lambda value: value.item() if isinstance(value, np.generic) else value


def _nullable(kind: pa.DataType) -> Convert:
    convert = _converter(kind)
    return lambda value: None if value is None else convert(value)


def _struct(kind: pa.DataType) -> Convert:
    names = [field.name for field in kind]
    fields = list(zip(names, [_nullable(field.type) for field in kind], strict=True))

    def converted(value: Any) -> dict[str, Any]:
        found = _by_name(value, names)
        return {name: convert(found.get(name)) for name, convert in fields}

    return converted


def _by_name(value: Any, names: list[str]) -> Mapping[str, Any]:
    """The fields of a value; those of a tuple or a Row without names have the names of the column in their order."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, Row | RowKey):
        own = own_names(value) if isinstance(value, Row) else value.names
        return dict(zip(own or names, row_values(value), strict=False))
    if isinstance(value, tuple):
        return dict(zip(getattr(value, "_fields", names), value, strict=False))
    return {name: getattr(value, name, None) for name in names}


def _text(value: Any) -> str:
    """A value as SavepointReader shows it where there is no other column for it."""
    if isinstance(value, enum.Enum):
        return value.name
    return (
        value if isinstance(value, str) else str(value) if type(value).__module__ == "uuid" else repr(value)
    )
