"""Reading files of lines: blocks of whole lines, and the reader that hands out the records parsed from them.

Owner: the task's thread. A split owns the lines that begin in it. It skips the rest of a line that began
before its offset, and reads a line that began before its end completely. Blocks depend only on the file and
the offset where reading began. So a position is a block's offset and the number of its records that were
returned.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from yarrow.common.values.error_handling import ErrorPolicy
from yarrow.datastream.connectors.base import SourceRecords
from yarrow.datastream.connectors.dead_letters import DEAD_LETTERS, SYSTEM_OF_FILES, DeadLetter, traceback_of
from yarrow.datastream.connectors.file_format import (
    FileFormatError,
    FilePosition,
    FileReader,
    FileSourceSplit,
    MalformedRecordError,
    RecordParser,
)
from yarrow.runtime.fs.registry import file_system_for

if TYPE_CHECKING:
    import pyarrow as pa

#: Bytes of a block: small where each record becomes Python objects, so that a poll stays short.
ROW_BLOCK = 1 << 14
COLUMN_BLOCK = 1 << 20
#: Decoding costs little a line, so that blocks may be larger than those of other row formats.
TEXT_BLOCK = 16 * ROW_BLOCK
#: A line, or a record with line ends in quotes, that is longer is taken for damage.
LONGEST_RECORD = 64 << 20
_BOM = b"\xef\xbb\xbf"
_COUNT_CHUNK = 1 << 20

_DECOMPRESSORS: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": lambda stream: gzip.GzipFile(fileobj=stream),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
}


def is_compressed(path: str) -> bool:
    """Whether the name says that the file is compressed as a whole."""
    return path.endswith(tuple(_DECOMPRESSORS))


def open_lines(path: str) -> BinaryIO:
    """The file's bytes, decompressed where its name says so; offsets count decompressed bytes."""
    stream = file_system_for(path).open(path)
    for suffix, decompressor in _DECOMPRESSORS.items():
        if path.endswith(suffix):
            return cast(BinaryIO, _Decompressed(decompressor(stream), stream))
    return stream


class _Decompressed(io.BufferedReader):
    """A decompressor that closes the file below it, too."""

    def __init__(self, decompressor: Any, below: BinaryIO) -> None:
        super().__init__(decompressor)
        self._below = below

    def close(self) -> None:
        super().close()
        self._below.close()


class LineBlocks:
    """The lines of a split in blocks that end with a line."""

    def __init__(self, split: FileSourceSplit, block_size: int, quote: bytes | None = None) -> None:
        """With `quote` a line end inside a pair of quotes ends no block."""
        self._path = split.path
        self._stream = open_lines(split.path)
        self._size = block_size
        self._quote = quote
        self._end = None if is_compressed(split.path) else split.end
        self._rest = b""
        #: Offset of the next block.
        self.offset = split.offset if split.position is None else split.position.offset
        if split.position is None and split.offset > 0:
            # The byte before the split tells whether a line begins right at it.
            self.offset -= 1
            self._stream.seek(self.offset)
            self._skip_line()
        elif self.offset:
            self._stream.seek(self.offset)

    def next(self) -> bytes | None:
        """Return the next block; None at the end of the split."""
        if self._end is not None and self.offset >= self._end:
            return None
        data = self._rest
        while True:
            chunk = self._stream.read(self._size)
            data += chunk
            if not chunk:
                block, self._rest = data, b""
                break
            cut = self._cut(data)
            if cut:
                block, self._rest = data[:cut], data[cut:]
                break
            if len(data) > LONGEST_RECORD:
                raise FileFormatError(
                    f"{self._path}: no end of record within {LONGEST_RECORD} bytes from byte {self.offset};"
                    " check the format, and look for a quote left open"
                )
        if self._end is not None and self.offset + len(block) > self._end:
            last = block.find(b"\n", self._end - 1 - self.offset) + 1
            if last:
                block = block[:last]
        self.offset += len(block)
        return block or None

    @property
    def pending_bytes(self) -> int | None:
        """Bytes behind the last block; None for compressed files, whose offsets are those of the text."""
        return None if self._end is None else max(0, self._end - self.offset)

    def close(self) -> None:
        """Closes the file."""
        self._stream.close()

    def _cut(self, data: bytes) -> int:
        """The length of the longest beginning of `data` that ends with a line outside of quotes; 0 = none."""
        cut = data.rfind(b"\n") + 1
        if self._quote is None or not cut:
            return cut
        odd = data.count(self._quote, 0, cut) % 2
        while odd and cut:
            shorter = data.rfind(b"\n", 0, cut - 1) + 1
            odd ^= data.count(self._quote, shorter, cut) % 2
            cut = shorter
        return cut

    def _skip_line(self) -> None:
        while chunk := self._stream.read(self._size):
            end = chunk.find(b"\n") + 1
            if end:
                self.offset += end
                self._rest = chunk[end:]
                return
            self.offset += len(chunk)


class LineNumbers:
    """Turns offsets into line numbers by counting, only when an error asks for one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._offset = 0
        self._line = 1

    def at(self, offset: int) -> int:
        """The number, from 1, of the line that begins at `offset`; asked for in rising order."""
        if offset > self._offset:
            with open_lines(self._path) as stream:
                stream.seek(self._offset)
                left = offset - self._offset
                while left and (chunk := stream.read(min(left, _COUNT_CHUNK))):
                    self._line += chunk.count(b"\n")
                    left -= len(chunk)
            self._offset = offset
        return self._line


class KnownLine(LineNumbers):
    """The number of a line that a dead letter tells; its file is not read."""

    def __init__(self, letter: DeadLetter) -> None:
        super().__init__(letter.split)
        self._known = letter.position

    def at(self, offset: int) -> int:
        """The number of the line."""
        return self._known


class BlockErrors:
    """Carries out the policy for the malformed records of one block."""

    def __init__(self, policy: ErrorPolicy, path: str, offset: int, numbers: LineNumbers) -> None:
        self._policy = policy
        self._path = path
        self._offset = offset
        self._numbers = numbers
        self.count = 0
        self.side: list[tuple[str, Any]] = []

    def report(self, line_in_block: int, raw: bytes, reason: str, error: Exception) -> None:
        """Take a record that begins at a line of the block, from 0; with FAIL it raises MalformedRecordError.

        `raw` is the record without its line end, and `error` what reading it has raised.
        """
        self.count += 1
        if self._policy is ErrorPolicy.SKIP:
            return
        line = self._numbers.at(self._offset) + line_in_block
        shown, kind = traceback_of(error), type(error).__name__
        record = DeadLetter(self._path, line, raw, reason, shown, system=SYSTEM_OF_FILES, error_class=kind)
        if self._policy is ErrorPolicy.FAIL:
            raise MalformedRecordError(record) from error
        self.side.append((DEAD_LETTERS, record))


class BlockParser(ABC):
    """The work of a format on a block."""

    @abstractmethod
    def parse(self, block: bytes, at_file_start: bool, errors: BlockErrors) -> list[Any] | pa.RecordBatch:
        """Return the records of a block; malformed records go to `errors`."""


class TextParser(BlockParser):
    """Lines as strings, of a character set in which a newline is the byte 10."""

    def __init__(self, charset: str) -> None:
        self._charset = charset

    def parse(self, block: bytes, at_file_start: bool, errors: BlockErrors) -> list[str]:
        try:
            lines = lines_of(block.decode(self._charset))
        except UnicodeDecodeError:
            return self._line_by_line(block, errors)
        if b"\r" in block:
            return [line.removesuffix("\r") for line in lines]
        return lines

    def _line_by_line(self, block: bytes, errors: BlockErrors) -> list[str]:
        lines = []
        for index, line in enumerate(block.removesuffix(b"\n").split(b"\n")):
            try:
                lines.append(line.decode(self._charset).removesuffix("\r"))
            except UnicodeDecodeError as error:
                reason = f"not {self._charset}: {error.reason} at byte {error.start} of the line"
                errors.report(index, line.removesuffix(b"\r"), reason, error)
        return lines


def lines_of(text: str) -> list[str]:
    """The lines of a block of whole lines; a final newline begins no further line."""
    return text.removesuffix("\n").split("\n")


class BlockReader(FileReader):
    """Hands out the records of a split's blocks in slices."""

    def __init__(
        self, split: FileSourceSplit, blocks: LineBlocks, parser: BlockParser, policy: ErrorPolicy
    ) -> None:
        self._split = split
        self._blocks = blocks
        self._parser = parser
        self._policy = policy
        self._numbers = LineNumbers(split.path)
        self._block_offset = blocks.offset
        self._block_bytes = 0
        self._records: Any = []
        self._handed_out = 0
        #: Rows that `read` has returned last.
        self._returned = 0
        self._skip = 0 if split.position is None else split.position.records

    def read(self, max_rows: int) -> SourceRecords | None:
        """Return a slice of the block's records; the malformed records of a block come with its first slice."""
        errors = None
        while self._handed_out >= len(self._records) and (errors is None or not errors.count):
            self._block_offset = self._blocks.offset
            block = self._blocks.next()
            self._records, self._handed_out = [], 0
            if block is None:
                return None
            self._block_bytes = len(block)
            errors = self._parse(block)
        start = self._handed_out
        rows = self._slice(start, max_rows)
        self._returned = len(rows)
        self._handed_out = start + self._returned
        if errors is None or not errors.count:
            return SourceRecords(rows, split_id=self._split.id)
        return SourceRecords(rows, split_id=self._split.id, side=errors.side or None, num_errors=errors.count)

    def position(self) -> FilePosition:
        """The block and the number of its records handed out."""
        if self._handed_out >= len(self._records):
            return FilePosition(self._blocks.offset, self._skip)
        return FilePosition(self._block_offset, self._handed_out)

    def pending_bytes(self) -> int | None:
        return self._blocks.pending_bytes

    def bytes_of_rows(self) -> float:
        # A block without a row that can be read came with its malformed records alone.
        return self._block_bytes * self._returned / len(self._records) if self._records else self._block_bytes

    def close(self) -> None:
        self._blocks.close()

    def _parse(self, block: bytes) -> BlockErrors | None:
        at_file_start = self._block_offset == 0
        errors = BlockErrors(self._policy, self._split.path, self._block_offset, self._numbers)
        data = block.removeprefix(_BOM) if at_file_start else block
        self._records = self._parser.parse(data, at_file_start, errors)
        if not self._skip:
            return errors
        # A restored position: these records, and the malformed records before them, were handed out already.
        self._handed_out = min(self._skip, len(self._records))
        self._skip -= self._handed_out
        return None

    def _slice(self, start: int, max_rows: int) -> Any:
        records = self._records
        if isinstance(records, list):
            return records if not start and len(records) <= max_rows else records[start : start + max_rows]
        return records.slice(start, max_rows)


def letter_parser(parser: BlockParser, policy: ErrorPolicy) -> RecordParser:
    """Return what reads records of dead letters by the parser of blocks."""

    def read(letter: DeadLetter) -> SourceRecords:
        errors = BlockErrors(policy, letter.split, 0, KnownLine(letter))
        rows = parser.parse((letter.raw or b"") + b"\n", False, errors)
        return SourceRecords(rows, side=errors.side or None, num_errors=errors.count)

    return read
