"""Bytes of files for rate limits: what readers count for each format, and what writers take for rows held back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from tests.unit.datastream.connectors.harness import SinkContext, SourceHarness
from yarrow.common import Encoder, Row, WatermarkStrategy
from yarrow.common.serialization import BulkWriterFactory
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.base import SinkWriter
from yarrow.datastream.connectors.file_format import FileFormat
from yarrow.datastream.connectors.file_system import (
    FileEnumeratorProvider,
    FileSink,
    FileSource,
    FileSourceBuilder,
    StreamFormat,
)
from yarrow.datastream.connectors.hybrid_source import HybridSource
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.datastream.formats.avro import AvroBulkWriters, AvroInputFormat, AvroSchema
from yarrow.datastream.formats.csv import CsvBulkWriters, CsvReaderFormat, CsvSchema
from yarrow.datastream.formats.json import JsonLinesFormat
from yarrow.datastream.formats.orc import OrcBulkWriters, OrcColumnarRowInputFormat
from yarrow.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from yarrow.runtime.common.errors import InvalidProgramError

ROWS = 5000
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
TABLE = pa.table({"id": range(ROWS), "name": [f"name {number}" for number in range(ROWS)]}, schema=SCHEMA)
AVRO = AvroSchema.parse_string(
    '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]}'
)
CSV = CsvSchema.builder().add_number_column("id").add_string_column("name").build()


def lines(path: Path) -> int:
    path.write_text("".join(f"line {'x' * (number % 90)}\n" for number in range(ROWS)))
    return path.stat().st_size


def csv_lines(path: Path) -> int:
    path.write_text("".join(f"{number},name {number}\n" for number in range(ROWS)))
    return path.stat().st_size


def json_lines(path: Path) -> int:
    path.write_text("".join(f'{{"id": {number}}}\n' for number in range(ROWS)))
    return path.stat().st_size


def avro_blocks(path: Path) -> int:
    with path.open("wb") as stream:
        writer = AvroBulkWriters.for_generic_record(AVRO).create(stream)
        head = stream.tell()
        for number in range(ROWS):
            writer.add_element({"id": number, "name": f"name {number}"})
        writer.finish()
    return path.stat().st_size - head


def parquet_groups(path: Path) -> int:
    pq.write_table(TABLE, path, row_group_size=700)
    metadata = pq.ParquetFile(path).metadata
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    return sum(group.column(0).total_compressed_size for group in groups)


def orc_stripes(path: Path) -> int:
    orc.write_table(TABLE, path)
    return path.stat().st_size


FORMATS: dict[str, tuple[FileFormat[Any], Callable[[Path], int]]] = {
    "text": (StreamFormat.text_line_format(), lines),
    "csv": (CsvReaderFormat.for_schema(CSV), csv_lines),
    "csv columns": (CsvReaderFormat.for_schema(CSV, columnar=True, multiline=False), csv_lines),
    "json": (JsonLinesFormat(), json_lines),
    "avro": (AvroInputFormat("", AVRO)._format, avro_blocks),
    "parquet, one column": (ParquetColumnarRowInputFormat(pa.schema([("id", pa.int64())])), parquet_groups),
    "orc": (OrcColumnarRowInputFormat(SCHEMA), orc_stripes),
}


def source_of(file_format: FileFormat[Any], path: Path) -> FileSource[Any]:
    builder: FileSourceBuilder[Any] = FileSourceBuilder(file_format, [str(path)])
    builder.set_file_enumerator(FileEnumeratorProvider.default_splittable_file_enumerator(20_000))
    return builder.build()


def bytes_of_run(source: Any, polls: int | None = None, state: Any = None) -> tuple[int, int, Any]:
    """Rows, bytes and the state behind so many polls of one reader."""
    harness = SourceHarness(source, 1, state)
    before = harness.readers[0].bytes_read()
    harness.run(300, polls)
    found = harness.readers[0].bytes_read() - before
    state = harness.snapshot()
    harness.close()
    return len(harness.rows), found, state


@pytest.mark.parametrize("name", FORMATS)
def test_the_bytes_of_rows_are_those_of_the_file(tmp_path: Path, name: str) -> None:
    file_format, write = FORMATS[name]
    expected = write(tmp_path / "file")
    source = source_of(file_format, tmp_path / "file")
    assert source.counts_bytes
    rows, found, _ = bytes_of_run(source)
    assert rows == ROWS
    assert found == pytest.approx(expected, abs=2)


@pytest.mark.parametrize("name", FORMATS)
def test_restored_readers_count_each_row_once(tmp_path: Path, name: str) -> None:
    file_format, write = FORMATS[name]
    expected = write(tmp_path / "file")
    source = source_of(file_format, tmp_path / "file")
    rows, found, state = bytes_of_run(source, polls=7)
    assert 0 < rows < ROWS and 0 < found < expected
    more_rows, more, _ = bytes_of_run(source, state=state)
    assert rows + more_rows == ROWS
    assert found + more == pytest.approx(expected, abs=3)


def test_lines_that_cannot_be_read_count(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xff\n" * 400 + b"good\n" + b"\xff\xff\n" * 7)
    source = source_of(StreamFormat.text_line_format().on_error("skip"), tmp_path / "file")
    assert bytes_of_run(source)[:2] == (1, (tmp_path / "file").stat().st_size)


def test_a_chain_of_sources_counts_the_bytes_of_all(tmp_path: Path) -> None:
    expected = lines(tmp_path / "first") + json_lines(tmp_path / "second")
    text = StreamFormat.text_line_format()
    first = source_of(text, tmp_path / "first")
    both = HybridSource.builder(first).add_source(source_of(text, tmp_path / "second")).build()
    assert both.counts_bytes
    rows, found, _ = bytes_of_run(both)
    assert rows == 2 * ROWS
    assert found == pytest.approx(expected, abs=2)
    assert (
        not HybridSource.builder(NumberSequenceSource(1, 2))
        .add_source(NumberSequenceSource(1, 2))
        .build()
        .counts_bytes
    )


class OwnFormat(StreamFormat[str]):
    def create_reader(self, split: Any) -> Any:
        raise AssertionError("the program is refused before")


class OwnWriters(BulkWriterFactory[Any]):
    def create(self, stream: Any) -> Any:
        raise AssertionError("the program is refused before")


def test_formats_that_do_not_count_are_refused_by_name(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    lines(tmp_path / "file")
    source = source_of(OwnFormat(), tmp_path / "file")
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "own lines")
    with pytest.raises(InvalidProgramError, match="'own lines' does not count the bytes of records"):
        stream.rate_limit(bytes_per_second=5)
    sink = FileSink.for_bulk_format(str(tmp_path / "out"), OwnWriters()).build()
    with pytest.raises(InvalidProgramError, match="does not count the bytes of records"):
        stream.sink_to(sink).rate_limit(bytes_per_second=5)


WRITERS: dict[str, BulkWriterFactory[Any]] = {
    "parquet": ParquetBulkWriters.for_row_type(SCHEMA),
    "orc": OrcBulkWriters.for_row_type(SCHEMA),
    "avro": AvroBulkWriters.for_generic_record(AVRO),
    "csv": CsvBulkWriters.for_schema(CSV),
}


def bulk_writer(folder: Path, name: str) -> SinkWriter[Any]:
    sink = FileSink.for_bulk_format(str(folder), WRITERS[name]).build()
    assert sink.counts_bytes
    return sink.create_writer(SinkContext())


def written(first: int, name: str) -> list[Any]:
    made = [{"id": number, "name": f"name {number}"} for number in range(first, first + ROWS)]
    return [Row(**row) for row in made] if name == "csv" else made


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", WRITERS)
def test_rows_that_a_format_holds_back_are_estimated_and_corrected_by_each_file(
    tmp_path: Path, name: str
) -> None:
    writer = bulk_writer(tmp_path, name)
    assert writer.bytes_taken() == 0
    for first in (0, ROWS):
        before = writer.bytes_taken()
        writer.write(written(first, name), None)
        taken = writer.bytes_taken() - before
        # Nobody knows before how well columns can be compressed.
        assert taken > ROWS * 5
        writer.flush(end_of_input=False)
        assert writer.bytes_taken() == writer.bytes_sent() == size_of(tmp_path)
    # The first file has told how large rows are; Avro holds back a block of 16 kB at most.
    assert taken == pytest.approx(writer.bytes_taken() - before, abs=16_500)
    writer.close()


def test_batches_are_estimated_as_rows_are(tmp_path: Path) -> None:
    writer = bulk_writer(tmp_path, "parquet")
    assert writer.bytes_taken() == 0
    (batch,) = TABLE.to_batches()
    writer.write_batch(batch)
    assert writer.bytes_taken() == pytest.approx(batch.nbytes, rel=0.15)
    writer.flush(end_of_input=False)
    assert writer.bytes_taken() == size_of(tmp_path)
    writer.close()


def test_lines_of_an_encoder_are_counted_as_they_are_written(tmp_path: Path) -> None:
    sink = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).build()
    assert sink.counts_bytes
    writer = sink.create_writer(SinkContext())
    writer.write(["four", "five5"], None)
    assert writer.bytes_taken() == 11
    writer.close()
