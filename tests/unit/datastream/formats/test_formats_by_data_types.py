"""CSV and Parquet with types of SQL, headers with other names, and Rows inside CSV messages."""

from __future__ import annotations

import io
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.datastream.connectors.harness import run
from yarrow.common.typeinfo import Types
from yarrow.common.types import Row
from yarrow.datastream.connectors.file_format import FileFormat, FileFormatError, MalformedRecordError
from yarrow.datastream.connectors.file_source import FileSource
from yarrow.datastream.connectors.file_system import FileEnumeratorProvider
from yarrow.datastream.formats.csv import (
    CsvBulkWriters,
    CsvReaderFormat,
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
    CsvSchema,
    CsvSchemaBuilder,
)
from yarrow.datastream.formats.orc import OrcBulkWriters, OrcColumnarRowInputFormat
from yarrow.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.table import DataTypes


def source(file_format: FileFormat[Any], file: Path) -> FileSource[Any]:
    whole_files = FileEnumeratorProvider.default_non_splittable_file_enumerator()
    return FileSource(file_format, [str(file)], whole_files)


def read(file_format: Any, file: Path) -> list[Any]:
    rows = run(source(file_format, file))
    return [row.as_dict() if isinstance(row, Row) else row for row in rows]


def written(factory: Any, rows: list[Any]) -> bytes:
    stream = io.BytesIO()
    writer = factory.create(stream)
    for row in rows:
        writer.add_element(row)
    writer.finish()
    return stream.getvalue()


def prices() -> CsvSchema:
    return (
        CsvSchema.builder()
        .add_string_column("name")
        .add_number_column("count", DataTypes.SMALLINT())
        .add_number_column("price", DataTypes.DECIMAL(5, 2))
        .add_array_column("parts", element_type=DataTypes.DECIMAL(4, 1))
        .build()
    )


@pytest.mark.parametrize("columnar", [False, True])
def test_csv_columns_are_declared_by_data_types(tmp_path: Path, columnar: bool) -> None:
    file = tmp_path / "prices.csv"
    file.write_text("a,3,1.5,1;2.25\nb,,7.125,\nc,4,,3\n")
    assert prices().row_type == Types.ROW_NAMED(
        ["name", "count", "price", "parts"],
        [Types.STRING(), Types.SHORT(), Types.BIG_DEC(), Types.LIST(Types.BIG_DEC())],
    )
    found = read(CsvReaderFormat.for_schema(prices(), columnar), file)
    assert found == [
        {"name": "a", "count": 3, "price": Decimal("1.50"), "parts": [Decimal("1.0"), Decimal("2.3")]},
        {"name": "b", "count": None, "price": Decimal("7.13"), "parts": []},
        {"name": "c", "count": 4, "price": None, "parts": [Decimal("3.0")]},
    ]


@pytest.mark.differs("CsvSchemaBuilder.add_number_column", told="Formats do not enforce")
@pytest.mark.parametrize("columnar", [False, True])
def test_a_column_that_is_not_null_takes_an_empty_field(tmp_path: Path, columnar: bool) -> None:
    file = tmp_path / "counts.csv"
    file.write_text("a,\nb,2\n")
    schema = CsvSchema.builder().add_string_column("name")
    schema.add_number_column("count", DataTypes.INT().not_null())
    found = read(CsvReaderFormat.for_schema(schema.build(), columnar), file)
    assert found == [{"name": "a", "count": None}, {"name": "b", "count": 2}]


@pytest.mark.parametrize("columnar", [False, True])
def test_a_number_too_wide_for_its_type_is_refused(tmp_path: Path, columnar: bool) -> None:
    file = tmp_path / "prices.csv"
    file.write_text("a,3,1000.5,1\n")
    with pytest.raises(
        MalformedRecordError, match=r"column 'price': DECIMAL\(5, 2\) is expected, found '1000.5'"
    ):
        read(CsvReaderFormat.for_schema(prices(), columnar), file)
    file.write_text("a,40000,1,1\n")
    with pytest.raises(MalformedRecordError, match="column 'count': Short must lie between -32768 and 32767"):
        read(CsvReaderFormat.for_schema(prices(), columnar), file)


def test_columns_of_decimals_have_their_digits() -> None:
    schema = CsvReaderFormat.for_schema(prices(), columnar=True).produced_schema(None)
    assert schema is not None
    assert schema.field("price").type == pa.decimal128(5, 2)
    assert schema.field("parts").type == pa.list_(pa.decimal128(4, 1))


def test_csv_written_by_data_types_has_their_digits() -> None:
    factory = CsvBulkWriters.for_schema(prices())
    row = Row(name="a", count=3, price=Decimal("1.005"), parts=[Decimal(2), None])
    assert written(factory, [row]) == b"a,3,1.01,2.0;\n"
    with pytest.raises(FileFormatError, match=r"column 'price': DECIMAL\(5, 2\) is expected, found Decimal"):
        written(factory, [Row(name="a", count=3, price=Decimal(1000), parts=[])])


def test_a_type_without_text_is_refused() -> None:
    with pytest.raises(InvalidProgramError, match="has no form in a text field"):
        CsvSchema.builder().add_number_column("m", DataTypes.MAP(DataTypes.STRING(), DataTypes.INT()))
    with pytest.raises(InvalidProgramError, match=r"INTERVAL\(DAY\(2\)\) has no values in records"):
        CsvSchema.builder().add_number_column("i", DataTypes.INTERVAL(DataTypes.DAY()))
    with pytest.raises(TypeError, match="type of a CSV column must be a TypeInformation"):
        CsvSchema.builder().add_number_column("n", int)  # type: ignore[arg-type]


def pairs(strict: bool = False) -> CsvSchemaBuilder:
    builder = CsvSchema.builder().add_string_column("name").add_number_column("age", DataTypes.INT())
    return builder.set_use_header().set_strict_headers(strict)


@pytest.mark.differs(
    "CsvSchemaBuilder.set_use_header", "CsvSchemaBuilder.set_strict_headers", told="takes columns by position"
)
@pytest.mark.parametrize("columnar", [False, True])
@pytest.mark.parametrize("header", ["NAME,AGE", "name,years", "who,age"])
def test_a_header_with_other_names_is_taken_by_position(tmp_path: Path, header: str, columnar: bool) -> None:
    file = tmp_path / "pairs.csv"
    file.write_text(f"{header}\nann,3\nbob,4\n")
    found = read(CsvReaderFormat.for_schema(pairs().build(), columnar), file)
    assert found == [{"name": "ann", "age": 3}, {"name": "bob", "age": 4}]
    with pytest.raises(FileFormatError, match=rf"the header has the columns \['{header.split(',')[0]}'"):
        read(CsvReaderFormat.for_schema(pairs(strict=True).build(), columnar), file)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("who,years,town", r"the columns \['name', 'age'\] .* the header has 3 columns, the schema 2"),
        ("age,years", r"\['age'\] at another position. Name all columns as the header does"),
    ],
)
def test_a_header_that_names_and_positions_read_differently_is_refused(
    tmp_path: Path, header: str, message: str
) -> None:
    file = tmp_path / "pairs.csv"
    file.write_text(f"{header}\nann,3\n")
    with pytest.raises(FileFormatError, match=message):
        read(CsvReaderFormat.for_schema(pairs().build()), file)


PLACE = Types.ROW_NAMED(["town", "zip"], [Types.STRING(), Types.INT()])
PEOPLE = Types.ROW_NAMED(["name", "place", "tags"], [Types.STRING(), PLACE, Types.LIST(Types.LONG())])


@pytest.mark.parametrize(
    ("place", "tags", "text"),
    [
        (Row(town="Ulm", zip=89073), [1, 2], b"ann,Ulm;89073,1;2\n"),
        (Row(town="Ulm", zip=None), [None, 2], b"ann,Ulm;-,-;2\n"),
        (None, [], b"ann,-,\n"),
    ],
)
def test_rows_inside_a_csv_message(place: Row | None, tags: list[int | None], text: bytes) -> None:
    row = Row(name="ann", place=place, tags=tags)
    write = CsvRowSerializationSchema.Builder(PEOPLE).set_null_literal("-").build()
    assert write.serialize(row) == text
    back = CsvRowDeserializationSchema.Builder(PEOPLE).set_null_literal("-").build().deserialize(text)
    assert back == row
    assert place is None or (back is not None and back.place.town == "Ulm")


def test_fields_of_a_row_without_names_inside_a_csv_message_are_f0_f1() -> None:
    people = Types.ROW([Types.STRING(), Types.ROW([Types.STRING(), Types.INT()])])
    text = CsvRowSerializationSchema.Builder(people).build().serialize(Row("ann", Row("Ulm", 89073)))
    assert text == b"ann,Ulm;89073\n"
    back = CsvRowDeserializationSchema.Builder(people).build().deserialize(text)
    assert back is not None and back.f1.f0 == "Ulm" and back.f1["f1"] == 89073


@pytest.mark.differs("CsvBulkWriters.for_schema", told="could read such a field back")
def test_rows_inside_a_csv_message_that_do_not_fit_are_refused() -> None:
    write = CsvRowSerializationSchema.Builder(PEOPLE).build()
    with pytest.raises(FileFormatError, match=r"column 'place': .* has 1 fields, the declared type 2, found"):
        write.serialize(Row(name="ann", place=Row("Ulm"), tags=[]))
    with pytest.raises(FileFormatError, match="column 'place': 'a;b' holds ';', which stands between values"):
        write.serialize(Row(name="ann", place=Row(town="a;b", zip=1), tags=[]))
    piped = CsvRowSerializationSchema.Builder(PEOPLE).set_array_element_delimiter("|").build()
    assert piped.serialize(Row(name="ann", place=Row(town="a;b", zip=1), tags=[])) == b"ann,a;b|1,\n"
    read_back = CsvRowDeserializationSchema.Builder(PEOPLE).build()
    with pytest.raises(FileFormatError, match="column 'place': 2 values between ';' are expected"):
        read_back.deserialize(b"ann,Ulm,1")
    deep = Types.ROW_NAMED(["a"], [Types.ROW_NAMED(["b"], [PLACE])])
    with pytest.raises(InvalidProgramError, match="has no form in a text field"):
        CsvRowSerializationSchema.Builder(deep).build()


def test_parquet_is_declared_by_data_types(tmp_path: Path) -> None:
    row_type = DataTypes.ROW(
        [
            DataTypes.FIELD("price", DataTypes.DECIMAL(6, 3)),
            DataTypes.FIELD("day", DataTypes.DATE()),
            DataTypes.FIELD(
                "at", DataTypes.ROW([DataTypes.FIELD("tags", DataTypes.ARRAY(DataTypes.BYTES()))])
            ),
        ]
    )
    file = tmp_path / "prices.parquet"
    row = Row(price=Decimal("1.125"), day=date(2013, 1, 1), at=Row(tags=[b"x", None]))
    file.write_bytes(written(ParquetBulkWriters.for_row_type(row_type), [row]))
    declared = ParquetColumnarRowInputFormat(row_type, columnar=False)
    assert run(source(declared, file)) == [row]
    schema = ParquetColumnarRowInputFormat(row_type).produced_schema(None)
    assert schema is not None
    assert schema.field("price").type == pa.decimal128(6, 3)


@pytest.mark.parametrize(
    ("writers", "reader"),
    [(ParquetBulkWriters, ParquetColumnarRowInputFormat), (OrcBulkWriters, OrcColumnarRowInputFormat)],
)
def test_columns_of_decimals_are_rounded_half_up(writers: Any, reader: Any, tmp_path: Path) -> None:
    money = DataTypes.DECIMAL(5, 2)
    part = DataTypes.ROW([DataTypes.FIELD("n", DataTypes.INT()), DataTypes.FIELD("cost", money)])
    row_type = DataTypes.ROW(
        [
            DataTypes.FIELD("price", money),
            DataTypes.FIELD("parts", DataTypes.ARRAY(part)),
            DataTypes.FIELD("rates", DataTypes.MAP(DataTypes.STRING(), money)),
        ]
    )
    given = Row(
        Decimal("1.005"), [Row(1, Decimal("2.5")), Row(2, Decimal("-0.115")), None], {"a": Decimal("9.994")}
    )
    nothing = Row(None, None, None)
    file = tmp_path / "prices"
    factory = writers.for_row_type(row_type)
    file.write_bytes(written(factory, [given, nothing]))
    parts = [Row(n=1, cost=Decimal("2.50")), Row(n=2, cost=Decimal("-0.12")), None]
    assert run(source(reader(row_type, columnar=False), file)) == [
        Row(price=Decimal("1.01"), parts=parts, rates={"a": Decimal("9.99")}),
        Row(price=None, parts=None, rates=None),
    ]
    with pytest.raises(FileFormatError, match=r"row 1 of the batch: Decimal\('999.995'\) .* column 'price'"):
        written(factory, [nothing, Row(Decimal("999.995"), None, None)])
