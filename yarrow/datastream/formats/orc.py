"""ORC files: record batches or Rows in, and bulk writers out, by Arrow.

Owner: the task's thread. Arrow does not say at which byte a stripe begins. The format divides a
file of n stripes into n equal parts. The split in which part i begins reads stripe i.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

import pyarrow as pa
from pyarrow import orc

from yarrow.common.serialization import BulkWriterFactory
from yarrow.common.typeinfo import RowTypeInfo
from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.datastream.formats.blocks.sections import SectionedFile
from yarrow.datastream.formats.column_instants import require_instants
from yarrow.datastream.formats.columnar_files import (
    ColumnarBulkWriter,
    ColumnarRowInputFormat,
    FileColumns,
    refuse_hadoop_config,
    require_columns,
)
from yarrow.datastream.formats.columns import as_schema, rounded_batch_of_rows
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.table.types import RowType

__all__ = ["OrcBulkWriters", "OrcColumnarRowInputFormat"]


class OrcColumnarRowInputFormat(ColumnarRowInputFormat):
    """Record batches of ORC files, or Rows with `columnar` False.

    The parameters are those of ParquetColumnarRowInputFormat. Timestamps of ORC files have nanoseconds: declare
    `row_type` to have them in microseconds.
    """

    def open_sections(self, path: str, stream: BinaryIO) -> SectionedFile:
        return _OrcStripes(path, stream)


class _OrcStripes(SectionedFile):
    """The stripes of an open ORC file. Arrow does not tell how many rows a stripe has."""

    section_name = "stripe"

    def __init__(self, path: str, stream: BinaryIO) -> None:
        self._path = path
        self._bytes = stream.seek(0, io.SEEK_END)
        stream.seek(0)
        try:
            self._file = orc.ORCFile(stream)
        except (pa.ArrowException, OSError) as error:
            raise FileFormatError(f"{path} is no ORC file: {error}") from error

    @property
    def schema(self) -> pa.Schema:
        return self._file.schema.remove_metadata()

    def section_starts(self) -> list[int]:
        stripes = self._file.nstripes
        return [self._bytes * stripe // stripes for stripe in range(stripes)]

    def batches(self, section: int, names: list[str] | None, batch_size: int) -> Iterator[pa.RecordBatch]:
        if any("." in name for name in self.schema.names):
            # Arrow takes a dot for the way into a struct: it is left to the caller to choose columns.
            names = None
        try:
            stripe = self._file.read_stripe(section, columns=names)
        except (pa.ArrowException, OSError) as error:
            raise FileFormatError(f"{self._path}: stripe {section} is damaged: {error}") from error
        for start in range(0, stripe.num_rows, batch_size):
            yield stripe.slice(start, batch_size)

    def bytes_per_row(self, section: int, names: list[str] | None) -> float:
        # Arrow does not tell the bytes of a stripe or of a column.
        return self._bytes / max(1, int(self._file.nrows))


class OrcBulkWriters:
    """Makes writers of ORC files."""

    @staticmethod
    def for_row_type(
        row_type: RowTypeInfo | RowType | pa.Schema,
        writer_properties: Mapping[str, str] | None = None,
        hadoop_config: object = None,
    ) -> BulkWriterFactory[Any]:
        """A factory of writers of Rows, tuples, dicts or record batches of this type.

        `writer_properties` are those of ORC: `orc.compress`, `orc.stripe.size`, `orc.compress.size`,
        `orc.row.index.stride`, `orc.bloom.filter.columns` and `orc.bloom.filter.fpp`. Raises InvalidProgramError for
        another property, a wrong value, or a column whose type ORC lacks.
        """
        refuse_hadoop_config(hadoop_config)
        schema = as_schema(row_type)
        return OrcWriterFactory(schema, _options(dict(writer_properties or {}), schema))


class OrcWriterFactory(BulkWriterFactory[Any]):
    """Makes a ColumnarBulkWriter for each file, which refuses instants that Arrow cannot read."""

    #: A FileSink with this factory takes record batches.
    accepts_columns = True
    can_be_concatenated = False
    counts_bytes = True
    tells_refused_rows = True

    def __init__(self, schema: pa.Schema, options: dict[str, Any]) -> None:
        require_columns("OrcBulkWriters", schema)
        self._schema = schema
        self._columns = FileColumns(schema, rounded_batch_of_rows, require_instants)
        self._options = options
        for field in schema:
            _require_column(field)

    def create(self, stream: BinaryIO) -> ColumnarBulkWriter:
        """A writer into an open stream."""
        file = orc.ORCWriter(stream, **self._options)
        # A file without rows has its columns as well.
        file.write(self._schema.empty_table())
        return ColumnarBulkWriter(
            self._columns, lambda batch: file.write(pa.Table.from_batches([batch])), file.close
        )

    def row_converter(self) -> Callable[[Any], pa.RecordBatch]:
        """Return what makes columns of rows and record batches."""
        return self._columns.of


def _require_column(field: pa.Field) -> None:
    """Raise InvalidProgramError for a column that cannot be written."""
    file = orc.ORCWriter(io.BytesIO())
    try:
        file.write(pa.schema([field]).empty_table())
    except (pa.ArrowException, OSError) as error:
        raise InvalidProgramError(
            f"OrcBulkWriters: ORC has no column for {field.name!r} of type {field.type}; a time of day may be"
            f" written as an integer or a text ({error})"
        ) from error
    finally:
        file.close()


#: Property of ORC -> option of Arrow's writer, and how a text is read.
_PROPERTIES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "orc.compress": ("compression", lambda text: "uncompressed" if text.upper() == "NONE" else text.lower()),
    "orc.compress.size": ("compression_block_size", int),
    "orc.stripe.size": ("stripe_size", int),
    "orc.row.index.stride": ("row_index_stride", int),
    "orc.bloom.filter.columns": ("bloom_filter_columns", lambda text: text.split(",")),
    "orc.bloom.filter.fpp": ("bloom_filter_fpp", float),
}


def _options(properties: dict[str, str], schema: pa.Schema) -> dict[str, Any]:
    unknown = sorted(properties.keys() - _PROPERTIES.keys())
    if unknown:
        raise InvalidProgramError(
            f"OrcBulkWriters: the properties {unknown} are not known; there are {', '.join(_PROPERTIES)}"
        )
    options: dict[str, Any] = {}
    for name, text in properties.items():
        option, read = _PROPERTIES[name]
        try:
            options[option] = read(text)
            if option == "bloom_filter_columns":
                options[option] = [schema.names.index(column) for column in options[option]]
            orc.ORCWriter(io.BytesIO(), **{option: options[option]}).close()
        except (ValueError, TypeError, pa.ArrowException, OSError) as error:
            raise InvalidProgramError(f"OrcBulkWriters: {name} = {text!r} cannot be: {error}") from error
    return options
