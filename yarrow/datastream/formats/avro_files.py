"""Container files of Avro: the format for a FileSource and bulk writers for a FileSink.

Owner: the task's thread. A file is a head and blocks of records, each followed by the sync marker of the head. A split
owns the blocks that begin in it, and finds the first by a marker. A position is the byte at which a block begins, and
the records handed out of it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, BinaryIO

from yarrow.common.serialization import BulkWriter, BulkWriterFactory
from yarrow.common.typeinfo import TypeInformation
from yarrow.common.values.error_handling import ErrorPolicy
from yarrow.datastream.connectors.base import SourceRecords
from yarrow.datastream.connectors.file_format import (
    BulkFormat,
    FileFormatError,
    FilePosition,
    FileReader,
    FileSourceSplit,
    RecordParser,
)
from yarrow.datastream.formats.avro_resolution import ReaderSchema, differing_meaning
from yarrow.datastream.formats.avro_schema import AvroSchema, GenericRecordAvroTypeInfo, avro_library, type_of
from yarrow.datastream.formats.avro_values import AvroValueError, writer_values
from yarrow.datastream.formats.blocks.avro_damage import (
    MARKER_BYTES,
    DamagedRecord,
    block_extent,
    file_of_record,
    find_marker,
    read_one_by_one,
)
from yarrow.datastream.formats.blocks.left_out import (
    BlockRows,
    LeavesOut,
    LeftOut,
    WatchedStream,
    letter_parser,
    tolerant_reader,
)
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError
from yarrow.runtime.fs.registry import file_system_for

#: Codecs that need no further library.
_CODECS = ("null", "deflate", "bzip2", "xz")
#: Bytes of records before compression, at which the library ends a block.
_BYTES_OF_BLOCK = 16_000


class AvroBulkFormat(BulkFormat[dict[str, Any]]):
    """Records of Avro files as dicts.

    With a schema each file is read by Avro's rules for two schemas: fields by name, defaults for those that the file
    lacks, numbers widened. Without one the records have the fields of their file. Timestamps come in UTC, decimals
    as Decimal.
    """

    splittable = True
    counts_bytes = True
    reads_single_records = True

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
        declared = None if self._schema is None else ReaderSchema(self._schema)
        policy = self.errors.policy
        if policy is ErrorPolicy.FAIL:
            return _BlockReader(split, declared)
        leaves_out = LeavesOut(policy, split.path)
        return tolerant_reader(
            split, leaves_out, lambda stream: _TolerantBlockReader(split, declared, stream, leaves_out)
        )

    def record_parser(self, path: str) -> RecordParser:
        """Return what reads records of letters, each of which is an Avro file of its own."""
        declared = None if self._schema is None else ReaderSchema(self._schema)
        return letter_parser(self.errors.policy, lambda raw: _records_of_file(path, raw, declared))


class _BlockReader(FileReader):
    def __init__(
        self, split: FileSourceSplit, declared: ReaderSchema | None, stream: BinaryIO | None = None
    ) -> None:
        """`stream`: the open file; None = the reader opens it."""
        self._split = split
        self._declared = declared
        self._stream = file_system_for(split.path).open(split.path) if stream is None else stream
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

    def _opened(self) -> Any:
        """Reads the head of the file; returns its blocks, which are read from where the stream stands then."""
        return _blocks_of(self._split.path, self._stream, self._declared)

    def _first_block(self) -> int:
        """Return the byte at which the first block of the split begins; the end of the split or more = it has none."""
        if self._split.offset <= self._marker_end:
            return self._marker_end
        # A marker right before the split ends the last block of the split before.
        start = self._split.offset - MARKER_BYTES
        return find_marker(self._stream, self._marker(), start, self._split.end)

    def _marker(self) -> bytes:
        """Return the marker of the file."""
        self._stream.seek(self._marker_end - MARKER_BYTES)
        return self._stream.read(MARKER_BYTES)

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


class _TolerantBlockReader(_BlockReader):
    """Leaves out blocks that are damaged, and records that do not fit the schema of the program.

    A block is decoded as a whole before its first record leaves. Positions count records that were left out as records
    that were handed out.
    """

    def __init__(
        self,
        split: FileSourceSplit,
        declared: ReaderSchema | None,
        stream: BinaryIO,
        leaves_out: LeavesOut,
    ) -> None:
        super().__init__(split, declared, stream)
        assert isinstance(stream, WatchedStream)
        self._watched: WatchedStream = stream
        self._leaves_out = leaves_out
        #: The records of the present block; None = the next one has to be read.
        self._block: BlockRows | None = None

    def read(self, max_rows: int) -> SourceRecords | None:
        """Return records of the present block, with the letters between them."""
        while self._block is None or self._block.is_read:
            if self._block is not None:
                self._block, self._offset = None, self._block_end
            if self._offset >= self._split.end or not self._next_block():
                self._offset = max(self._offset, self._split.end)
                return None
        records = self._block.take(max_rows, self._split.id)
        self._returned = len(records.rows)
        return records

    def position(self) -> FilePosition:
        return FilePosition(self._offset, self._skip if self._block is None else self._block.passed)

    def _next_block(self) -> bool:
        """Read the block at the present byte, or what can be read of it; False at the end of the file."""
        try:
            block = next(self._blocks, None)
            if block is None:
                return False
            self._block_end = self._offset + block.size
            self._row_bytes = block.size / max(1, block.num_records)
            self._block = self._rows_of(block)
        except Exception as error:  # blocks are data: their damage shows in any way
            self._watched.require_damage(error)
            self._block = self._damaged(error)
        self._block.skip(self._skip)
        self._skip = 0
        return True

    def _rows_of(self, block: Any) -> BlockRows:
        try:
            rows = list(block)
        except Exception:
            return self._rows_that_fit(block)
        if block.bytes_.read(1):
            raise FileFormatError(f"the block has bytes behind its {block.num_records} records")
        rows = rows if self._declared is None else self._declared.finished(rows)
        return BlockRows(len(rows), rows)

    def _rows_that_fit(self, block: Any) -> BlockRows:
        read_record, declared, written = avro_library().schemaless_reader, self._declared, block.writer_schema
        parsed = None if declared is None else declared.parsed
        content: bytes = block.bytes_.getvalue()
        rows, places, damaged = read_one_by_one(
            content,
            block.num_records,
            lambda stream: read_record(stream, written, parsed),
            lambda stream: read_record(stream, written, None),
        )
        rows = rows if declared is None else declared.finished(rows)
        left_out = [self._left_out(each, block.num_records, len(content)) for each in damaged]
        return BlockRows(block.num_records, rows, places, left_out)

    def _left_out(self, found: DamagedRecord, records: int, size: int) -> LeftOut:
        place = f"block at byte {self._offset}, record {found.row + 1} of the block"
        number, raw = 1, None
        if found.raw is None:
            last = f" to {records}" if records <= size else " and those behind it"
            place = f"block at byte {self._offset}, records {found.row + 1}{last} of the block"
            # A block of fewer bytes than records has a damaged head: nobody knows how many are lost.
            number = records - found.row if records <= size else 1
        elif self._leaves_out.makes_letters:
            raw = file_of_record(self._blocks.metadata["avro.schema"], found.raw)
        return self._leaves_out.rows(found.error, place, self._offset, row=found.row, number=number, raw=raw)

    def _damaged(self, error: Exception) -> BlockRows:
        """Leave out a block whose records cannot be told apart, and go on behind the next marker."""
        marker = self._marker()
        extent = block_extent(self._stream, marker, self._offset, self._split.file_size)
        self._block_end, self._row_bytes = extent.end, 0.0
        place = f"block at byte {self._offset}, bytes to {extent.end}"
        # A damaged head may tell any number of records.
        told = extent.records
        number = told if told is not None and told <= extent.end - self._offset else 1
        lost = self._leaves_out.rows(error, place, self._offset, number=number)
        # The library goes on with no block behind an error.
        self._stream.seek(0)
        self._blocks = self._opened()
        self._stream.seek(extent.end)
        return BlockRows(number, [], (), [lost])


def _blocks_of(path: str, stream: BinaryIO, declared: ReaderSchema | None) -> Any:
    """Read the head of a file. Returns its blocks. Raises FileFormatError for another file, or one of other types."""
    try:
        blocks = avro_library().block_reader(stream, None if declared is None else declared.parsed)
        written = None if declared is None else type_of(blocks.writer_schema)
    except UnsupportedFeatureError:
        raise
    except Exception as error:  # the head is data: its damage shows in any way
        raise FileFormatError(f"{path} is no Avro file: {error}") from error
    if declared is not None and written is not None:
        found = differing_meaning(written, declared.root)
        if found is not None:
            raise FileFormatError(
                f"{path}: field {found.path!r} is of type {found.written} in the file and of"
                f" {found.declared} in the program's schema; declare the type of the file"
            )
    return blocks


def _records_of_file(path: str, content: bytes, declared: ReaderSchema | None) -> list[Any]:
    """The records of a small file. Raises FileFormatError, or what the library raises, for one that does not fit."""
    rows = [row for block in _blocks_of(path, io.BytesIO(content), declared) for row in block]
    return rows if declared is None else declared.finished(rows)


class AvroWriterFactory(BulkWriterFactory[dict[str, Any]]):
    """Makes a writer for each Avro file."""

    can_be_concatenated = False
    counts_bytes = True
    tells_refused_rows = True

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

    def row_converter(self) -> Callable[[Sequence[Any]], list[bytes]]:
        """Return what encodes records. It raises AvroValueError, or the library's error, for one that does not fit."""
        values, encode = writer_values(self._schema.root), message_writer(self._schema)
        return lambda records: [encode(values(record)) for record in records]


class _EncodedBlock:
    """Encoded records that will be a block, in the form that the library takes blocks of other files."""

    def __init__(self) -> None:
        self.num_records = 0
        self.bytes_ = io.BytesIO()

    def add(self, records: Sequence[bytes]) -> None:
        self.num_records += len(records)
        self.bytes_.write(b"".join(records))


class AvroBulkWriter(BulkWriter[Any]):
    """Writes records into blocks."""

    def __init__(self, stream: BinaryIO, schema: AvroSchema, codec: str) -> None:
        self._writer = avro_library().write.Writer(stream, schema.parsed, codec=codec)
        self._values = writer_values(schema.root)
        self._written = 0
        #: Records that came encoded.
        self._block = _EncodedBlock()

    def add_element(self, element: Any) -> None:
        """Writes a dict or a Row. Raises FileFormatError naming record and field of a value that does not fit."""
        try:
            record = self._values(element)
        except AvroValueError as error:
            raise FileFormatError(f"record {self._written} of an Avro file: {error}") from error
        self._writer.write(record)
        self._written += 1

    def add_converted(self, converted: Sequence[bytes]) -> None:
        """Puts records that the factory's converter has encoded into the present block."""
        self._block.add(converted)
        if self._block.bytes_.tell() >= _BYTES_OF_BLOCK:
            self.flush()

    def flush(self) -> None:
        """Ends the present block."""
        self._writer.flush()
        if self._block.num_records:
            block, self._block = self._block, _EncodedBlock()
            self._writer.write_block(block)

    def finish(self) -> None:
        """Writes the last block."""
        self.flush()


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
