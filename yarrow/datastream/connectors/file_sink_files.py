"""The files of a FileSink on their way: in progress, pending, finished.

Owner: the task's thread. A part file is written under a hidden name in the sink's staging folder,
`.staging-<sink>/.<part>.inprogress.<transaction>`. A closed file is pending and known by a PendingFile. It is
finished when it is renamed to its target. Checkpoints hold the two dataclasses: changing a field changes
savepoints. Must not decide when a file is rolled or committed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from yarrow.common.serialization import BulkWriter, BulkWriterFactory
from yarrow.datastream.connectors.base import CommitRejectedError
from yarrow.datastream.connectors.file_sink_policies import FileSinkSettings
from yarrow.datastream.connectors.transaction_names import TransactionNames
from yarrow.runtime.common.errors import FileSystemError, YarrowError
from yarrow.runtime.common.paths import join
from yarrow.runtime.fs.file_system import FileStatus, FileSystem
from yarrow.runtime.fs.registry import file_system_for

if TYPE_CHECKING:
    import pyarrow as pa

_COPY_CHUNK = 1 << 20
#: Begins the names of the hidden folders in which writers make their files.
STAGING_PREFIX = ".staging-"
_IN_PROGRESS = ".inprogress."
#: Another subtask may remove the staging folder, empty for a moment, between its making and the file's.
_TRIES_TO_CREATE = 5


class FileSinkError(YarrowError, CommitRejectedError):
    """A file cannot be written or committed, and trying again cannot help."""


@dataclass(frozen=True, slots=True)
class PendingFile:
    """A whole file under its hidden name, to be renamed; `leftover` is removed once that is done."""

    source: str
    target: str
    #: Bytes.
    size: int
    leftover: str | None = None
    #: A checkpoint names its beginning: it stays, even if it is not to be committed.
    begun_before: bool = False


@dataclass(frozen=True, slots=True)
class InProgressFile:
    """A file that was being written at a checkpoint: its first `length` bytes count."""

    path: str
    bucket: str
    target: str
    length: int


def status_of(file_system: FileSystem, path: str) -> FileStatus | None:
    """Return the status of the file at `path`; None = there is no file."""
    try:
        return file_system.status(path)
    except FileNotFoundError:
        return None


def finish_file(file: PendingFile) -> None:
    """Renames a pending file; one that was renamed before is left as it is.

    Raises FileSinkError if neither file exists, or if the target is another file.
    """
    file_system = file_system_for(file.source)
    if status_of(file_system, file.source) is not None:
        file_system.make_dirs(file.target.rpartition("/")[0])
    try:
        file_system.rename(file.source, file.target)
    except FileExistsError:
        _require_finished(file_system, file)
        # A rename that was cut off leaves both names; so does a copy made by a second recovery.
        file_system.delete(file.source)
    except FileNotFoundError:
        _require_finished(file_system, file)
    if file.leftover is not None:
        file_system.delete(file.leftover)


def _require_finished(file_system: FileSystem, file: PendingFile) -> None:
    found = status_of(file_system, file.target)
    if found is None:
        raise FileSinkError(
            f"{file.source} cannot be committed as {file.target}: neither file exists; check whether the"
            " folder was cleaned"
        ) from None
    if found.size != file.size:
        raise FileSinkError(
            f"{file.source} cannot be committed as {file.target}: the target is another file, of {found.size}"
            f" bytes instead of {file.size}; move the target away"
        ) from None


class StagingFolder:
    """The hidden folder of one sink below its base path, in which its writers make their files."""

    def __init__(self, base_path: str, names: TransactionNames) -> None:
        self.path = join(base_path, f"{STAGING_PREFIX}{names.tag}")
        self._names = names
        self._file_system = file_system_for(base_path)

    def new_path(self, part_name: str) -> str:
        """A hidden name, used once, for a file that will be called `part_name`."""
        return join(self.path, f".{part_name}{_IN_PROGRESS}{self._names.next()}")

    def is_own(self, path: str) -> bool:
        """True for a hidden file of this job's sink, False for one of the job that a savepoint came from."""
        return self._names.is_of_this_sink(path.rpartition(_IN_PROGRESS)[2])

    def remove_leftovers(self, needed: Sequence[str]) -> None:
        """Removes files that earlier attempts of this subtask began and that no restored state names."""
        for entry in self._entries():
            if entry.path not in needed and self._names.is_leftover(entry.name.rpartition(_IN_PROGRESS)[2]):
                self._file_system.delete(entry.path)

    def remove_if_empty(self) -> None:
        """Removes the folder unless somebody's files lie in it."""
        with suppress(OSError, FileSystemError):
            if not any(self._entries()):
                self._file_system.delete(self.path)

    def _entries(self) -> Iterator[FileStatus]:
        with suppress(FileNotFoundError):
            yield from self._file_system.list(self.path)


def create(path: str) -> BinaryIO:
    """A stream to a new file; its folder is made, again if somebody removes it meanwhile."""
    for _ in range(_TRIES_TO_CREATE):
        with suppress(FileNotFoundError):
            return file_system_for(path).create(path)
    raise FileSinkError(f"{path} cannot be created: its folder is removed again and again")


def copy_beginning(file: InProgressFile, target: str) -> bool:
    """Copy the part of a file that a checkpoint covers; False if the file has gone because it was finished.

    Raises FileSinkError when the bytes are nowhere.
    """
    file_system = file_system_for(file.path)
    try:
        source = file_system.open(file.path)
    except FileNotFoundError:
        finished = status_of(file_system, file.target)
        if finished is not None and finished.size >= file.length:
            return False
        raise FileSinkError(f"{file.path} does not exist any more, though a checkpoint names it") from None
    left = file.length
    with source, create(target) as stream:
        while left and (chunk := source.read(min(left, _COPY_CHUNK))):
            stream.write(chunk)
            left -= len(chunk)
    if left:
        file_system_for(target).delete(target)
        raise FileSinkError(f"{file.path} is {left} bytes shorter than the checkpoint says")
    return True


class PartFile:
    """A part file that is being written."""

    def __init__(self, settings: FileSinkSettings, path: str, target: str, now: int) -> None:
        #: The hidden name.
        self.path = path
        self.target = target
        #: Rows taken.
        self.rows = 0
        self.opened_at = now
        self.written_at = now
        self._encoder = settings.encoder
        self._stream = create(path)
        self._counted = _CountingStream(self._stream)
        self._bulk = self._begin(settings.bulk_factory)

    @property
    def length(self) -> int:
        """Bytes handed to the file system."""
        return self._counted.length

    def bytes_taken(self, row_bytes: float) -> int:
        """Return the bytes written, or those of all rows taken if more; `row_bytes`: of a row that is held back."""
        return max(self.length, int(self.rows * row_bytes))

    def held_row_bytes(self, sample: Any) -> float:
        """Return about the bytes of a row like these, if the format holds rows back; 0 = it writes them soon."""
        return 0.0 if self._bulk is None else self._bulk.held_row_bytes(sample)

    def write(self, rows: Sequence[Any], now: int) -> None:
        self.written_at = now
        self.rows += len(rows)
        with self._naming():
            if self._bulk is not None:
                add = self._bulk.add_element
                for row in rows:
                    add(row)
            elif self._encoder is not None:
                encode, stream = self._encoder.encode, self._as_stream()
                try:
                    for row in rows:
                        encode(row, stream)
                except UnicodeEncodeError as error:
                    if self._encoder.charset is None:
                        raise
                    raise UnwritableTextError(self._encoder.charset, error) from None

    def write_encoded(self, row: bytes, now: int) -> None:
        """Append the bytes of one row."""
        self.written_at = now
        with self._naming():
            self._counted.write(row)

    def write_converted(self, converted: Any, rows: int, now: int) -> None:
        """Append rows that the format's `row_converter` has converted; `rows`: their number."""
        assert self._bulk is not None, "an encoder converts no rows"
        self.written_at = now
        self.rows += rows
        with self._naming():
            self._bulk.add_converted(converted)

    def write_batch(self, batch: pa.RecordBatch, now: int) -> None:
        self.written_at = now
        self.rows += batch.num_rows
        if self._bulk is None or not hasattr(self._bulk, "add_batch"):
            raise TypeError("this format takes rows only")
        with self._naming():
            self._bulk.add_batch(batch)

    def sync(self) -> None:
        """Wait until all bytes written are on the disk; local files only."""
        with self._naming():
            self._stream.flush()
            os.fsync(self._stream.fileno())

    def close(self, begun_before: bool) -> PendingFile:
        """Writes the end of the file; afterwards it is whole and on the disk."""
        with self._naming():
            if self._bulk is not None:
                self._bulk.finish()
            self._stream.close()
        return PendingFile(self.path, self.target, self.length, begun_before=begun_before)

    def abandon(self, keep: bool) -> None:
        """Closes it as it is, and removes it unless a checkpoint names it."""
        self._counted.abandon()
        try:
            self._stream.close()
        finally:
            if not keep:
                file_system_for(self.path).delete(self.path)

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Names the file in errors of its disk, which know no file."""
        try:
            yield
        except OSError as error:
            if error.errno is not None and error.filename is None:
                error.filename = self.path
            raise

    def _begin(self, factory: BulkWriterFactory[Any] | None) -> BulkWriter[Any] | None:
        """The writer of the format, which may write its head at once; where that fails no file stays open."""
        try:
            return None if factory is None else factory.create(self._as_stream())
        except BaseException:
            with suppress(OSError, FileSystemError):
                self.abandon(keep=False)
            raise

    def _as_stream(self) -> BinaryIO:
        return self._counted  # type: ignore[return-value]


class UnwritableTextError(YarrowError):
    """A text has a character that the character set of a file lacks."""

    def __init__(self, charset: str, error: UnicodeEncodeError) -> None:
        text, at = error.object, error.start
        near = text[max(0, at - 40) : error.end + 40].rstrip("\n")
        super().__init__(
            f"the text {near!a} cannot be written: {charset} has no form of its character {text[at]!a}. Replace the"
            f" character before the sink, as by text.encode({charset!r}, 'replace').decode({charset!r}), or choose"
            " another character set."
        )


class _Nowhere:
    """The stream of a part file that was abandoned: it drops all bytes."""

    def write(self, data: Any) -> int:
        return len(data)

    def flush(self) -> None:
        return None


class _CountingStream:
    """A stream that counts the bytes written; all other methods are those of the wrapped stream."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream: BinaryIO | _Nowhere = stream
        self.length = 0
        self.closed = False

    def write(self, data: Any) -> int:
        written = self._stream.write(data)
        self.length += written
        return written

    def abandon(self) -> None:
        """Lets all further bytes go: a Parquet writer writes its end when Python removes it."""
        self._stream = _Nowhere()

    def flush(self) -> None:
        self._stream.flush()

    def tell(self) -> int:
        return self.length

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """The part file closes the stream; formats only finish with it."""
        return None
