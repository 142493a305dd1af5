"""What a reader of blocks leaves out: a file, a block, the rest of a block, or a row that does not fit.

Owner: the task's thread. Readers say where the damage is, and this module makes letters of it. Must not know formats.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple, cast

from yarrow.common.values.error_handling import ErrorPolicy
from yarrow.datastream.connectors.base import SourceRecords
from yarrow.datastream.connectors.dead_letters import (
    DEAD_LETTERS,
    RECORD_BYTES,
    RECORD_SHOWN,
    SYSTEM_OF_FILES,
    DeadLetter,
    traceback_of,
)
from yarrow.datastream.connectors.file_format import (
    FileFormatError,
    FilePosition,
    FileReader,
    FileSourceSplit,
    RecordParser,
)
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.fs.registry import file_system_for

#: The position of a letter that stands for a whole file.
WHOLE_FILE = 0
#: Bytes of a read from which on the end of the file is looked at first.
_LARGE_READ = 1 << 24


class WatchedStream(io.RawIOBase):
    """An open file that keeps its own error, so that nobody takes it for damage of the content."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._stream = stream
        #: The error of the last read that failed; None = none has.
        self.error: Exception | None = None

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes. Raises what the file raises."""
        try:
            if size > _LARGE_READ:
                # Damaged data may ask for more bytes than fit into the memory.
                size = min(size, self._bytes_left())
            return self._stream.read(size)
        except (OSError, YarrowError) as error:
            self.error = error
            raise

    def _bytes_left(self) -> int:
        place = self._stream.tell()
        end = self._stream.seek(0, io.SEEK_END)
        self._stream.seek(place)
        return max(0, end - place)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte."""
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        """Return the byte at which the file stands."""
        return self._stream.tell()

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            self._stream.close()
        super().close()

    def require_damage(self, error: Exception) -> None:
        """Return if `error` tells of damage. Else raise the file's own error, or `error` where it is the engine's."""
        if self.error is not None:
            raise self.error
        if not is_damage(error):
            raise error


def is_damage(error: Exception) -> bool:
    """Whether reading data has raised this because of the data: no lack of memory, and no error of the engine."""
    if isinstance(error, MemoryError):
        return False
    return isinstance(error, FileFormatError) or not isinstance(error, YarrowError)


class LeftOut(NamedTuple):
    """One row that was left out, or several that follow each other."""

    #: The first of the rows, within its block.
    row: int
    #: How many records are counted for it: 1 where nobody knows how many rows there were.
    number: int
    #: None = the program reads no letters.
    letter: DeadLetter | None


class LeavesOut:
    """The treatment of damage in one file: it fails the job, or makes letters and counts."""

    def __init__(self, policy: ErrorPolicy, path: str) -> None:
        #: Whether the program asks for letters.
        self.makes_letters = policy is ErrorPolicy.DEAD_LETTER
        self._path = path

    def rows(
        self,
        error: Exception,
        place: str,
        position: int,
        row: int = 0,
        number: int = 1,
        raw: bytes | None = None,
    ) -> LeftOut:
        """Return what is left out at a place, for people and as a position. `raw`: a file with this row alone."""
        if not self.makes_letters:
            return LeftOut(row, number, None)
        cause = error.__cause__ or error
        letter = DeadLetter(
            split=self._path,
            position=position,
            raw=place.encode() if raw is None else raw,
            error=f"{place}: {type(cause).__name__}: {cause}",
            traceback=traceback_of(error),
            encoding=RECORD_SHOWN if raw is None else RECORD_BYTES,
            system=SYSTEM_OF_FILES,
            error_class=type(cause).__name__,
        )
        return LeftOut(row, number, letter)


class BlockRows:
    """The rows of a block, or of a part, that can be read, between those that were left out.

    Both are handed out in the order of the file. So the number of rows that have passed says what has been handed out.
    """

    def __init__(
        self, size: int, rows: Any, places: Sequence[int] | None = None, left_out: Sequence[LeftOut] = ()
    ) -> None:
        """`size`: rows of the block. `places`: for each good row its place in the block; None = all are good."""
        self._size = size
        self._rows = rows
        self._places = places
        self._left_out = left_out
        self._next, self._next_left_out = 0, 0
        #: The rows of the block that were handed out, or left out.
        self.passed = 0

    @property
    def is_read(self) -> bool:
        """Whether all rows have passed."""
        return self.passed >= self._size

    @property
    def number(self) -> int:
        """The rows that can be read."""
        return len(self._rows)

    def skip(self, passed: int) -> None:
        """Go behind rows that passed before a restore, and what was left out among them."""
        self.passed = min(passed, self._size)
        places = self._places
        if places is None:
            self._next = min(self.passed, len(self._rows))
        else:
            self._next = sum(1 for place in places if place < self.passed)
        self._next_left_out = sum(1 for each in self._left_out if each.row < self.passed)

    def take(self, max_rows: int, split_id: str) -> SourceRecords:
        """Return the next rows, with what was left out between them and the row behind them."""
        begin, end = self._next, min(self._next + max_rows, len(self._rows))
        if end == len(self._rows):
            self.passed = self._size
        else:
            self.passed = end if self._places is None else self._places[end]
        first = self._next_left_out
        while (
            self._next_left_out < len(self._left_out)
            and self._left_out[self._next_left_out].row < self.passed
        ):
            self._next_left_out += 1
        self._next = end
        rows = self._rows
        part = rows[begin:end] if isinstance(rows, list) else rows.slice(begin, end - begin)
        return records_of(part, self._left_out[first : self._next_left_out], split_id)


def records_of(rows: Any, left_out: Sequence[LeftOut], split_id: str | None = None) -> SourceRecords:
    """Return rows with the letters of what was left out."""
    side: list[tuple[str, Any]] = [
        (DEAD_LETTERS, each.letter) for each in left_out if each.letter is not None
    ]
    number = sum(each.number for each in left_out)
    return SourceRecords(rows, split_id=split_id, side=side or None, num_errors=number)


def tolerant_reader(
    split: FileSourceSplit, leaves_out: LeavesOut, make: Callable[[BinaryIO], FileReader]
) -> FileReader:
    """Return the reader that `make` gives for the open file, or one that leaves out a file that is none of its format.

    Raises what the file system raises.
    """
    stream = WatchedStream(file_system_for(split.path).open(split.path))
    try:
        return make(cast(BinaryIO, stream))
    except Exception as error:
        stream.close()
        stream.require_damage(error)
        return _UnreadableFile(split, leaves_out.rows(error, "the file", WHOLE_FILE))


class _UnreadableFile(FileReader):
    """Tells once that a file cannot be read: by its first split, or by those that had begun to read it."""

    def __init__(self, split: FileSourceSplit, left_out: LeftOut) -> None:
        self._split = split
        self._left_out = left_out
        begun = split.position is not None and split.position.offset < split.end
        self._is_told = not begun and (split.offset > 0 or split.position is not None)

    def read(self, max_rows: int) -> SourceRecords | None:
        """Return the letter of the file, then None."""
        if self._is_told:
            return None
        self._is_told = True
        return records_of((), [self._left_out], self._split.id)

    def position(self) -> FilePosition:
        """The end of the split, as soon as the letter was returned: no block begins there."""
        if self._is_told:
            return FilePosition(self._split.end)
        return self._split.position or FilePosition(self._split.offset)

    def bytes_of_rows(self) -> float:
        return 0.0


def divided(
    size: int, read: Callable[[int, int], Any], failed: Callable[[int, Exception], LeftOut]
) -> tuple[list[tuple[int, int, Any]], list[LeftOut]]:
    """Read `size` rows by halves until the rows that fail are alone.

    `read(begin, end)` returns the records of a part. Returns the parts (begin, end, records), and what was left out.
    """
    parts: list[tuple[int, int, Any]] = []
    left_out: list[LeftOut] = []

    def attempt(begin: int, end: int) -> None:
        try:
            parts.append((begin, end, read(begin, end)))
        except Exception as error:  # values are data, and a format of the user's may raise anything
            if not is_damage(error):
                raise
            if end - begin == 1:
                left_out.append(failed(begin, error))
                return
            middle = (begin + end) // 2
            attempt(begin, middle)
            attempt(middle, end)

    if size:
        attempt(0, size)
    return parts, left_out


def places_of(parts: Sequence[tuple[int, int, Any]]) -> Iterator[int]:
    """Yield the place of each row that could be read."""
    for begin, end, _ in parts:
        yield from range(begin, end)


def letter_parser(policy: ErrorPolicy, read: Callable[[bytes], Any]) -> RecordParser:
    """Return what reads rows of letters again; `read` gives the records of the raw bytes of one.

    A row that does not fit again becomes a letter with its first place.
    """

    def parse(letter: DeadLetter) -> SourceRecords:
        try:
            return SourceRecords(read(letter.raw or b""))
        except Exception as error:
            if policy is ErrorPolicy.FAIL or not is_damage(error):
                raise
            cause = error.__cause__ or error
            again = letter._replace(
                error=f"{type(cause).__name__}: {cause}",
                traceback=traceback_of(error),
                error_class=type(cause).__name__,
            )
            return records_of([], [LeftOut(0, 1, again if policy is ErrorPolicy.DEAD_LETTER else None)])

    return parse
