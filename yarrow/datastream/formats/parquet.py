"""Parquet files: record batches, Rows or Avro records in, and bulk writers out, by Arrow.

Owner: the task's thread. A split owns the row groups that begin in it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from yarrow.common.serialization import BulkWriterFactory
from yarrow.common.typeinfo import RowTypeInfo, TypeInformation
from yarrow.common.values.conditions import Condition
from yarrow.common.values.error_handling import ErrorHandling, ErrorPolicy
from yarrow.datastream.connectors.file_format import (
    FileFormatError,
    FileReader,
    FileSourceSplit,
    RecordParser,
)
from yarrow.datastream.connectors.stream_format import StreamFormat
from yarrow.datastream.formats.avro_columns import AvroColumns
from yarrow.datastream.formats.avro_schema import AvroSchema, GenericRecordAvroTypeInfo
from yarrow.datastream.formats.blocks.sections import SectionDecoder, SectionedFile
from yarrow.datastream.formats.blocks.tolerant_sections import section_letter_parser, section_reader
from yarrow.datastream.formats.column_instants import require_milliseconds
from yarrow.datastream.formats.columnar_files import (
    ColumnarBulkWriter,
    ColumnarRowInputFormat,
    FileColumns,
    names_in,
    refuse_hadoop_config,
    require_columns,
)
from yarrow.datastream.formats.columns import as_schema, rounded_batch_of_rows
from yarrow.runtime.columns.group_statistics import GroupStatistics
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.table.types import RowType

__all__ = [
    "AvroParquetReaders",
    "AvroParquetWriters",
    "ColumnarBulkWriter",
    "ParquetBulkWriters",
    "ParquetColumnarRowInputFormat",
]

#: Rows of a row group.
_ROWS_OF_GROUP = 1 << 17
#: Rows of records decoded at a time.
_ROWS_OF_RECORDS = 2048
#: Key of a file's metadata under which readers of Avro records look for the schema.
_AVRO_SCHEMA_KEY = b"parquet.avro.schema"
#: The first bytes of each file.
_MAGIC = b"PAR1"


class ParquetColumnarRowInputFormat(ColumnarRowInputFormat):
    """Record batches of Parquet files, or Rows with `columnar` False.

    `row_type` (Types.ROW_NAMED, DataTypes.ROW or a pyarrow.Schema) chooses columns by name and casts them where
    nothing is lost. Without it the files have the columns of the first one. Raises UnsupportedFeatureError for
    `hadoop_config`: HDFS is reached with the settings in HADOOP_CONF_DIR.
    """

    _scanned_as = "parquet"

    def open_sections(self, path: str, stream: BinaryIO) -> SectionedFile:
        return _ParquetSections(path, stream, self.errors)


class _ParquetSections(SectionedFile):
    """The row groups of an open Parquet file."""

    section_name = "row group"

    def __init__(self, path: str, stream: BinaryIO, errors: ErrorHandling) -> None:
        # A program that leaves out damage should find it, so checksums of pages are looked at.
        checks = errors.policy is not ErrorPolicy.FAIL
        try:
            self._file = pq.ParquetFile(stream, page_checksum_verification=checks)
        except (pa.ArrowException, OSError) as error:
            raise FileFormatError(f"{path} is no Parquet file: {error}") from error
        self._statistics = GroupStatistics(self._file)

    @property
    def schema(self) -> pa.Schema:
        return self._file.schema_arrow.remove_metadata()

    def section_starts(self) -> list[int]:
        return [self._group_start(group) for group in range(self._file.num_row_groups)]

    def batches(self, section: int, names: list[str] | None, batch_size: int) -> Iterator[pa.RecordBatch]:
        return self._file.iter_batches(  # type: ignore[no-any-return]
            batch_size=batch_size, row_groups=[section], columns=names, use_threads=False
        )

    def may_have(self, section: int, condition: Condition) -> bool:
        return self._statistics.may_have(section, condition)

    def bytes_per_row(self, section: int, names: list[str] | None) -> float:
        group = self._file.metadata.row_group(section)
        columns = [group.column(index) for index in range(group.num_columns)]
        # A column of a struct has a path, which begins with the name of the struct.
        sizes = [
            column.total_compressed_size
            for column in columns
            if names is None or any(_is_within(column.path_in_schema, name) for name in names)
        ]
        return float(sum(sizes) / max(1, group.num_rows))

    def section_rows(self, section: int) -> tuple[int, int]:
        groups = self._file.metadata
        before = sum(groups.row_group(group).num_rows for group in range(section))
        return before, groups.row_group(section).num_rows

    def close(self) -> None:
        self._file.close()

    def _group_start(self, group: int) -> int:
        """The offset of a row group's first page."""
        row_group = self._file.metadata.row_group(group)
        if not row_group.num_columns:
            return len(_MAGIC)
        column = row_group.column(0)
        if column.dictionary_page_offset is not None:
            return int(min(column.dictionary_page_offset, column.data_page_offset))
        return int(column.data_page_offset)


def _is_within(path: str, name: str) -> bool:
    return path == name or path.startswith(f"{name}.")


class ParquetBulkWriters:
    """Makes writers of Parquet files."""

    @staticmethod
    def for_row_type(
        row_type: RowTypeInfo | RowType | pa.Schema, hadoop_config: object = None, utc_timestamp: bool = False
    ) -> BulkWriterFactory[Any]:
        """A factory of writers of Rows, tuples, dicts or record batches of this type.

        With `utc_timestamp` timestamps without a zone are marked as UTC in the file.
        """
        refuse_hadoop_config(hadoop_config)
        return ParquetWriterFactory(as_schema(row_type), utc_timestamp)


class ParquetWriterFactory(BulkWriterFactory[Any]):
    """Makes a ColumnarBulkWriter for each file."""

    #: A FileSink with this factory takes record batches.
    accepts_columns = True
    can_be_concatenated = False
    counts_bytes = True
    tells_refused_rows = True

    def __init__(self, schema: pa.Schema, utc_timestamp: bool) -> None:
        fields = [
            pa.field(field.name, pa.timestamp(field.type.unit, "UTC"))
            if utc_timestamp and pa.types.is_timestamp(field.type) and field.type.tz is None
            else field
            for field in schema
        ]
        self._schema = pa.schema(fields)
        require_columns("ParquetBulkWriters", self._schema)
        for field in self._schema:
            _require_column(field)
        self._columns = FileColumns(self._schema, rounded_batch_of_rows, require_milliseconds)

    def create(self, stream: BinaryIO) -> ColumnarBulkWriter:
        """A writer into an open stream."""
        file = pq.ParquetWriter(stream, self._schema)
        return ColumnarBulkWriter(self._columns, _writing(file), file.close)

    def row_converter(self) -> Callable[[Any], pa.RecordBatch]:
        """Return what makes columns of rows and record batches."""
        return self._columns.of


def _require_column(field: pa.Field) -> None:
    """Raise InvalidProgramError for a column that cannot be written."""
    try:
        pq.write_table(pa.schema([field]).empty_table(), io.BytesIO())
    except (pa.ArrowException, OSError) as error:
        raise InvalidProgramError(
            f"ParquetBulkWriters: Parquet has no column for {field.name!r} of type {field.type}; declare another type"
            f" ({error})"
        ) from error


class AvroParquetReaders:
    """Makes formats that read Parquet files as records of an Avro schema."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> StreamFormat[dict[str, Any]]:
        """A format of dicts with the fields of the schema, found by name; its files need no Avro schema of their own.

        Raises InvalidProgramError for a schema that has no columnar form, such as a union of two types.
        """
        return AvroParquetFormat(schema)


class AvroParquetFormat(StreamFormat[dict[str, Any]], SectionDecoder):
    """Parquet files as dicts of an Avro schema; made by `AvroParquetReaders.for_generic_record`."""

    splittable = True
    counts_bytes = True
    reads_single_records = True
    batch_size = _ROWS_OF_RECORDS

    def __init__(self, schema: AvroSchema) -> None:
        self._declared = schema
        self._columns = AvroColumns(schema)

    def produced_type(self) -> TypeInformation:
        """The type of the records."""
        return GenericRecordAvroTypeInfo(self._declared)

    def create_reader(self, split: FileSourceSplit) -> FileReader:
        """A reader of row groups."""
        return section_reader(split, self, self.errors.policy)

    def record_parser(self, path: str) -> RecordParser:
        """Return what reads rows of letters, by the names of the schema's fields."""
        return section_letter_parser(path, self, self.errors.policy)

    def open_sections(self, path: str, stream: BinaryIO) -> SectionedFile:
        return _ParquetSections(path, stream, self.errors)

    def columns_in(self, path: str, found: pa.Schema) -> list[str]:
        return names_in(path, found, self._columns.schema.names, is_case_sensitive=True)

    def records_of(self, path: str, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        return self._columns.records_of(path, batch)


class AvroParquetWriters:
    """Makes writers of Parquet files that take records of an Avro schema."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> BulkWriterFactory[dict[str, Any]]:
        """A factory of writers of dicts with the fields of the schema, which the file names in its metadata.

        Raises InvalidProgramError for a schema that has no columnar form, such as a union of two types.
        """
        return AvroParquetWriterFactory(schema)


class AvroParquetWriterFactory(BulkWriterFactory[dict[str, Any]]):
    """Makes a writer of Avro records for each Parquet file."""

    can_be_concatenated = False
    counts_bytes = True
    tells_refused_rows = True

    def __init__(self, schema: AvroSchema) -> None:
        self._columns = AvroColumns(schema)
        self._metadata = {_AVRO_SCHEMA_KEY: schema.text.encode()}

    def create(self, stream: BinaryIO) -> ColumnarBulkWriter:
        """A writer into an open stream."""
        file = pq.ParquetWriter(stream, self._columns.schema.with_metadata(self._metadata))
        return ColumnarBulkWriter(self._file_columns(), _writing(file), file.close)

    def row_converter(self) -> Callable[[Any], pa.RecordBatch]:
        """Return what makes columns of records."""
        return self._file_columns().of

    def _file_columns(self) -> FileColumns:
        return FileColumns(self._columns.schema, lambda records, _: self._columns.batch_of(records))


def _writing(file: pq.ParquetWriter) -> Any:
    return lambda batch: file.write_batch(batch, row_group_size=_ROWS_OF_GROUP)
