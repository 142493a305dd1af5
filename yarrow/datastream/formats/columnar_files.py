"""Files of columns: the format of rows and batches, and the bulk writer, that Parquet and ORC share.

Owner: the task's thread. The sections of a file are read in the room `blocks`. Must not know either library of files.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import pyarrow as pa

from yarrow.common.serialization import BulkWriter
from yarrow.common.typeinfo import RowTypeInfo, TypeInformation
from yarrow.common.values.conditions import Condition, WantedColumns, comparisons_of
from yarrow.datastream.connectors.file_format import (
    BulkFormat,
    FileFormatError,
    FileReader,
    FileSourceSplit,
    RecordParser,
)
from yarrow.datastream.formats.blocks.sections import SectionDecoder
from yarrow.datastream.formats.blocks.tolerant_sections import section_letter_parser, section_reader
from yarrow.datastream.formats.columns import as_schema, batch_of_rows, require_no_null, rows_of_batch
from yarrow.datastream.formats.data_types import type_information
from yarrow.runtime.columns.condition_checks import values_of
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError
from yarrow.runtime.fs.registry import file_system_for
from yarrow.table.types import RowType

#: Rows that a writer keeps before it hands them to Arrow as one batch.
_ROWS_OF_BATCH = 8192


class ColumnarRowInputFormat(BulkFormat[Any], SectionDecoder):
    """Record batches of files of columns, or Rows with `columnar` False.

    `row_type` (Types.ROW_NAMED, DataTypes.ROW or a pyarrow.Schema) chooses columns by name and casts them where
    nothing is lost. Without it the files have the columns of the first one. Raises UnsupportedFeatureError for
    `hadoop_config`: HDFS is reached with the settings in HADOOP_CONF_DIR.
    """

    splittable = True
    counts_bytes = True
    reads_single_records = True
    #: The kind of files, as scanners name it; None = no scanner reads them as this format does.
    _scanned_as: ClassVar[str | None] = None

    def __init__(
        self,
        row_type: RowTypeInfo | RowType | pa.Schema | None = None,
        hadoop_config: object = None,
        batch_size: int = 2048,
        is_utc_timestamp: bool = False,
        is_case_sensitive: bool = True,
        columnar: bool = True,
    ) -> None:
        refuse_hadoop_config(hadoop_config)
        if batch_size < 1:
            raise ValueError(f"{type(self).__name__}: batch_size must be at least 1, not {batch_size}")
        declared = type_information(row_type) if isinstance(row_type, RowType) else row_type
        self._row_type = declared if isinstance(declared, RowTypeInfo) else None
        self._schema = None if row_type is None else as_schema(row_type)
        self.batch_size = batch_size
        self._is_utc_timestamp = is_utc_timestamp
        self._is_case_sensitive = is_case_sensitive
        self._columnar = columnar
        #: The columns that somebody reads; None = all.
        self._wanted: frozenset[str] | None = None
        #: Rows that do not meet it are dropped behind the source; None = all are kept.
        self._condition: Condition | None = None

    @property
    def scanned_as(self) -> str | None:
        """The kind of files, when columnar."""
        # A class of the user's may read otherwise.
        return self._scanned_as if self._columnar and "_scanned_as" in vars(type(self)) else None

    @property
    def can_narrow(self) -> bool:
        """Whether columns can be left out: those of batches, found by the names that they have."""
        return self.scanned_as is not None and self._is_case_sensitive

    def narrowed(self, wanted: WantedColumns) -> Self:
        """Return a format that decodes the wanted columns alone, and passes over sections by their statistics.

        It decodes all columns of a file that lacks a wanted one, so that an error tells what the file has. A column
        of another type than declared is decoded too: its cast may fail.
        """
        if not wanted:
            return self
        changed = copy.copy(self)
        changed._wanted = None if wanted.columns is None else frozenset(wanted.columns)
        changed._condition = wanted.condition
        return changed

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
            return self.open_sections(first_file, stream).schema

    def create_reader(self, split: FileSourceSplit) -> FileReader:
        """A reader of sections."""
        return section_reader(split, self, self.errors.policy)

    def record_parser(self, path: str) -> RecordParser:
        """Return what reads rows of letters, by the names of their columns."""
        return section_letter_parser(path, self, self.errors.policy)

    def columns_in(self, path: str, found: pa.Schema) -> list[str] | None:
        names = None
        if self._schema is not None:
            names = names_in(path, found, self._schema.names, self._is_case_sensitive)
        return names if self._wanted is None else self._narrowed(names, found, self._wanted)

    def _narrowed(
        self, names: list[str] | None, found: pa.Schema, wanted: frozenset[str]
    ) -> list[str] | None:
        """The names to read in a file, without columns that nobody reads."""
        declared = found if self._schema is None else self._schema
        if not wanted <= set(declared.names) or not all(map(_has_single_names, (declared, found))):
            return names
        kept = [
            field.name
            for field in declared
            if field.name in wanted or found.field(field.name).type != field.type
        ]
        # The library finds a column by its path, in which a dot leads into a struct.
        return names if not kept or any("." in name for name in found.names) else kept

    def condition_in(self, found: pa.Schema) -> Condition | None:
        condition, declared = self._condition, self._schema
        if condition is None or declared is None:
            return condition
        for part in comparisons_of(condition):
            at = declared.get_field_index(part.column)
            # The operator behind the source tells of a column that is not declared.
            if at < 0 or _may_be_rounded(found.field(part.column).type, declared.field(at).type):
                return None
        return condition

    def records_of(self, path: str, batch: pa.RecordBatch) -> Any:
        schema = self._schema
        if schema is not None:
            if batch.num_columns < len(schema):
                schema = pa.schema([schema.field(name) for name in batch.schema.names])
            columns = _cast_columns(batch, schema, self._cast, f"{path}: ")
            batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        return batch if self._columnar else rows_of_batch(batch, self._row_type)

    def _cast(self, column: pa.Array, target: pa.DataType) -> pa.Array:
        if column.type == target:
            return column
        if self._is_utc_timestamp and pa.types.is_timestamp(column.type) and pa.types.is_timestamp(target):
            # Both are counted in UTC; the zone alone is added or removed.
            column = column.cast(pa.timestamp(column.type.unit)) if column.type.tz is None else column
        return column.cast(target)


def _cast_columns(
    batch: pa.RecordBatch,
    schema: pa.Schema,
    cast: Callable[[pa.Array, pa.DataType], pa.Array],
    where: str = "",
) -> list[pa.Array]:
    """The columns in the types of `schema`. Raises FileFormatError, which begins with `where` and names the column."""
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        try:
            columns.append(cast(column, field.type))
        except pa.ArrowException as error:
            raise FileFormatError(
                f"{where}column {field.name!r} of type {column.type} does not have the declared type {field.type}: "
                f"{error}"
            ) from error
    return columns


def _may_be_rounded(written: pa.DataType, declared: pa.DataType) -> bool:
    """Whether a cast may change numbers, so that statistics of the file do not hold for them."""
    return written != declared and bool(pa.types.is_floating(values_of(declared)))


def _has_single_names(schema: pa.Schema) -> bool:
    return len(set(schema.names)) == len(schema.names)


def names_in(path: str, found: pa.Schema, wanted: Sequence[str], is_case_sensitive: bool) -> list[str]:
    """Return the names that the wanted columns have in a file.

    Raises FileFormatError for columns that it lacks, or has twice.
    """
    names = {name if is_case_sensitive else name.lower(): name for name in found.names}
    keys = [name if is_case_sensitive else name.lower() for name in wanted]
    missing = [name for name in keys if name not in names]
    if missing:
        raise FileFormatError(f"{path}: the columns {missing} are not among {found.names}")
    given = Counter(name if is_case_sensitive else name.lower() for name in found.names)
    twice = [name for name in keys if given[name] > 1]
    if twice:
        raise FileFormatError(f"{path}: the columns {twice} are in the file several times: {found.names}")
    return [names[name] for name in keys]


def require_columns(writers: str, schema: pa.Schema) -> None:
    """Raise InvalidProgramError for a schema without columns, or with two of one name."""
    if not len(schema):
        raise InvalidProgramError(f"{writers}: the row type has no columns; declare one at least")
    twice = sorted(name for name, number in Counter(schema.names).items() if number > 1)
    if twice:
        raise InvalidProgramError(f"{writers}: the row type has several columns {twice}; rename them")


def refuse_hadoop_config(hadoop_config: object) -> None:
    """Raise UnsupportedFeatureError for a Hadoop configuration in a program."""
    if hadoop_config is not None:
        raise UnsupportedFeatureError(
            "hadoop_config is not taken by a format; set HADOOP_CONF_DIR to the folder of core-site.xml"
        )


class FileColumns:
    """The columns of files of a format, and rows and record batches as these columns."""

    def __init__(
        self,
        schema: pa.Schema,
        to_batch: Callable[[Sequence[Any], pa.Schema], pa.RecordBatch] = batch_of_rows,
        require: Callable[[pa.RecordBatch], None] | None = None,
    ) -> None:
        """`to_batch` makes columns of rows; `require` raises FileFormatError for values that the format lacks."""
        self._schema = schema
        self._to_batch = to_batch
        self._require = require

    def of(self, given: Sequence[Any] | pa.RecordBatch) -> pa.RecordBatch:
        """Return rows, or a record batch, as these columns. Raises FileFormatError for rows that do not fit."""
        batch = (
            self._of_batch(given)
            if isinstance(given, pa.RecordBatch)
            else self._to_batch(given, self._schema)
        )
        if self._require is not None:
            self._require(batch)
        return batch

    def _of_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.names != self._schema.names:
            raise FileFormatError(f"columns {batch.schema.names} where {self._schema.names} are declared")
        columns = _cast_columns(batch, self._schema, lambda column, target: column.cast(target))
        for field, column in zip(self._schema, columns, strict=True):
            # A cast of lists and maps looks at no null inside of them.
            require_no_null(column, field)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


class ColumnarBulkWriter(BulkWriter[Any]):
    """A bulk writer that takes record batches as well as rows."""

    def __init__(
        self, columns: FileColumns, write: Callable[[pa.RecordBatch], None], close: Callable[[], None]
    ) -> None:
        """`write` and `close` are those of the file."""
        self._columns = columns
        self._write = write
        self._close = close
        self._rows: list[Any] = []
        #: Converted rows that wait for others, and their number.
        self._batches: list[pa.RecordBatch] = []
        self._rows_of_batches = 0

    def held_row_bytes(self, sample: Any) -> float:
        """Return the bytes of a row of the sample as columns in memory: files are compressed, so they have fewer."""
        batch = sample if isinstance(sample, pa.RecordBatch) else self._columns.of(sample)
        return float(batch.nbytes / max(1, batch.num_rows))

    def add_element(self, element: Any) -> None:
        """Keeps a Row, tuple or dict until there are enough for a batch."""
        self._rows.append(element)
        if len(self._rows) >= _ROWS_OF_BATCH:
            self.flush()

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Writes a batch behind the rows before it; FileFormatError for other columns than declared."""
        fitted = self._columns.of(batch)
        self.flush()
        self._write(fitted)

    def add_converted(self, converted: pa.RecordBatch) -> None:
        """Keeps columns that `FileColumns.of` has made, until there are enough rows for a batch."""
        self._batches.append(converted)
        self._rows_of_batches += converted.num_rows
        if self._rows_of_batches >= _ROWS_OF_BATCH:
            self.flush()

    def flush(self) -> None:
        """Writes the rows kept."""
        if self._rows:
            rows, self._rows = self._rows, []
            self._write(self._columns.of(rows))
        if self._batches:
            batches, self._batches, self._rows_of_batches = self._batches, [], 0
            self._write(pa.concat_batches(batches))

    def finish(self) -> None:
        """Writes the rest and the footer."""
        self.flush()
        self._close()
