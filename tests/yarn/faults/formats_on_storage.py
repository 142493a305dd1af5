"""A program that writes rows by FileSink in each format and reads them by FileSource, on any file system: `FOLDER`.

Owner: the client; it prints `FORMAT SAME` for each format, or the first rows that came back instead.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from yarrow.common.serialization import Encoder
from yarrow.common.typeinfo import Types
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.file_sink import FileSink
from yarrow.datastream.connectors.file_source import FileSource
from yarrow.datastream.connectors.file_system import StreamFormat
from yarrow.datastream.formats.avro import AvroBulkWriters, AvroSchema
from yarrow.datastream.formats.avro_files import AvroBulkFormat
from yarrow.datastream.formats.csv import CsvBulkWriters, CsvReaderFormat, CsvSchema
from yarrow.datastream.formats.json import JsonLinesEncoder, JsonLinesFormat
from yarrow.datastream.formats.orc import OrcBulkWriters, OrcColumnarRowInputFormat
from yarrow.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat

PEOPLE = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.LONG()])
SCHEMA = CsvSchema.builder().add_string_column("name").add_number_column("age").build()
RECORD = AvroSchema.parse_string(
    '{"type": "record", "name": "Person", "fields": ['
    '{"name": "name", "type": "string"}, {"name": "age", "type": "long"}]}'
)
ROWS = [(f'name {number}, "{number}"', number) for number in range(1000)]
FORMATS: dict[str, Any] = {
    "avro": AvroBulkFormat(RECORD),
    "csv": CsvReaderFormat.for_schema(SCHEMA),
    "json": JsonLinesFormat(PEOPLE),
    "orc": OrcColumnarRowInputFormat(PEOPLE, columnar=False),
    "parquet": ParquetColumnarRowInputFormat(PEOPLE),
    "text": StreamFormat.text_line_format(),
}


def as_line(row: Any) -> str:
    """A row of PEOPLE as JSON."""
    return json.dumps(list(row))


def as_pair(row: Any) -> tuple[str, int]:
    """A row of any of the formats as it was written."""
    if isinstance(row, dict):
        return row["name"], row["age"]
    name, age = json.loads(row) if isinstance(row, str) else row
    return name, age


def write(env: StreamExecutionEnvironment, folder: str) -> None:
    """One job with a sink for each format."""
    people = env.from_collection(ROWS, type_info=PEOPLE)
    factories: dict[str, Any] = {
        "avro": AvroBulkWriters.for_generic_record(RECORD),
        "csv": CsvBulkWriters.for_schema(SCHEMA),
        "orc": OrcBulkWriters.for_row_type(PEOPLE),
        "parquet": ParquetBulkWriters.for_row_type(PEOPLE),
    }
    for name, factory in factories.items():
        people.sink_to(FileSink.for_bulk_format(f"{folder}/{name}", factory).build())
    people.sink_to(FileSink.for_row_format(f"{folder}/json", JsonLinesEncoder()).build())
    text = FileSink.for_row_format(f"{folder}/text", Encoder.simple_string_encoder())
    people.map(as_line, Types.STRING()).sink_to(text.build())
    env.execute("written")


def read(env: StreamExecutionEnvironment, folder: str, name: str) -> list[tuple[str, int]]:
    """What a job reads of one format, by age."""
    in_blocks = name in ("avro", "orc", "parquet")
    of = FileSource.for_bulk_file_format if in_blocks else FileSource.for_record_stream_format
    source = of(FORMATS[name], f"{folder}/{name}").build()
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), name).map(as_pair)
    with rows.execute_and_collect(name) as found:
        return sorted(found, key=lambda row: row[1])


def main(folder: str) -> None:
    """The program."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    env.enable_checkpointing(500)
    write(env, folder)
    for name in FORMATS:
        found = read(env, folder, name)
        print(name, "SAME" if found == ROWS else found[:5], flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
