"""Avro: what is written is read, exactly, in parts and over restores; files by hand; faults by file, record, field."""

from __future__ import annotations

import importlib
import io
import json
import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.unit.datastream.connectors.harness import run, run_with_restores
from yarrow.common.typeinfo import Types
from yarrow.common.types import Row
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.datastream.connectors.file_source import FileSource
from yarrow.datastream.connectors.file_system import FileEnumeratorProvider
from yarrow.datastream.formats.avro import (
    AvroBulkFormat,
    AvroBulkWriters,
    AvroInputFormat,
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
    AvroSchema,
    GenericRecordAvroTypeInfo,
)
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError

one_file = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=12,
    deadline=None,
)


def record(*fields: tuple[Any, ...]) -> AvroSchema:
    """The schema of a record of fields (name, type) or (name, type, default)."""
    made = [dict(zip(("name", "type", "default"), field, strict=False)) for field in fields]
    return AvroSchema.parse_string(json.dumps({"type": "record", "name": "R", "fields": made}))


def logical(kind: str, meaning: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": meaning, **more}


def written(schema: AvroSchema, records: list[Any], codec: str = "null") -> bytes:
    stream = io.BytesIO()
    writer = AvroBulkWriters.for_generic_record(schema, codec).create(stream)
    for element in records:
        writer.add_element(element)
    writer.finish()
    return stream.getvalue()


def source(path: Path, schema: AvroSchema | None, split_bytes: int | None = None) -> FileSource[Any]:
    builder = FileSource.for_bulk_file_format(AvroBulkFormat(schema), str(path))
    if split_bytes is not None:
        builder.set_file_enumerator(FileEnumeratorProvider.default_splittable_file_enumerator(split_bytes))
    return builder.build()


NUMBERS = record(("n", "long"), ("text", ["null", "string"]))


def in_blocks(rows: list[dict[str, Any]], rows_of_block: int, codec: str) -> bytes:
    """A file of small blocks."""
    stream = io.BytesIO()
    writer = AvroBulkWriters.for_generic_record(NUMBERS, codec).create(stream)
    for index, row in enumerate(rows):
        if index and index % rows_of_block == 0:
            writer.flush()
        writer.add_element(row)
    writer.finish()
    return stream.getvalue()


@one_file
@given(
    st.integers(0, 30),
    st.integers(1, 9),
    st.integers(60, 700),
    st.integers(2, 12),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(["null", "deflate", "bzip2", "xz"]),
)
def test_every_record_is_in_one_part_and_read_once_over_restores(
    tmp_path: Path,
    count: int,
    rows_of_block: int,
    split_bytes: int,
    max_rows: int,
    polls: int,
    parallelism: int,
    codec: str,
) -> None:
    rows = [{"n": n, "text": None if n % 3 else "é" * n} for n in range(count)]
    file = tmp_path / "numbers.avro"
    file.write_bytes(in_blocks(rows, rows_of_block, codec))
    found = run_with_restores(source(file, NUMBERS, split_bytes), parallelism, max_rows, polls)
    assert sorted(found, key=lambda row: row["n"]) == rows


def test_a_file_has_several_parts(tmp_path: Path) -> None:
    file = tmp_path / "numbers.avro"
    file.write_bytes(in_blocks([{"n": n, "text": None} for n in range(100)], 5, "null"))
    splits, _ = source(file, NUMBERS, 100).find_splits(frozenset())
    with_rows = 0
    for split in splits:
        reader = AvroBulkFormat().create_reader(split)
        with_rows += reader.read(1) is not None
        reader.close()
    assert with_rows > 3


ALL = record(
    ("whole", "int"),
    ("wide", "long"),
    ("real", "double"),
    ("flag", "boolean"),
    ("bytes", "bytes"),
    ("fixed", {"type": "fixed", "name": "F", "size": 2}),
    ("suit", {"type": "enum", "name": "E", "symbols": ["UP", "DOWN"]}),
    ("money", logical("bytes", "decimal", precision=6, scale=2)),
    ("fixed_money", logical("fixed", "decimal", name="M", size=5, precision=9, scale=3)),
    ("day", logical("int", "date")),
    ("clock", logical("int", "time-millis")),
    ("fine_clock", logical("long", "time-micros")),
    ("at", logical("long", "timestamp-millis")),
    ("fine_at", logical("long", "timestamp-micros")),
    ("here", logical("long", "local-timestamp-millis")),
    ("fine_here", logical("long", "local-timestamp-micros")),
    ("id", logical("string", "uuid")),
    ("list", {"type": "array", "items": ["null", "int"]}),
    (
        "map",
        {"type": "map", "values": {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]}},
    ),
    ("either", ["null", "int", "string"]),
)
MONEY = st.decimals(-9999, 9999, allow_nan=False, places=2)
MILLIS = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)).map(
    lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)
)
RECORDS = st.fixed_dictionaries(
    {
        "whole": st.integers(-(2**31), 2**31 - 1),
        "wide": st.integers(-(2**63), 2**63 - 1),
        "real": st.floats(allow_nan=False),
        "flag": st.booleans(),
        "bytes": st.binary(max_size=5),
        "fixed": st.binary(min_size=2, max_size=2),
        "suit": st.sampled_from(["UP", "DOWN"]),
        "money": MONEY,
        "fixed_money": st.decimals(-999999, 999999, allow_nan=False, places=3),
        "day": st.dates(),
        "clock": st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
        "fine_clock": st.times(),
        "at": MILLIS.map(lambda t: t.replace(tzinfo=UTC)),
        "fine_at": st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5))])),
        "here": MILLIS,
        "fine_here": st.datetimes(),
        "id": st.uuids(),
        "list": st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=3),
        "map": st.dictionaries(
            st.text(max_size=2), st.fixed_dictionaries({"x": st.integers(0, 9)}), max_size=2
        ),
        "either": st.one_of(st.none(), st.integers(0, 9), st.text(max_size=3)),
    }
)


@one_file
@given(st.lists(RECORDS, max_size=4))
def test_values_of_every_type_come_back_as_they_were(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    file = tmp_path / "all.avro"
    file.write_bytes(written(ALL, rows))
    assert run(source(file, ALL)) == rows
    assert run(source(file, None)) == rows


def test_a_datetime_without_a_zone_is_taken_as_utc(tmp_path: Path) -> None:
    schema = record(("at", logical("long", "timestamp-millis")))
    (tmp_path / "f").write_bytes(written(schema, [{"at": datetime(2020, 1, 2)}]))
    assert run(source(tmp_path / "f", schema)) == [{"at": datetime(2020, 1, 2, tzinfo=UTC)}]


# ------------------------------------------------------------------ another writer: the specification by hand


def zigzag(number: int) -> bytes:
    left = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while left >= 128:
        out.append(left & 127 | 128)
        left >>= 7
    return bytes([*out, left])


def text(value: str) -> bytes:
    return zigzag(len(value.encode())) + value.encode()


def by_hand(schema: str, blocks: list[list[bytes]], marker: bytes = bytes(range(16))) -> bytes:
    """A container file as the specification describes it, of encoded records."""
    head = b"Obj\x01" + zigzag(1) + text("avro.schema") + text(schema) + zigzag(0) + marker
    parts = [zigzag(len(block)) + zigzag(sum(map(len, block))) + b"".join(block) + marker for block in blocks]
    return head + b"".join(parts)


BOUGHT = record(("who", "string"), ("cents", "int"))


@pytest.mark.parametrize("split_bytes", [None, 10, 37])
def test_a_file_by_another_writer(tmp_path: Path, split_bytes: int | None) -> None:
    blocks = [[text("Ada") + zigzag(-5)], [], [text("Bob") + zigzag(300), text("Cid") + zigzag(0)]]
    (tmp_path / "f.avro").write_bytes(by_hand(BOUGHT.text, blocks))
    found = run(source(tmp_path / "f.avro", None, split_bytes))
    assert sorted((row["who"], row["cents"]) for row in found) == [("Ada", -5), ("Bob", 300), ("Cid", 0)]


def test_a_file_is_read_by_the_schema_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "f.avro").write_bytes(by_hand(BOUGHT.text, [[text("Ada") + zigzag(7)]]))
    wider = record(("cents", "long"), ("where", ["null", "string"], None))
    assert run(source(tmp_path / "f.avro", wider)) == [{"cents": 7, "where": None}]
    lacking = record(("shop", "string"))
    with pytest.raises(FileFormatError, match=r"f\.avro, block at byte \d+, record 0.*shop"):
        run(source(tmp_path / "f.avro", lacking))


def test_defaults_of_the_program_are_values_and_new_in_each_record(tmp_path: Path) -> None:
    inner = {
        "type": "record",
        "name": "I",
        "fields": [{"name": "at", "type": logical("long", "timestamp-micros"), "default": 1}],
    }
    schema = record(
        ("who", "string"),
        ("raw", "bytes", "\u00ff"),
        ("fixed", {"type": "fixed", "name": "F", "size": 2}, "ab"),
        ("money", logical("bytes", "decimal", precision=40, scale=2), b"\x85".ljust(16, b"\1").decode("latin-1")),
        ("real", "double", 1),
        ("day", logical("int", "date"), -1),
        ("clock", logical("int", "time-millis"), 61_001),
        ("at", logical("long", "timestamp-millis"), 1),
        ("here", logical("long", "local-timestamp-micros"), 1),
        ("id", logical("string", "uuid"), str(UUID(int=5))),
        ("none", ["null", "string"], None),
        ("days", {"type": "array", "items": logical("int", "date")}, [0]),
        ("inner", inner, {}),
    )  # fmt: skip
    (tmp_path / "f.avro").write_bytes(
        by_hand(BOUGHT.text, [[text("Ada") + zigzag(7), text("Bob") + zigzag(8)]])
    )
    (tmp_path / "g.avro").write_bytes(written(schema, [{"who": "Ada"}]))
    ada, bob = run(source(tmp_path / "f.avro", schema))
    unscaled = int.from_bytes(b"\x85".ljust(16, b"\1"), signed=True)
    expected = {
        "who": "Ada",
        "raw": b"\xff",
        "fixed": b"ab",
        "money": Decimal(f"{unscaled}E-2"),
        "real": 1.0,
        "day": date(1969, 12, 31),
        "clock": time(0, 1, 1, 1000),
        "at": datetime(1970, 1, 1, 0, 0, 0, 1000, UTC),
        "here": datetime(1970, 1, 1, 0, 0, 0, 1),
        "id": UUID(int=5),
        "none": None,
        "days": [date(1970, 1, 1)],
        "inner": {"at": datetime(1970, 1, 1, 0, 0, 0, 1, UTC)},
    }
    assert ada == expected
    assert type(ada["real"]) is float
    assert bob == {**expected, "who": "Bob"}
    assert ada["days"] is not bob["days"] and ada["inner"] is not bob["inner"]
    # A writer fills in the same.
    assert run(source(tmp_path / "g.avro", None)) == [expected]


def test_a_default_of_another_type_is_told_by_the_field(tmp_path: Path) -> None:
    with pytest.raises(InvalidProgramError, match="field 'at' of type date cannot have the default 99999999"):
        AvroBulkWriters.for_generic_record(record(("at", logical("int", "date"), 99999999))).create(
            io.BytesIO()
        )


MILLISECONDS = logical("long", "timestamp-millis")
CENTS = logical("bytes", "decimal", precision=4, scale=2)


@pytest.mark.parametrize(
    ("in_file", "in_program", "message"),
    [
        ("long", MILLISECONDS, r"'f' is of type long in the file and of timestamp-millis in the program"),
        (MILLISECONDS, "long", r"'f' is of type timestamp-millis in the file and of long"),
        (["null", "long"], ["null", MILLISECONDS], "'f' is of type long"),
        ("int", ["null", logical("int", "date")], "'f' is of type int in the file and of date"),
        (
            {"type": "map", "values": {"type": "array", "items": "string"}},
            {"type": "map", "values": {"type": "array", "items": logical("string", "uuid")}},
            "'f' is of type string in the file and of uuid",
        ),
        (logical("long", "timestamp-micros"), MILLISECONDS, "'f' is of type timestamp-micros"),
        (MILLISECONDS, logical("long", "local-timestamp-millis"), "'f' is of type timestamp-millis"),
        (CENTS, {**CENTS, "scale": 1}, r"'f' is of type decimal\(4, 2\) in the file and of decimal\(4, 1\)"),
        (
            CENTS,
            {**CENTS, "precision": 5},
            r"'f' is of type decimal\(4, 2\) in the file and of decimal\(5, 2\)",
        ),
        (CENTS, "bytes", r"'f' is of type decimal\(4, 2\) in the file and of bytes"),
    ],
)
def test_a_logical_type_that_differs_from_the_file_is_told(
    tmp_path: Path, in_file: Any, in_program: Any, message: str
) -> None:
    (tmp_path / "f.avro").write_bytes(written(record(("f", in_file)), []))
    with pytest.raises(FileFormatError, match=rf"f\.avro: field {message}"):
        run(source(tmp_path / "f.avro", record(("f", in_program))))
    # So does one inside a record, which has another name in the file.
    fields = [{"name": "g", "type": in_file}]
    (tmp_path / "f.avro").write_bytes(
        written(record(("r", {"type": "record", "name": "I", "fields": fields})), [])
    )
    fields = [{"name": "f", "aliases": ["g"], "type": in_program}]
    with pytest.raises(FileFormatError, match=r"field 'r\.f' is of type"):
        run(
            source(
                tmp_path / "f.avro",
                record(("r", ["null", {"type": "record", "name": "I", "fields": fields}])),
            )
        )


def test_logical_types_that_lose_nothing_meet(tmp_path: Path) -> None:
    at = datetime(2020, 1, 2, tzinfo=UTC)
    in_file = record(("at", MILLISECONDS), ("n", "int"), ("m", ["null", CENTS, "string"]))
    (tmp_path / "f").write_bytes(written(in_file, [{"at": at, "n": 1, "m": Decimal("1.20")}]))
    wider = record(
        ("at", ["null", logical("long", "timestamp-micros")]),
        ("n", ["double", MILLISECONDS]),
        ("m", ["string", CENTS, "null"]),
    )
    assert run(source(tmp_path / "f", wider)) == [{"at": at, "n": 1.0, "m": Decimal("1.20")}]


def test_damage_is_told_by_file_and_block(tmp_path: Path) -> None:
    whole = by_hand(BOUGHT.text, [[text("Ada") + zigzag(-5)], [text("Bob") + zigzag(1)]])
    start = whole.index(bytes(range(16))) + 16
    file = tmp_path / "f.avro"
    for damaged, message in [
        (b"text", r"f\.avro is no Avro file"),
        (whole[:-1], rf"f\.avro, block at byte {start + 23}"),
        (
            whole[: start + 3] + b"\xff" * 4 + whole[start + 7 :],
            rf"block at byte {start}, record 0 of the block",
        ),
    ]:
        file.write_bytes(damaged)
        with pytest.raises(FileFormatError, match=message):
            run(source(file, None))


# ------------------------------------------------------------------ what does not fit


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("int", 3.0, r"record 1 of an Avro file: f: int .* is expected, not 3\.0"),
        ("int", 2**31, "f: int .* is expected, not 2147483648"),
        ("int", True, "is expected, not True"),
        ("long", 2**63, "f: long"),
        ("string", None, "f: a text is expected, not None"),
        ("double", "1", "is expected, not '1'"),
        ("double", True, "a number for double is expected, not True"),
        ("double", 2**53 + 1, "f: a whole number that double holds to the last digit"),
        ("double", 10**400, "f: a number in the range of double"),
        ("float", 2**24 + 1, "f: a whole number that float holds to the last digit"),
        ("float", 1e300, r"f: a number in the range of float is expected, not 1e\+300"),
        ({"type": "array", "items": "int"}, [1, "x"], r"f\[\]: int"),
        ({"type": "map", "values": "int"}, {"k": "x"}, r"f\{\}: int"),
        ({"type": "map", "values": "int"}, {1: 1}, "a text as key"),
        ({"type": "record", "name": "S", "fields": [{"name": "g", "type": "int"}]}, {"g": ""}, r"f\.g: int"),
        (
            {"type": "record", "name": "S", "fields": [{"name": "g", "type": "int"}]},
            {},
            r"a value for \['g'\]",
        ),
        (
            {"type": "record", "name": "S", "fields": [{"name": "g", "type": "int"}]},
            {"g": 1, "h": 2},
            r"no field but \['g'\] is expected, not \['h'\]",
        ),
        ({"type": "fixed", "name": "F", "size": 2}, b"x", "2 bytes"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", r"one of \['A'\]"),
        (logical("bytes", "decimal", precision=4, scale=2), Decimal("1.001"), "4 digits, 2 of them"),
        (logical("bytes", "decimal", precision=4, scale=2), Decimal("100"), "4 digits, 2 of them"),
        (logical("bytes", "decimal", precision=4, scale=2), Decimal("NaN"), "4 digits"),
        (logical("bytes", "decimal", precision=4, scale=2), 1.5, "a Decimal"),
        (logical("int", "date"), datetime(2020, 1, 1), "a date is expected"),
        (logical("int", "time-millis"), time(0, 0, 0, 1), "whole milliseconds"),
        (logical("long", "timestamp-millis"), datetime(2020, 1, 1, 0, 0, 0, 1), "whole milliseconds"),
        (logical("long", "local-timestamp-micros"), datetime(2020, 1, 1, tzinfo=UTC), "without a zone"),
        (logical("string", "uuid"), "x", "a UUID"),
        (["int", "string"], 1.5, "one of int, string"),
    ],
)
def test_a_value_that_does_not_fit_is_told_by_record_and_field(kind: Any, value: Any, message: str) -> None:
    schema = record(("f", kind, None) if kind == "null" else ("f", kind))
    stream = io.BytesIO()
    writer = AvroBulkWriters.for_generic_record(schema).create(stream)
    good = {"f": _some(kind)}
    writer.add_element(good)
    with pytest.raises(FileFormatError, match=message):
        writer.add_element({"f": value})


def _some(kind: Any) -> Any:
    """A value that fits."""
    if isinstance(kind, list):
        return 1
    name = kind if isinstance(kind, str) else kind.get("logicalType", kind["type"])
    return {
        "array": [],
        "date": date(2020, 1, 1),
        "decimal": Decimal("-1.5"),
        "double": 1,
        "enum": "A",
        "fixed": b"ab",
        "float": 1,
        "int": 1,
        "local-timestamp-micros": datetime(2020, 1, 1),
        "long": 1,
        "map": {},
        "record": {"g": 1},
        "string": "",
        "time-millis": time(1),
        "timestamp-millis": 0,
        "uuid": str(UUID(int=1)),
    }[name]


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        ("double", 2**53, float(2**53)),
        ("float", 2**24, float(2**24)),
        ("float", float("-inf"), float("-inf")),
        (["null", "double", "long"], 2**53 + 1, 2**53 + 1),
        (["null", "double", "long"], 5, 5),
        (["null", "float", "int"], 2**31, float(2**31)),
        (["null", "int", "float", "double"], 1.1, 1.1),
    ],
)
def test_a_number_keeps_its_kind_and_digits(tmp_path: Path, kind: Any, value: Any, found: Any) -> None:
    (tmp_path / "f").write_bytes(written(record(("f", kind)), [{"f": value}]))
    [row] = run(source(tmp_path / "f", None))
    assert (type(row["f"]), row["f"]) == (type(found), found)


MOMENT = datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)
DAY = logical("int", "date")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ([DAY, logical("long", "timestamp-micros")], [MOMENT, date(2020, 1, 2)]),
        (["null", DAY, logical("long", "local-timestamp-millis")], [MOMENT.replace(tzinfo=None), None]),
        (
            [
                logical("bytes", "decimal", precision=3, scale=1),
                logical("fixed", "decimal", name="F", size=8, precision=12, scale=4),
            ],
            [Decimal("1.5"), Decimal("1.2345"), Decimal("123456.5")],
        ),
        ([{"type": "array", "items": ["int", "long"]}, {"type": "map", "values": DAY}], [[1, 2**40]]),
    ],
)
def test_a_value_of_a_union_keeps_its_branch(tmp_path: Path, kind: Any, values: list[Any]) -> None:
    (tmp_path / "f").write_bytes(written(record(("f", kind)), [{"f": value} for value in values]))
    assert [row["f"] for row in run(source(tmp_path / "f", None))] == values


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (["string", {"type": "long", "doc": "a number"}], 5),
        (["bytes", {"type": "double", "unit": "m"}], 0.5),
        ([DAY, logical("long", "timestamp-micros")], MOMENT),
    ],
)
def test_a_union_lies_in_a_record_that_may_be_null(tmp_path: Path, kind: Any, value: Any) -> None:
    schema = record(("f", kind), ("inner", ["null", "R"], None))
    (tmp_path / "f").write_bytes(written(schema, [{"f": value, "inner": {"f": value, "inner": None}}]))
    [row] = run(source(tmp_path / "f", None))
    assert (row["f"], row["inner"]["f"], row["inner"]["inner"]) == (value, value, None)


@pytest.mark.parametrize(
    ("kind", "default", "found"),
    [
        (["int", "bytes"], "ab", b"ab"),
        (["bytes", "int"], 5, 5),
        ([DAY, "string"], "x", "x"),
        (["null", "int", {"type": "fixed", "name": "F", "size": 2}], "ab", b"ab"),
        ([{"type": "array", "items": "int"}, {"type": "map", "values": "bytes"}], {"k": "v"}, {"k": b"v"}),
    ],
)
def test_the_default_of_a_union_is_of_the_first_branch_that_it_fits(
    tmp_path: Path, kind: Any, default: Any, found: Any
) -> None:
    (tmp_path / "f").write_bytes(written(record(("k", "int"), ("v", kind, default)), [{"k": 1}]))
    assert [row["v"] for row in run(source(tmp_path / "f", None))] == [found]


def test_a_decimal_may_be_of_any_size() -> None:
    record(("f", logical("fixed", "decimal", name="F", size=4000, precision=10)))


def test_a_field_with_a_default_may_be_left_out(tmp_path: Path) -> None:
    schema = record(("a", "int", 7), ("b", "bytes", "\u00ff"), ("c", ["null", "int"], None))
    (tmp_path / "f").write_bytes(written(schema, [{}, {"a": 1}]))
    assert [(row["a"], row["b"], row["c"]) for row in run(source(tmp_path / "f", None))] == [
        (7, b"\xff", None),
        (1, b"\xff", None),
    ]


def test_rows_are_written_as_records(tmp_path: Path) -> None:
    schema = record(("a", "int"), ("b", {"type": "array", "items": "int"}))
    (tmp_path / "f").write_bytes(written(schema, [Row(a=1, b=[2]), Row(3, []), (4, [5])]))
    assert [(row["a"], row["b"]) for row in run(source(tmp_path / "f", None))] == [
        (1, [2]),
        (3, []),
        (4, [5]),
    ]


def test_a_type_of_two_fields_is_told_by_the_field(tmp_path: Path) -> None:
    place = {"type": "record", "name": "P", "fields": [{"name": "street", "type": "string"}]}
    schema = record(("home", place), ("work", "P"))
    good = {"street": "a"}
    with pytest.raises(FileFormatError, match=r"work\.street: a text"):
        written(schema, [{"home": good, "work": {"street": 1}}])


def test_a_record_may_contain_itself(tmp_path: Path) -> None:
    schema = record(("n", "int"), ("next", ["null", "R"]))
    chain = {"n": 1, "next": {"n": 2, "next": None}}
    (tmp_path / "f").write_bytes(written(schema, [chain]))
    assert run(source(tmp_path / "f", schema)) == [chain]
    with pytest.raises(FileFormatError, match=r"record 0 of an Avro file: n: int"):
        written(schema, [{"n": 1, "next": {"n": "", "next": None}}])
    with pytest.raises(InvalidProgramError, match="R contains itself"):
        AvroRowDeserializationSchema(avro_schema_string=schema.text)


# ------------------------------------------------------------------ schemas and messages


@pytest.mark.parametrize("broken", ["", "{}", '{"type": "foo"}', '"bar"'])
def test_what_is_no_schema_is_refused(broken: str) -> None:
    with pytest.raises(InvalidProgramError, match="no schema of Avro"):
        AvroSchema.parse_string(broken)


def of(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, **more}


I_RECORD = of("record", name="I", fields=[{"name": "b", "type": "int"}])
RULES: list[tuple[Any, str]] = [
    (logical("bytes", "decimal"), "field 'a': the precision of a decimal is a whole number of digits"),
    (logical("bytes", "decimal", precision=0), "field 'a': the precision of a decimal .* not 0"),
    (logical("bytes", "decimal", precision=4, scale=5), "field 'a': the scale of a decimal of 4 digits"),
    (logical("fixed", "decimal", name="F", size=1, precision=3), "a fixed of 1 bytes holds 2 digits, not 3"),
    (of("fixed", name="F", size="2"), "field 'a': the size of the fixed F is a whole number"),
    (of("fixed", name="F"), "field 'a': .* lacks 'size'"),
    (of("array"), "field 'a': .* lacks 'items'"),
    (of("array", items="Nope"), r"field 'a\[\]': the type 'Nope' is not known; there are array, boolean"),
    (of("map", values=5), r"field 'a\{\}': a type is a name, an object or a list of these, not 5"),
    ("enum", "field 'a': a type enum is an object"),
    (of("enum", name="E", symbols="AB"), "field 'a': the symbols of the enum E are a list of texts"),
    (of("enum", name="E", symbols=["a-b"]), "field 'a': the enum E cannot have the symbol 'a-b'"),
    (of("enum", name="E", symbols=["A", "A"]), "field 'a': the enum E has the symbol 'A' twice"),
    (of("enum", name="E", symbols=["A"], default="B"), "field 'a': the default 'B' of the enum E"),
    (
        of("record", name="I", fields=[{"name": "b", "type": "int"}] * 2),
        "field 'a': the record I has two fields 'b'",
    ),
    (
        of("record", name="I", fields=[{"name": "b-c", "type": "int"}]),
        "the record I cannot have the field 'b-c'",
    ),
    (of("record", name="I", fields=["b"]), "field 'a': the fields of the record I are a list of objects"),
    (of("record", name="I", fields=[{"name": "b", "type": "Nope"}]), r"field 'a\.b': the type 'Nope'"),
    (of("record", name="a b", fields=[]), "field 'a': the record cannot have the name 'a b'"),
    (of("record", name="I", namespace="1.x", fields=[]), r"the record cannot have the name '1\.x\.I'"),
    (of("record", name="R", fields=[]), "field 'a': the type R is defined a second time"),
    ([], "field 'a': a union without types"),
    (["null", ["int"]], "field 'a': a union cannot contain a union"),
    (["int", logical("int", "date")], "field 'a': a union cannot have the type int twice"),
    (["null", I_RECORD, "I"], "field 'a': a union cannot have the type I twice"),
    ([of("array", items="int"), of("array", items="long")], "a union cannot have the type array twice"),
]


@pytest.mark.parametrize(("declared", "message"), RULES)
def test_a_schema_that_breaks_a_rule_is_refused_with_its_field(declared: Any, message: str) -> None:
    with pytest.raises(InvalidProgramError, match=message):
        record(("a", declared))


@pytest.mark.parametrize(
    ("declared", "fits", "differs"),
    [
        ("int", [0, -(2**31)], ["x", 1.5, True, None, 2**31]),
        ("double", [1, 0.5], [True, "1"]),
        ("boolean", [False], [0, None]),
        ("string", [""], [1, []]),
        ("bytes", ["\u00ff"], ["\u0100", 1]),
        (of("fixed", name="F", size=2), ["ab"], ["a", 1]),
        (of("enum", name="E", symbols=["A"]), ["A"], ["B", 1, None]),
        (of("array", items="int"), [[], [1]], [{}, ["x"]]),
        (of("map", values="int"), [{}, {"k": 1}], [[], {"k": "x"}]),
        (["null", "int"], [None, 5], ["x"]),
        (I_RECORD, [{"b": 1}], [{}, {"b": "x"}, 5]),
    ],
)
def test_a_default_is_a_value_of_its_type(declared: Any, fits: list[Any], differs: list[Any]) -> None:
    for default in fits:
        written(record(("a", declared, default)), [{}])
    for default in differs:
        with pytest.raises(InvalidProgramError, match=r"field 'a': the default .* is no value of the type"):
            record(("a", declared, default))


def test_names_are_found_in_the_namespace_of_their_record(tmp_path: Path) -> None:
    inner = of("enum", name="E", symbols=["A"])
    fields = [
        {"name": "e", "type": inner},
        {"name": "f", "type": ["null", "E"]},
        {"name": "g", "type": "x.y.E"},
    ]
    schema = AvroSchema.parse_string(json.dumps(of("record", name="R", namespace="x.y", fields=fields)))
    rows = [{"e": "A", "f": "A", "g": "A"}]
    (tmp_path / "f").write_bytes(written(schema, rows))
    assert run(source(tmp_path / "f", schema)) == rows


def test_a_default_that_contains_itself_is_refused() -> None:
    schema = record(("a", "R", {}))
    with pytest.raises(InvalidProgramError, match=r"field 'a': the default .* contains itself without end"):
        written(schema, [{}])


def test_a_schema_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xff")
    with pytest.raises(InvalidProgramError, match="f is no text in UTF-8"):
        AvroSchema.parse_file(str(tmp_path / "f"))


def test_a_schema_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "bought.avsc").write_text(BOUGHT.text)
    schema = AvroSchema.parse_file(str(tmp_path / "bought.avsc"))
    assert schema == BOUGHT == pickle.loads(pickle.dumps(BOUGHT))
    assert GenericRecordAvroTypeInfo(schema) == GenericRecordAvroTypeInfo(BOUGHT)
    assert GenericRecordAvroTypeInfo(schema) != GenericRecordAvroTypeInfo(NUMBERS)
    assert GenericRecordAvroTypeInfo(schema).schema is schema


def test_a_missing_library_is_told_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    whole: Callable[[str], Any] = importlib.import_module

    def without(name: str) -> Any:
        if name == "fastavro":
            raise ModuleNotFoundError("No module named 'fastavro'")
        return whole(name)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(UnsupportedFeatureError, match=r"pip install 'yarrow\[fastavro\]'"):
        AvroSchema.parse_string('"int"')


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(InvalidProgramError, match="'brotli' is not among null, deflate"):
        AvroBulkWriters.for_generic_record(BOUGHT, "brotli")


@pytest.mark.parametrize(
    ("declared", "value", "message"),
    [
        (of("enum", name="E", symbols=["A"]), ["A"], r"a: one of \['A'\] is expected"),
        ("string", "\ud800", "a: a text without a lone surrogate"),
        (of("map", values="int"), {"\ud800": 1}, "a: a text as key without a lone surrogate"),
        ([I_RECORD, "string"], (["I"], {"b": 1}), "a: one of I, string is expected"),
        (logical("int", "date"), -(2**31), "a: date .* is expected"),
        (logical("long", "time-micros"), -1, "a: time-micros .from 0 to 86399999999. is expected"),
        (logical("long", "timestamp-millis"), 2**62, "a: timestamp-millis .* is expected"),
        (
            logical("long", "timestamp-micros"),
            datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
            "a: a datetime from year 1 to 9999 in UTC is expected",
        ),
    ],
)
def test_a_value_that_no_reader_could_take_is_refused(declared: Any, value: Any, message: str) -> None:
    with pytest.raises(FileFormatError, match=message):
        written(record(("a", declared)), [{"a": value}])


def test_the_first_and_the_last_times_are_written(tmp_path: Path) -> None:
    schema = record(("a", logical("long", "timestamp-micros")), ("b", logical("int", "date")))
    ends = [{"a": end.replace(tzinfo=UTC), "b": end.date()} for end in (datetime.min, datetime.max)]
    numbers = [{"a": -62135596800000000, "b": -719162}, {"a": 253402300799999999, "b": 2932896}]
    for rows in (ends, numbers):
        (tmp_path / "f").write_bytes(written(schema, rows))
        assert run(source(tmp_path / "f", schema)) == ends


def test_messages_are_rows() -> None:
    read = pickle.loads(pickle.dumps(AvroRowDeserializationSchema(avro_schema_string=ALL.text)))
    write = pickle.loads(pickle.dumps(AvroRowSerializationSchema(avro_schema_string=ALL.text)))
    row = Row(
        whole=1, wide=2, real=0.5, flag=True, bytes=b"x", fixed=b"ab", suit="UP", money=Decimal("1.50"),
        fixed_money=Decimal("-2.125"), day=date(2020, 1, 2), clock=time(3), fine_clock=time(4, 5),
        at=datetime(2020, 1, 2), fine_at=datetime(2020, 1, 2, 3, 4, 5, 6), here=datetime(2020, 1, 1),
        fine_here=datetime(1969, 1, 1), id=str(UUID(int=5)), list=[1, None], map={"k": Row(x=1)}, either="s",
    )  # fmt: skip
    message = write.serialize(row)
    assert read.deserialize(message) == row
    produced = read.get_produced_type()
    assert produced.accepts(row)
    assert produced.get_field_types()[7:10] == [Types.BIG_DEC(), Types.BIG_DEC(), Types.SQL_DATE()]
    with pytest.raises(FileFormatError, match=r"message of .* bytes is no record of R"):
        read.deserialize(message[:-1])
    with pytest.raises(FileFormatError, match="1 bytes behind its record"):
        read.deserialize(message + b"x")
    with pytest.raises(FileFormatError, match="is no record of R: whole: int"):
        write.serialize(Row(*["", *list(row)[1:]]))


@pytest.mark.parametrize("schema", [AvroRowDeserializationSchema, AvroRowSerializationSchema])
def test_a_message_schema_needs_the_schema_of_a_record(schema: Any) -> None:
    with pytest.raises(UnsupportedFeatureError, match="a class of Java"):
        schema(record_class="org.example.User")
    with pytest.raises(InvalidProgramError, match="give avro_schema_string"):
        schema()
    with pytest.raises(InvalidProgramError, match="schema of a record is expected, not of int"):
        schema(avro_schema_string='"int"')


def test_an_input_format_reads_in_place_and_by_create_input(tmp_path: Path) -> None:
    rows = [{"n": n, "text": None} for n in range(20)]
    (tmp_path / "f.avro").write_bytes(in_blocks(rows, 3, "null"))
    given_format = AvroInputFormat(str(tmp_path), NUMBERS)
    splits = given_format.create_input_splits(4)
    assert len(splits) >= 4
    found = []
    for split in splits:
        given_format.open(split)
        while not given_format.reached_end():
            found.append(given_format.next_record())
        with pytest.raises(EOFError, match="no further record"):
            given_format.next_record()
    given_format.close()
    assert found == rows
    env = StreamExecutionEnvironment.get_execution_environment()
    assert env.create_input(given_format).get_type() == Types.PICKLED_BYTE_ARRAY()


@one_file
@example([10, 10, 10], 4)
@example([19, 1], 3)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(1, 60))
def test_there_are_as_many_splits_as_asked_for_or_one_a_byte(
    tmp_path_factory: Any, sizes: list[int], wanted: int
) -> None:
    folder = tmp_path_factory.mktemp("sizes")
    for number, size in enumerate(sizes):
        (folder / str(number)).write_bytes(bytes(size))
    splits = AvroInputFormat(str(folder), NUMBERS).create_input_splits(wanted)
    assert len(splits) >= min(wanted, sum(sizes))
    covered = [(Path(split.path).name, split.offset + at) for split in splits for at in range(split.length)]
    assert covered == [(str(number), at) for number, size in enumerate(sizes) for at in range(size)]


def test_one_split_at_least_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="min_num_splits must be at least 1, not 0"):
        AvroInputFormat(str(tmp_path), NUMBERS).create_input_splits(0)
