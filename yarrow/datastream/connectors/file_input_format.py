"""FileInputFormat: the older interface InputFormat for files, over a FileFormat.

Owner: the client, which takes its FileSource for `create_input`; else the thread that calls `open`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from yarrow.common.io import InputFormat
from yarrow.datastream.connectors.file_format import BulkFormat, FileReader, FileSourceSplit
from yarrow.datastream.connectors.file_source import FileEnumeratorProvider, FileSource

T = TypeVar("T")

_ROWS = 1024


class FileInputFormat(InputFormat[FileSourceSplit, T], Generic[T]):
    """Records of the files at a path, in a format.

    `create_input` makes a stream of it, whose positions are in checkpoints. The methods of InputFormat read it in
    place, one split after another.
    """

    def __init__(self, path: str, file_format: BulkFormat[T]) -> None:
        self._path = path
        self._format = file_format
        self._reader: FileReader | None = None
        self._rows: list[Any] = []

    def file_source(self) -> FileSource[T]:
        """Return the source of the same records."""
        return FileSource.for_bulk_file_format(self._format, self._path).build()

    def create_input_splits(self, min_num_splits: int) -> Sequence[FileSourceSplit]:
        """Return the splits, at least `min_num_splits` where the files can be split and have as many bytes.

        Flink takes the number as a wish in the same way, and gives fewer for small files. Raises ValueError for a
        number below 1.
        """
        if min_num_splits < 1:
            raise ValueError(f"min_num_splits must be at least 1, not {min_num_splits}")
        part = max(1, self.file_source().scanned_bytes() // min_num_splits)
        splits = self._splits_of(part)
        # A file of nearly two parts is one split; with half the size there are enough, however the files differ.
        return splits if len(splits) >= min_num_splits else self._splits_of(max(1, part // 2))

    def _splits_of(self, part_bytes: int) -> list[FileSourceSplit]:
        enumerator = FileEnumeratorProvider.default_splittable_file_enumerator(part_bytes)
        return FileSource(self._format, [self._path], enumerator).find_splits(frozenset())[0]

    def open(self, split: FileSourceSplit) -> None:
        """Begin to read a split."""
        self.close()
        self._reader = self._format.create_reader(split)

    def reached_end(self) -> bool:
        """Whether the split has no further record."""
        while not self._rows and self._reader is not None:
            records = self._reader.read(_ROWS)
            if records is None:
                return True
            self._rows = list(reversed(records.rows))
        return not self._rows

    def next_record(self) -> T:
        """Return the next record of the split. Raises EOFError behind its end."""
        if self.reached_end():
            raise EOFError(f"the split of {self._path} has no further record; ask reached_end first")
        record: T = self._rows.pop()
        return record

    def close(self) -> None:
        """End the reading of a split."""
        self._rows = []
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
