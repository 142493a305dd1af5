"""Debezium's own forms of dates, times and decimals, told by the schema that an event carries.

Owner: the task's thread; pure. A column's form is the name of its schema, as Debezium and Kafka Connect document them.
Values become the texts that row readers take. Must not know rows.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from yarrow.common.typeinfo import RowTypeInfo, TypeInformation
from yarrow.datastream.formats.values import zoned_timestamp

Convert = Callable[[Any], Any]

_CONNECT: Final = "org.apache.kafka.connect.data"
_TIME: Final = "io.debezium.time"
_EPOCH: Final = datetime(1970, 1, 1)
_NANOS: Final = 1_000_000_000
_MILLIS_IN_NANOS: Final = 1_000_000
_MICROS_IN_NANOS: Final = 1_000
#: Nanoseconds of one unit, by the name of a schema.
_TIMES_OF_DAY: Final = {
    f"{_TIME}.Time": _MILLIS_IN_NANOS,
    f"{_TIME}.MicroTime": _MICROS_IN_NANOS,
    f"{_TIME}.NanoTime": 1,
    f"{_CONNECT}.Time": _MILLIS_IN_NANOS,
}
_TIMESTAMPS: Final = {
    f"{_TIME}.Timestamp": _MILLIS_IN_NANOS,
    f"{_TIME}.MicroTimestamp": _MICROS_IN_NANOS,
    f"{_TIME}.NanoTimestamp": 1,
    f"{_CONNECT}.Timestamp": _MILLIS_IN_NANOS,
}
_DATES: Final = (f"{_TIME}.Date", f"{_CONNECT}.Date")
#: Types that take such texts. A column declared as a number keeps the number.
_TAKING_TEXT: Final = (str, Decimal, date, time, datetime)


def converters_of(schema: Any, row_type: RowTypeInfo) -> dict[str, Convert]:
    """Return for each column with a form of Debezium's own the function to text, by the "schema" of an event.

    The functions raise ValueError. A schema that has no rows gives none.
    """
    found = {}
    declared = dict(zip(row_type.get_field_names(), row_type.get_field_types(), strict=True))
    for column in _columns(schema):
        name = str(column.get("field"))
        kind = declared.get(name)
        convert = None if kind is None or kind.python_type not in _TAKING_TEXT else _converter(column, kind)
        if convert is not None:
            found[name] = convert
    return found


def converted(values: Any, converters: dict[str, Convert], field: str) -> Any:
    """Return the columns of a row with texts. Raises ValueError that names the column and `field`, the row's place."""
    if not isinstance(values, dict):
        return values
    made = dict(values)
    for name, convert in converters.items():
        if made.get(name) is not None:
            try:
                made[name] = convert(made[name])
            except (ValueError, OverflowError) as error:
                raise ValueError(f"field {field!r}: field {name!r}: {error}") from None
    return made


def _columns(schema: Any) -> list[dict[str, Any]]:
    """The schemas of the columns, from that of the row after the change or before it."""
    for part in _fields(schema):
        if part.get("field") in ("after", "before") and _fields(part):
            return _fields(part)
    return []


def _fields(schema: Any) -> list[dict[str, Any]]:
    fields = schema.get("fields") if isinstance(schema, dict) else None
    return [field for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []


def _converter(column: dict[str, Any], declared: TypeInformation) -> Convert | None:
    form = column.get("name")
    if form in _DATES:
        return _date
    if form in _TIMES_OF_DAY:
        unit = _TIMES_OF_DAY[form]
        return lambda value: _time_of_day(_whole(value) * unit)
    if form in _TIMESTAMPS:
        unit = _TIMESTAMPS[form]
        return lambda value: _timestamp(_whole(value) * unit)
    if form == f"{_TIME}.ZonedTimestamp" and declared.python_type is datetime:
        return _without_zone
    if form == f"{_CONNECT}.Decimal":
        scale = _scale(column)
        return lambda value: _decimal(value, scale)
    if form == "io.debezium.data.VariableScaleDecimal":
        return _decimal_with_scale
    return None


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"a whole number is expected, not {value!r}")
    return value


def _date(value: Any) -> str:
    try:
        return (_EPOCH + timedelta(days=_whole(value))).date().isoformat()
    except OverflowError:
        raise ValueError(f"{value} days since 1970 lie outside the years 1 to 9999") from None


def _time_of_day(nanos: int) -> str:
    seconds, rest = divmod(nanos, _NANOS)
    if not 0 <= seconds < 86_400:
        raise ValueError(f"{nanos} nanoseconds are no time of day")
    return f"{_EPOCH + timedelta(seconds=seconds):%H:%M:%S}{_fraction(rest)}"


def _timestamp(nanos: int) -> str:
    seconds, rest = divmod(nanos, _NANOS)
    try:
        return f"{(_EPOCH + timedelta(seconds=seconds)).isoformat()}{_fraction(rest)}"
    except OverflowError:
        raise ValueError(f"{seconds} s since 1970 lie outside the years 1 to 9999") from None


def _fraction(nanos: int) -> str:
    return f".{nanos:09}" if nanos % _MICROS_IN_NANOS else f".{nanos // _MICROS_IN_NANOS:06}"


def _without_zone(value: Any) -> str:
    """A time in UTC. A text without a zone, and digits behind microseconds, are refused."""
    if not isinstance(value, str):
        raise ValueError(f"an ISO text is expected, not {value!r}")
    return zoned_timestamp(value).astimezone(UTC).replace(tzinfo=None).isoformat()


def _scale(column: dict[str, Any]) -> int:
    parameters = column.get("parameters")
    scale = parameters.get("scale") if isinstance(parameters, dict) else None
    try:
        return int(str(scale))
    except ValueError:
        raise ValueError(
            f"field 'schema': the decimal {column.get('field')!r} has a scale that is no number: {scale!r}"
        ) from None


def _decimal(value: Any, scale: int) -> str:
    if not isinstance(value, str):
        raise ValueError(f"base64 text of a decimal is expected, not {value!r}")
    unscaled = int.from_bytes(base64.b64decode(value, validate=True), "big", signed=True)
    digits = Decimal(unscaled).as_tuple()
    return str(Decimal((digits.sign, digits.digits, -scale)))


def _decimal_with_scale(value: Any) -> str:
    if not isinstance(value, dict):
        raise ValueError(f"an object with scale and value is expected, not {value!r}")
    return _decimal(value.get("value"), _whole(value.get("scale")))
