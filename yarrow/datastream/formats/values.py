"""Values of declared types in text fields and in JSON.

Owner: the calling thread; no state. Readers raise ValueError with the expected form; their callers add the place.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from math import isfinite
from numbers import Integral, Real
from typing import Any

import msgspec

from yarrow.common.typeinfo import (
    BasicTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    SqlTimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from yarrow.common.types import Row, positional_names, row_of
from yarrow.datastream.formats.row_fields import values_in_order
from yarrow.runtime.common.errors import InvalidProgramError

_TRUE = {"true", "True", "TRUE", "1"}
_FALSE = {"false", "False", "FALSE", "0"}
_FROM_ISO: dict[str, Callable[[str], Any]] = {
    # A date of XML Schema may name its zone, and Debezium's ISO texts do.
    "SQL_DATE": lambda text: date.fromisoformat(text.removesuffix("Z")),
    "SQL_TIME": time.fromisoformat,
    "SQL_TIMESTAMP": datetime.fromisoformat,
}
#: The length of the shortest time that has more digits than microseconds.
_MICROSECONDS_LENGTH = len("00:00:00.000000")
_BELOW_MICROSECONDS = re.compile(r"[.,]\d{6}\d*[1-9]")
#: Texts that stand for numbers which JSON has no form for.
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_TIMES: dict[str, Any] = {"SQL_DATE": date, "SQL_TIME": time, "SQL_TIMESTAMP": datetime}
#: Numbers that are none of Python, such as those of numpy.
_NUMBERS: dict[type, Any] = {int: Integral, float: Real}
#: Returns a value that fits, in the form that is written; raises ValueError for another one.
Check = Callable[[Any], Any]
#: Basic types whose values JSON has itself.
_JSON_TAGS = {"STRING", "CHAR", "BOOLEAN", "BYTE", "SHORT", "INT", "LONG", "BIG_INT", "FLOAT", "DOUBLE"}


def text_reader(type_info: TypeInformation) -> Callable[[str], Any]:
    """Return a function from the text of a field to a value of the type; it raises ValueError for wrong text.

    Raises InvalidProgramError for a type that has no form in text.
    """
    if isinstance(type_info, BasicTypeInfo):
        if type_info.python_type is str:
            return str
        if type_info.python_type is bool:
            return _read_boolean
        if type_info.python_type in (int, float, Decimal):
            return _number_reader(type_info)
    if isinstance(type_info, SqlTimeTypeInfo):
        return _time_reader(type_info)
    raise InvalidProgramError(f"the type {type_info} has no form in a text field; declare Types.STRING()")


def _read_boolean(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError("true or false is expected")


def _time_reader(type_info: SqlTimeTypeInfo) -> Callable[[str], Any]:
    parse = _FROM_ISO[type_info.tag]

    def read(text: str) -> Any:
        _refuse_below_microseconds(text, type_info)
        value = parse(text)
        if getattr(value, "tzinfo", None) is not None:
            # Flink's JSON format reads such texts in UTC alone.
            if value.utcoffset():
                raise ValueError(
                    f"{type_info} has no time zone, and {text!r} has one that is not UTC: write it in UTC, or declare"
                    " Types.STRING() and convert it"
                )
            value = value.replace(tzinfo=None)
        return value

    return read


def zoned_timestamp(text: str) -> datetime:
    """Return the time of an ISO text with a time zone. Raises ValueError for another text."""
    _refuse_below_microseconds(text, Types.SQL_TIMESTAMP())
    value = datetime.fromisoformat(text)
    if value.tzinfo is None:
        raise ValueError(f"a time with a time zone is expected, not {text!r}")
    return value


def _refuse_below_microseconds(text: str, type_info: TypeInformation) -> None:
    # Python's own parsers drop digits behind microseconds.
    if len(text) > _MICROSECONDS_LENGTH and _BELOW_MICROSECONDS.search(text):
        raise ValueError(f"{type_info} has microseconds; {text!r} is more precise: declare Types.STRING()")


def _number_reader(type_info: BasicTypeInfo) -> Callable[[str], Any]:
    """Return a reader of numbers, with everything looked up once, for it runs once a field."""
    parse: Callable[[str], Any] = {int: int, float: float}.get(type_info.python_type, Decimal)
    low, high = type_info.value_range or (None, None)

    def read(text: str) -> Any:
        # Python's own parsers take underscores and digits of other scripts, as no other reader of the file
        # does.
        if "_" in text or not text.isascii():
            raise ValueError(f"{type_info} is expected")
        try:
            value = parse(text)
        except (ValueError, InvalidOperation):
            raise ValueError(f"{type_info} is expected") from None
        if low is not None and high is not None and not low <= value <= high:
            raise ValueError(f"{type_info} must lie between {low} and {high}")
        return value

    return read


def json_decoder(type_info: TypeInformation, structure: Any = Any) -> Callable[[bytes], Any]:
    """Return a function from JSON text to values for `json_reader`. Decimals keep all digits where the type has them.

    `structure` is msgspec's type of the whole text. The function raises msgspec.DecodeError.
    """
    if _has_decimals(type_info):
        return msgspec.json.Decoder(structure, float_hook=Decimal).decode
    return msgspec.json.Decoder(structure).decode


def _has_decimals(type_info: TypeInformation) -> bool:
    if isinstance(type_info, RowTypeInfo | TupleTypeInfo):
        return any(map(_has_decimals, type_info.get_field_types()))
    if isinstance(type_info, MapTypeInfo):
        return _has_decimals(type_info.value_type_info)
    element = getattr(type_info, "element_type", None)
    return _has_decimals(element) if element is not None else type_info.python_type is Decimal


def json_reader(type_info: TypeInformation, from_text: bool = False) -> Callable[[Any], Any]:
    """The function that turns a decoded JSON value into a value of the type.

    With `from_text` numbers and booleans may be texts, and booleans 0 and 1. The function raises ValueError for a
    value that does not fit.
    """
    reader = _json_reader(type_info, from_text)
    return lambda value: None if value is None else reader(value)


def _json_reader(type_info: TypeInformation, from_text: bool) -> Callable[[Any], Any]:
    if isinstance(type_info, RowTypeInfo):
        return row_reader(type_info, missing_is_error=False, from_text=from_text)
    if isinstance(type_info, MapTypeInfo):
        if type_info.key_type_info.python_type is not str:
            raise InvalidProgramError(
                f"the type {type_info} has no form in JSON, whose objects have texts as keys: declare them as"
                " Types.STRING()"
            )
        item = json_reader(type_info.value_type_info, from_text)
        return lambda value: {key: item(part) for key, part in _of(dict, value, "an object").items()}
    if isinstance(type_info, TupleTypeInfo):
        readers = [json_reader(field, from_text) for field in type_info.get_field_types()]
        return lambda value: tuple(
            read(part) for read, part in zip(readers, _of(list, value, "an array"), strict=True)
        )
    element = getattr(type_info, "element_type", None)
    if element is not None and type_info.python_type is list:
        read_element = json_reader(element, from_text)
        return lambda value: [read_element(part) for part in _of(list, value, "an array")]
    if type_info.python_type is bytes:
        return lambda value: base64.b64decode(_of(str, value, "base64 text"), validate=True)
    if isinstance(type_info, SqlTimeTypeInfo) or type_info.python_type is Decimal:
        read_text = text_reader(type_info)
        return lambda value: read_text(str(value))
    if isinstance(type_info, BasicTypeInfo) and type_info.tag in _JSON_TAGS:
        return _basic_reader(type_info, from_text)
    if isinstance(type_info, PickledBytesTypeInfo):
        return lambda value: value
    raise InvalidProgramError(f"the type {type_info} has no form in JSON; declare Types.STRING() or a number")


def row_reader(
    row_type: RowTypeInfo, missing_is_error: bool, from_text: bool = False
) -> Callable[[Any], Row]:
    """Return a function that turns a JSON object into a Row; absent fields are None unless `missing_is_error`.

    `from_text` is that of `json_reader`.
    """
    names = row_type.get_field_names()
    readers = [
        (name, json_reader(field, from_text))
        for name, field in zip(names, row_type.get_field_types(), strict=True)
    ]
    row_names = tuple(names) if row_type.is_named else positional_names(len(names))

    def read_row(value: Any) -> Row:
        record = _of(dict, value, "an object")
        values: list[Any] = []
        for name, read in readers:
            part = record.get(name)
            if part is None:
                if missing_is_error and name not in record:
                    raise ValueError(f"field {name!r} is missing")
                values.append(None)
                continue
            try:
                values.append(read(part))
            except ValueError as error:
                raise ValueError(f"field {name!r}: {error}") from None
        return row_of(row_names, values)

    return read_row


def _of(kind: type, value: Any, expected: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{expected} is expected, not {value!r}")
    return value


def _basic_reader(type_info: BasicTypeInfo, from_text: bool) -> Callable[[Any], Any]:
    """Return a reader of decoded values, with everything looked up once, for it runs once a field."""
    expected = type_info.python_type
    read_text = text_reader(type_info) if from_text and expected is not str else None
    low, high = type_info.value_range or (None, None)
    one_character = type_info.tag == "CHAR"

    def read(value: Any) -> Any:
        kind = type(value)
        if kind is expected:
            if (low is None or high is None or low <= value <= high) and not (
                one_character and len(value) != 1
            ):
                return value
        elif expected is float and (kind is int or kind is Decimal or value in _NOT_FINITE):
            return float(value)
        elif read_text is not None and (kind is str or (expected is bool and kind is int)):
            return read_text(str(value))
        raise ValueError(f"{type_info} is expected, not {value!r}")

    return read


def to_json(value: Any, leaf: Callable[[Any], Any] | None = None) -> Any:
    """A value as JSON's encoder takes it: Rows as objects or arrays, times in ISO form, bytes in base64.

    Decimals are texts, and so are floats that JSON has no form for. `leaf` makes another form of times and decimals.
    """
    if leaf is None:
        leaf = _iso_text
    if isinstance(value, Row):
        names = value.get_field_names()
        parts = [to_json(part, leaf) for part in value]
        return parts if names is None else dict(zip(names, parts, strict=True))
    if isinstance(value, dict):
        return {key: to_json(part, leaf) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(part, leaf) for part in value]
    if isinstance(value, date | time | Decimal):
        return leaf(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not isfinite(value):
        return not_finite_text(value)
    return value


def _iso_text(value: Any) -> str:
    """A time in ISO form, or a decimal as text."""
    return str(value) if isinstance(value, Decimal) else str(value.isoformat())


def rfc3339_text(value: Any) -> Any:
    """A leaf of `to_json` as Flink's JsonRowSerializationSchema writes it: times with a Z, decimals as numbers.

    The reader of Flink takes no time without Z, and takes a decimal that is a text for 0.
    """
    if isinstance(value, Decimal):
        return value
    if isinstance(value, datetime) and value.tzinfo is not None:
        # A field of any type takes one of any zone.
        value = value.astimezone(UTC)
    if isinstance(value, datetime | time) and not value.utcoffset():
        return f"{value.replace(tzinfo=None).isoformat()}Z"
    return value.isoformat()


def not_finite_text(value: float) -> str:
    """The text of NaN or an infinity, as Java writes and reads it."""
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def checked(type_info: TypeInformation) -> Check:
    """Return a function that returns a value of the type, with None anywhere, and raises ValueError for another one.

    Rows become dicts of their fields. Values of types that it does not know are returned as they are.
    """
    check = _check_of(type_info)
    return lambda value: None if value is None else check(value)


def row_checked(type_info: RowTypeInfo) -> Check:
    """Return a function from a row to the dict of its fields, in the order of the type. See `values_in_order`."""
    names = tuple(type_info.get_field_names())
    checks = [checked(field) for field in type_info.get_field_types()]

    def check(row: Any) -> dict[str, Any]:
        values = values_in_order(row, names)
        if len(values) != len(names):
            raise ValueError(f"{row!r} has {len(values)} fields, the declared type {len(names)}")
        found = {}
        for name, check_field, value in zip(names, checks, values, strict=True):
            try:
                found[name] = check_field(value)
            except ValueError as error:
                raise ValueError(f"field {name!r}: {error}") from None
        return found

    return check


def _check_of(type_info: TypeInformation) -> Check:
    if isinstance(type_info, RowTypeInfo):
        return row_checked(type_info)
    if isinstance(type_info, BasicTypeInfo):
        return _basic_check(type_info)
    if isinstance(type_info, SqlTimeTypeInfo):
        return _time_check(type_info)
    if type_info.python_type is bytes:
        return lambda value: _typed(value, bytes, type_info)
    if isinstance(type_info, MapTypeInfo):
        item = checked(type_info.value_type_info)
        return lambda value: {key: item(part) for key, part in _typed(value, dict, type_info).items()}
    if isinstance(type_info, TupleTypeInfo):
        return _tuple_check(type_info)
    element = getattr(type_info, "element_type", None)
    if element is not None and type_info.python_type is list:
        check_element = checked(element)
        return lambda value: [check_element(part) for part in _typed(value, (list, tuple), type_info)]
    return lambda value: value


def _tuple_check(type_info: TupleTypeInfo) -> Check:
    fields = [checked(field) for field in type_info.get_field_types()]

    def check(value: Any) -> Any:
        parts = _typed(value, (list, tuple), type_info)
        if len(parts) != len(fields):
            raise ValueError(f"{type_info} is expected, not {value!r}")
        return [check_field(part) for check_field, part in zip(fields, parts, strict=True)]

    return check


def _basic_check(type_info: BasicTypeInfo) -> Check:
    """Looked up once, for it runs once a field."""
    expected = type_info.python_type
    number = _NUMBERS.get(expected)
    # A whole number is a value of types with a fraction too.
    kinds: tuple[Any, ...] = (expected, int) if expected in (float, Decimal) else (expected,)
    takes_booleans = expected is bool
    low, high = type_info.value_range or (None, None)
    one_character = type_info.tag == "CHAR"

    def check(value: Any) -> Any:
        if number is not None and not isinstance(value, kinds) and isinstance(value, number):
            value = expected(value)
        if isinstance(value, kinds) and (takes_booleans or not isinstance(value, bool)):
            if low is not None and high is not None and not low <= value <= high:
                raise ValueError(f"{type_info} must lie between {low} and {high}, not {value!r}")
            if not (one_character and len(value) != 1):
                return value
        raise ValueError(f"{type_info} is expected, not {value!r}")

    return check


def _time_check(type_info: SqlTimeTypeInfo) -> Check:
    kind = _TIMES[type_info.tag]

    def check(value: Any) -> Any:
        # A datetime is a date of Python, too.
        if not isinstance(value, kind) or (kind is date and isinstance(value, datetime)):
            raise ValueError(f"{type_info} is expected, not {value!r}")
        # A time of a zone with summer time has no offset, and would be written as if it were UTC.
        if kind is not date and value.tzinfo is not None and value.utcoffset() != timedelta(0):
            raise ValueError(
                f"{type_info} has no time zone, and {value!r} has one that is not UTC: convert it to UTC"
            )
        return value

    return check


def _typed(value: Any, kind: type | tuple[type, ...], type_info: TypeInformation) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{type_info} is expected, not {value!r}")
    return value
