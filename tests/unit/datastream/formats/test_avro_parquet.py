"""Avro records in Parquet files: the values of Avro files come back, from files of other writers too."""

from __future__ import annotations

import io
import json
import pickle
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from tests.unit.datastream.connectors.harness import run, run_with_restores
from tests.unit.datastream.formats.test_avro import ALL, RECORDS, logical, one_file, record
from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.datastream.connectors.file_source import FileSource
from yarrow.datastream.connectors.file_system import FileEnumeratorProvider
from yarrow.datastream.formats.avro import AvroSchema, GenericRecordAvroTypeInfo
from yarrow.datastream.formats.parquet import AvroParquetReaders, AvroParquetWriters
from yarrow.runtime.common.errors import InvalidProgramError

#: As ALL, without the union of two types.
COLUMNS = AvroSchema.parse_string(
    json.dumps({**json.loads(ALL.text), "fields": json.loads(ALL.text)["fields"][:-1]})
)


def source(path: Path, schema: AvroSchema, split_bytes: int = 1 << 20) -> FileSource[Any]:
    builder = FileSource.for_record_stream_format(AvroParquetReaders.for_generic_record(schema), str(path))
    enumerator = FileEnumeratorProvider.default_splittable_file_enumerator(split_bytes)
    return builder.set_file_enumerator(enumerator).build()


def written(schema: AvroSchema, records: list[Any]) -> bytes:
    stream = io.BytesIO()
    writer = pickle.loads(pickle.dumps(AvroParquetWriters.for_generic_record(schema))).create(stream)
    for element in records:
        writer.add_element(element)
    writer.finish()
    return stream.getvalue()


@one_file
@given(rows=RECORDS)
def test_values_of_every_type_come_back_as_they_were(tmp_path_factory: Any, rows: dict[str, Any]) -> None:
    row = {name: value for name, value in rows.items() if name != "either"}
    file = tmp_path_factory.mktemp("parquet") / "f.parquet"
    file.write_bytes(written(COLUMNS, [row]))
    assert run(source(file, COLUMNS)) == [row]


def test_a_file_names_its_schema_and_types(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(written(COLUMNS, []))
    schema = pq.read_schema(tmp_path / "f")
    assert schema.metadata[b"parquet.avro.schema"].decode() == COLUMNS.text
    assert schema.field("money").type == pa.decimal128(6, 2)
    assert schema.field("at").type == pa.timestamp("ms", "UTC")
    assert not schema.field("whole").nullable
    declared = AvroParquetReaders.for_generic_record(COLUMNS).produced_type()
    assert declared == GenericRecordAvroTypeInfo(COLUMNS)


def test_a_file_of_another_writer_is_read_in_parts_over_restores(tmp_path: Path) -> None:
    numbers = list(range(50))
    table = pa.table({"x": ["-"] * 50, "n": pa.array(numbers, pa.int32()), "t": [None, "a"] * 25})
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=7)
    schema = record(("n", "long"), ("t", ["null", "string"]))
    for parallelism in (1, 3):
        rows = run_with_restores(source(tmp_path / "f.parquet", schema, 100), parallelism, 5, 2)
        assert sorted((row["n"], row["t"] or "") for row in rows) == [
            (n, "a" if n % 2 else "") for n in numbers
        ]


def test_what_does_not_fit_is_told_by_file_and_column(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": ["x"], "m": pa.array([None], pa.int64())}), tmp_path / "f.parquet")
    for schema, message in [
        (record(("gone", "int")), r"f\.parquet: the columns \['gone'\]"),
        (record(("n", "int")), r"f\.parquet: column 'n' does not have the type"),
        (record(("m", "long")), r"f\.parquet: column 'm' has nulls"),
    ]:
        with pytest.raises(FileFormatError, match=message):
            run(source(tmp_path / "f.parquet", schema))
    with pytest.raises(FileFormatError, match=r"record 1 of a batch: n: int"):
        written(record(("n", "int")), [{"n": 1}, {"n": "x"}])


def test_a_field_with_a_default_may_be_left_out(tmp_path: Path) -> None:
    schema = record(
        ("a", "int", 7),
        ("b", "bytes", "\u00ff"),
        ("m", logical("bytes", "decimal", precision=4, scale=2), "\u0001\u0000"),
        ("c", ["null", "int"], None),
    )
    (tmp_path / "f").write_bytes(written(schema, [{}]))
    assert run(source(tmp_path / "f", schema)) == [{"a": 7, "b": b"\xff", "m": Decimal("2.56"), "c": None}]


def test_nulls_inside_of_values(tmp_path: Path) -> None:
    inner = {
        "type": "record",
        "name": "I",
        "fields": [{"name": "at", "type": ["null", logical("long", "timestamp-micros")]}],
    }
    schema = record(
        ("inner", ["null", inner]),
        ("ids", {"type": "array", "items": ["null", logical("string", "uuid")]}),
        ("days", {"type": "map", "values": ["null", logical("int", "date")]}),
        ("clock", ["null", logical("int", "time-millis")]),
    )
    rows = [
        {"inner": None, "ids": [], "days": {}, "clock": None},
        {"inner": {"at": None}, "ids": [None, UUID(int=1)], "days": {"a": None}, "clock": time(1)},
        {
            "inner": {"at": datetime(2020, 1, 1, tzinfo=UTC)},
            "ids": [],
            "days": {"b": date(2020, 1, 1)},
            "clock": None,
        },
    ]
    (tmp_path / "f").write_bytes(written(schema, rows))
    assert run(source(tmp_path / "f", schema)) == rows


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (("f", ["int", "string"]), "field 'f': the type union of Avro has no columnar form"),
        (("f", "null"), "field 'f': the type null"),
        (("f", ["null", "R"]), "the record R contains itself"),
        (("f", {"type": "record", "name": "I", "fields": []}), "the record I has no fields"),
        (("f", {"type": "fixed", "name": "F", "size": 0}), "field 'f': a fixed of 0 bytes"),
        (("f", logical("bytes", "decimal", precision=80)), "field 'f': a decimal of 80 digits"),
    ],
)
def test_what_has_no_columns_is_refused_when_the_program_is_built(field: Any, message: str) -> None:
    with pytest.raises(InvalidProgramError, match=message):
        AvroParquetWriters.for_generic_record(record(field))
    with pytest.raises(InvalidProgramError, match=message):
        AvroParquetReaders.for_generic_record(record(field))
    with pytest.raises(InvalidProgramError, match="a schema of a record is expected, not of int"):
        AvroParquetReaders.for_generic_record(AvroSchema.parse_string('"int"'))


def test_values_that_the_schema_lacks_are_told_by_column(tmp_path: Path) -> None:
    enum = {"type": "enum", "name": "E", "symbols": ["UP", "DOWN"]}
    columns = {"e": ["UP", "LEFT"], "l": [["UP"], ["LEFT"]], "n": [["UP"], [None]], "id": ["x", "y"]}
    pq.write_table(pa.table(columns), tmp_path / "f")
    for field, message in [
        (("e", enum), r"f: column 'e' .*'LEFT' is not among the symbols \['DOWN', 'UP'\] of the enum E"),
        (("l", {"type": "array", "items": enum}), "f: column 'l' .*'LEFT' is not among"),
        (("n", {"type": "array", "items": enum}), "f: column 'n' .*a null, and E is without null"),
        (("id", logical("string", "uuid")), "f: column 'id' .*badly formed"),
    ]:
        with pytest.raises(FileFormatError, match=message):
            run(source(tmp_path / "f", record(field)))
    more = {**enum, "symbols": ["UP", "DOWN", "LEFT"]}
    assert [row["e"] for row in run(source(tmp_path / "f", record(("e", more))))] == ["UP", "LEFT"]


def test_a_time_beyond_those_of_python_is_told_by_column(tmp_path: Path) -> None:
    pq.write_table(pa.table({"at": pa.array([2**60], pa.timestamp("us", "UTC"))}), tmp_path / "f")
    with pytest.raises(FileFormatError, match="f: column 'at' has a value that its type in the schema lacks"):
        run(source(tmp_path / "f", record(("at", logical("long", "timestamp-micros")))))
