"""Container files of Avro: the format for a FileSource and bulk writers for a FileSink.

Owner: the task's thread. A file is a head and blocks of records, each followed by the sync marker of the head. A split
owns the blocks that begin in it, and finds the first by a marker. A position is the byte at which a block begins, and
the records handed out of it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, BinaryIO

from yarrow.common.serialization import BulkWriter, BulkWriterFactory
from yarrow.common.typeinfo import TypeInformation
from yarrow.datastream.connectors.base import SourceRecords
from yarrow.datastream.connectors.file_format import (
    BulkFormat,
    FileFormatError,
    FilePosition,
    FileReader,
    FileSourceSplit,
)
from yarrow.datastream.formats.avro_resolution import ReaderSchema, differing_meaning
from yarrow.datastream.formats.avro_schema import AvroSchema, GenericRecordAvroTypeInfo, avro_library, type_of
from yarrow.datastream.formats.avro_values import AvroValueError, writer_values
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.fs.registry import file_system_for

_MARKER_BYTES = 16
_SEARCH_BYTES = 1 << 16
#: Codecs that need no further library.
_CODECS = ("null", "deflate", "bzip2", "xz")


class AvroBulkFormat(BulkFormat[dict[str, Any]]):
    """Records of Avro files as dicts.

    With a schema each file is read by Avro's rules for two schemas: fields by name, defaults for those that the file
    lacks, numbers widened. Without one the records have the fields of their file. Timestamps come in UTC, decimals
    as Decimal.
    """

    splittable = True
    counts_bytes = True

    def __init__(self, schema: AvroSchema | None = None) -> None:
        self._schema = schema

    @property
    def schema(self) -> AvroSchema | None:
        """The schema by which files are read."""
        return self._schema

    def produced_type(self) -> TypeInformation | None:
        """The type of the records, where a schema was given."""
        return None if self._schema is None else GenericRecordAvroTypeInfo(self._schema)

    def create_reader(self, split: FileSourceSplit) -> FileReader:
        """A reader of blocks."""
        return _BlockReader(split, self._schema)


class _BlockReader(FileReader):
    def __init__(self, split: FileSourceSplit, schema: AvroSchema | None) -> None:
        self._split = split
        self._declared = None if schema is None else ReaderSchema(schema)
        self._stream = file_system_for(split.path).open(split.path)
        try:
            self._blocks = self._opened()
            self._marker_end = self._stream.tell()
            self._offset = self._first_block() if split.position is None else split.position.offset
            self._stream.seek(self._offset)
        except BaseException:
            self._stream.close()
            raise
        self._skip = 0 if split.position is None else split.position.records
        #: Records of the block at `_offset`, and how many of them were handed out.
        self._records: Iterator[dict[str, Any]] | None = None
        self._read = 0
        self._block_end = self._offset
        #: Rows that `read` has returned last, and the bytes of a row of their block.
        self._returned = 0
        self._row_bytes = 0.0

    def read(self, max_rows: int) -> SourceRecords | None:
        """Records of the present block."""
        while True:
            if self._records is None and not self._load():
                return None
            rows = self._decoded(max_rows)
            self._returned = len(rows)
            self._read += self._returned
            if rows:
                return SourceRecords(rows, split_id=self._split.id)
            self._records, self._read, self._offset = None, 0, self._block_end

    def position(self) -> FilePosition:
        return FilePosition(self._offset, self._read if self._records is not None else self._skip)

    def pending_bytes(self) -> int:
        return max(0, self._split.end - self._offset)

    def bytes_of_rows(self) -> float:
        return self._returned * self._row_bytes

    def close(self) -> None:
        self._stream.close()

    def _opened(self) -> Iterator[Any]:
        """Reads the head of the file; returns its blocks, which are read from where the stream stands then."""
        library = avro_library()
        try:
            blocks = library.block_reader(
                self._stream, None if self._declared is None else self._declared.parsed
            )
            written = None if self._declared is None else type_of(blocks.writer_schema)
        except Exception as error:  # the head is data: its damage shows in any way
            raise FileFormatError(f"{self._split.path} is no Avro file: {error}") from error
        if self._declared is not None and written is not None:
            found = differing_meaning(written, self._declared.root)
            if found is not None:
                raise FileFormatError(
                    f"{self._split.path}: field {found.path!r} is of type {found.written} in the file and of"
                    f" {found.declared} in the program's schema; declare the type of the file"
                )
        return blocks  # type: ignore[no-any-return]

    def _first_block(self) -> int:
        """Return the byte at which the first block of the split begins; the end of the split or more = it has none."""
        if self._split.offset <= self._marker_end:
            return self._marker_end
        self._stream.seek(self._marker_end - _MARKER_BYTES)
        marker = self._stream.read(_MARKER_BYTES)
        # A marker right before the split ends the last block of the split before.
        start = self._split.offset - _MARKER_BYTES
        self._stream.seek(start)
        window = b""
        while start + len(window) < self._split.end and (more := self._stream.read(_SEARCH_BYTES)):
            window += more
            if (found := window.find(marker)) >= 0:
                return start + found + _MARKER_BYTES
            start += max(0, len(window) - _MARKER_BYTES + 1)
            window = window[-_MARKER_BYTES + 1 :]
        return self._split.end

    def _load(self) -> bool:
        """Reads the next block; False at the end of the split."""
        if self._offset >= self._split.end:
            return False
        try:
            block = next(self._blocks, None)
        except Exception as error:  # blocks are data: their damage shows in any way
            raise FileFormatError(
                f"{self._split.path}, block at byte {self._offset}: the block cannot be read:"
                f" {type(error).__name__}: {error}"
            ) from error
        if block is None:
            self._offset = self._split.end
            return False
        self._block_end = self._offset + block.size
        self._row_bytes = block.size / max(1, block.num_records)
        self._records = iter(block)
        skipped, self._skip = self._skip, 0
        self._read = len(self._decoded(skipped))
        return True

    def _decoded(self, most: int) -> list[dict[str, Any]]:
        assert self._records is not None
        rows: list[dict[str, Any]] = []
        try:
            rows.extend(islice(self._records, most))
        except Exception as error:  # records are data: their damage shows in any way
            # `rows` holds what was decoded before the fault.
            raise FileFormatError(
                f"{self._split.path}, block at byte {self._offset}, record {self._read + len(rows)} of the block:"
                f" {type(error).__name__}: {error}"
            ) from error
        return rows if self._declared is None else self._declared.finished(rows)


class AvroWriterFactory(BulkWriterFactory[dict[str, Any]]):
    """Makes a writer for each Avro file."""

    can_be_concatenated = False
    counts_bytes = True

    def __init__(self, schema: AvroSchema, codec: str = "null") -> None:
        if codec not in _CODECS:
            raise InvalidProgramError(
                f"AvroBulkWriters: the codec {codec!r} is not among {', '.join(_CODECS)}"
            )
        self._schema = schema
        self._codec = codec

    def create(self, stream: BinaryIO) -> AvroBulkWriter:
        """A writer into an open stream."""
        return AvroBulkWriter(stream, self._schema, self._codec)


class AvroBulkWriter(BulkWriter[Any]):
    """Writes records into blocks."""

    def __init__(self, stream: BinaryIO, schema: AvroSchema, codec: str) -> None:
        self._writer = avro_library().write.Writer(stream, schema.parsed, codec=codec)
        self._values = writer_values(schema.root)
        self._written = 0

    def add_element(self, element: Any) -> None:
        """Writes a dict or a Row. Raises FileFormatError naming record and field of a value that does not fit."""
        try:
            record = self._values(element)
        except AvroValueError as error:
            raise FileFormatError(f"record {self._written} of an Avro file: {error}") from error
        self._writer.write(record)
        self._written += 1

    def flush(self) -> None:
        """Ends the present block."""
        self._writer.flush()

    def finish(self) -> None:
        """Writes the last block."""
        self._writer.flush()


def message_reader(schema: AvroSchema) -> Callable[[bytes], Any]:
    """Return a function from one message, which has no head, to its record.

    The function raises FileFormatError for bytes that are no such record.
    """
    read_record, parsed = avro_library().schemaless_reader, schema.parsed

    def read(message: bytes) -> Any:
        stream = io.BytesIO(message)
        try:
            record = read_record(stream, parsed, None)
        except Exception as error:  # the message is data: its damage shows in any way
            raise FileFormatError(
                f"a message of {len(message)} bytes is no record of {schema.root.name}:"
                f" {type(error).__name__}: {error}"
            ) from error
        if stream.tell() != len(message):
            raise FileFormatError(
                f"a message of {len(message)} bytes has {len(message) - stream.tell()} bytes behind its record"
            )
        return record

    return read


def message_writer(schema: AvroSchema, head: bytes = b"") -> Callable[[Any], bytes]:
    """Return a function from a record of `writer_values` to one message, which begins with `head`."""
    write_record, parsed = avro_library().schemaless_writer, schema.parsed

    def write(record: Any) -> bytes:
        stream = io.BytesIO()
        stream.write(head)
        write_record(stream, parsed, record)
        return stream.getvalue()

    return write
