"""Folders of checkpoints and savepoints: made, completed by their metadata, and removed with only their own content.

Owner: any thread; every call may block, none keeps anything open. The metadata is written last and removed
first, so that half a snapshot never looks complete. Files outside of a snapshot's folder are removed only by
name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Final

from yarrow.runtime.common import fault_points
from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.common.ids import IdFactory, JobID, RandomIdFactory
from yarrow.runtime.common.paths import join
from yarrow.runtime.data.checkpoint_options import CheckpointLocation
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.fs.whole_files import TEMPORARY_PREFIX, write_whole
from yarrow.runtime.snapshot.errors import SnapshotStorageError
from yarrow.runtime.snapshot.handles import CheckpointMetadata, FileStateHandle
from yarrow.runtime.snapshot.metadata import METADATA_FILE, encode_metadata
from yarrow.runtime.snapshot.opening import OpenedSnapshot, handles_of, open_snapshot
from yarrow.runtime.snapshot.snapshot_reader import resolve
from yarrow.runtime.snapshot.worker_file import STATE_FILE_PREFIX

SAVEPOINT_PREFIX: Final = "savepoint-"


def make_folder(path: str) -> None:
    """Makes a folder and its parents. Raises SnapshotStorageError with its path."""
    try:
        file_system_for(path).make_dirs(path)
    except (OSError, FileSystemError) as error:
        raise SnapshotStorageError(
            f"{path}: the folder cannot be made ({error}). Check the path and who may write there."
        ) from error


def write_metadata(
    folder: str,
    metadata: CheckpointMetadata,
    ids: IdFactory,
    secret: bytes = b"",
    before_rename: Callable[[], None] = lambda: None,
) -> str:
    """Writes `_metadata`, whole or not at all, sealed by `secret`; returns the folder.

    Raises SnapshotStorageError if the file exists or the storage refuses; nothing is left then. `before_rename`: see
    `write_whole`.
    """

    def about_to_rename() -> None:
        fault_points.reach("checkpoint.before-metadata-rename", **detail)
        before_rename()

    target = join(folder, METADATA_FILE)
    detail = {"checkpoint_id": metadata.checkpoint_id, "path": target}
    try:
        write_whole(
            target,
            encode_metadata(metadata, secret),
            ids.hex_id(),
            about_to_rename,
        )
    except FileExistsError as error:
        raise SnapshotStorageError(
            f"{target} exists already: a checkpoint is completed once and never overwritten"
        ) from error
    except (OSError, FileSystemError) as error:
        raise SnapshotStorageError(f"a checkpoint cannot be completed: {error}") from error
    fault_points.reach("checkpoint.after-metadata-rename", **detail)
    return folder


def remove_checkpoint(folder: str, shared: Sequence[str] = ()) -> None:
    """Removes the folder of a checkpoint and `shared`; its metadata first, so that it never looks complete."""
    if folder:
        file_system = file_system_for(folder)
        file_system.delete(join(folder, METADATA_FILE))
        file_system.delete(folder, recursive=True)
    for path in shared:
        file_system_for(path).delete(path)


def remove_snapshot(snapshot: OpenedSnapshot, shared: Sequence[str] = ()) -> None:
    """Removes another owner's snapshot: its metadata first, then its named files in its folder, and `shared`.

    The folder is removed if it is empty.
    """
    directory = snapshot.directory
    file_system = file_system_for(directory)
    handles = handles_of(snapshot.metadata)
    paths = {handle.path for _, handle in handles if isinstance(handle, FileStateHandle)}
    # Files elsewhere are not the snapshot's own.
    own = [place for path in sorted(paths) if (place := resolve(path, directory)) != path]
    file_system.delete(join(directory, METADATA_FILE))
    for path in own:
        file_system.delete(path)
    with contextlib.suppress(FileNotFoundError):
        if not file_system.list(directory):
            file_system.delete(directory)
    for path in shared:
        file_system_for(path).delete(path)


def dispose_savepoint(pointer: str) -> None:
    """Removes a savepoint: its metadata first, then its files, and the folder if it is empty.

    Raises SnapshotNotFoundError or CorruptSnapshotError if it is no savepoint. Raises SnapshotStorageError
    for a checkpoint, which belongs to its job.
    """
    opened = open_snapshot(pointer, verify=False)
    metadata, directory = opened.metadata, opened.directory
    if not metadata.kind.is_savepoint:
        raise SnapshotStorageError(
            f"{directory} is checkpoint {metadata.checkpoint_id} of job {metadata.job_id} and no savepoint:"
            " other checkpoints may share its files. Retained checkpoints are removed with their job's"
            " folder."
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


class SavepointFolders:
    """Folders of one job's savepoints: `<target>/savepoint-<6 digits of the job>-<12 digits>`."""

    def __init__(self, job_id: JobID, inline_threshold: int, ids: IdFactory | None = None) -> None:
        self._job_id = job_id
        self._inline_threshold = inline_threshold
        self._ids = ids or RandomIdFactory()

    def begin(self, target: str) -> CheckpointLocation:
        """Makes the folder of a savepoint below `target`."""
        if not target:
            raise SnapshotStorageError(
                "no folder was named for the savepoint: name a folder, or set"
                " execution.checkpointing.savepoint-dir"
            )
        name = f"{SAVEPOINT_PREFIX}{self._job_id[:6]}-{self._ids.hex_id()[-12:]}"
        folder = join(target, name)
        make_folder(folder)
        return CheckpointLocation(directory=folder, inline_threshold=self._inline_threshold)
