"""CSV files: the format for a FileSource, as rows or columns, and bulk writers for a FileSink.

Owner: the task's thread. Columns are parsed by Arrow block by block. A block that Arrow refuses is read
again row by row, so that both ways give the same rows and the same malformed ones.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from yarrow.common.serialization import BulkWriter, BulkWriterFactory
from yarrow.common.typeinfo import TypeInformation
from yarrow.common.types import Row
from yarrow.common.values.error_handling import ErrorHandling, ErrorPolicy
from yarrow.datastream.connectors.file_format import (
    FileFormatError,
    FileSourceSplit,
    RecordParser,
)
from yarrow.datastream.connectors.line_blocks import (
    COLUMN_BLOCK,
    ROW_BLOCK,
    BlockErrors,
    BlockParser,
    BlockReader,
    LineBlocks,
    letter_parser,
    open_lines,
)
from yarrow.datastream.connectors.stream_format import StreamFormat
from yarrow.datastream.formats.columns import arrow_schema, batch_of_rows
from yarrow.datastream.formats.csv_messages import CsvRowDeserializationSchema, CsvRowSerializationSchema
from yarrow.datastream.formats.csv_records import CsvRowParser, CsvRowWriter
from yarrow.datastream.formats.csv_schema import CsvSchema, CsvSchemaBuilder
from yarrow.datastream.formats.data_types import arrow_data_type

__all__ = [
    "CsvBulkWriters",
    "CsvReaderFormat",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "CsvSchema",
    "CsvSchemaBuilder",
]


class CsvReaderFormat(StreamFormat[Row]):
    """Rows of CSV files; record batches with `columnar`.

    Fields in quotes may hold line ends, so a file is one split. Without a quote character, or with
    `multiline` False (a promise that no field holds a line end), large files are read in parts.
    """

    counts_bytes = True
    decompresses = True
    reads_single_records = True

    def __init__(
        self,
        schema: CsvSchema,
        columnar: bool = False,
        on_malformed: ErrorPolicy = ErrorPolicy.FAIL,
        multiline: bool = True,
    ) -> None:
        self._schema = schema
        self._multiline = multiline and schema.quote_char is not None
        self.errors = ErrorHandling(on_malformed)
        self._arrow_schema = _columns_of(schema) if columnar else None
        self.splittable = not self._multiline

    @staticmethod
    def for_schema(
        schema: CsvSchema,
        columnar: bool = False,
        on_malformed: ErrorPolicy = ErrorPolicy.FAIL,
        multiline: bool = True,
    ) -> CsvReaderFormat:
        """The format of files with this schema."""
        return CsvReaderFormat(schema, columnar, on_malformed, multiline)

    @property
    def scanned_as(self) -> str | None:
        """`"csv"`, when columnar."""
        # A class of the user's may read otherwise.
        return "csv" if self._arrow_schema is not None and type(self) is CsvReaderFormat else None

    @property
    def makes_new_rows(self) -> bool:
        """True: decoded values are new."""
        # A class of the user's may keep them.
        return type(self) is CsvReaderFormat

    def produced_type(self) -> TypeInformation:
        """The schema's Row type."""
        return self._schema.row_type

    def produced_schema(self, first_file: str | None) -> pa.Schema | None:
        """The schema's columns, when columnar."""
        return self._arrow_schema

    def create_reader(self, split: FileSourceSplit) -> BlockReader:
        """A reader of rows or columns."""
        parser = self._parser(split.path)
        quote = (self._schema.quote_char or "").encode() if self._multiline else None
        size = ROW_BLOCK if self._arrow_schema is None else COLUMN_BLOCK
        return BlockReader(split, LineBlocks(split, size, quote), parser, self.errors.policy)

    def record_parser(self, path: str) -> RecordParser:
        """A parser of one record; a header is read from the file."""
        return letter_parser(self._parser(path), self.errors.policy)

    def _parser(self, path: str) -> BlockParser:
        names = _header_of(path, self._schema) if self._schema.use_header else None
        rows = CsvRowParser(self._schema, names)
        if self._arrow_schema is None:
            return rows
        return _ColumnParser(self._schema, names, self._arrow_schema, rows, self._multiline)


def _columns_of(schema: CsvSchema) -> pa.Schema:
    """The Arrow schema: each column as declared, by Types or by DataTypes."""
    columns = arrow_schema(schema.row_type)
    for index, column in enumerate(schema.columns):
        if column.data_type is not None:
            single = arrow_data_type(column.data_type, column.name)
            kind = single if column.separator is None else pa.list_(single)
            columns = columns.set(index, pa.field(column.name, kind))
    return columns


def _header_of(path: str, schema: CsvSchema) -> list[str]:
    """Return the column names of a file: its header's, or the schema's by position if the header differs.

    Raises FileFormatError where names and positions say different things, and for strict headers.
    """
    with open_lines(path) as stream:
        text = io.TextIOWrapper(stream, "utf-8-sig", newline="")
        lines = (line for line in text if not (schema.allow_comments and line.startswith("#")))
        try:
            names = next(csv.reader(lines, **schema.dialect()), None)
        except (csv.Error, UnicodeDecodeError) as error:
            raise FileFormatError(f"{path}: the header cannot be read: {error}") from error
        text.detach()
    wanted = [column.name for column in schema.columns]
    if names is None:
        # Some writers leave an empty file where a task had no rows.
        return wanted
    if schema.strict_headers and names != wanted:
        raise FileFormatError(f"{path}: the header has the columns {names}, the schema {wanted}")
    if set(wanted) <= set(names):
        return names
    if len(names) != len(wanted):
        missing = [name for name in wanted if name not in names]
        raise FileFormatError(
            f"{path}: the columns {missing} of the schema are not in the header {names}. They cannot be taken"
            f" by position either: the header has {len(names)} columns, the schema {len(wanted)}"
        )
    moved = [name for name, found in zip(wanted, names, strict=True) if name != found and name in names]
    if moved:
        raise FileFormatError(
            f"{path}: the header {names} has other names than the schema {wanted}, and {moved} at another"
            " position. Name all columns as the header does, or in its order"
        )
    return wanted


class _ColumnParser(BlockParser):
    """Reads a block as columns, or by rows where Arrow refuses it."""

    def __init__(
        self,
        schema: CsvSchema,
        names: Sequence[str] | None,
        target: pa.Schema,
        rows: CsvRowParser,
        multiline: bool,
    ) -> None:
        self._schema = schema
        self._target = target
        self._rows = rows
        self._names = list(names) if names is not None else target.names
        self._only_rows = any(column.separator is not None for column in schema.columns)
        self._parse_options = arrow_csv.ParseOptions(
            delimiter=schema.column_separator,
            quote_char=schema.quote_char or False,
            escape_char=schema.escape_char or False,
            newlines_in_values=multiline,
        )
        null_values = [""] if schema.null_value is None else ["", schema.null_value]
        self._convert_options = arrow_csv.ConvertOptions(
            column_types={column.name: column.type for column in target},
            include_columns=target.names,
            null_values=null_values,
            true_values=["true", "True", "TRUE", "1"],
            false_values=["false", "False", "FALSE", "0"],
            strings_can_be_null=False,
        )

    def parse(self, block: bytes, at_file_start: bool, errors: BlockErrors) -> pa.RecordBatch:
        if self._only_rows or (self._schema.allow_comments and b"#" in block):
            return self._by_rows(block, at_file_start, errors)
        leading = self._schema.use_header + self._schema.skip_first_data_row if at_file_start else 0
        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(block),
                read_options=arrow_csv.ReadOptions(
                    use_threads=False,
                    block_size=len(block) + 1,
                    column_names=self._names,
                    skip_rows_after_names=leading,
                ),
                parse_options=self._parse_options,
                convert_options=self._convert_options,
            )
        except pa.ArrowInvalid:
            return self._by_rows(block, at_file_start, errors)
        columns = [self._null_strings(column) for column in table.columns]
        return pa.RecordBatch.from_arrays(columns, schema=self._target)

    def _null_strings(self, column: pa.ChunkedArray) -> pa.Array:
        array = column.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0) if array.num_chunks else pa.array([], column.type)
        if self._schema.null_value is None or not pa.types.is_string(array.type):
            return array
        return pc.if_else(pc.equal(array, self._schema.null_value), None, array)

    def _by_rows(self, block: bytes, at_file_start: bool, errors: BlockErrors) -> pa.RecordBatch:
        return batch_of_rows(self._rows.parse(block, at_file_start, errors), self._target)


class CsvBulkWriters:
    """Makes writers of CSV files."""

    @staticmethod
    def for_schema(schema: CsvSchema) -> BulkWriterFactory[Any]:
        """A factory of writers of Rows (or tuples) with this schema; a header where it uses one."""
        return _CsvWriterFactory(schema)


@dataclass(frozen=True, slots=True)
class _CsvWriterFactory(BulkWriterFactory[Any]):
    schema: CsvSchema
    counts_bytes = True
    tells_refused_rows = True

    def create(self, stream: BinaryIO) -> BulkWriter[Any]:
        return _CsvBulkWriter(self.schema, stream)

    def row_converter(self) -> Callable[[Sequence[Any]], bytes]:
        line = CsvRowWriter(self.schema).line
        return lambda rows: b"".join(map(line, rows))


class _CsvBulkWriter(BulkWriter[Any]):
    def __init__(self, schema: CsvSchema, stream: BinaryIO) -> None:
        self._rows = CsvRowWriter(schema)
        self._stream = stream
        if schema.use_header:
            stream.write(self._rows.header())

    def add_element(self, element: Any) -> None:
        self._stream.write(self._rows.line(element))

    def add_converted(self, converted: bytes) -> None:
        self._stream.write(converted)

    def flush(self) -> None:
        self._stream.flush()

    def finish(self) -> None:
        self._stream.flush()
