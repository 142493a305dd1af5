"""WorkerSnapshotFile: a worker's output for one checkpoint, in one file and in the metadata.

Owner: the worker's snapshot thread. The first large piece creates the file; its name is used once. Handles
may be told to others only after `close`. It must not know tasks, operators or the meaning of bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from yarrow.runtime.common.ids import IdFactory, RandomIdFactory
from yarrow.runtime.common.paths import join
from yarrow.runtime.data.checkpoint_options import CheckpointLocation
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.snapshot.errors import SnapshotStorageError, SnapshotWriteError, StateTooLargeError
from yarrow.runtime.snapshot.handles import FileStateHandle, InlineStateHandle, StateHandle
from yarrow.runtime.snapshot.output import SnapshotOutput
from yarrow.runtime.snapshot.snapshot_reader import SnapshotReader

_CHUNK: Final = 1 << 20
#: Prefix of the names of state files; 32 hexadecimal digits follow.
STATE_FILE_PREFIX: Final = "state-"


class SnapshotFile(SnapshotOutput, Protocol):
    """The output of one worker for one checkpoint."""

    def close(self) -> None:
        """Ends the output: its content is stored and can be read. Raises SnapshotError or OSError."""
        ...

    def discard(self) -> None:
        """Removes the output, shared files included: nobody was told of it. Never raises."""
        ...

    @property
    def uploaded(self) -> int:
        """Bytes written so far, inline ones included."""
        ...


class WorkerStorage(Protocol):
    """The workers' side of a checkpoint storage: a key-value or database store implements these two."""

    def open_output(self, location: CheckpointLocation) -> SnapshotFile:
        """The output of this worker for the checkpoint of that location."""
        ...

    def reader(self, directory: str) -> SnapshotReader:
        """The reader of the checkpoint whose metadata lies there."""
        ...


class FileSystemWorkerStorage:
    """Files of any supported file system, or everything inline if the location has no folder."""

    def __init__(self, ids: IdFactory | None = None) -> None:
        self._ids = ids or RandomIdFactory()

    def open_output(self, location: CheckpointLocation) -> WorkerSnapshotFile:
        """See WorkerStorage."""
        return WorkerSnapshotFile(location, self._ids)

    def reader(self, directory: str) -> SnapshotReader:
        """See WorkerStorage."""
        return SnapshotReader(directory)


class WorkerSnapshotFile:
    """A SnapshotFile and SnapshotOutput for pieces of many tasks, one after the other."""

    def __init__(self, location: CheckpointLocation, ids: IdFactory) -> None:
        self._location = location
        self._ids = ids
        self._name = ""
        self._stream: _StateFile | None = None
        self._closed = False
        #: Bytes in the file.
        self._length = 0
        self._uploaded = 0
        self._shared: list[str] = []

    @property
    def uploaded(self) -> int:
        """See SnapshotFile."""
        return self._uploaded

    def write(self, chunks: Iterable[bytes]) -> StateHandle:
        """See SnapshotOutput. Raises StateTooLargeError for inline state above the location's limit."""
        iterator = iter(chunks)
        first: list[bytes] = []
        size = 0
        in_file = bool(self._location.directory)
        for chunk in iterator:
            first.append(chunk)
            size += len(chunk)
            if in_file and size > self._location.inline_threshold:
                return self._write_to_file(first, iterator)
            if not in_file and 0 <= self._location.max_inline_size < size:
                raise self._too_large(size + sum(map(len, iterator)))
        self._uploaded += size
        return InlineStateHandle(data=b"".join(first))

    def write_own_file(self, local_path: str) -> StateHandle:
        """See SnapshotOutput."""
        return self.write(_chunks_of(local_path))

    def write_shared_file(self, local_path: str) -> FileStateHandle:
        """See SnapshotOutput. Raises SnapshotStorageError if the location has no shared folder."""
        folder = self._location.shared_directory
        if not folder:
            raise SnapshotStorageError(
                f"the storage of this checkpoint has no folder for files that checkpoints share ({local_path}): set "
                "execution.checkpointing.dir to a folder that all processes reach"
            )
        path = join(folder, self._ids.hex_id())
        self._shared.append(path)
        digest, length = hashlib.sha256(), 0
        with contextlib.closing(_StateFile(path)) as stream:
            for chunk in _chunks_of(local_path):
                stream.write(chunk)
                digest.update(chunk)
                length += len(chunk)
        self._uploaded += length
        return FileStateHandle(path=path, offset=0, length=length, sha256=digest.digest())

    def close(self) -> None:
        """See SnapshotFile."""
        self._closed = True
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def discard(self) -> None:
        """See SnapshotFile."""
        self._closed = True
        stream, self._stream = self._stream, None
        if stream is not None:
            with contextlib.suppress(Exception):
                stream.close()
        own = [join(self._location.directory, self._name)] if self._name else []
        for path in (*own, *self._shared):
            with contextlib.suppress(Exception):
                file_system_for(path).delete(path)
        if own:
            # This file may have made the folder again after the checkpoint had been deleted; one with files
            # stays.
            with contextlib.suppress(Exception):
                file_system_for(self._location.directory).delete(self._location.directory)

    def _write_to_file(self, first: list[bytes], rest: Iterator[bytes]) -> FileStateHandle:
        stream = self._open()
        start = self._length
        digest = hashlib.sha256()
        for chunk in _joined(first, rest):
            stream.write(chunk)
            # Counted at once: after a failure the next piece begins behind the written part of this one.
            self._length += len(chunk)
            digest.update(chunk)
        length = self._length - start
        self._uploaded += length
        return FileStateHandle(path=self._name, offset=start, length=length, sha256=digest.digest())

    def _open(self) -> _StateFile:
        if self._closed:
            raise SnapshotStorageError(
                f"the output of a checkpoint in {self._location.directory} was closed before its last piece: begin "
                "another output for it"
            )
        if self._stream is None:
            self._name = STATE_FILE_PREFIX + self._ids.hex_id()
            self._stream = _StateFile(join(self._location.directory, self._name))
        return self._stream

    def _too_large(self, size: int) -> StateTooLargeError:
        return StateTooLargeError(
            f"a state of {size} bytes is over the {self._location.max_inline_size} bytes that one state may"
            " have where checkpoints stay in the master process. Set execution.checkpointing.dir (or use"
            " FileSystemCheckpointStorage), or raise"
            " execution.checkpointing.jobmanager-storage.max-state-size (max_state_size of"
            " JobManagerCheckpointStorage)"
        )


class _StateFile:
    """A new file of a checkpoint; system errors become a SnapshotWriteError with the file's name."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._stream = file_system_for(path).create(path)
        except OSError as error:
            raise SnapshotWriteError(path, error) from error

    def write(self, chunk: bytes) -> None:
        """Appends."""
        try:
            self._stream.write(chunk)
        except OSError as error:
            raise SnapshotWriteError(self._path, error) from error

    def close(self) -> None:
        """Returns when it is stored; may be repeated."""
        try:
            self._stream.close()
        except OSError as error:
            raise SnapshotWriteError(self._path, error) from error


def _joined(first: list[bytes], rest: Iterator[bytes]) -> Iterator[bytes]:
    yield from first
    first.clear()
    yield from rest


def _chunks_of(local_path: str) -> Iterator[bytes]:
    with open(local_path, "rb") as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk
