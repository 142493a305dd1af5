"""Rows become Protobuf messages: one function for each field, made once.

Owner: the task's thread; pure. Writers raise ValueError that names the field of a value that does not fit: nothing is
rounded or cut but a float to 32 bits. Must not read messages.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from yarrow.common.time import Instant
from yarrow.common.typeinfo import MapTypeInfo, RowTypeInfo, TypeInformation
from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.datastream.formats.protobuf.fields import (
    BOOL,
    BYTES,
    DOUBLE,
    ENUM,
    FLOAT,
    RANGES,
    STRING,
    TIMESTAMP,
    WRAPPERS,
    is_map,
    is_message,
    is_repeated,
)
from yarrow.datastream.formats.row_fields import values_in_order

_EPOCH = datetime(1970, 1, 1)
_SECOND = timedelta(seconds=1)
_FLOAT_BYTES = struct.Struct("<f")

#: Fills a message from a value.
Fill = Callable[[Any, Any], None]


def row_writer(descriptor: Any, row_type: RowTypeInfo) -> Fill:
    """Return a function that fills a message from a Row of this type, which a reader has found to fit the message.

    None leaves a field out. Of the fields of a oneof at most one may have a value.
    """
    names = tuple(row_type.get_field_names())
    fills = [
        (name, _field_writer(descriptor.fields_by_name[name], declared))
        for name, declared in zip(names, row_type.get_field_types(), strict=True)
    ]
    choices = _choices(descriptor, names)

    def fill(message: Any, row: Any) -> None:
        try:
            values = values_in_order(row, names)
        except FileFormatError as error:
            raise ValueError(str(error)) from None
        if len(values) != len(names):
            raise ValueError(f"{row!r} has {len(values)} fields, the declared type {len(names)}")
        for oneof, places in choices:
            chosen = [names[place] for place in places if values[place] is not None]
            if len(chosen) > 1:
                raise ValueError(f"of the oneof {oneof!r} one field may have a value, not {chosen}")
        for (name, put), value in zip(fills, values, strict=True):
            if value is not None:
                try:
                    put(message, value)
                except ValueError as error:
                    raise ValueError(f"field {name!r}: {error}") from None

    return fill


def _choices(descriptor: Any, names: Sequence[str]) -> list[tuple[str, list[int]]]:
    """The oneofs of a message, each with the positions of its fields in a row. `optional` is a oneof of one field."""
    found = [
        (oneof.name, [names.index(field.name) for field in oneof.fields if field.name in names])
        for oneof in descriptor.oneofs
    ]
    return [(name, places) for name, places in found if len(places) > 1]


def _field_writer(field: Any, declared: TypeInformation) -> Fill:
    name = field.name
    if is_map(field):
        return _map_writer(field, declared)
    if is_repeated(field):
        return _list_writer(field, declared)
    if is_message(field):
        fill = _message_filler(field, declared)

        def put_message(message: Any, value: Any) -> None:
            part = getattr(message, name)
            part.SetInParent()
            fill(part, value)

        return put_message
    convert = _converter(field)
    return lambda message, value: setattr(message, name, convert(value))


def _list_writer(field: Any, declared: TypeInformation) -> Fill:
    name = field.name
    if is_message(field):
        fill = _message_filler(field, declared.element_type)  # type: ignore[attr-defined]

        def put_messages(message: Any, values: Any) -> None:
            parts = getattr(message, name)
            for value in _elements(values):
                fill(parts.add(), value)

        return put_messages
    convert = _converter(field)
    return lambda message, values: getattr(message, name).extend(
        [convert(part) for part in _elements(values)]
    )


def _elements(values: Any) -> Sequence[Any]:
    if not isinstance(values, list | tuple):
        raise ValueError(f"a list is expected, not {values!r}")
    if any(value is None for value in values):
        raise ValueError("a list of a message cannot hold None")
    return values


def _map_writer(field: Any, declared: TypeInformation) -> Fill:
    name, entry = field.name, field.message_type.fields_by_name
    key = _converter(entry["key"])
    item = entry["value"]
    if is_message(item):
        assert isinstance(declared, MapTypeInfo)  # A reader has been made of the same type.
        fill = _message_filler(item, declared.value_type_info)

        def put_messages(message: Any, values: Any) -> None:
            parts = getattr(message, name)
            for place, value in _entries(values):
                fill(parts[key(place)], value)

        return put_messages
    convert = _converter(item)

    def put(message: Any, values: Any) -> None:
        parts = getattr(message, name)
        for place, value in _entries(values):
            parts[key(place)] = convert(value)

    return put


def _entries(values: Any) -> list[tuple[Any, Any]]:
    if not isinstance(values, dict):
        raise ValueError(f"a dict is expected, not {values!r}")
    if any(value is None for value in values.values()):
        raise ValueError("a map of a message cannot hold None")
    return list(values.items())


def _message_filler(field: Any, declared: TypeInformation) -> Fill:
    inner = field.message_type
    if isinstance(declared, RowTypeInfo):
        return row_writer(inner, declared)
    if inner.full_name in WRAPPERS:
        convert = _converter(inner.fields_by_name["value"])
        return lambda message, value: setattr(message, "value", convert(value))
    assert inner.full_name == TIMESTAMP  # A reader has been made of the same type.
    return _fill_timestamp


def _fill_timestamp(stamp: Any, value: Any) -> None:
    if isinstance(value, Instant):
        stamp.seconds, stamp.nanos = value.seconds, value.nanos
        return
    if not isinstance(value, datetime):
        raise ValueError(f"an Instant or a datetime is expected, not {value!r}")
    local = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    seconds, rest = divmod(local - _EPOCH, _SECOND)
    stamp.seconds, stamp.nanos = seconds, rest.microseconds * 1000


def _converter(field: Any) -> Callable[[Any], Any]:
    """A function that checks one value and returns what the library takes. It raises ValueError."""
    if field.type in RANGES:
        return _whole_number(*RANGES[field.type])
    if field.type == ENUM:
        return _enum_number(field.enum_type)
    return {
        BOOL: _of(bool, "a boolean"),
        STRING: _text,
        BYTES: _of(bytes, "bytes"),
        DOUBLE: _double,
        FLOAT: _float,
    }[field.type]


def _of(kind: type, expected: str) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError(f"{expected} is expected, not {value!r}")
        return value

    return convert


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"a text is expected, not {value!r}")
    value.encode()  # A lone surrogate has no UTF-8, and UnicodeEncodeError is a ValueError.
    return value


def _double(value: Any) -> float:
    if type(value) is int and abs(value) <= 2**53:
        return float(value)
    if type(value) is not float:
        raise ValueError(f"a float is expected, not {value!r}")
    return value


def _float(value: Any) -> float:
    number = _double(value)
    try:
        _FLOAT_BYTES.pack(number)
    except OverflowError:
        raise ValueError(f"{value!r} is too large for a float of 32 bits") from None
    return number


def _whole_number(least: int, most: int) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"a whole number from {least} to {most} is expected, not {value!r}")
        return value

    return convert


def _enum_number(enum_type: Any) -> Callable[[Any], int]:
    numbers: dict[str, int] = {name: value.number for name, value in enum_type.values_by_name.items()}
    whole_number = _whole_number(-(2**31), 2**31 - 1)
    is_closed = bool(getattr(enum_type, "is_closed", True))

    def convert(value: Any) -> int:
        if isinstance(value, str):
            number = numbers.get(value)
            if number is None:
                raise ValueError(f"{value!r} is no value of the enum {enum_type.full_name}: {list(numbers)}")
            return number
        number = whole_number(value)
        if is_closed and number not in enum_type.values_by_number:
            raise ValueError(f"{number} is no value of the enum {enum_type.full_name}")
        return number

    return convert
