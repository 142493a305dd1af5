"""Values of states as cells of a column whose Arrow type is given: by the savepoint, or by whoever reads it.

Owner: a task's thread; pure. It must not know states.
"""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from yarrow.common.types import Row, own_names
from yarrow.runtime.data.key_classes import RowKey
from yarrow.state_processor.errors import StateProcessorError
from yarrow.state_processor.shapes import row_values
from yarrow.state_processor.table_cells import is_list

_types = pa.types
Convert = Callable[[Any], Any]
#: Microseconds of Arrow's units that are coarser.
_COARSE: Final = {"s": 1_000_000, "ms": 1_000}
_MISFITS = (pa.ArrowException, TypeError, ValueError, ArithmeticError, AttributeError)


def cells(values: list[Any], kind: pa.DataType, what: str) -> pa.Array:
    """A column of that type. Raises StateProcessorError, naming `what`, for values that it does not hold exactly.

    Floats and decimals round to a float column, as everywhere.
    """
    if not _types.is_nested(kind):
        try:
            if not _may_cut(kind):
                return pa.array(values, kind)
            own = pa.array(values)
            if own.type == kind or (_types.is_integer(own.type) and _types.is_integer(kind)):
                return own.cast(kind)
        except _MISFITS:
            pass  # values that are no cells as they are: enums, bool as 0 and 1
    try:
        convert = _converter(kind)
        return pa.array([None if value is None else convert(value) for value in values], kind)
    except _MISFITS as error:
        raise StateProcessorError(
            f"{what}: its values do not fit a column of {kind}: {error}. Give a schema that they fit, or none."
        ) from error


def _may_cut(kind: pa.DataType) -> bool:
    """Whether Arrow cuts values to that type without a word: it takes 1.7 as 1, and a time with less of a second."""
    return bool(
        _types.is_integer(kind) or _types.is_boolean(kind) or _types.is_date(kind) or _ticks(kind) is not None
    )


def _ticks(kind: pa.DataType) -> int | None:
    """Microseconds of a unit that is coarser than Python's own; None for other types."""
    if _types.is_timestamp(kind) or _types.is_time(kind) or _types.is_duration(kind):
        return _COARSE.get(kind.unit)
    return None


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
        return _truth
    if _types.is_integer(kind):
        return _whole
    if _types.is_date(kind):
        return _day
    ticks = _ticks(kind)
    if ticks is not None:
        return lambda value: _in_ticks(value, ticks, kind)
    if _types.is_binary(kind) or _types.is_large_binary(kind):
        return _bytes
    if _types.is_decimal(kind):
        return Decimal
    return _own


def _own(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _truth(value: Any) -> bool:
    value = _own(value)
    if isinstance(value, bool | float | int | Decimal) and value in (0, 1):
        return bool(value)
    raise ValueError(f"{value!r} is neither true nor false")


def _whole(value: Any) -> Any:
    value = _own(value)
    if not isinstance(value, float | Decimal):
        return value
    whole = int(value)
    if whole != value:
        raise ValueError(f"{value!r} is no whole number")
    return whole


def _bytes(value: Any) -> bytes:
    # Not bytes(value): of a number it is so many zeros.
    return bytes(memoryview(value))


def _day(value: Any) -> Any:
    if isinstance(value, dt.datetime) and value.time() != dt.time():
        raise ValueError(f"{value!r} is a time within a day")
    return value


def _in_ticks(value: Any, ticks: int, kind: pa.DataType) -> Any:
    part = value.microseconds if isinstance(value, dt.timedelta) else getattr(value, "microsecond", 0)
    if part % ticks:
        raise ValueError(f"{value!r} is finer than {kind}")
    return value


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
    """A value that Spark has no column for: the usual text of its kind, else as SavepointReader shows it."""
    match value:
        case enum.Enum():
            return value.name
        case str():
            return value
        case dt.time():
            return value.isoformat()
        case Decimal() | uuid.UUID():
            return str(value)
        case _:
            return repr(value)
