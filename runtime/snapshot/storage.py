"""SnapshotStorage: the place of one job's checkpoints and savepoints, as the JobMaster sees it.

Owner: any thread of the JobMaster's process; every call may block, none keeps anything open. A checkpoint is
complete from the moment at which `_metadata` stands in its folder, and that file is never written twice. A
key-value or database store implements SnapshotStorage here and WorkerStorage (worker_file) for the workers.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.common.ids import IdFactory, JobID, RandomIdFactory
from yarrow.runtime.common.paths import join
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, SnapshotKind
from yarrow.runtime.fs.file_system import exists
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.snapshot.errors import SnapshotStorageError
from yarrow.runtime.snapshot.handles import CheckpointMetadata
from yarrow.runtime.snapshot.metadata import METADATA_FILE
from yarrow.runtime.snapshot.opening import OpenedSnapshot, is_complete, open_snapshot
from yarrow.runtime.snapshot.snapshot_folders import (
    SavepointFolders,
    dispose_savepoint,
    make_folder,
    remove_checkpoint,
    remove_snapshot,
    write_metadata,
)

__all__ = [
    "EarlierCheckpoint",
    "FileSystemSnapshotStorage",
    "JobManagerSnapshotStorage",
    "OpenedSnapshot",
    "SnapshotStorage",
    "dispose_savepoint",
]

CHECKPOINT_PREFIX: Final = "chk-"
SHARED_FOLDER: Final = "shared"
TASK_OWNED_FOLDER: Final = "taskowned"
#: Most bytes of a state in the metadata, unless the job sets another limit.
DEFAULT_INLINE_THRESHOLD: Final = 20 * 1024
_SHARED_NAME: Final = re.compile("[0-9a-f]{32}")
DEFAULT_MAX_STATE_SIZE: Final = 5 * 1024 * 1024


class EarlierCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint that an earlier run of the same job has left."""

    checkpoint_id: int
    #: The pointer that opens it.
    pointer: str
    complete: bool


class SnapshotStorage(Protocol):
    """The storage of one job. Errors are SnapshotError or OSError and name the path."""

    def begin(self, checkpoint_id: int, kind: SnapshotKind, directory: str = "") -> CheckpointLocation:
        """Makes room for a checkpoint, or for a savepoint below `directory`."""
        ...

    def complete(self, location: CheckpointLocation, metadata: CheckpointMetadata) -> str:
        """Writes the metadata, whole or not at all; returns the pointer that opens it, "" if it stays in memory."""
        ...

    def discard(self, location: CheckpointLocation, shared: Sequence[str] = ()) -> None:
        """Removes a checkpoint, complete or not, and these shared files; missing ones are no error."""
        ...

    def discard_claimed(self, snapshot: OpenedSnapshot, shared: Sequence[str] = ()) -> None:
        """Removes a claimed snapshot from which the job began: its named files and nothing else."""
        ...

    def open(self, pointer: str, *, verify: bool = True) -> OpenedSnapshot:
        """The checkpoint or savepoint at a pointer; `verify` checks that all its files exist with their full length."""
        ...

    def earlier(self) -> Sequence[EarlierCheckpoint]:
        """Existing checkpoints of this job, complete or not: new ids continue behind theirs.

        Raises if they cannot be listed: "unknown" must not become "none".
        """
        ...

    def clean_up(self) -> None:
        """Removes what is left of a job that has ended and keeps no checkpoint. Never raises.

        Workers that were killed may have stored shared files without telling anyone: no `discard` names these.
        """
        ...


class _FolderStorage:
    """The common part of storages that keep snapshots in folders of a file system."""

    _secret: bytes
    #: The folder of all checkpoints of the job; "" = they are kept in memory.
    _job_folder: str

    def discard(self, location: CheckpointLocation, shared: Sequence[str] = ()) -> None:
        """See SnapshotStorage."""
        remove_checkpoint(location.directory, shared)

    def discard_claimed(self, snapshot: OpenedSnapshot, shared: Sequence[str] = ()) -> None:
        """See SnapshotStorage."""
        remove_snapshot(snapshot, shared)

    def open(self, pointer: str, *, verify: bool = True) -> OpenedSnapshot:
        """See SnapshotStorage."""
        return open_snapshot(pointer, verify=verify, secret=self._secret)

    def earlier(self) -> Sequence[EarlierCheckpoint]:
        """See SnapshotStorage."""
        folder = self._job_folder
        if not folder:
            return ()
        try:
            file_system = file_system_for(folder)
            return [
                EarlierCheckpoint(int(number), entry.path, is_complete(file_system, entry.path))
                for entry in file_system.list(folder)
                if (number := entry.name.removeprefix(CHECKPOINT_PREFIX)) != entry.name and number.isdecimal()
            ]
        except FileNotFoundError:
            return ()
        except (OSError, FileSystemError) as error:
            raise SnapshotStorageError(
                f"{folder}: its checkpoints cannot be listed ({error}). Check who may read the folder."
            ) from error


class FileSystemSnapshotStorage(_FolderStorage):
    """Checkpoints in `<directory>/<job id>/chk-<n>`, beside `shared` and `taskowned`; savepoints as requested."""

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
        """See SnapshotStorage."""
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
        """See SnapshotStorage."""
        return write_metadata(location.directory, metadata, self._ids, self._secret)

    def clean_up(self) -> None:
        """See SnapshotStorage."""
        folder = self._job_folder
        shared = join(folder, SHARED_FOLDER)
        with contextlib.suppress(OSError, FileSystemError, SnapshotStorageError):
            file_system = file_system_for(folder)
            if not self.earlier():
                # Files of workers that were killed before they could report them.
                for entry in file_system.list(shared):
                    if _SHARED_NAME.fullmatch(entry.name):
                        file_system.delete(entry.path)
            for path in (shared, join(folder, TASK_OWNED_FOLDER), folder):
                file_system.delete(path)


class JobManagerSnapshotStorage(_FolderStorage):
    """All state is sent to the JobMaster in messages; with a `directory` the metadata is kept there too.

    `max_state_size` limits one state in bytes. Raises SnapshotStorageError if it is above `message_limit`.
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
                f"max_state_size of JobManagerCheckpointStorage is {max_state_size} bytes and a message has at"
                f" most {message_limit} (rpc.message.max-size). Lower the first, raise the second, or set"
                " execution.checkpointing.dir"
            )
        self._max_state_size = max_state_size
        self._job_folder = join(directory, job_id) if directory else ""
        self._savepoints = SavepointFolders(job_id, inline_threshold, ids)
        self._ids = ids or RandomIdFactory()
        self._secret = secret

    def begin(self, checkpoint_id: int, kind: SnapshotKind, directory: str = "") -> CheckpointLocation:
        """See SnapshotStorage."""
        if kind.is_savepoint:
            return self._savepoints.begin(directory)
        return CheckpointLocation(directory="", max_inline_size=self._max_state_size)

    def complete(self, location: CheckpointLocation, metadata: CheckpointMetadata) -> str:
        """See SnapshotStorage."""
        folder = location.directory
        if not folder and self._job_folder:
            folder = join(self._job_folder, f"{CHECKPOINT_PREFIX}{metadata.checkpoint_id}")
            make_folder(folder)
        return write_metadata(folder, metadata, self._ids, self._secret) if folder else ""

    def clean_up(self) -> None:
        """See SnapshotStorage."""
