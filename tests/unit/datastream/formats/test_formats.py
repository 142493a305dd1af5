"""CSV, JSON lines and Parquet: rows and columns agree, malformed records, snapshots, what is written is
read.
"""

from __future__ import annotations

import io
import pickle
import sys
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.datastream.connectors.harness import SourceHarness, run, run_with_restores
from yarrow.common.typeinfo import RowTypeInfo, Types
from yarrow.common.types import Row
from yarrow.datastream.connectors.file_format import FileFormat, FileFormatError, MalformedRecordError
from yarrow.datastream.connectors.file_source import FileSource
from yarrow.datastream.connectors.file_system import FileEnumeratorProvider, MalformedPolicy
from yarrow.datastream.formats.csv import (
    CsvBulkWriters,
    CsvReaderFormat,
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
    CsvSchema,
)
from yarrow.datastream.formats.json import (
    JsonLinesEncoder,
    JsonLinesFormat,
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)
from yarrow.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError

one_file = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=40
)
PEOPLE = Types.ROW_NAMED(["name", "age", "score"], [Types.STRING(), Types.INT(), Types.DOUBLE()])


def source(file_format: FileFormat[Any], path: Path, split_bytes: int | None = None) -> FileSource[Any]:
    provider = (
        FileEnumeratorProvider.default_non_splittable_file_enumerator()
        if split_bytes is None
        else FileEnumeratorProvider.default_splittable_file_enumerator(split_bytes)
    )
    return FileSource(file_format, [str(path)], provider)


def people_schema(**header: bool) -> CsvSchema:
    builder = CsvSchema.builder().add_string_column("name").add_number_column("age", Types.INT())
    builder.add_number_column("score", Types.DOUBLE()).set_null_value("NA")
    return builder.set_use_header(header.get("use_header", False)).build()


def as_dicts(rows: list[Any]) -> list[Any]:
    return [row.as_dict(recursive=True) if isinstance(row, Row) else row for row in rows]


NAMES = st.one_of(st.none(), st.text("ab ,\"'\n\u00e9", min_size=1, max_size=6).filter(lambda t: t != "NA"))
ROWS = st.lists(
    st.tuples(
        NAMES,
        st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
        st.one_of(st.none(), st.floats(allow_nan=False)),
    ),
    max_size=20,
)


def write_bulk(factory: Any, rows: list[Any]) -> bytes:
    stream = io.BytesIO()
    writer = factory.create(stream)
    for row in rows:
        writer.add_element(row)
    writer.finish()
    return stream.getvalue()


@one_file
@given(ROWS, st.booleans(), st.booleans(), st.integers(1, 7), st.integers(1, 3))
def test_csv_written_is_csv_read(
    tmp_path: Path, rows: list[Any], header: bool, columnar: bool, max_rows: int, polls: int
) -> None:
    schema = people_schema(use_header=header)
    file = tmp_path / "people.csv"
    file.write_bytes(write_bulk(CsvBulkWriters.for_schema(schema), rows))
    found = run_with_restores(
        source(CsvReaderFormat.for_schema(schema, columnar=columnar), file), 1, max_rows, polls
    )
    assert as_dicts(found) == [dict(zip(("name", "age", "score"), row, strict=True)) for row in rows]


@pytest.mark.differs("CsvBulkWriters.for_schema", told="quotes what needs it")
def test_csv_quotes_fields_with_a_delimiter_a_quote_or_a_line_end_alone() -> None:
    names = ["a b", "a,b", 'a"b', "a\nb", "é"]
    written = write_bulk(CsvBulkWriters.for_schema(people_schema()), [(name, 1, 2.0) for name in names])
    fields = ["a b", '"a,b"', '"a""b"', '"a\nb"', "é"]
    assert written.decode().splitlines() == "\n".join(f"{field},1,2.0" for field in fields).splitlines()


@pytest.mark.parametrize("columnar", [False, True])
@pytest.mark.parametrize("split_bytes", [None, 10])
def test_csv_header_finds_columns_by_name(tmp_path: Path, columnar: bool, split_bytes: int | None) -> None:
    file = tmp_path / "people.csv"
    file.write_text("extra,score,age,name\nx,1.5,3,ann\ny,,4,NA\nz,2,NA,\n")
    csv_format = CsvReaderFormat.for_schema(people_schema(use_header=True), columnar, multiline=False)
    assert as_dicts(run(source(csv_format, file, split_bytes))) == [
        {"name": "ann", "age": 3, "score": 1.5},
        {"name": None, "age": 4, "score": None},
        {"name": "", "age": None, "score": 2.0},
    ]


def test_csv_header_without_a_column_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_text("name,score\nann,1\n")
    with pytest.raises(FileFormatError, match=r"people\.csv.*\['age'\]"):
        run(source(CsvReaderFormat.for_schema(people_schema(use_header=True)), file))


@pytest.mark.parametrize("columnar", [False, True])
def test_an_empty_csv_file_has_no_rows_and_needs_no_header(tmp_path: Path, columnar: bool) -> None:
    (tmp_path / "part-0.csv").write_bytes(b"")
    (tmp_path / "part-1.csv").write_text("name,age,score\nann,3,1.5\n")
    csv_format = CsvReaderFormat.for_schema(people_schema(use_header=True), columnar)
    assert as_dicts(run(source(csv_format, tmp_path))) == [{"name": "ann", "age": 3, "score": 1.5}]


BAD_CSV = "ann,3,1.5\nbob,x,2\ncid,4\ndan,3000000000,1\neve,5,2.5\n"


@pytest.mark.parametrize("columnar", [False, True])
def test_csv_fails_with_file_line_and_column(tmp_path: Path, columnar: bool) -> None:
    file = tmp_path / "people.csv"
    file.write_text(BAD_CSV)
    with pytest.raises(
        MalformedRecordError, match=r"people\.csv, line 2: column 'age': Integer is expected, found 'x': 'bob"
    ):
        run(source(CsvReaderFormat.for_schema(people_schema(), columnar), file))


@pytest.mark.parametrize("columnar", [False, True])
@pytest.mark.parametrize("split_bytes", [None, 8])
def test_csv_sends_malformed_records_aside(tmp_path: Path, columnar: bool, split_bytes: int | None) -> None:
    file = tmp_path / "people.csv"
    file.write_text(BAD_CSV)
    csv_format = CsvReaderFormat.for_schema(
        people_schema(), columnar, MalformedPolicy.SIDE_OUTPUT, multiline=False
    )
    harness = SourceHarness(source(csv_format, file, split_bytes))
    assert [row["name"] for row in harness.run()] == ["ann", "eve"]
    assert [(record.position, record.text) for _, record in harness.side] == [
        (2, "bob,x,2"),
        (3, "cid,4"),
        (4, "dan,3000000000,1"),
    ]
    assert harness.num_errors == 3


def test_csv_open_quote_costs_one_record(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_text('ann,3,1.5\n"bob,4,2\ncid,5,2.5\n')
    csv_format = CsvReaderFormat.for_schema(people_schema(), on_malformed=MalformedPolicy.SIDE_OUTPUT)
    harness = SourceHarness(source(csv_format, file))
    assert [row["name"] for row in harness.run()] == ["ann", "cid"]
    assert [record.position for _, record in harness.side] == [2]


def test_csv_other_than_utf8_is_malformed(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_bytes(b"ann,3,1.5\n\xff,4,2\n")
    csv_format = CsvReaderFormat.for_schema(people_schema(), on_malformed=MalformedPolicy.SIDE_OUTPUT)
    harness = SourceHarness(source(csv_format, file))
    assert len(harness.run()) == 1
    letter = harness.side[0][1]
    assert (letter.position, letter.raw, letter.text) == (2, b"\xff,4,2", "\ufffd,4,2")
    assert letter.error == "not UTF-8" and "not UTF-8" in letter.traceback


@pytest.mark.parametrize("columnar", [False, True])
def test_csv_arrays_comments_and_skipped_row(tmp_path: Path, columnar: bool) -> None:
    schema = (
        CsvSchema.builder()
        .add_array_column("tags")
        .add_boolean_column("ok")
        .set_column_separator("|")
        .set_allow_comments()
        .set_skip_first_data_row()
        .build()
    )
    file = tmp_path / "tags.csv"
    file.write_text("# first\nunits|?\na;b|true\n# second\n|false\n")
    rows = as_dicts(run(source(CsvReaderFormat.for_schema(schema, columnar), file)))
    assert rows == [{"tags": ["a", "b"], "ok": True}, {"tags": [], "ok": False}]


def test_csv_schema_refuses_what_it_cannot_do() -> None:
    with pytest.raises(ValueError, match="at least one column"):
        CsvSchema.builder().build()
    with pytest.raises(ValueError, match=r"\['a'\]"):
        CsvSchema.builder().add_string_column("a").add_boolean_column("a").build()
    with pytest.raises(UnsupportedFeatureError, match="any_property"):
        CsvSchema.builder().set_any_property_name("rest")
    with pytest.raises(ValueError, match="one character"):
        CsvSchema.builder().set_column_separator("||")


def test_csv_messages() -> None:
    write = CsvRowSerializationSchema.Builder(PEOPLE).set_null_literal("-").set_line_delimiter("").build()
    read = CsvRowDeserializationSchema.Builder(PEOPLE).set_null_literal("-").build()
    row = Row(name='a,"b"', age=None, score=0.5)
    message = pickle.loads(pickle.dumps(write)).serialize(row)
    assert message == b'"a,""b""",-,0.5'
    assert pickle.loads(pickle.dumps(read)).deserialize(message) == row
    with pytest.raises(FileFormatError, match="column 'age'"):
        read.deserialize(b"a,b,c")
    lenient = CsvRowDeserializationSchema.Builder(PEOPLE).set_ignore_parse_errors(True).build()
    assert lenient.deserialize(b"a,b,c") is None


@pytest.mark.slow
@one_file
@given(ROWS, st.booleans(), st.integers(4, 80), st.integers(1, 7), st.integers(1, 3))
def test_json_written_is_json_read(
    tmp_path: Path, rows: list[Any], columnar: bool, split_bytes: int, max_rows: int, polls: int
) -> None:
    infinite = (float("inf"), float("-inf"))
    finite = [(name, age, None if score in infinite else score) for name, age, score in rows]
    stream = io.BytesIO()
    template = Row("name", "age", "score")
    for row in finite:
        JsonLinesEncoder().encode(template(*row), stream)
    file = tmp_path / "people.jsonl"
    file.write_bytes(stream.getvalue())
    found = run_with_restores(
        source(JsonLinesFormat(PEOPLE, columnar), file, split_bytes), 1, max_rows, polls
    )
    assert as_dicts(found) == [template(*row).as_dict() for row in finite]


@pytest.mark.parametrize("columnar", [False, True])
def test_json_malformed_lines(tmp_path: Path, columnar: bool) -> None:
    file = tmp_path / "people.jsonl"
    lines = [
        '{"name": "ann", "age": 1, "more": 2}',
        '{"name": 3}',
        "",
        '{"name":',
        "[1]",
        '{"age": 9999999999}',
    ]
    file.write_text("\n".join(lines))
    harness = SourceHarness(source(JsonLinesFormat(PEOPLE, columnar, MalformedPolicy.SIDE_OUTPUT), file))
    assert as_dicts(harness.run()) == [{"name": "ann", "age": 1, "score": None}]
    assert [record.position for _, record in harness.side] == [2, 4, 5, 6]
    with pytest.raises(MalformedRecordError, match=r"jsonl, line 2: field 'name': String is expected"):
        run(source(JsonLinesFormat(PEOPLE, columnar), file))


def test_json_without_type_gives_what_the_line_holds(tmp_path: Path) -> None:
    file = tmp_path / "any.jsonl"
    file.write_text('{"a": [1, null]}\n"text"\n')
    assert run(source(JsonLinesFormat(), file)) == [{"a": [1, None]}, "text"]
    with pytest.raises(InvalidProgramError, match="type_info"):
        JsonLinesFormat(columnar=True)


NESTED = Types.ROW_NAMED(
    ["day", "at", "tags", "by", "inner"],
    [
        Types.SQL_DATE(),
        Types.SQL_TIMESTAMP(),
        Types.LIST(Types.STRING()),
        Types.MAP(Types.STRING(), Types.LONG()),
        Types.ROW_NAMED(["x"], [Types.DOUBLE()]),
    ],
)
NESTED_ROW = Row(
    day=date(2024, 2, 29),
    at=datetime(2024, 2, 29, 12, 30, 0, 5),
    tags=["a", None],
    by={"k": 2},
    inner=Row(x=1.0),
)


def test_json_messages_of_nested_types() -> None:
    write = JsonRowSerializationSchema.builder().with_type_info(NESTED).build()
    read = pickle.loads(pickle.dumps(JsonRowDeserializationSchema.builder().type_info(NESTED).build()))
    message = write.serialize(NESTED_ROW)
    assert b'"day":"2024-02-29"' in message
    assert read.deserialize(message) == NESTED_ROW
    assert read.deserialize(b"{}") == Row(day=None, at=None, tags=None, by=None, inner=None)


def test_json_message_settings() -> None:
    strict = JsonRowDeserializationSchema.builder().type_info(PEOPLE).fail_on_missing_field().build()
    with pytest.raises(FileFormatError, match="'age' is missing"):
        strict.deserialize(b'{"name": "a", "score": 1}')
    lenient = JsonRowDeserializationSchema.builder().type_info(PEOPLE).ignore_parse_errors().build()
    assert lenient.deserialize(b"{") is None
    with pytest.raises(UnsupportedFeatureError, match="type_info"):
        JsonRowDeserializationSchema.builder().json_schema("{}")


@pytest.mark.slow
@one_file
@given(
    st.integers(0, 60),
    st.integers(1, 20),
    st.integers(1, 25),
    st.integers(1, 3),
    st.integers(1, 2),
    st.booleans(),
)
def test_parquet_splits_and_restores(
    tmp_path: Path, count: int, group: int, max_rows: int, polls: int, parallelism: int, columnar: bool
) -> None:
    file = tmp_path / "numbers.parquet"
    table = pa.table({"n": list(range(count)), "m": [str(n) for n in range(count)]})
    pq.write_table(table.cast(pa.schema([("n", pa.int64()), ("m", pa.string())])), file, row_group_size=group)
    file_format = ParquetColumnarRowInputFormat(
        Types.ROW_NAMED(["m", "n"], [Types.STRING(), Types.LONG()]), batch_size=7, columnar=columnar
    )
    rows = run_with_restores(source(file_format, file, 100), parallelism, max_rows, polls)
    assert sorted(row["n"] for row in rows) == list(range(count))
    assert all(row["m"] == str(row["n"]) for row in rows)


def test_parquet_written_is_parquet_read(tmp_path: Path) -> None:
    file = tmp_path / "nested.parquet"
    file.write_bytes(write_bulk(ParquetBulkWriters.for_row_type(NESTED), [NESTED_ROW]))
    assert run(source(ParquetColumnarRowInputFormat(NESTED, columnar=False), file)) == [NESTED_ROW]


def test_parquet_schema_comes_from_the_first_file(tmp_path: Path) -> None:
    file = tmp_path / "numbers.parquet"
    pq.write_table(pa.table({"n": [1, 2]}), file)
    read = source(ParquetColumnarRowInputFormat(), file)
    assert read.produced_schema() == pa.schema([pa.field("n", pa.int64())])
    assert run(read) == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("pandas", ["installed", "missing"])
def test_rows_of_parquet_have_times_of_python_with_and_without_pandas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pandas: str
) -> None:
    file = tmp_path / "nanoseconds"
    stamps = pa.array([1_000_000_001_000, None], pa.timestamp("ns"))
    nested = pa.StructArray.from_arrays([stamps], names=["at"])
    pq.write_table(pa.table({"at": stamps, "nested": nested, "took": stamps.view(pa.duration("ns"))}), file)
    if pandas == "missing":
        monkeypatch.setitem(sys.modules, "pandas", None)
    rows = run(source(ParquetColumnarRowInputFormat(columnar=False), file))
    at = datetime(1970, 1, 1, 0, 16, 40, 1)
    assert rows[0] == Row(at=at, nested={"at": at}, took=timedelta(seconds=1000, microseconds=1))
    assert [type(rows[0]["at"]), type(rows[0]["nested"]["at"]), type(rows[0]["took"])] == [
        datetime,
        datetime,
        timedelta,
    ]
    assert list(rows[1]) == [None, {"at": None}, None]
    pq.write_table(pa.table({"at": pa.array([1_000_000_001], pa.timestamp("ns"))}), file)
    with pytest.raises(FileFormatError, match=r"column 'at' of type timestamp\[ns\]: .*columnar=True"):
        run(source(ParquetColumnarRowInputFormat(columnar=False), file))


def test_parquet_refuses_missing_columns_and_lossy_casts(tmp_path: Path) -> None:
    file = tmp_path / "numbers.parquet"
    pq.write_table(pa.table({"n": [2**40]}), file)
    wants: list[tuple[RowTypeInfo, str]] = [
        (Types.ROW_NAMED(["x"], [Types.LONG()]), r"numbers\.parquet: the columns \['x'\]"),
        (
            Types.ROW_NAMED(["n"], [Types.INT()]),
            r"numbers\.parquet: column 'n' of type int64 does not have the declared type int32: ",
        ),
    ]
    for row_type, message in wants:
        with pytest.raises(FileFormatError, match=message):
            run(source(ParquetColumnarRowInputFormat(row_type), file))
    (tmp_path / "text").write_text("no parquet")
    with pytest.raises(FileFormatError, match="no Parquet file"):
        run(source(ParquetColumnarRowInputFormat(PEOPLE), tmp_path / "text"))


@pytest.mark.parametrize("columnar", [False, True])
def test_a_parquet_file_without_columns_has_no_rows(tmp_path: Path, columnar: bool) -> None:
    pq.write_table(pa.table({}), tmp_path / "none.parquet")
    assert run(source(ParquetColumnarRowInputFormat(columnar=columnar), tmp_path)) == []


def test_a_row_that_does_not_fit_its_column_is_named() -> None:
    with pytest.raises(FileFormatError, match=r"row 1 of the batch: 'x' does not fit column 'age'"):
        write_bulk(ParquetBulkWriters.for_row_type(PEOPLE), [("a", 1, 1.0), ("b", "x", 1.0)])


def test_decimals_of_a_json_message_keep_their_digits() -> None:
    row_type = Types.ROW_NAMED(["amount", "rate"], [Types.BIG_DEC(), Types.DOUBLE()])
    schema = JsonRowDeserializationSchema.builder().type_info(row_type).build()
    row = schema.deserialize(b'{"amount": 12345678901234567890.123456789, "rate": 0.1}')
    assert row == Row(amount=Decimal("12345678901234567890.123456789"), rate=0.1)
