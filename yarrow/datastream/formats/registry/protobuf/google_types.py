"""Files `google/type/*.proto`, which registries know: a schema may import them without a reference.

Owner: any thread; plain values. Numbers, names and types of fields are the public format of these files. The texts are
Yarrow's own, without options, which say nothing of messages. Must not run a compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


def _message(name: str, *fields: str) -> str:
    """Return a message whose fields have the numbers from 1 on."""
    numbered = " ".join(f"{field} = {number};" for number, field in enumerate(fields, 1))
    return f"message {name} {{ {numbered} }}\n"


def _enum(name: str, *values: str) -> str:
    """Return an enum whose values have the numbers from 0 on."""
    numbered = " ".join(f"{value} = {number};" for number, value in enumerate(values))
    return f"enum {name} {{ {numbered} }}\n"


def _imported(name: str) -> str:
    return f'import "google/protobuf/{name}.proto";\n'


_DAYS: Final = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
_MONTHS: Final = (
    *("JANUARY", "FEBRUARY", "MARCH", "APRIL", "MAY", "JUNE"),
    *("JULY", "AUGUST", "SEPTEMBER", "OCTOBER", "NOVEMBER", "DECEMBER"),
)
_PERIODS: Final = ("DAY", "WEEK", "FORTNIGHT", "MONTH", "QUARTER", "HALF", "YEAR")
_DATE: Final = ("int32 year", "int32 month", "int32 day")
_TIME: Final = ("int32 hours", "int32 minutes", "int32 seconds", "int32 nanos")
_MOMENT: Final = " ".join(f"{field} = {number};" for number, field in enumerate((*_DATE, *_TIME), 1))
_ADDRESS: Final = (
    *("int32 revision", "string region_code", "string language_code", "string postal_code"),
    *("string sorting_code", "string administrative_area", "string locality", "string sublocality"),
    *("repeated string address_lines", "repeated string recipients", "string organization"),
)

#: Name of the file in `google/type` -> what it declares.
_DECLARED: Final[Mapping[str, str]] = {
    "calendar_period": _enum("CalendarPeriod", "CALENDAR_PERIOD_UNSPECIFIED", *_PERIODS),
    "color": _imported("wrappers")
    + _message("Color", "float red", "float green", "float blue", "google.protobuf.FloatValue alpha"),
    "date": _message("Date", *_DATE),
    "datetime": _imported("duration")
    + f"message DateTime {{ {_MOMENT}\n"
    + "  oneof time_offset { google.protobuf.Duration utc_offset = 8; TimeZone time_zone = 9; }\n}\n"
    + _message("TimeZone", "string id", "string version"),
    "dayofweek": _enum("DayOfWeek", "DAY_OF_WEEK_UNSPECIFIED", *_DAYS),
    "decimal": _message("Decimal", "string value"),
    "expr": _message("Expr", "string expression", "string title", "string description", "string location"),
    "fraction": _message("Fraction", "int64 numerator", "int64 denominator"),
    "interval": _imported("timestamp")
    + _message("Interval", "google.protobuf.Timestamp start_time", "google.protobuf.Timestamp end_time"),
    "latlng": _message("LatLng", "double latitude", "double longitude"),
    "localized_text": _message("LocalizedText", "string text", "string language_code"),
    "money": _message("Money", "string currency_code", "int64 units", "int32 nanos"),
    "month": _enum("Month", "MONTH_UNSPECIFIED", *_MONTHS),
    "phone_number": (
        "message PhoneNumber {\n  message ShortCode { string region_code = 1; string number = 2; }\n"
        "  oneof kind { string e164_number = 1; ShortCode short_code = 2; }\n  string extension = 3;\n}\n"
    ),
    "postal_address": _message("PostalAddress", *_ADDRESS),
    "quaternion": _message("Quaternion", "double x", "double y", "double z", "double w"),
    "timeofday": _message("TimeOfDay", *_TIME),
}

#: Name of the import -> text of the file.
GOOGLE_TYPES: Final[Mapping[str, str]] = {
    f"google/type/{name}.proto": f'syntax = "proto3";\npackage google.type;\n{declared}'
    for name, declared in _DECLARED.items()
}
