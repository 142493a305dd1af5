"""Files that hold columns in sections: an open file, a format's part in reading it, and the reader.

Owner: the task's thread. A section is a row group of Parquet or a stripe of ORC. A split owns the sections that begin
in it. A position is the number of sections read and the rows handed out of the next one. A section is decoded batch by
batch. Must not know either library of files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa

from yarrow.common.values.conditions import Condition
from yarrow.datastream.connectors.base import SourceRecords
from yarrow.datastream.connectors.file_format import (
    FileFormatError,
    FilePosition,
    FileReader,
    FileSourceSplit,
)
from yarrow.runtime.fs.registry import file_system_for


class SectionedFile(ABC):
    """An open file of sections."""

    #: What a section is called.
    section_name: str = "section"

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of the file, without metadata."""

    @abstractmethod
    def section_starts(self) -> Sequence[int]:
        """Return for each section a byte of the file: the split with this byte reads the section."""

    @abstractmethod
    def batches(self, section: int, names: list[str] | None, batch_size: int) -> Iterator[pa.RecordBatch]:
        """Decode a section, in batches of at most `batch_size` rows; None = all columns."""

    def may_have(self, section: int, condition: Condition) -> bool:
        """Return whether a row of a section may meet a condition, as far as this is known without decoding it."""
        return True

    @abstractmethod
    def bytes_per_row(self, section: int, names: list[str] | None) -> float:
        """Return the bytes that a row of a section has in the file, on average; None = all columns."""

    def section_rows(self, section: int) -> tuple[int, int] | None:
        """Return the number of rows in the file before a section, and of those in it; None = the file does not tell."""
        return None

    def close(self) -> None:
        """Release what the file holds besides its stream."""
        return None


class SectionDecoder(ABC):
    """A format's part in reading sections: how a file is opened, and what becomes of its columns."""

    #: Rows decoded at a time.
    batch_size: int

    @abstractmethod
    def open_sections(self, path: str, stream: BinaryIO) -> SectionedFile:
        """Open a file. Raises FileFormatError for a file of another format."""

    @abstractmethod
    def columns_in(self, path: str, found: pa.Schema) -> list[str] | None:
        """Return the names to read in a file, None = all. Raises FileFormatError for columns that it lacks."""

    def condition_in(self, found: pa.Schema) -> Condition | None:
        """Return the condition without which sections of a file are passed over; None = all are decoded."""
        return None

    @abstractmethod
    def records_of(self, path: str, batch: pa.RecordBatch) -> Any:
        """Return the records of a batch: a list, or a batch. Raises FileFormatError where a cast loses something."""


class SectionReader(FileReader):
    """Reads the sections of a split."""

    def __init__(
        self, split: FileSourceSplit, decoder: SectionDecoder, stream: BinaryIO | None = None
    ) -> None:
        """`stream`: the open file; None = the reader opens it."""
        self._split = split
        self._decoder = decoder
        self._stream = file_system_for(split.path).open(split.path) if stream is None else stream
        try:
            self._file = decoder.open_sections(split.path, self._stream)
            self._names = decoder.columns_in(split.path, self._file.schema)
            self._condition = decoder.condition_in(self._file.schema)
        except BaseException:
            self._stream.close()
            raise
        self._sections = [
            section
            for section, start in enumerate(self._file.section_starts())
            if split.offset <= start < split.end
        ]
        #: Sections of the split read to their end, and rows handed out of the one behind them.
        self._done = 0 if split.position is None else split.position.offset
        self._rows = 0
        self._skip = 0 if split.position is None else split.position.records
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._batch: Any = ()
        self._next = 0
        #: Rows that `read` has returned last.
        self._returned = 0
        #: A section and the bytes of one of its rows; None = nobody has asked yet.
        self._row_bytes: tuple[int, float] | None = None

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
        self._returned = end - self._next
        self._rows += self._returned
        self._next = end
        return SourceRecords(rows, split_id=self._split.id)

    def position(self) -> FilePosition:
        return FilePosition(self._done, self._rows + self._skip)

    def bytes_of_rows(self) -> float:
        section = self._sections[self._done]
        if self._row_bytes is None or self._row_bytes[0] != section:
            self._row_bytes = section, self._file.bytes_per_row(section, self._names)
        return self._returned * self._row_bytes[1]

    def close(self) -> None:
        self._file.close()
        self._stream.close()

    def _load(self) -> bool:
        """Decodes the next batch; False at the end of the split."""
        if self._batches is None:
            self._pass_over_sections()
            if self._done >= len(self._sections):
                return False
            self._batches = self._file.batches(
                self._sections[self._done], self._names, self._decoder.batch_size
            )
        try:
            batch = next(self._batches, None)
        except pa.ArrowException as error:
            raise FileFormatError(f"{self._split.path}: damaged data: {error}") from error
        except OSError as error:
            # Arrow tells damaged pages of Parquet by this class, as Python tells a disk that cannot be read.
            raise FileFormatError(f"{self._split.path} cannot be read: {error}") from error
        if batch is None:
            self._end_section()
            return True
        if self._names is not None:
            batch = batch.select(self._names)
        self._batch = self._decoder.records_of(self._split.path, batch)
        self._next = min(self._skip, len(self._batch))
        self._skip -= self._next
        self._rows += self._next
        return True

    def _pass_over_sections(self) -> None:
        """Moves behind sections without a row that anybody wants, also if an earlier run has read rows of them."""
        condition = self._condition
        if condition is None:
            return
        while self._done < len(self._sections):
            if self._file.may_have(self._sections[self._done], condition):
                return
            self._end_section()

    def _end_section(self) -> None:
        self._batches, self._batch, self._next = None, (), 0
        self._done, self._rows, self._skip = self._done + 1, 0, 0
