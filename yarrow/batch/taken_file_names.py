"""The parts of take_files_once: a source of names, a function that reads a file, a sink that records the names.

Owner: the engine. The enumerator lists files; the committer records them as taken. Must not know schedules.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from yarrow.batch.file_ledger import FileLedger
from yarrow.datastream.connectors.base import (
    Boundedness,
    Committer,
    Sink,
    SinkWriter,
    SinkWriterContext,
    Source,
    SourceReaderContext,
    SourceRecords,
    SplitEnumeratorContext,
)
from yarrow.datastream.connectors.file_format import FileFormat, FileReader, FileSourceSplit
from yarrow.datastream.connectors.file_source import FileSourceError
from yarrow.datastream.connectors.split_reading import OneByOneReader, OnRequestEnumerator
from yarrow.datastream.functions import FlatMapFunction
from yarrow.runtime.common.errors import FileSystemError, InvalidProgramError
from yarrow.runtime.common.paths import join, scheme_of, with_default_scheme
from yarrow.runtime.fs.registry import file_system_for

#: Records of one call of a file's reader.
_ROWS: Final = 1000


class UntakenFiles(Source[str, FileSourceSplit]):
    """A source of the names of the files in a folder that were not taken; each is a split."""

    def __init__(self, path: str, name: str) -> None:
        """Raises InvalidProgramError unless `path` is a folder's."""
        if not isinstance(path, str) or not path:
            raise InvalidProgramError(f"take_files_once: expected the path of a folder, not {path!r}")
        self.path = path
        self._name = name
        self.blocking = scheme_of(path) != "file"

    def with_default_scheme(self, default: str) -> UntakenFiles:
        return UntakenFiles(with_default_scheme(self.path, default), self._name)

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def validate(self) -> None:
        """Raises InvalidProgramError if there is a file in the folder's place. A missing folder has no files yet."""
        with suppress(FileNotFoundError):
            if not file_system_for(self.path).status(self.path).is_dir:
                raise InvalidProgramError(
                    f"take_files_once: {self.path} is a file: name the folder of the FileSink"
                )

    def estimated_bytes(self) -> int | None:
        """Bytes of the files that a run would take now."""
        return sum(split.length for split in self._splits())

    def create_enumerator(
        self, context: SplitEnumeratorContext[FileSourceSplit], checkpoint: Any = None
    ) -> OnRequestEnumerator[FileSourceSplit]:
        """An enumerator of the present files."""
        return OnRequestEnumerator(context, checkpoint if checkpoint is not None else self._splits())

    def _splits(self) -> list[FileSourceSplit]:
        ledger = FileLedger(self.path, self._name)
        with suppress(FileNotFoundError):
            return [
                FileSourceSplit(name, file.path, 0, file.size, file.size)
                for file in ledger.untaken()
                for name in (ledger.name_of(file.path),)
            ]
        return []

    def create_reader(self, context: SourceReaderContext) -> NameReader:
        """A reader of names."""
        return NameReader(context)


class NameReader(OneByOneReader[str, FileSourceSplit]):
    """Gives the name of each of its splits."""

    _split: FileSourceSplit
    _is_given = False

    def open_split(self, split: FileSourceSplit) -> None:
        self._split, self._is_given = split, False

    def read_split(self, max_rows: int) -> SourceRecords | None:
        if self._is_given:
            return None
        self._is_given = True
        return SourceRecords([self._split.split_id])

    def current_split(self) -> FileSourceSplit:
        return self._split


class ReadFile(FlatMapFunction[str, Any]):
    """Reads the file of a name; its errors name the file."""

    def __init__(self, file_format: FileFormat[Any], path: str) -> None:
        self._format = file_format
        self._path = path

    def flat_map(self, value: str) -> Iterator[Any]:
        path = join(self._path, value)
        try:
            size = file_system_for(path).status(path).size
            reader = self._format.create_reader(FileSourceSplit(f"{path}:0", path, 0, size, size))
            try:
                yield from _rows(reader, path)
            finally:
                reader.close()
        except (OSError, EOFError, FileSystemError) as error:
            raise FileSourceError(
                f"{path} cannot be read: {error}. It was there when its folder was listed"
            ) from error


def _rows(reader: FileReader, path: str) -> Iterator[Any]:
    while (found := reader.read(_ROWS)) is not None:
        if not isinstance(found.rows, Sequence):
            raise InvalidProgramError(
                f"take_files_once reads rows, and the format of {path} gives columns: take a format of rows"
            )
        yield from found.rows


@dataclass(frozen=True, slots=True)
class TakenFiles:
    """What a run has taken: names below a folder."""

    names: tuple[str, ...]


class TakenFilesSink(Sink[str]):
    """Records the names that it gets as taken, when the run is committed."""

    #: Until the results are there, the files have to be read again, and must not be removed.
    commits_last = True

    def __init__(self, path: str, name: str, remove: bool) -> None:
        self._ledger = FileLedger(path, name)
        self._remove = remove
        self.blocking = scheme_of(path) != "file"

    def create_writer(self, context: SinkWriterContext, restored: Sequence[Any] = ()) -> SinkWriter[str]:
        return _NameWriter()

    def create_committer(self) -> Committer:
        return _TakingCommitter(self._ledger, self._remove)


class _NameWriter(SinkWriter[str]):
    def __init__(self) -> None:
        self._names: list[str] = []

    def write(self, rows: Sequence[str], timestamps: Sequence[int | None] | None) -> None:
        self._names.extend(rows)

    def prepare_commit(self) -> list[Any]:
        names, self._names = self._names, []
        return [TakenFiles(tuple(names))] if names else []

    def close(self) -> None:
        """Nothing was opened."""


class _TakingCommitter(Committer):
    def __init__(self, ledger: FileLedger, remove: bool) -> None:
        self._ledger = ledger
        self._remove = remove

    def commit(self, committables: Sequence[Any]) -> None:
        for taken in committables:
            self._ledger.take(taken.names)
            if self._remove:
                for name in taken.names:
                    path = join(self._ledger.path, posixpath.normpath(name))
                    file_system_for(path).delete(path)
