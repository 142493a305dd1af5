"""read_result: what a stage has left, as a bounded stream; also to be broadcast to a stream that goes on.

Owner: the thread that builds the program.
"""

from __future__ import annotations

from yarrow.batch.lookup_table import path_of
from yarrow.common.pipelines.stage_data import StageTable
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream.connectors.file_source import FileSource
from yarrow.datastream.data_stream import DataStream
from yarrow.datastream.formats.parquet import ParquetColumnarRowInputFormat
from yarrow.datastream.stream_execution_environment import StreamExecutionEnvironment
from yarrow.runtime.common.errors import InvalidProgramError


def read_result(env: StreamExecutionEnvironment, table: StageTable) -> DataStream:
    """The rows of a table that a stage has left, as columns; a bounded stream.

    A stage's output is there whole or not at all, so the stream has all its rows. Its `broadcast` gives them to each
    subtask of another stream. Raises InvalidProgramError if there is no such folder, or if its
    files have not the columns that the table declares.
    """
    if not isinstance(table, StageTable):
        raise InvalidProgramError(f"read_result takes the StageTable that a pipeline declares, not {table!r}")
    file_format = ParquetColumnarRowInputFormat()
    source = env.in_default_file_system(
        FileSource.for_bulk_file_format(file_format, path_of(table, "read_result")).build()
    )
    source.validate()
    schema = source.produced_schema()
    there = [] if schema is None else schema.names
    for column in table.columns:
        if column.name not in there:
            raise InvalidProgramError(
                f"read_result: the files in {table.path} have no column {column.name!r}, which the table"
                f" {table.name!r} declares; they have {', '.join(there)}"
            )
    return env.from_source(source, WatermarkStrategy.no_watermarks(), f"Result: {table.name}")
