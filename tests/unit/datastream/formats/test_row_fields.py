"""A writer puts the values of a Row under their names. It refuses a Row that has only some of the names.

The CSV writer also refuses a text that its schema cannot write.
"""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from yarrow.common.typeinfo import Types
from yarrow.common.types import Row
from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.datastream.formats.csv import CsvBulkWriters
from yarrow.datastream.formats.csv_messages import CsvRowSerializationSchema
from yarrow.datastream.formats.csv_schema import CsvSchema
from yarrow.datastream.formats.json import JsonRowSerializationSchema
from yarrow.datastream.formats.orc import OrcBulkWriters
from yarrow.datastream.formats.parquet import ParquetBulkWriters

NAMES = ["city", "country"]
TEXTS = Types.ROW_NAMED(NAMES, [Types.STRING(), Types.STRING()])
NESTED = Types.ROW_NAMED(["place", "n"], [TEXTS, Types.LONG()])
NAMED = [
    Row(city="Lyon", country="France"),
    Row(country="France", city="Lyon"),
    {"country": "France", "city": "Lyon"},
]
BY_POSITION = [Row("Lyon", "France"), ("Lyon", "France"), Row(a="Lyon", b="France")]
MISFITS = [Row(city="Lyon", land="France"), Row(city="Lyon"), Row(city="Lyon", country="France", n=1)]


def _bulk(factory: Any, rows: list[Any]) -> io.BytesIO:
    stream = io.BytesIO()
    writer = factory.create(stream)
    for row in rows:
        writer.add_element(row)
    writer.finish()
    stream.seek(0)
    return stream


def _parquet(rows: list[Any]) -> list[Any]:
    table: pa.Table = pq.read_table(_bulk(ParquetBulkWriters.for_row_type(TEXTS), rows))
    return list(table.to_pylist())


def _orc(rows: list[Any]) -> list[Any]:
    table: pa.Table = orc.ORCFile(_bulk(OrcBulkWriters.for_row_type(TEXTS), rows)).read()
    return list(table.to_pylist())


def _csv(rows: list[Any]) -> list[Any]:
    schema = CsvSchema.builder().add_string_column("city").add_string_column("country").build()
    lines = _bulk(CsvBulkWriters.for_schema(schema), rows).getvalue().decode().splitlines()
    return [dict(zip(NAMES, line.split(","), strict=True)) for line in lines]


def _json(rows: list[Any]) -> list[Any]:
    schema = JsonRowSerializationSchema.builder().with_type_info(TEXTS).build()
    return [msgspec.json.decode(schema.serialize(row)) for row in rows]


@pytest.mark.differs(
    "CsvBulkWriters.for_schema",
    "ParquetBulkWriters.for_row_type",
    "OrcBulkWriters.for_row_type",
    told="put the values of a named Row under their names",
)
@pytest.mark.parametrize("write", [_parquet, _orc, _csv, _json])
@pytest.mark.parametrize(
    "rows", [NAMED, BY_POSITION, NAMED + BY_POSITION], ids=["named", "by-position", "mixed"]
)
def test_each_value_stands_under_its_name(write: Any, rows: list[Any]) -> None:
    assert write(rows) == [{"city": "Lyon", "country": "France"}] * len(rows)


@pytest.mark.parametrize("write", [_parquet, _orc, _csv, _json])
@pytest.mark.parametrize("row", MISFITS, ids=str)
def test_a_row_that_has_some_of_the_names_is_refused_by_its_fields(write: Any, row: Row) -> None:
    with pytest.raises(FileFormatError, match=r"has the fields .*'city'.* and the schema has"):
        write([NAMED[0], row])


def test_rows_in_columns_are_written_by_name_as_well() -> None:
    row = Row(n=1, place=Row(country="France", city="Lyon"))
    file = _bulk(ParquetBulkWriters.for_row_type(NESTED), [row])
    assert pq.read_table(file).to_pylist() == [{"place": {"city": "Lyon", "country": "France"}, "n": 1}]


def test_a_row_that_does_not_fit_its_column_is_refused_by_the_column() -> None:
    row = Row(Row(city="Lyon", land="France"), 1)
    with pytest.raises(FileFormatError, match=r"row 0 of the batch: .*column 'place'.*has the fields"):
        _bulk(ParquetBulkWriters.for_row_type(NESTED), [row])


def test_a_row_in_one_text_of_csv_is_written_by_name() -> None:
    schema = CsvRowSerializationSchema.Builder(NESTED).build()
    assert schema.serialize(Row(n=1, place=Row(country="France", city="Lyon"))) == b"Lyon;France,1\n"


def test_a_text_that_csv_cannot_write_is_refused_with_what_to_set() -> None:
    schema = CsvSchema.builder().add_string_column("city").disable_quote_char().build()
    with pytest.raises(FileFormatError, match=r"'Lyon, France'.*set_quote_char.*set_escape_char"):
        _bulk(CsvBulkWriters.for_schema(schema), [Row("Lyon, France")])
