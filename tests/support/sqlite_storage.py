"""A checkpoint storage in one SQLite file: the example and the test of storages that are no file system.

`execution.checkpointing.storage: tests.support.sqlite_storage:SQLiteStorage`, with the path of the file as
`execution.checkpointing.dir`.
Pieces of state are rows, the metadata of a checkpoint is one row that is inserted once. Savepoints go to files, since
they are the user's to move. Owner: any thread; a connection lives for one call. All processes must see the file: this
is for one machine.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from yarrow.runtime.common.ids import JobID, RandomIdFactory
from yarrow.runtime.config.options import checkpointing
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, SnapshotKind
from yarrow.runtime.snapshot.custom_storage import StorageContext
from yarrow.runtime.snapshot.errors import (
    MissingSnapshotFilesError,
    SnapshotNotFoundError,
    SnapshotStorageError,
)
from yarrow.runtime.snapshot.handles import (
    CheckpointMetadata,
    FileStateHandle,
    InlineStateHandle,
    StateHandle,
)
from yarrow.runtime.snapshot.metadata import decode_metadata, encode_metadata, seal_of
from yarrow.runtime.snapshot.opening import OpenedSnapshot, handles_of, open_snapshot
from yarrow.runtime.snapshot.snapshot_folders import (
    SavepointFolders,
    remove_checkpoint,
    remove_snapshot,
    write_metadata,
)
from yarrow.runtime.snapshot.snapshot_reader import SnapshotReader
from yarrow.runtime.snapshot.storage import EarlierCheckpoint
from yarrow.runtime.snapshot.worker_file import FileSystemWorkerStorage, SnapshotFile, WorkerStorage

#: How the names of folders and pieces begin.
SCHEME: Final = "sqlite://"
_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS pieces (name TEXT PRIMARY KEY, checkpoint TEXT NOT NULL, data BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS checkpoints (name TEXT PRIMARY KEY, job TEXT NOT NULL, number INTEGER NOT NULL,"
    " metadata BLOB)",
)


class SQLiteStorage:
    """See SnapshotStorageFactory."""

    def checkpoint_storage(self, context: StorageContext) -> SQLiteCheckpointStorage:
        """See SnapshotStorageFactory."""
        return SQLiteCheckpointStorage(_Database(_file(context)), context)

    def worker_storage(self, context: StorageContext) -> SQLiteWorkerStorage:
        """See SnapshotStorageFactory."""
        return SQLiteWorkerStorage(_Database(_file(context)), context)


def _file(context: StorageContext) -> str:
    if not context.directory.startswith("/"):
        raise SnapshotStorageError(
            f"SQLiteStorage keeps checkpoints in a file: set {checkpointing.DIRECTORY.key} to its absolute path, not"
            f" {context.directory!r}"
        )
    return context.directory


class _Database:
    def __init__(self, path: str) -> None:
        self._path = path
        with self.connection() as connection:
            for table in _TABLES:
                connection.execute(table)

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """A transaction of its own; raises SnapshotStorageError naming the file."""
        try:
            with closing(sqlite3.connect(self._path, timeout=180)) as connection, connection:
                yield connection
        except sqlite3.Error as error:
            raise SnapshotStorageError(f"{self._path}: SQLite says {error}") from error


class SQLiteCheckpointStorage:
    """See SnapshotStorage."""

    def __init__(self, database: _Database, context: StorageContext) -> None:
        self._database = database
        self._context = context
        self._ids = RandomIdFactory()
        self._savepoints = SavepointFolders(context.job_id, context.inline_threshold, self._ids)

    def begin(self, checkpoint_id: int, kind: SnapshotKind, directory: str = "") -> CheckpointLocation:
        """See SnapshotStorage."""
        if kind.is_savepoint:
            return self._savepoints.begin(directory)
        job_id = self._context.job_id
        name = f"{SCHEME}{job_id}/{checkpoint_id}"
        with self._database.connection() as connection:
            connection.execute(
                "INSERT INTO checkpoints VALUES (?, ?, ?, NULL)", (name, job_id, checkpoint_id)
            )
        return CheckpointLocation(
            directory=name,
            shared_directory=_shared(job_id),
            inline_threshold=self._context.inline_threshold,
        )

    def complete(self, location: CheckpointLocation, metadata: CheckpointMetadata) -> str:
        """See SnapshotStorage."""
        name, secret = location.directory, self._context.secret
        if not name.startswith(SCHEME):
            return write_metadata(name, metadata, self._ids, secret)
        with self._database.connection() as connection:
            done = connection.execute(
                "UPDATE checkpoints SET metadata = ? WHERE name = ? AND metadata IS NULL",
                (encode_metadata(metadata, secret), name),
            )
            if not done.rowcount:
                raise SnapshotStorageError(f"{name} is complete already, or was removed")
        return name

    def discard(self, location: CheckpointLocation, shared: Sequence[str] = ()) -> None:
        """See SnapshotStorage."""
        name = location.directory
        if name and not name.startswith(SCHEME):
            remove_checkpoint(name)
        with self._database.connection() as connection:
            connection.execute("DELETE FROM checkpoints WHERE name = ?", (name,))
            connection.execute("DELETE FROM pieces WHERE checkpoint = ?", (name,))
            connection.executemany("DELETE FROM pieces WHERE name = ?", [(each,) for each in shared])

    def discard_claimed(self, snapshot: OpenedSnapshot, shared: Sequence[str] = ()) -> None:
        """See SnapshotStorage."""
        if snapshot.directory.startswith(SCHEME):
            self.discard(CheckpointLocation(directory=snapshot.directory), shared)
        else:
            remove_snapshot(snapshot, shared)

    def open(self, pointer: str, *, verify: bool = True) -> OpenedSnapshot:
        """See SnapshotStorage."""
        secret = self._context.secret
        if not pointer.startswith(SCHEME):
            return open_snapshot(pointer, verify=verify, secret=secret)
        with self._database.connection() as connection:
            row = connection.execute("SELECT metadata FROM checkpoints WHERE name = ?", (pointer,)).fetchone()
            if row is None or row[0] is None:
                raise SnapshotNotFoundError(
                    f"{pointer}: there is no such checkpoint, or it was never completed"
                )
            metadata = decode_metadata(row[0], pointer)
            if verify and (missing := list(_missing(connection, metadata))):
                raise MissingSnapshotFilesError(pointer, missing)
        return OpenedSnapshot(metadata, pointer, seal_of(row[0], secret))

    def earlier(self) -> Sequence[EarlierCheckpoint]:
        """See SnapshotStorage."""
        select = "SELECT number, name, metadata IS NOT NULL FROM checkpoints WHERE job = ?"
        with self._database.connection() as connection:
            rows = connection.execute(select, (self._context.job_id,)).fetchall()
        return [EarlierCheckpoint(number, name, bool(complete)) for number, name, complete in rows]

    def clean_up(self) -> None:
        """See SnapshotStorage."""
        job_id = self._context.job_id
        with suppress(SnapshotStorageError), self._database.connection() as connection:
            connection.execute(
                "DELETE FROM pieces WHERE checkpoint = ? AND NOT EXISTS (SELECT * FROM checkpoints WHERE job = ?)",
                (_shared(job_id), job_id),
            )


def _shared(job_id: JobID) -> str:
    """Where the pieces of a job lie that several of its checkpoints hold."""
    return f"{SCHEME}{job_id}/shared"


def _missing(connection: sqlite3.Connection, metadata: CheckpointMetadata) -> Iterator[str]:
    for owner, handle in handles_of(metadata):
        if isinstance(handle, FileStateHandle):
            found = connection.execute(
                "SELECT length(data) FROM pieces WHERE name = ?", (handle.path,)
            ).fetchone()
            if found is None or found[0] < handle.offset + handle.length:
                yield f"{handle.path} ({owner}) is missing or too short"


class SQLiteWorkerStorage:
    """See WorkerStorage."""

    def __init__(self, database: _Database, context: StorageContext) -> None:
        self._database = database
        self._job_id = context.job_id
        self._files: WorkerStorage = FileSystemWorkerStorage()

    def open_output(self, location: CheckpointLocation) -> SnapshotFile:
        """See WorkerStorage."""
        if location.directory.startswith(SCHEME):
            return _Output(self._database, location, self._job_id)
        return self._files.open_output(location)

    def reader(self, directory: str) -> SnapshotReader:
        """See WorkerStorage."""
        if directory.startswith(SCHEME):
            return _Reader(self._database, directory)
        return self._files.reader(directory)


class _Reader(SnapshotReader):
    def __init__(self, database: _Database, directory: str) -> None:
        super().__init__(directory)
        self._database = database

    def where(self, handle: FileStateHandle) -> str:
        return handle.path

    def stored(self, handle: FileStateHandle) -> Iterator[bytes]:
        with self._database.connection() as connection:
            row = connection.execute("SELECT data FROM pieces WHERE name = ?", (handle.path,)).fetchone()
        if row is None:
            raise FileNotFoundError(f"{handle.path} does not exist any more")
        yield row[0][handle.offset : handle.offset + handle.length]


class _Output:
    """See SnapshotFile: each piece that is not small is a row."""

    def __init__(self, database: _Database, location: CheckpointLocation, job_id: JobID) -> None:
        self._database = database
        self._location = location
        self._job_id = job_id
        self._ids = RandomIdFactory()
        self._names: list[str] = []
        self.uploaded = 0

    def write(self, chunks: Iterable[bytes]) -> StateHandle:
        """See SnapshotOutput."""
        data = b"".join(chunks)
        if len(data) <= self._location.inline_threshold:
            self.uploaded += len(data)
            return InlineStateHandle(data=data)
        return self._store(data, self._location.directory)

    def write_own_file(self, local_path: str) -> StateHandle:
        """See SnapshotOutput."""
        return self.write([Path(local_path).read_bytes()])

    def write_shared_file(self, local_path: str) -> FileStateHandle:
        """See SnapshotOutput."""
        return self._store(Path(local_path).read_bytes(), self._location.shared_directory)

    def close(self) -> None:
        """See SnapshotFile: every piece was stored as it was written."""

    def discard(self) -> None:
        """See SnapshotFile."""
        try:
            with self._database.connection() as connection:
                connection.executemany("DELETE FROM pieces WHERE name = ?", [(name,) for name in self._names])
        except SnapshotStorageError:
            return

    def _store(self, data: bytes, checkpoint: str) -> FileStateHandle:
        name = f"{SCHEME}{self._job_id}/pieces/{self._ids.hex_id()}"
        with self._database.connection() as connection:
            connection.execute("INSERT INTO pieces VALUES (?, ?, ?)", (name, checkpoint, data))
        self._names.append(name)
        self.uploaded += len(data)
        return FileStateHandle(path=name, offset=0, length=len(data), sha256=hashlib.sha256(data).digest())
