"""Parquet files: record batches or Rows in, and bulk writers out, by Arrow.

Owner: the task's thread. A split owns the row groups that begin in it. A position is the number of row
groups read and the rows handed out of the next one. Rows of a group are decoded batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from yarrow.common.serialization import BulkWriter, BulkWriterFactory
from yarrow.common.typeinfo import RowTypeInfo, TypeInformation
from yarrow.datastream.connectors.base import SourceRecords
from yarrow.datastream.connectors.file_format import (
    BulkFormat,
    FileFormatError,
    FilePosition,
    FileReader,
    FileSourceSplit,
)
from yarrow.datastream.formats.columns import as_schema, batch_of_rows, rows_of_batch
from yarrow.datastream.formats.data_types import type_information
from yarrow.runtime.common.errors import UnsupportedFeatureError
from yarrow.runtime.fs.registry import file_system_for
from yarrow.table.types import RowType

__all__ = ["ColumnarBulkWriter", "ParquetBulkWriters", "ParquetColumnarRowInputFormat"]

#: Rows that a writer keeps before it hands them to Arrow as one batch, and rows of a row group.
_ROWS_OF_BATCH = 8192
_ROWS_OF_GROUP = 1 << 17


class ParquetColumnarRowInputFormat(BulkFormat[Any]):
    """Record batches of Parquet files, or Rows with `columnar` False.

    `row_type` (Types.ROW_NAMED, DataTypes.ROW or a pyarrow.Schema) chooses columns by name and casts them where
    nothing is lost. Without it the files have the columns of the first one. Raises UnsupportedFeatureError for
    `hadoop_config`: HDFS is reached with the settings in HADOOP_CONF_DIR.
    """

    splittable = True

    def __init__(
        self,
        row_type: RowTypeInfo | RowType | pa.Schema | None = None,
        hadoop_config: object = None,
        batch_size: int = 2048,
        is_utc_timestamp: bool = False,
        is_case_sensitive: bool = True,
        columnar: bool = True,
    ) -> None:
        _refuse_hadoop_config(hadoop_config)
        if batch_size < 1:
            raise ValueError(
                f"ParquetColumnarRowInputFormat: batch_size must be at least 1, not {batch_size}"
            )
        declared = type_information(row_type) if isinstance(row_type, RowType) else row_type
        self._row_type = declared if isinstance(declared, RowTypeInfo) else None
        self._schema = None if row_type is None else as_schema(row_type)
        self._batch_size = batch_size
        self._is_utc_timestamp = is_utc_timestamp
        self._is_case_sensitive = is_case_sensitive
        self._columnar = columnar

    @property
    def scanned_as(self) -> str | None:
        """`"parquet"`, when columnar."""
        # A class of the user's may read otherwise.
        return "parquet" if self._columnar and type(self) is ParquetColumnarRowInputFormat else None

    def produced_type(self) -> TypeInformation | None:
        """The Row type, where one was given."""
        return self._row_type

    def produced_schema(self, first_file: str | None) -> pa.Schema | None:
        """The columns, when columnar: those declared, else those of the first file."""
        if not self._columnar:
            return None
        if self._schema is not None or first_file is None:
            return self._schema
        with file_system_for(first_file).open(first_file) as stream:
            return _opened(first_file, stream).schema_arrow.remove_metadata()

    def create_reader(self, split: FileSourceSplit) -> FileReader:
        """A reader of row groups."""
        return _RowGroupReader(split, self)

    def columns_in(self, path: str, found: pa.Schema) -> list[str] | None:
        """The names to read in a file. Raises FileFormatError for columns that it lacks."""
        if self._schema is None:
            return None
        names = {name if self._is_case_sensitive else name.lower(): name for name in found.names}
        wanted = [name if self._is_case_sensitive else name.lower() for name in self._schema.names]
        missing = [name for name in wanted if name not in names]
        if missing:
            raise FileFormatError(f"{path}: the columns {missing} are not among {found.names}")
        return [names[name] for name in wanted]

    def records_of(self, path: str, batch: pa.RecordBatch) -> Any:
        """The batch with the declared types, or its Rows.

        Raises FileFormatError where a cast loses something.
        """
        if self._schema is not None:
            try:
                columns = [
                    self._cast(column, field.type)
                    for column, field in zip(batch.columns, self._schema, strict=True)
                ]
            except pa.ArrowInvalid as error:
                raise FileFormatError(f"{path}: a column does not have the declared type: {error}") from error
            batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return batch if self._columnar else rows_of_batch(batch, self._row_type)

    def _cast(self, column: pa.Array, target: pa.DataType) -> pa.Array:
        if column.type == target:
            return column
        if self._is_utc_timestamp and pa.types.is_timestamp(column.type) and pa.types.is_timestamp(target):
            # Both are counted in UTC; the zone alone is added or removed.
            column = column.cast(pa.timestamp(column.type.unit)) if column.type.tz is None else column
        return column.cast(target)

    @property
    def batch_size(self) -> int:
        """Rows decoded at a time."""
        return self._batch_size


class _RowGroupReader(FileReader):
    def __init__(self, split: FileSourceSplit, file_format: ParquetColumnarRowInputFormat) -> None:
        self._split = split
        self._format = file_format
        self._stream = file_system_for(split.path).open(split.path)
        try:
            self._file = _opened(split.path, self._stream)
            self._names = file_format.columns_in(split.path, self._file.schema_arrow)
        except BaseException:
            self._stream.close()
            raise
        self._groups = [
            index
            for index in range(self._file.num_row_groups)
            if split.offset <= _group_start(self._file, index) < split.end
        ]
        #: Groups of the split read to their end, and rows handed out of the one behind them.
        self._done = 0 if split.position is None else split.position.offset
        self._rows = 0
        self._skip = 0 if split.position is None else split.position.records
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._batch: Any = ()
        self._next = 0

    def read(self, max_rows: int) -> SourceRecords | None:
        """A slice of the present batch."""
        while self._next >= len(self._batch):
            if not self._load():
                return None
        records = self._batch
        end = min(self._next + max_rows, len(records))
        if isinstance(records, list):
            rows: Any = records[self._next : end]
        else:
            rows = records.slice(self._next, end - self._next)
        self._rows += end - self._next
        self._next = end
        return SourceRecords(rows, split_id=self._split.id)

    def position(self) -> FilePosition:
        return FilePosition(self._done, self._rows + self._skip)

    def close(self) -> None:
        self._file.close()
        self._stream.close()

    def _load(self) -> bool:
        """Decodes the next batch; False at the end of the split."""
        if self._batches is None:
            if self._done >= len(self._groups):
                return False
            self._batches = self._file.iter_batches(
                batch_size=self._format.batch_size,
                row_groups=[self._groups[self._done]],
                columns=self._names,
                use_threads=False,
            )
        try:
            batch = next(self._batches, None)
        except pa.ArrowException as error:
            raise FileFormatError(f"{self._split.path}: damaged Parquet data: {error}") from error
        if batch is None:
            self._batches, self._batch, self._next = None, (), 0
            self._done, self._rows, self._skip = self._done + 1, 0, 0
            return True
        if self._names is not None:
            batch = batch.select(self._names)
        self._batch = self._format.records_of(self._split.path, batch)
        self._next = min(self._skip, len(self._batch))
        self._skip -= self._next
        self._rows += self._next
        return True


def _opened(path: str, stream: BinaryIO) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(stream)
    except pa.ArrowInvalid as error:
        raise FileFormatError(f"{path} is no Parquet file: {error}") from error


def _group_start(file: pq.ParquetFile, index: int) -> int:
    """The offset of a row group's first page."""
    column = file.metadata.row_group(index).column(0)
    if column.dictionary_page_offset is not None:
        return int(min(column.dictionary_page_offset, column.data_page_offset))
    return int(column.data_page_offset)


def _refuse_hadoop_config(hadoop_config: object) -> None:
    if hadoop_config is not None:
        raise UnsupportedFeatureError(
            "hadoop_config is not taken by a format; set HADOOP_CONF_DIR to the folder of core-site.xml"
        )


class ColumnarBulkWriter(BulkWriter[Any]):
    """A bulk writer that takes record batches as well as rows."""

    def __init__(self, writer: pq.ParquetWriter, schema: pa.Schema) -> None:
        self._writer = writer
        self._schema = schema
        self._rows: list[Any] = []

    def add_element(self, element: Any) -> None:
        """Keeps a Row, tuple or dict until there are enough for a batch."""
        self._rows.append(element)
        if len(self._rows) >= _ROWS_OF_BATCH:
            self.flush()

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Writes a batch behind the rows before it; FileFormatError for other columns than declared."""
        if batch.schema.names != self._schema.names:
            raise FileFormatError(f"columns {batch.schema.names} where {self._schema.names} are declared")
        self.flush()
        try:
            batch = batch.cast(self._schema)
        except pa.ArrowInvalid as error:
            raise FileFormatError(f"a column does not have the declared type: {error}") from error
        self._writer.write_batch(batch, row_group_size=_ROWS_OF_GROUP)

    def flush(self) -> None:
        """Hands the rows kept to Arrow."""
        if self._rows:
            rows: Sequence[Any] = self._rows
            self._rows = []
            self._writer.write_batch(batch_of_rows(rows, self._schema), row_group_size=_ROWS_OF_GROUP)

    def finish(self) -> None:
        """Writes the rest and the footer."""
        self.flush()
        self._writer.close()


class ParquetBulkWriters:
    """Makes writers of Parquet files."""

    @staticmethod
    def for_row_type(
        row_type: RowTypeInfo | RowType | pa.Schema, hadoop_config: object = None, utc_timestamp: bool = False
    ) -> BulkWriterFactory[Any]:
        """A factory of writers of Rows, tuples, dicts or record batches of this type.

        With `utc_timestamp` timestamps without a zone are marked as UTC in the file.
        """
        _refuse_hadoop_config(hadoop_config)
        return ParquetWriterFactory(as_schema(row_type), utc_timestamp)


class ParquetWriterFactory(BulkWriterFactory[Any]):
    """Makes a ColumnarBulkWriter for each file."""

    #: A FileSink with this factory takes record batches.
    accepts_columns = True

    def __init__(self, schema: pa.Schema, utc_timestamp: bool) -> None:
        fields = [
            pa.field(field.name, pa.timestamp(field.type.unit, "UTC"))
            if utc_timestamp and pa.types.is_timestamp(field.type) and field.type.tz is None
            else field
            for field in schema
        ]
        self._schema = pa.schema(fields)

    def create(self, stream: BinaryIO) -> ColumnarBulkWriter:
        """A writer into an open stream."""
        return ColumnarBulkWriter(pq.ParquetWriter(stream, self._schema), self._schema)
