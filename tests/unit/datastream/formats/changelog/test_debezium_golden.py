"""Messages that Debezium's own PostgreSQL connector (3.6.1) wrote are read to the values that the table had."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from yarrow.common.typeinfo import RowTypeInfo, TypeInformation, Types
from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.datastream.formats.changelog.debezium import DebeziumJsonDeserializationSchema

GOLDEN = Path(__file__).parent / "debezium_golden"
COLUMNS: dict[str, TypeInformation] = {
    "id": Types.INT(),
    "big": Types.LONG(),
    "small": Types.SHORT(),
    "price": Types.BIG_DEC(),
    "free": Types.BIG_DEC(),
    "ratio": Types.FLOAT(),
    "weight": Types.DOUBLE(),
    "name": Types.STRING(),
    "label": Types.STRING(),
    "ok": Types.BOOLEAN(),
    "made": Types.SQL_TIMESTAMP(),
    "made3": Types.SQL_TIMESTAMP(),
    "seen": Types.SQL_TIMESTAMP(),
    "day": Types.SQL_DATE(),
    "at": Types.SQL_TIME(),
    "data": Types.PRIMITIVE_ARRAY(Types.BYTE()),
    "code": Types.STRING(),
    "doc": Types.STRING(),
    "docb": Types.STRING(),
    "zoned": Types.SQL_TIME(),
    "tags": Types.BASIC_ARRAY(Types.STRING()),
    "span": Types.LONG(),
}
#: Without a schema and without ISO texts nothing tells what a time means.
NUMBERS = {
    "made": Types.LONG(),
    "made3": Types.LONG(),
    "seen": Types.STRING(),
    "day": Types.INT(),
    "at": Types.LONG(),
}

LAMP: dict[str, Any] = {
    "id": 1,
    "big": 9007199254740993,
    "small": -7,
    "price": Decimal("12345678.90"),
    "free": Decimal("0.000001"),
    "ratio": 0.5,
    "weight": 1e300,
    "name": "lamp ü",
    "label": "a",
    "ok": True,
    "made": datetime(2024, 2, 29, 12, 34, 56, 789012),
    "made3": datetime(2024, 2, 29, 12, 34, 56, 789000),
    "seen": datetime(2024, 2, 29, 10, 34, 56, 789012),
    "day": date(2024, 2, 29),
    "at": time(23, 59, 59, 999999),
    "data": b"\x00\xff\x10",
    "code": "0190163d-8694-739b-aea5-966c26f8ad90",
    "doc": '{"a": [1, null]}',
    "docb": '{"b": "ü"}',
    "zoned": time(21, 59, 59, 500000),
    "tags": ["a", None],
    "span": 86_401_000_000,
}
EDGES: dict[str, Any] = {
    "id": 2,
    "big": -(1 << 63),
    "small": 32767,
    "price": Decimal("-0.01"),
    "free": Decimal("-12345678901234567890.123"),
    "ratio": -1.25,
    "weight": -0.1,
    "name": "",
    "label": "b",
    "ok": False,
    "made": datetime(1969, 12, 31, 23, 59, 59, 999999),
    "made3": datetime(1969, 12, 31, 23, 59, 59, 999000),
    "seen": datetime(1900, 1, 1),
    "day": date(1900, 1, 1),
    "at": time(0),
    "data": b"",
    "code": "00000000-0000-0000-0000-000000000000",
    "doc": "[]",
    "docb": "null",
    "zoned": time(0),
    "tags": [],
    "span": -1_000_000,
}
NOTHING: dict[str, Any] = dict.fromkeys(COLUMNS)
DESK = LAMP | {"name": "desk", "price": Decimal("0.00"), "day": date(9999, 12, 31)}
NAMELESS = DESK | {"name": None, "ok": None, "made": None}
#: The rows of each message; the two without rows are tombstones.
CHANGES: list[list[tuple[str, dict[str, Any]]]] = [
    [("+I", LAMP)],
    [("+I", EDGES)],
    [("+I", NOTHING | {"id": 3})],
    [("-U", LAMP), ("+U", DESK)],
    [("-U", DESK), ("+U", NAMELESS)],
    [("-D", EDGES)],
    [],
    [("-D", NOTHING | {"id": 3})],
    [],
    [("+I", NOTHING | {"id": 4})],
]
EPOCH = datetime(1970, 1, 1)


def in_milliseconds(row: dict[str, Any]) -> dict[str, Any]:
    """A row with the digits that `time.precision.mode=connect` keeps."""
    at, made = row["at"], row["made"]
    return row | {
        "at": None if at is None else at.replace(microsecond=at.microsecond // 1000 * 1000),
        "made": None if made is None else made.replace(microsecond=made.microsecond // 1000 * 1000),
    }


def in_numbers(row: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a message without schema: microseconds, milliseconds and days."""

    def micros(since: datetime | None) -> int | None:
        return None if since is None else (since - EPOCH) // (datetime.resolution)

    made3, day, at = micros(row["made3"]), row["day"], row["at"]
    return row | {
        "made": micros(row["made"]),
        "made3": None if made3 is None else made3 // 1000,
        "seen": None if row["seen"] is None else row["seen"].isoformat(timespec="microseconds") + "Z",
        "day": None if day is None else (day - EPOCH.date()).days,
        "at": None if at is None else micros(datetime.combine(EPOCH, at)),
    }


def as_it_is(row: dict[str, Any]) -> dict[str, Any]:
    return row


def schema_for(folder: str) -> DebeziumJsonDeserializationSchema:
    columns = COLUMNS | (NUMBERS if folder in ("plain", "keys-alone") else {})
    row_type = Types.ROW_NAMED(list(columns), list(columns.values()))
    assert isinstance(row_type, RowTypeInfo)
    return DebeziumJsonDeserializationSchema(row_type, schema_include=folder.startswith("described"))


def messages(folder: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((GOLDEN / folder).iterdir())]


def changes_in(schema: DebeziumJsonDeserializationSchema, message: bytes) -> list[tuple[str, dict[str, Any]]]:
    found = schema.deserialize_all(message)
    return [(row.get_row_kind().short_string(), row.as_dict()) for row in found]


@pytest.mark.parametrize(
    ("folder", "kept"),
    [
        ("described", as_it_is),
        ("described-nanoseconds", as_it_is),
        ("described-connect-times", in_milliseconds),
        ("plain-iso-times", as_it_is),
        ("plain", in_numbers),
    ],
)
def test_messages_of_the_connector_are_the_rows_of_the_table(folder: str, kept: Any) -> None:
    schema = schema_for(folder)
    found = [changes_in(schema, message) for message in messages(folder)]
    assert found == [[(kind, kept(row)) for kind, row in rows] for rows in CHANGES]


def test_without_old_rows_in_the_log_an_update_is_refused_with_the_remedy() -> None:
    schema, told = schema_for("keys-alone"), messages("keys-alone")
    for update in (told[3], told[4]):
        with pytest.raises(FileFormatError, match="REPLICA IDENTITY FULL"):
            schema.deserialize_all(update)
    # A deletion has the key of its row, and nothing tells that the rest is missing.
    assert changes_in(schema, told[5]) == [("-D", NOTHING | {"id": 2})]
    assert changes_in(schema, told[1]) == [("+I", in_numbers(EDGES))]


def test_a_message_read_without_its_schema_or_with_a_schema_that_it_lacks_is_refused() -> None:
    with pytest.raises(FileFormatError, match="the event is in 'payload'; give schema_include=True"):
        schema_for("plain").deserialize_all(messages("described")[0])
    with pytest.raises(FileFormatError, match="with schema_include an object is expected"):
        schema_for("described").deserialize_all(messages("plain")[0])
