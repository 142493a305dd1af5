"""Change logs as JSON: messages of Debezium, Canal and Maxwell in their documented form, and rows written and read."""

from __future__ import annotations

import json
import pickle
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.common.serialization import MultiRecordDeserializationSchema
from yarrow.common.typeinfo import RowTypeInfo, Types
from yarrow.common.types import Row, RowKind
from yarrow.common.values.error_handling import ErrorPolicy
from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaRecordError
from yarrow.datastream.connectors.kafka.reading.record_deserialization import ConsumerRecord, row_maker
from yarrow.datastream.formats.changelog.canal import (
    CanalJsonDeserializationSchema,
    CanalJsonSerializationSchema,
)
from yarrow.datastream.formats.changelog.debezium import (
    DebeziumJsonDeserializationSchema,
    DebeziumJsonSerializationSchema,
)
from yarrow.datastream.formats.changelog.maxwell import (
    MaxwellJsonDeserializationSchema,
    MaxwellJsonSerializationSchema,
)
from yarrow.runtime.common.errors import InvalidProgramError

ORDER = Types.ROW_NAMED(["id", "item", "price"], [Types.INT(), Types.STRING(), Types.DOUBLE()])
SCHEMAS = [
    (DebeziumJsonDeserializationSchema(ORDER), DebeziumJsonSerializationSchema(ORDER)),
    (CanalJsonDeserializationSchema(ORDER), CanalJsonSerializationSchema(ORDER)),
    (MaxwellJsonDeserializationSchema(ORDER), MaxwellJsonSerializationSchema(ORDER)),
]


def read(schema: MultiRecordDeserializationSchema[Row], message: Any) -> list[tuple[Any, ...]]:
    """The rows of a message: kind and values."""
    text = message if isinstance(message, bytes) else json.dumps(message).encode()
    return [(row.get_row_kind().short_string(), *row) for row in schema.deserialize_all(text)]


# ------------------------------------------------------------------ Debezium

#: What Debezium says of the place of a change in MySQL's binlog.
MYSQL = {
    "version": "2.5.0.Final", "connector": "mysql", "name": "shop", "ts_ms": 1700000000000, "snapshot": "false",
    "db": "shop", "table": "orders", "server_id": 7, "file": "binlog.000003", "pos": 154, "row": 0,
}  # fmt: skip
LAMP = {"id": 1, "item": "lamp", "price": 9.5}
DEARER = {"id": 1, "item": "lamp", "price": 10}


@pytest.mark.parametrize(
    ("op", "before", "after", "rows"),
    [
        ("c", None, LAMP, [("+I", 1, "lamp", 9.5)]),
        ("r", None, LAMP, [("+I", 1, "lamp", 9.5)]),
        ("u", LAMP, DEARER, [("-U", 1, "lamp", 9.5), ("+U", 1, "lamp", 10.0)]),
        ("d", DEARER, None, [("-D", 1, "lamp", 10.0)]),
    ],
)
@pytest.mark.parametrize("schema_include", [False, True])
def test_an_event_of_debezium(
    op: str, before: Any, after: Any, rows: list[Any], schema_include: bool
) -> None:
    event = {
        "before": before,
        "after": after,
        "source": MYSQL,
        "op": op,
        "ts_ms": 1700000000123,
        "transaction": None,
    }
    schema = DebeziumJsonDeserializationSchema(ORDER, schema_include)
    with_schema = {
        "schema": {"type": "struct", "name": "shop.orders.Envelope", "fields": []},
        "payload": event,
    }
    assert read(schema, with_schema if schema_include else event) == rows


@pytest.mark.parametrize("schema", [pair[0] for pair in SCHEMAS])
def test_a_tombstone_gives_no_row(schema: MultiRecordDeserializationSchema[Row]) -> None:
    assert schema.deserialize_all(b"") == ()


def test_an_event_without_the_old_row_says_what_to_do() -> None:
    with pytest.raises(
        FileFormatError, match=r"field 'before': the old row is missing.*REPLICA IDENTITY FULL"
    ):
        read(DebeziumJsonDeserializationSchema(ORDER), {"before": None, "after": LAMP, "op": "u"})


def test_a_described_event_is_told_from_a_plain_one() -> None:
    event = {"before": None, "after": LAMP, "op": "c"}
    with pytest.raises(FileFormatError, match="give schema_include=True"):
        read(DebeziumJsonDeserializationSchema(ORDER), {"schema": {}, "payload": event})
    with pytest.raises(FileFormatError, match="field 'payload': with schema_include an object is expected"):
        read(DebeziumJsonDeserializationSchema(ORDER, schema_include=True), event)


ANY_ROW: st.SearchStrategy[Any] = st.none() | st.dictionaries(
    st.sampled_from(["id", "item", "price", "other"]),
    st.sampled_from([None, 1, -1, 2**31, 1.5, 2.0, True, "x", "7", "1.5", [], {}]),
)


@given(st.sampled_from(["c", "r", "u", "d", "t", None, 1]), ANY_ROW, ANY_ROW)
def test_an_event_decoded_in_one_step_is_that_of_two_steps(op: Any, before: Any, after: Any) -> None:
    schema = DebeziumJsonDeserializationSchema(ORDER)
    event = json.dumps({"op": op, "before": before, "after": after, "source": MYSQL}).encode()

    def outcome(two_steps: bool) -> Any:
        try:
            if two_steps:
                return [
                    (row, row.get_row_kind(), *map(type, row))
                    for row in schema.changes(schema.document(event))
                ]
            return [(row, row.get_row_kind(), *map(type, row)) for row in schema.deserialize_all(event)]
        except ValueError as error:
            return str(error)
        except FileFormatError as error:
            return str(error.__cause__)

    assert outcome(False) == outcome(True)


TIMES: RowTypeInfo = Types.ROW_NAMED(
    ["day", "at", "seen", "zoned", "noon", "price", "any", "raw", "text"],
    [
        Types.SQL_DATE(), Types.SQL_TIMESTAMP(), Types.SQL_TIMESTAMP(), Types.SQL_TIMESTAMP(), Types.SQL_TIME(),
        Types.BIG_DEC(), Types.BIG_DEC(), Types.LONG(), Types.STRING(),
    ],
)  # fmt: skip
FORMS = {
    "day": "io.debezium.time.Date", "at": "io.debezium.time.Timestamp", "seen": "io.debezium.time.NanoTimestamp",
    "zoned": "io.debezium.time.ZonedTimestamp", "noon": "io.debezium.time.MicroTime",
    "price": "org.apache.kafka.connect.data.Decimal", "any": "io.debezium.data.VariableScaleDecimal",
    "raw": "io.debezium.time.MicroTimestamp", "text": "org.apache.kafka.connect.data.Timestamp",
}  # fmt: skip


def described(after: dict[str, Any], scale: str = "2") -> dict[str, Any]:
    """An event with the schemas of its columns."""
    columns = [
        {"type": "int64", "optional": True, "name": form, "version": 1, "field": name}
        | ({"parameters": {"scale": scale}} if name == "price" else {})
        for name, form in FORMS.items()
    ]
    row = {"type": "struct", "fields": columns, "optional": True, "name": "shop.orders.Value"}
    envelope = {"type": "struct", "fields": [row | {"field": "before"}, row | {"field": "after"}]}
    return {"schema": envelope, "payload": {"before": None, "after": after, "op": "c"}}


def test_the_schema_tells_what_the_numbers_of_debezium_mean() -> None:
    # 19782 days are 2024-02-29. The bytes 00 ff are 255, and ff is -1.
    values = {
        "day": 19782, "at": 1709200800001, "seen": -1000, "zoned": "2024-02-29T12:00:00.5+02:00", "noon": 43200000001,
        "price": "AP8=", "any": {"scale": 3, "value": "/w=="}, "raw": 5, "text": 0,
    }  # fmt: skip
    schema = DebeziumJsonDeserializationSchema(TIMES, schema_include=True)
    row = (
        "+I", date(2024, 2, 29), datetime(2024, 2, 29, 10, 0, 0, 1000), datetime(1969, 12, 31, 23, 59, 59, 999999),
        datetime(2024, 2, 29, 10, 0, 0, 500000), time(12, 0, 0, 1), Decimal("2.55"), Decimal("-0.001"), 5,
        "1970-01-01T00:00:00.000000",
    )  # fmt: skip
    assert read(schema, described(values)) == [row]
    assert read(schema, described(dict.fromkeys(values))) == [("+I", *[None] * 9)]
    assert read(schema, described({"price": "AP8="}, scale="-1"))[0][6] == Decimal(2550)


@pytest.mark.parametrize(
    ("after", "error"),
    [
        ({"day": 10**9}, r"field 'after': field 'day': 1000000000 days since 1970 lie outside"),
        ({"day": "x"}, r"field 'after': field 'day': a whole number is expected, not 'x'"),
        ({"at": 10**18}, r"field 'after': field 'at': .* s since 1970 lie outside the years 1 to 9999"),
        ({"seen": 1}, r"field 'after': field 'seen': .* has microseconds; .* is more precise"),
        ({"zoned": "2024-02-29T12:00:00.123456789Z"}, r"field 'after': field 'zoned': .* is more precise"),
        (
            {"zoned": "2024-02-29T12:00:00"},
            r"field 'after': field 'zoned': a time with a time zone is expected",
        ),
        ({"noon": -1}, r"field 'after': field 'noon': -1000 nanoseconds are no time of day"),
        ({"price": "?"}, r"field 'after': field 'price': "),
        ({"price": 1}, r"field 'after': field 'price': base64 text of a decimal is expected, not 1"),
        ({"any": 1}, r"field 'after': field 'any': an object with scale and value is expected"),
    ],
)
def test_a_number_of_debezium_that_does_not_fit_is_an_error(after: dict[str, Any], error: str) -> None:
    with pytest.raises(FileFormatError, match=error):
        read(DebeziumJsonDeserializationSchema(TIMES, schema_include=True), described(after))


@pytest.mark.parametrize(
    ("column", "text"), [("at", "2020-01-01T00:00:00+02:00"), ("noon", "12:00:00-00:30")]
)
def test_a_time_in_another_zone_is_no_time_of_a_type_without_one(column: str, text: str) -> None:
    # Without the schema of the event nothing says that the text is an instant.
    event = {"before": None, "after": {column: text}, "op": "c"}
    with pytest.raises(FileFormatError, match=f"field '{column}': .* has no time zone, and .* is not UTC"):
        read(DebeziumJsonDeserializationSchema(TIMES), event)


def test_a_time_in_utc_is_a_time_without_a_zone() -> None:
    event = {"before": None, "after": {"at": "2020-01-01T01:00:00Z", "noon": "12:00:00+00:00"}, "op": "c"}
    (row,) = read(DebeziumJsonDeserializationSchema(TIMES), event)
    assert (row[2], row[5]) == (datetime(2020, 1, 1, 1), time(12))


def test_a_schema_without_a_scale_is_an_error() -> None:
    with pytest.raises(FileFormatError, match=r"field 'schema': the decimal 'price' has a scale .*: 'x'"):
        read(DebeziumJsonDeserializationSchema(TIMES, schema_include=True), described({}, scale="x"))


def test_each_event_is_read_by_its_own_schema() -> None:
    schema = DebeziumJsonDeserializationSchema(TIMES, schema_include=True)
    found = [read(schema, described({"price": "AP8="}, scale))[0][6] for scale in ("2", "1", "2")]
    assert found == [Decimal("2.55"), Decimal("25.5"), Decimal("2.55")]


# ------------------------------------------------------------------ Canal and Maxwell

#: Canal writes each value of MySQL as text.
CANAL = {
    "id": 3, "database": "shop", "table": "orders", "pkNames": ["id"], "isDdl": False, "es": 1700000000000,
    "ts": 1700000000321, "sql": "", "mysqlType": {"id": "int(11)", "item": "varchar(20)", "price": "double"},
    "sqlType": {"id": 4, "item": 12, "price": 8},
}  # fmt: skip
TWO = [{"id": "1", "item": "lamp", "price": "9.5"}, {"id": "2", "item": None, "price": "4"}]


def test_a_message_of_canal_has_several_rows() -> None:
    schema = CanalJsonDeserializationSchema(ORDER)
    assert read(schema, CANAL | {"type": "INSERT", "data": TWO, "old": None}) == [
        ("+I", 1, "lamp", 9.5), ("+I", 2, None, 4.0),
    ]  # fmt: skip
    assert read(schema, CANAL | {"type": "DELETE", "data": TWO, "old": None}) == [
        ("-D", 1, "lamp", 9.5), ("-D", 2, None, 4.0),
    ]  # fmt: skip


def test_an_update_of_canal_has_the_former_values_of_changed_columns() -> None:
    old = [{"price": "8"}, {"item": None, "id": "3"}]
    assert read(CanalJsonDeserializationSchema(ORDER), CANAL | {"type": "UPDATE", "data": TWO, "old": old}) == [
        ("-U", 1, "lamp", 8.0), ("+U", 1, "lamp", 9.5), ("-U", 3, None, 4.0), ("+U", 2, None, 4.0),
    ]  # fmt: skip


def test_a_former_value_of_null_is_none() -> None:
    old = [{"item": None}]
    assert read(CanalJsonDeserializationSchema(ORDER), CANAL | {"type": "UPDATE", "data": TWO[:1], "old": old}) == [
        ("-U", 1, None, 9.5), ("+U", 1, "lamp", 9.5),
    ]  # fmt: skip


def test_a_made_table_is_no_row() -> None:
    made = CANAL | {"type": "CREATE", "isDdl": True, "data": None, "sql": "CREATE TABLE orders (id int)"}
    assert read(CanalJsonDeserializationSchema(ORDER), made) == []


@pytest.mark.parametrize(
    ("only", "count"),
    [
        ({"database": "sh.p"}, 2),
        ({"database": "sho"}, 0),
        ({"table": "orders|items"}, 2),
        ({"table": "items"}, 0),
    ],
)
def test_databases_and_tables_are_chosen(only: dict[str, Any], count: int) -> None:
    schema = CanalJsonDeserializationSchema(ORDER, **only)
    assert len(read(schema, CANAL | {"type": "INSERT", "data": TWO})) == count


def test_a_wrong_pattern_is_refused() -> None:
    with pytest.raises(ValueError, match=r"table must be a regular expression, not '\('"):
        CanalJsonDeserializationSchema(ORDER, table="(")


MAXWELL = {
    "database": "shop", "table": "orders", "ts": 1700000000, "xid": 940, "commit": True, "primary_key_columns": ["id"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "old", "rows"),
    [
        ("insert", {}, [("+I", 1, "lamp", 9.5)]),
        ("update", {"old": {"price": 8, "item": None}}, [("-U", 1, None, 8.0), ("+U", 1, "lamp", 9.5)]),
        ("delete", {}, [("-D", 1, "lamp", 9.5)]),
    ],
)
def test_a_message_of_maxwell(kind: str, old: dict[str, Any], rows: list[Any]) -> None:
    assert read(MaxwellJsonDeserializationSchema(ORDER), MAXWELL | {"type": kind, "data": LAMP} | old) == rows


def test_values_are_exact() -> None:
    kinds: RowTypeInfo = Types.ROW_NAMED(
        ["amount", "day", "at", "paid"],
        [Types.BIG_DEC(), Types.SQL_DATE(), Types.SQL_TIMESTAMP(), Types.BOOLEAN()],
    )
    text = (
        b'{"type": "insert", "data": {"amount": 12345678901234567890.123456789, "day": "2024-02-29",'
        b' "at": "2024-02-29 10:00:00.000001", "paid": 1}}'
    )
    assert read(MaxwellJsonDeserializationSchema(kinds), text) == [
        (
            "+I",
            Decimal("12345678901234567890.123456789"),
            date(2024, 2, 29),
            datetime(2024, 2, 29, 10, 0, 0, 1),
            True,
        )
    ]
    with pytest.raises(
        FileFormatError, match=r"field 'data': field 'at': .* has microseconds; .* is more precise"
    ):
        read(MaxwellJsonDeserializationSchema(kinds), text.replace(b".000001", b".000000001"))


# ------------------------------------------------------------------ damage

DAMAGED: list[tuple[MultiRecordDeserializationSchema[Row], bytes, str]] = [
    (
        SCHEMAS[0][0],
        b'{"op": "c"',
        "no change that DebeziumJsonDeserializationSchema reads: Input data was truncated",
    ),
    (SCHEMAS[0][0], b"[1]", "an object is expected, not"),
    (SCHEMAS[0][0], b'{"op": "t"}', 'field \'op\': "c", "r", "u" or "d" is expected, not \'t\''),
    (SCHEMAS[0][0], b'{"op": "c"}', "field 'after': an object is expected, not None"),
    (SCHEMAS[0][0], b'{"op": "c", "after": {"id": "x"}}', "field 'after': field 'id': Integer is expected"),
    (
        SCHEMAS[0][0],
        b'{"op": "c", "after": {"id": 3000000000}}',
        "field 'after': field 'id': Integer is expected",
    ),
    (SCHEMAS[1][0], b'{"type": "TRUNCATE"}', "field 'type': INSERT, UPDATE, DELETE or CREATE is expected"),
    (
        SCHEMAS[1][0],
        b'{"type": "INSERT", "data": null}',
        "field 'data': an array of rows is expected, not None",
    ),
    (SCHEMAS[1][0], b'{"type": "UPDATE", "data": [{}], "old": []}', "field 'old': 1 rows are expected"),
    (
        SCHEMAS[1][0],
        b'{"type": "UPDATE", "data": [{}], "old": [7]}',
        "field 'old': an object is expected, not 7",
    ),
    (
        CanalJsonDeserializationSchema(ORDER, table="t"),
        b'{"type": "INSERT"}',
        "field 'table': a text is expected",
    ),
    (SCHEMAS[2][0], b'{"type": "table-drop"}', "field 'type': insert, update or delete is expected"),
    (SCHEMAS[2][0], b'{"type": "update", "data": {}}', "field 'old': an object is expected, not None"),
]


@pytest.mark.parametrize(("schema", "message", "error"), DAMAGED)
def test_an_error_names_the_field(
    schema: MultiRecordDeserializationSchema[Row], message: bytes, error: str
) -> None:
    with pytest.raises(FileFormatError) as failed:
        schema.deserialize_all(message)
    assert error in str(failed.value)


@pytest.mark.parametrize(
    "kind",
    [DebeziumJsonDeserializationSchema, CanalJsonDeserializationSchema, MaxwellJsonDeserializationSchema],
)
def test_errors_are_ignored_on_request(kind: Any) -> None:
    assert kind(ORDER, ignore_parse_errors=True).deserialize_all(b"{") == ()


def test_a_type_of_rows_is_needed() -> None:
    for kind in (DebeziumJsonDeserializationSchema, CanalJsonSerializationSchema):
        with pytest.raises(InvalidProgramError, match=r"give the type of rows, Types.ROW_NAMED\(...\), not"):
            kind(Types.INT())  # type: ignore[arg-type]


# ------------------------------------------------------------------ written and read

ROWS = st.builds(
    lambda kind, *values: Row.of_kind(kind, **dict(zip(("id", "item", "price"), values, strict=True))),
    st.sampled_from(RowKind),
    st.none() | st.integers(-(2**31), 2**31 - 1),
    st.none() | st.text(),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
)


@pytest.mark.parametrize(("reader", "writer"), SCHEMAS)
@given(ROWS)
def test_what_is_written_is_read(reader: Any, writer: Any, row: Row) -> None:
    writer, reader = pickle.loads(pickle.dumps((writer, reader)))
    deleted = row.get_row_kind() in (RowKind.DELETE, RowKind.UPDATE_BEFORE)
    assert reader.deserialize(writer.serialize(row)) == Row.of_kind(
        RowKind.DELETE if deleted else RowKind.INSERT, **row.as_dict()
    )


def test_messages_are_those_that_flink_writes() -> None:
    row = Row(id=1, item="lamp", price=9.5)
    gone = Row.of_kind(RowKind.UPDATE_BEFORE, id=1, item="lamp", price=9.5)
    assert [json.loads(writer.serialize(row)) for _, writer in SCHEMAS] == [
        {"before": None, "after": LAMP, "op": "c"},
        {"data": [LAMP], "type": "INSERT"},
        {"data": LAMP, "type": "insert"},
    ]
    assert [json.loads(writer.serialize(gone)) for _, writer in SCHEMAS] == [
        {"before": LAMP, "after": None, "op": "d"},
        {"data": [LAMP], "type": "DELETE"},
        {"data": LAMP, "type": "delete"},
    ]


def test_a_row_of_other_fields_is_not_written() -> None:
    with pytest.raises(FileFormatError, match="has 2 fields, the declared type 3"):
        DebeziumJsonSerializationSchema(ORDER).serialize(Row(1, "lamp"))


# ------------------------------------------------------------------ records of a topic

VALUES = [
    b'{"op": "u", "before": {"id": 1}, "after": {"id": 2}}',
    None,
    b'{"op": "x"}',
    b'{"op": "d", "before": {"id": 2}}',
]


def test_a_message_of_a_topic_gives_several_rows_with_its_timestamp() -> None:
    made = row_maker(SCHEMAS[0][0], ErrorPolicy.SKIP).make("t-0", VALUES, [5, 6, 7, 8], [10, 11, 12, 13])
    assert [(row.get_row_kind().short_string(), row.id) for row in made.rows] == [
        ("-U", 1),
        ("+U", 2),
        ("-D", 2),
    ]
    assert (list(made.timestamps), made.num_errors) == ([5, 5, 8], 1)


def test_a_message_of_a_topic_that_cannot_be_read_is_named() -> None:
    with pytest.raises(
        KafkaRecordError, match=r"offset 12 of t-0 .* DebeziumJsonDeserializationSchema: .*'op'"
    ):
        row_maker(SCHEMAS[0][0]).make("t-0", VALUES, [5, 6, 7, 8], [10, 11, 12, 13])


def test_a_message_of_a_topic_that_cannot_be_read_goes_aside_alone() -> None:
    records = [ConsumerRecord("t", 0, 10 + index, 5, None, value, ()) for index, value in enumerate(VALUES)]
    made = row_maker(SCHEMAS[0][0], ErrorPolicy.DEAD_LETTER).make("t-0", records, [5] * 4, [10, 11, 12, 13])
    assert len(made.rows) == len(made.timestamps) == 3
    assert [(letter.position, letter.raw) for letter in made.letters] == [(12, VALUES[2])]
