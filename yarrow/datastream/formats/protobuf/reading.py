"""Protobuf messages become rows: one function for each field, made once.

Owner: the task's thread; pure. Readers raise ValueError that names the field. Must not write messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

from yarrow.common.time import Instant
from yarrow.common.typeinfo import MapTypeInfo, RowTypeInfo, TypeInformation
from yarrow.common.types import Row, row_of
from yarrow.datastream.formats.protobuf.fields import (
    BYTES,
    ENUM,
    RANGES,
    TIMESTAMP,
    WRAPPERS,
    collection_misfit,
    fitting_tags,
    is_map,
    is_message,
    is_repeated,
    misfit,
)
from yarrow.datastream.formats.protobuf.message_type import protobuf_library
from yarrow.runtime.common.errors import InvalidProgramError

_EPOCH = datetime(1970, 1, 1)
_MOST_LONG = 2**63 - 1


def row_reader(descriptor: Any, row_type: RowTypeInfo) -> Callable[[Any], Row]:
    """Return a function from a message to a Row of this type.

    An absent field is None if the message tells absent from default. Raises InvalidProgramError for a type that does
    not fit the message.
    """
    names = tuple(row_type.get_field_names())
    fields = [field_of(descriptor, name) for name in names]
    parts = [
        (place, read)
        for place, (field, declared) in enumerate(zip(fields, row_type.get_field_types(), strict=True))
        if (read := _field_reader(field, declared)) is not None
    ]
    values_of = _values_getter(names)
    check = _unknown_numbers_refused(fields)

    def read_row(message: Any) -> Row:
        if check is not None:
            check(message)
        values = list(values_of(message))
        for place, reader in parts:
            values[place] = reader(message, values[place])
        return row_of(names, values)

    return read_row


def _has_closed_enum(field: Any) -> bool:
    """Whether a field holds values of an enum of proto2, or a map has such values."""
    part = field.message_type.fields_by_name["value"] if is_map(field) else field
    return bool(part.type == ENUM and part.enum_type.is_closed)


def _unknown_numbers_refused(fields: Iterable[Any]) -> Callable[[Any], None] | None:
    """A function that raises ValueError for a message with a number that a closed enum does not know; None = no need.

    The library keeps such numbers apart (https://protobuf.dev/programming-guides/enum/), so that a field would be
    without its value, and a list shorter.
    """
    closed = {field.number: field for field in fields if _has_closed_enum(field)}
    if not closed:
        return None
    unknown_of = protobuf_library("unknown_fields").UnknownFieldSet

    def check(message: Any) -> None:
        for unknown in unknown_of(message):
            field = closed.get(unknown.field_number)
            if field is not None:
                what = "an entry" if is_map(field) else str(unknown.data)
                raise ValueError(
                    f"field {field.name!r}: its enum has no value for {what}. Read with a newer descriptor"
                )

    return check


def _values_getter(names: tuple[str, ...]) -> Callable[[Any], Sequence[Any]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda message: [getattr(message, name) for name in names]


def field_of(descriptor: Any, name: str) -> Any:
    """Return the field of a message. Raises InvalidProgramError where it has none of this name."""
    field = descriptor.fields_by_name.get(name)
    if field is None:
        known = [field.name for field in descriptor.fields]
        raise InvalidProgramError(f"the message {descriptor.full_name} has no field {name!r}; it has {known}")
    return field


def _field_reader(field: Any, declared: TypeInformation) -> Callable[[Any, Any], Any] | None:
    """A function from a message and what its field holds; None = that is the value."""
    name = field.name
    read = _part_reader(field, declared)
    has_presence = field.has_presence
    if read is None:
        return (lambda message, value: value if message.HasField(name) else None) if has_presence else None

    def read_field(message: Any, value: Any) -> Any:
        if has_presence and not message.HasField(name):
            return None
        try:
            return read(value)
        except ValueError as error:
            raise ValueError(f"field {name!r}: {error}") from None

    return read_field


def _part_reader(field: Any, declared: TypeInformation) -> Callable[[Any], Any] | None:
    """The reader of what a field holds; None = the value is taken as it is."""
    if is_map(field):
        if not isinstance(declared, MapTypeInfo):
            raise collection_misfit(field, declared)
        entry = field.message_type.fields_by_name
        key = _value_reader(entry["key"], declared.key_type_info) or _as_it_is
        item = _value_reader(entry["value"], declared.value_type_info) or _as_it_is
        return lambda value: {key(name): item(part) for name, part in value.items()}
    if is_repeated(field):
        element = getattr(declared, "element_type", None)
        if element is None or declared.python_type is not list:
            raise collection_misfit(field, declared)
        read = _value_reader(field, element)
        return list if read is None else lambda value: [read(part) for part in value]
    return _value_reader(field, declared)


def _as_it_is(value: Any) -> Any:
    return value


def _value_reader(field: Any, declared: TypeInformation) -> Callable[[Any], Any] | None:
    """The reader of one value; None = the value is taken as it is."""
    if is_message(field):
        return _message_reader(field, declared)
    tag = getattr(declared, "tag", None)
    if field.type == BYTES:
        if declared.python_type is not bytes:
            raise misfit(field, declared)
        return None
    if tag not in fitting_tags(field):
        if tag == "LONG" and field.type in RANGES:
            return _long
        raise misfit(field, declared)
    if field.type == ENUM:
        return None if tag == "INT" else _enum_reader(field.enum_type)
    return None


def _long(value: int) -> int:
    if value > _MOST_LONG:
        raise ValueError(f"{value} is no LONG; declare Types.BIG_INT()")
    return value


def _enum_reader(enum_type: Any) -> Callable[[int], str]:
    names: dict[int, str] = {number: value.name for number, value in enum_type.values_by_number.items()}

    def read(number: int) -> str:
        name = names.get(number)
        if name is None:
            raise ValueError(
                f"{number} is no value of the enum {enum_type.full_name}; declare Types.INT() to keep unknown numbers"
            )
        return name

    return read


def _message_reader(field: Any, declared: TypeInformation) -> Callable[[Any], Any]:
    inner = field.message_type
    if isinstance(declared, RowTypeInfo):
        return row_reader(inner, declared)
    if inner.full_name == TIMESTAMP:
        reader = {"INSTANT": _instant, "SQL_TIMESTAMP": _date_time}.get(getattr(declared, "tag", ""))
        if reader is not None:
            return reader
    if inner.full_name in WRAPPERS:
        read = _value_reader(inner.fields_by_name["value"], declared) or _as_it_is
        return lambda message: read(message.value)
    raise misfit(field, declared)


def _instant(stamp: Any) -> Instant:
    return Instant(stamp.seconds, stamp.nanos)


def _date_time(stamp: Any) -> datetime:
    micros, rest = divmod(stamp.nanos, 1000)
    if rest or not 0 <= micros < 1_000_000:
        raise ValueError(f"{stamp.nanos} nanoseconds are no whole microseconds; declare Types.INSTANT()")
    try:
        return _EPOCH + timedelta(seconds=stamp.seconds, microseconds=micros)
    except OverflowError:
        raise ValueError(f"{stamp.seconds} s since 1970 lie outside the years 1 to 9999") from None
