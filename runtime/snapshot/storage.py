"""CheckpointStorage: where the checkpoints and savepoints of one job lie, as the JobMaster sees it.

Owner: any thread of the JobMaster's process; every call may block, none keeps anything open. A checkpoint is complete
from the moment at which `_metadata` stands in its folder, and that file is never written twice. A key-value or
database store implements CheckpointStorage here and WorkerStorage (worker_file) for the workers.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from yarrow.runtime.common import fault_points
from yarrow.runtime.common.ids import IdFactory, JobID, RandomIdFactory
from yarrow.runtime.fs.file_system import FileSystem, FileSystemError, exists, file_system_for, join
from yarrow.runtime.snapshot.errors import (
    MissingSnapshotFilesError,
    SnapshotNotFoundError,
    SnapshotStorageError,
)
from yarrow.runtime.snapshot.handles import CheckpointMetadata, FileStateHandle, StateHandle
from yarrow.runtime.snapshot.metadata import METADATA_FILE, Seal, decode_metadata, encode_metadata, seal_of
from yarrow.runtime.snapshot.options import CheckpointLocation, SnapshotKind
from yarrow.runtime.snapshot.snapshot_reader import resolve
from yarrow.runtime.snapshot.worker_file import STATE_FILE_PREFIX

#: How names of files begin that are being written.
TEMPORARY_PREFIX: Final = "_tmp-"
CHECKPOINT_PREFIX: Final = "chk-"
SAVEPOINT_PREFIX: Final = "savepoint-"
SHARED_FOLDER: Final = "shared"
TASK_OWNED_FOLDER: Final = "taskowned"
#: State up to this size goes into the metadata unless the job says otherwise.
DEFAULT_INLINE_THRESHOLD: Final = 20 * 1024
_SHARED_NAME: Final = re.compile("[0-9a-f]{32}")
DEFAULT_MAX_STATE_SIZE: Final = 5 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class OpenedSnapshot:
    """A checkpoint or savepoint that can be restored."""

    metadata: CheckpointMetadata
    #: Folder of its `_metadata`: base of the relative paths in it.
    directory: str
    seal: Seal = Seal.UNCHECKED


@dataclass(frozen=True, slots=True)
class EarlierCheckpoint:
    """A checkpoint that an earlier run of the same job has left."""

    checkpoint_id: int
    #: To open it by.
    pointer: str
    complete: bool


class CheckpointStorage(Protocol):
    """The storage of one job. Errors are SnapshotError or OSError and name the path."""

    def begin(self, checkpoint_id: int, kind: SnapshotKind, directory: str = "") -> CheckpointLocation:
        """Makes room for a checkpoint, or for a savepoint below `directory`."""
        ...

    def complete(self, location: CheckpointLocation, metadata: CheckpointMetadata) -> str:
        """Writes the metadata, whole or not at all; returns the pointer to open it by, "" where it stays in memory."""
        ...

    def discard(self, location: CheckpointLocation, shared: Sequence[str] = ()) -> None:
        """Removes a checkpoint, complete or not, and these shared files; what is gone already is no error."""
        ...

    def discard_claimed(self, snapshot: OpenedSnapshot, shared: Sequence[str] = ()) -> None:
        """Removes a snapshot that the job began from and owns since: what it names and nothing else."""
        ...

    def open(self, pointer: str, *, verify: bool = True) -> OpenedSnapshot:
        """The checkpoint or savepoint at a pointer; `verify`: all its files are there in their full length."""
        ...

    def earlier(self) -> Sequence[EarlierCheckpoint]:
        """Checkpoints of this job that are there already, complete or not: ids go on behind theirs."""
        ...

    def clean_up(self) -> None:
        """The job has ended and nothing of it is kept: what is left empty goes. Raises nothing for what is not."""
        ...


class FileSystemCheckpointStorage:
    """`<directory>/<job id>/chk-<n>`, `shared` and `taskowned` beside them; savepoints where they are asked for."""

    def __init__(
        self,
        directory: str,
        job_id: JobID,
        *,
        inline_threshold: int = DEFAULT_INLINE_THRESHOLD,
        ids: IdFactory | None = None,
        secret: bytes = b"",
    ) -> None:
        self._job_folder = join(directory, job_id)
        self._savepoints = SavepointFolders(job_id, inline_threshold, ids)
        self._inline_threshold = inline_threshold
        self._ids = ids or RandomIdFactory()
        self._secret = secret

    @property
    def job_folder(self) -> str:
        """The folder of all checkpoints of the job."""
        return self._job_folder

    def begin(self, checkpoint_id: int, kind: SnapshotKind, directory: str = "") -> CheckpointLocation:
        """See CheckpointStorage."""
        if kind.is_savepoint:
            return self._savepoints.begin(directory)
        folder = join(self._job_folder, f"{CHECKPOINT_PREFIX}{checkpoint_id}")
        shared = join(self._job_folder, SHARED_FOLDER)
        for path in (shared, join(self._job_folder, TASK_OWNED_FOLDER), folder):
            make_folder(path)
        if exists(file_system_for(folder), join(folder, METADATA_FILE)):
            raise SnapshotStorageError(
                f"{folder} holds a complete checkpoint already: checkpoint ids of a job are used once. Does another "
                "JobMaster of this job still run?"
            )
        return CheckpointLocation(
            directory=folder, shared_directory=shared, inline_threshold=self._inline_threshold
        )

    def complete(self, location: CheckpointLocation, metadata: CheckpointMetadata) -> str:
        """See CheckpointStorage."""
        return write_metadata(location.directory, metadata, self._ids, self._secret)

    def discard(self, location: CheckpointLocation, shared: Sequence[str] = ()) -> None:
        """See CheckpointStorage."""
        remove_checkpoint(location.directory, shared)

    def discard_claimed(self, snapshot: OpenedSnapshot, shared: Sequence[str] = ()) -> None:
        """See CheckpointStorage."""
        remove_snapshot(snapshot, shared)

    def open(self, pointer: str, *, verify: bool = True) -> OpenedSnapshot:
        """See CheckpointStorage."""
        return open_snapshot(pointer, verify=verify, secret=self._secret)

    def earlier(self) -> Sequence[EarlierCheckpoint]:
        """See CheckpointStorage."""
        file_system = file_system_for(self._job_folder)
        try:
            entries = file_system.list(self._job_folder)
        except (OSError, FileSystemError):
            return ()
        return [
            EarlierCheckpoint(int(number), entry.path, _is_complete(file_system, entry.path))
            for entry in entries
            if (number := entry.name.removeprefix(CHECKPOINT_PREFIX)) != entry.name and number.isdecimal()
        ]

    def clean_up(self) -> None:
        """See CheckpointStorage."""
        folder = self._job_folder
        shared = join(folder, SHARED_FOLDER)
        with contextlib.suppress(OSError, FileSystemError):
            file_system = file_system_for(folder)
            if not self.earlier():
                # Files of workers that were killed before they could tell of them.
                for entry in file_system.list(shared):
                    if _SHARED_NAME.fullmatch(entry.name):
                        file_system.delete(entry.path)
            for path in (shared, join(folder, TASK_OWNED_FOLDER), folder):
                file_system.delete(path)


class JobManagerCheckpointStorage:
    """All state travels to the JobMaster inside messages; with a `directory` the metadata are kept there too.

    `max_state_size` bounds one state in bytes. Raises SnapshotStorageError where it is over `message_limit`.
    """

    def __init__(
        self,
        job_id: JobID,
        *,
        max_state_size: int = DEFAULT_MAX_STATE_SIZE,
        message_limit: int | None = None,
        directory: str = "",
        inline_threshold: int = DEFAULT_INLINE_THRESHOLD,
        ids: IdFactory | None = None,
        secret: bytes = b"",
    ) -> None:
        if message_limit is not None and max_state_size > message_limit:
            raise SnapshotStorageError(
                f"max_state_size of JobManagerCheckpointStorage is {max_state_size} bytes and a message has at most "
                f"{message_limit} (rpc.message.max-size): lower the one, raise the other, or set "
                "execution.checkpointing.dir"
            )
        self._max_state_size = max_state_size
        self._job_folder = join(directory, job_id) if directory else ""
        self._savepoints = SavepointFolders(job_id, inline_threshold, ids)
        self._ids = ids or RandomIdFactory()
        self._secret = secret

    def begin(self, checkpoint_id: int, kind: SnapshotKind, directory: str = "") -> CheckpointLocation:
        """See CheckpointStorage."""
        if kind.is_savepoint:
            return self._savepoints.begin(directory)
        return CheckpointLocation(directory="", max_inline_size=self._max_state_size)

    def complete(self, location: CheckpointLocation, metadata: CheckpointMetadata) -> str:
        """See CheckpointStorage."""
        folder = location.directory
        if not folder and self._job_folder:
            folder = join(self._job_folder, f"{CHECKPOINT_PREFIX}{metadata.checkpoint_id}")
            make_folder(folder)
        return write_metadata(folder, metadata, self._ids, self._secret) if folder else ""

    def discard(self, location: CheckpointLocation, shared: Sequence[str] = ()) -> None:
        """See CheckpointStorage."""
        remove_checkpoint(location.directory, shared)

    def discard_claimed(self, snapshot: OpenedSnapshot, shared: Sequence[str] = ()) -> None:
        """See CheckpointStorage."""
        remove_snapshot(snapshot, shared)

    def open(self, pointer: str, *, verify: bool = True) -> OpenedSnapshot:
        """See CheckpointStorage."""
        return open_snapshot(pointer, verify=verify, secret=self._secret)

    def earlier(self) -> Sequence[EarlierCheckpoint]:
        """See CheckpointStorage."""
        return ()

    def clean_up(self) -> None:
        """See CheckpointStorage."""


class SavepointFolders:
    """Where savepoints of one job go: `<target>/savepoint-<6 digits of the job>-<12 digits>`."""

    def __init__(self, job_id: JobID, inline_threshold: int, ids: IdFactory | None = None) -> None:
        self._job_id = job_id
        self._inline_threshold = inline_threshold
        self._ids = ids or RandomIdFactory()

    def begin(self, target: str) -> CheckpointLocation:
        """Makes the folder of a savepoint below `target`."""
        if not target:
            raise SnapshotStorageError(
                "no folder was named for the savepoint: name one, or set execution.checkpointing.savepoint-dir"
            )
        name = f"{SAVEPOINT_PREFIX}{self._job_id[:6]}-{self._ids.hex_id()[-12:]}"
        folder = join(target, name)
        make_folder(folder)
        return CheckpointLocation(directory=folder, inline_threshold=self._inline_threshold)


# ---------------------------------------------------------------------- files


def make_folder(path: str) -> None:
    """Makes a folder and those above it. Raises SnapshotStorageError naming it."""
    try:
        file_system_for(path).make_dirs(path)
    except (OSError, FileSystemError) as error:
        raise SnapshotStorageError(
            f"{path}: the folder cannot be made ({error}). Check the path and who may write there."
        ) from error


def write_metadata(folder: str, metadata: CheckpointMetadata, ids: IdFactory, secret: bytes = b"") -> str:
    """Writes `_metadata` under another name, checks its length and renames it; returns the folder. Sealed by `secret`.

    Raises SnapshotStorageError where there is one already or the storage refuses; nothing is left then.
    """
    target = join(folder, METADATA_FILE)
    temporary = join(folder, TEMPORARY_PREFIX + ids.hex_id())
    file_system = file_system_for(folder)
    data = encode_metadata(metadata, secret)
    try:
        with file_system.create(temporary) as stream:
            stream.write(data)
        length = file_system.status(temporary).size
        if length != len(data):
            raise SnapshotStorageError(
                f"{temporary}: {len(data)} bytes were written, the storage holds {length}. Is it full?"
            )
        detail = {"checkpoint_id": metadata.checkpoint_id, "path": target}
        fault_points.reach("checkpoint.before-metadata-rename", **detail)
        file_system.rename(temporary, target)
        fault_points.reach("checkpoint.after-metadata-rename", **detail)
    except FileExistsError as error:
        _remove(file_system, temporary)
        raise SnapshotStorageError(
            f"{target} is there already: a checkpoint is completed once and never overwritten"
        ) from error
    except (OSError, FileSystemError) as error:
        _remove(file_system, temporary)
        raise SnapshotStorageError(
            f"{target} cannot be written ({error}). Check the space and who may write there."
        ) from error
    except SnapshotStorageError:
        _remove(file_system, temporary)
        raise
    return folder


def remove_checkpoint(folder: str, shared: Sequence[str] = ()) -> None:
    """Removes the folder of a checkpoint and `shared`; its metadata first, so that a half is never taken for whole."""
    if folder:
        file_system = file_system_for(folder)
        file_system.delete(join(folder, METADATA_FILE))
        file_system.delete(folder, recursive=True)
    for path in shared:
        file_system_for(path).delete(path)


def _remove(file_system: FileSystem, path: str) -> None:
    with contextlib.suppress(OSError, FileSystemError):
        file_system.delete(path)


def open_snapshot(pointer: str, *, verify: bool = True, secret: bytes = b"") -> OpenedSnapshot:
    """The checkpoint or savepoint at a folder, a `_metadata` file, or a URL of either.

    `verify`: every file that it refers to is there in its full length (contents are verified as they are read).
    Raises SnapshotNotFoundError, CorruptSnapshotError, MissingSnapshotFilesError, SnapshotStorageError.
    """
    directory, path = _metadata_path(pointer)
    try:
        with file_system_for(path).open(path) as stream:
            data = stream.read()
    except FileNotFoundError:
        raise _not_found(pointer, directory) from None
    except (OSError, FileSystemError) as error:
        raise SnapshotStorageError(f"{path} cannot be read ({error}). Check who may read it.") from error
    metadata = decode_metadata(data, path)
    if verify:
        missing = list(missing_files(metadata, directory))
        if missing:
            raise MissingSnapshotFilesError(directory, missing)
    return OpenedSnapshot(metadata, directory, seal_of(data, secret))


def _metadata_path(pointer: str) -> tuple[str, str]:
    plain = pointer.rstrip("/") or "/"
    folder, slash, name = plain.rpartition("/")
    if name == METADATA_FILE:
        return (folder if slash else ".") or "/", plain
    return plain, join(plain, METADATA_FILE)


def _not_found(pointer: str, directory: str) -> SnapshotNotFoundError:
    file_system = file_system_for(directory)
    try:
        entries = file_system.list(directory)
    except (OSError, FileSystemError):
        return SnapshotNotFoundError(
            f"{pointer}: there is no such checkpoint or savepoint. Name its folder or its {METADATA_FILE} file, on a "
            "path that the cluster reaches."
        )
    if any(entry.name.startswith((TEMPORARY_PREFIX, STATE_FILE_PREFIX)) for entry in entries):
        return SnapshotNotFoundError(
            f"{pointer}: this checkpoint was never completed: it has no {METADATA_FILE}. Restore from another one."
        )
    within = [entry.path for entry in entries if entry.is_dir and _is_complete(file_system, entry.path)]
    hint = f" Did you mean {' or '.join(within[-3:])}?" if within else ""
    return SnapshotNotFoundError(
        f"{pointer}: the folder holds no checkpoint or savepoint: it has no {METADATA_FILE}.{hint}"
    )


def _is_complete(file_system: FileSystem, folder: str) -> bool:
    return exists(file_system, join(folder, METADATA_FILE))


def missing_files(metadata: CheckpointMetadata, directory: str) -> Iterator[str]:
    """Files that the checkpoint refers to and that are gone or too short, each with whose state it holds.

    Raises SnapshotStorageError where that cannot be found out.
    """
    needed: dict[str, tuple[int, str]] = {}
    for owner, handle in handles_of(metadata):
        if isinstance(handle, FileStateHandle):
            end = handle.offset + handle.length
            path = resolve(handle.path, directory)
            needed[path] = max(needed.get(path, (0, owner)), (end, owner))
    for path, (end, owner) in sorted(needed.items()):
        try:
            size = file_system_for(path).status(path).size
        except FileNotFoundError:
            yield f"{path} ({owner}) is missing"
            continue
        except (OSError, FileSystemError) as error:
            # Not missing: a storage that is out of reach for a moment must not end a job that is recovered.
            raise SnapshotStorageError(f"{path} ({owner}) cannot be read ({error}).") from error
        if size < end:
            yield f"{path} ({owner}) has {size} bytes of {end}"


def handles_of(metadata: CheckpointMetadata) -> Iterator[tuple[str, StateHandle]]:
    """Every handle of a checkpoint, with the operator whose state it is."""
    for operator in metadata.operators:
        owner = f"operator '{operator.name}'"
        if operator.coordinator is not None:
            yield owner, operator.coordinator
        for subtask in operator.subtasks.values():
            for handle in subtask.state_handles():
                yield owner, handle


def dispose_savepoint(pointer: str) -> None:
    """Removes a savepoint: its metadata first, then the files it refers to; the folder where nothing else is in it.

    Raises SnapshotNotFoundError or CorruptSnapshotError for what is no savepoint, SnapshotStorageError for a
    checkpoint, which belongs to its job.
    """
    opened = open_snapshot(pointer, verify=False)
    metadata, directory = opened.metadata, opened.directory
    if not metadata.kind.is_savepoint:
        raise SnapshotStorageError(
            f"{directory} is checkpoint {metadata.checkpoint_id} of job {metadata.job_id} and no savepoint: files of "
            "it may belong to other checkpoints too. Retained checkpoints are removed with their job's folder."
        )
    remove_snapshot(opened)
    file_system = file_system_for(directory)
    leftovers = (TEMPORARY_PREFIX, STATE_FILE_PREFIX)
    with contextlib.suppress(FileNotFoundError):
        entries = file_system.list(directory)
        for entry in entries:
            if entry.name.startswith(leftovers):
                file_system.delete(entry.path)
        if all(entry.name.startswith(leftovers) for entry in entries):
            file_system.delete(directory)


def remove_snapshot(snapshot: OpenedSnapshot, shared: Sequence[str] = ()) -> None:
    """Removes a snapshot that somebody else made: its metadata first, then what it names in its folder, and `shared`.

    The folder goes where nothing else is in it.
    """
    directory = snapshot.directory
    file_system = file_system_for(directory)
    handles = handles_of(snapshot.metadata)
    paths = {handle.path for _, handle in handles if isinstance(handle, FileStateHandle)}
    # What lies elsewhere is not the snapshot's own.
    own = [place for path in sorted(paths) if (place := resolve(path, directory)) != path]
    file_system.delete(join(directory, METADATA_FILE))
    for path in own:
        file_system.delete(path)
    with contextlib.suppress(FileNotFoundError):
        if not file_system.list(directory):
            file_system.delete(directory)
    for path in shared:
        file_system_for(path).delete(path)
