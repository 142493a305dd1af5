"""Values that JSON and CSV write: each fits its declared type, or is refused with the field; all are read again."""

from __future__ import annotations

import io
import math
import pickle
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy
import pytest

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.common.types import Row
from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.datastream.formats.changelog.debezium import DebeziumJsonSerializationSchema
from yarrow.datastream.formats.csv_messages import CsvRowDeserializationSchema, CsvRowSerializationSchema
from yarrow.datastream.formats.json import (
    JsonColumnsDeserializationSchema,
    JsonLinesEncoder,
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)
from yarrow.runtime.common.errors import InvalidProgramError

EAST = timezone(timedelta(hours=2))
INNER = Types.ROW_NAMED(["n"], [Types.LONG()])


def row_type(kind: TypeInformation) -> Any:
    return Types.ROW_NAMED(["field"], [kind])


def json(kind: TypeInformation, value: Any) -> bytes:
    schema = JsonRowSerializationSchema.builder().with_type_info(row_type(kind)).build()
    return bytes(pickle.loads(pickle.dumps(schema)).serialize(Row(field=value)))


def only(row: Row | None) -> Any:
    """The value of the only field."""
    assert row is not None
    (value,) = row
    return value


def csv(kind: TypeInformation, value: Any) -> bytes:
    return CsvRowSerializationSchema.Builder(row_type(kind)).build().serialize(Row(field=value))


def changelog(kind: TypeInformation, value: Any) -> bytes:
    return DebeziumJsonSerializationSchema(row_type(kind)).serialize(Row(field=value))


MISFITS: list[tuple[TypeInformation, Any]] = [
    (Types.STRING(), 5),
    (Types.STRING(), b"x"),
    (Types.CHAR(), "xy"),
    (Types.LONG(), 1.5),
    (Types.LONG(), True),
    (Types.LONG(), "7"),
    (Types.LONG(), 2**63),
    (Types.INT(), -(2**31) - 1),
    (Types.DOUBLE(), "1.5"),
    (Types.DOUBLE(), False),
    (Types.BOOLEAN(), 1),
    (Types.BIG_DEC(), 1.1),
    (Types.SQL_DATE(), datetime(2020, 1, 1, 5)),
    (Types.SQL_TIMESTAMP(), date(2020, 1, 1)),
    (Types.SQL_TIMESTAMP(), datetime(2020, 1, 1, tzinfo=EAST)),
    (Types.SQL_TIME(), time(1, tzinfo=EAST)),
    (Types.SQL_TIME(), time(1, tzinfo=ZoneInfo("Europe/Berlin"))),
    (Types.LIST(Types.LONG()), [1, "2"]),
    (Types.LIST(Types.STRING()), "abc"),
    (INNER, Row(n="x")),
]


@pytest.mark.parametrize("write", [json, csv, changelog])
@pytest.mark.parametrize(("kind", "value"), MISFITS, ids=str)
def test_a_value_of_another_type_is_refused_with_its_field(
    write: Any, kind: TypeInformation, value: Any
) -> None:
    with pytest.raises(FileFormatError, match=r"(field|column) 'field'"):
        write(kind, value)


def test_a_tuple_of_another_length_is_refused_with_its_type() -> None:
    kind = Types.TUPLE([Types.LONG(), Types.STRING()])
    for value in ((1,), (1, "a", 2)):
        with pytest.raises(FileFormatError) as refused:
            json(kind, value)
        assert f"field 'field': {kind} is expected, not {value!r}" in str(refused.value)


def test_csv_tells_what_came_in_the_place_of_a_list() -> None:
    kind = Types.LIST(Types.STRING())
    with pytest.raises(FileFormatError, match=r"column 'field': .* is expected, not str, found 'abc'"):
        csv(kind, "abc")


FITTING: list[tuple[TypeInformation, Any]] = [
    (Types.DOUBLE(), math.inf),
    (Types.DOUBLE(), -math.inf),
    (Types.DOUBLE(), 5),
    (Types.FLOAT(), 0.1),
    (Types.BIG_DEC(), 5),
    (Types.BIG_DEC(), Decimal("123456789012345678901234567890.0123456789012345678900")),
    (Types.LONG(), numpy.int64(7)),
    (Types.DOUBLE(), numpy.float32(0.5)),
    (Types.SQL_TIMESTAMP(), datetime(2020, 1, 1, 1, 2, 3, 456789)),
    (Types.SQL_TIME(), time(1, 2, 3, 4)),
    (Types.LIST(Types.DOUBLE()), [1.5, None, math.inf]),
    (INNER, Row(n=1)),
]


@pytest.mark.parametrize(("kind", "value"), FITTING, ids=str)
def test_values_that_fit_are_read_again(kind: TypeInformation, value: Any) -> None:
    rows = JsonRowDeserializationSchema.builder().type_info(row_type(kind)).build()
    assert only(rows.deserialize(json(kind, value))) == value
    assert (
        only(CsvRowDeserializationSchema.Builder(row_type(kind)).build().deserialize(csv(kind, value)))
        == value
    )


def test_a_time_in_utc_is_written() -> None:
    at = datetime(2020, 1, 1, 5, tzinfo=UTC)
    assert json(Types.SQL_TIMESTAMP(), at) == b'{"field":"2020-01-01T05:00:00Z"}'


def test_a_time_of_another_zone_in_a_field_of_any_type_is_the_same_moment() -> None:
    kind = Types.PICKLED_BYTE_ARRAY()
    assert json(kind, datetime(2020, 1, 1, 5, tzinfo=EAST)) == b'{"field":"2020-01-01T03:00:00Z"}'
    assert json(kind, [time(5, tzinfo=EAST)]) == b'{"field":["05:00:00+02:00"]}'


#: Messages of Flink's JsonRowSerializationSchema, which its JsonRowDeserializationSchema reads: a time without Z fails
#: there, and a decimal that is a text is read as 0.
FLINK_JSON: list[tuple[TypeInformation, Any, str]] = [
    (Types.BIG_DEC(), Decimal("12.30"), "12.30"),
    (Types.BIG_DEC(), Decimal("1E+30"), "1E+30"),
    (Types.BIG_INT(), 2**70, str(2**70)),
    (Types.SQL_DATE(), date(2020, 1, 1), '"2020-01-01"'),
    (Types.SQL_TIME(), time(1, 2, 3), '"01:02:03Z"'),
    (Types.SQL_TIMESTAMP(), datetime(2020, 1, 1, 1, 2, 3, 456000), '"2020-01-01T01:02:03.456000Z"'),
    (Types.LIST(Types.BIG_DEC()), [Decimal("0.1"), None], "[0.1,null]"),
    (
        Types.ROW_NAMED(["n"], [Types.SQL_TIMESTAMP()]),
        Row(n=datetime(2020, 1, 1)),
        '{"n":"2020-01-01T00:00:00Z"}',
    ),
]


@pytest.mark.parametrize(("kind", "value", "text"), FLINK_JSON, ids=str)
def test_a_row_of_json_has_the_form_that_flink_reads(kind: TypeInformation, value: Any, text: str) -> None:
    message = json(kind, value)
    assert message == b'{"field":%s}' % text.encode()
    assert (
        only(JsonRowDeserializationSchema.builder().type_info(row_type(kind)).build().deserialize(message))
        == value
    )


def test_csv_writes_a_timestamp_as_flink_reads_it() -> None:
    """Flink reads it by Timestamp.valueOf, which takes no T."""
    assert csv(Types.SQL_TIMESTAMP(), datetime(2020, 1, 1, 1, 2, 3)) == b"2020-01-01 01:02:03\n"
    assert (
        csv(Types.LIST(Types.SQL_TIMESTAMP()), [datetime(2020, 1, 1, 0, 0, 0, 5000)])
        == b"2020-01-01 00:00:00.005000\n"
    )
    assert csv(Types.SQL_TIME(), time(1, 2, 3)) == b"01:02:03\n"


def test_a_decimal_that_is_not_finite_is_refused() -> None:
    with pytest.raises(FileFormatError, match="no JSON form"):
        json(Types.BIG_DEC(), Decimal("NaN"))


@pytest.mark.parametrize(
    ("number", "text"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")], ids=str
)
def test_what_json_has_no_number_for_is_the_text_that_java_reads(number: float, text: str) -> None:
    """The encoder of the library would write null, and the value would be lost."""
    kind = Types.DOUBLE()
    message = b'{"field":"%s"}' % text.encode()
    assert json(kind, number) == message
    assert csv(kind, number) == text.encode() + b"\n"
    for schema in (
        JsonRowDeserializationSchema.builder().type_info(row_type(kind)).build(),
        JsonColumnsDeserializationSchema(row_type(kind)),
    ):
        assert str(only(schema.deserialize(message))) == str(number)
    (read,) = JsonColumnsDeserializationSchema(row_type(kind)).deserialize_batch([message]).to_pylist()
    assert str(read["field"]) == str(number)

    stream = io.BytesIO()
    JsonLinesEncoder().encode({"field": [number]}, stream)
    assert stream.getvalue() == b'{"field":["%s"]}\n' % text.encode()


def test_a_map_in_json_has_texts_as_keys() -> None:
    """Numbers would come back as texts."""
    kind = row_type(Types.MAP(Types.LONG(), Types.STRING()))
    with pytest.raises(InvalidProgramError, match="texts as keys"):
        JsonRowDeserializationSchema.builder().type_info(kind).build()
    with pytest.raises(InvalidProgramError, match="texts as keys"):
        JsonRowSerializationSchema.builder().with_type_info(kind).build()
    with pytest.raises(InvalidProgramError, match="texts as keys"):
        DebeziumJsonSerializationSchema(kind)
