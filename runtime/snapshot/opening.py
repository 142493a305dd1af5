"""Opens checkpoints and savepoints: finds and reads their metadata, and checks that all their files exist.

Owner: any thread; every call may block, none keeps anything open or changes anything. Errors explain a
missing snapshot: never completed, one folder too high, or no snapshot at all.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.common.paths import join
from yarrow.runtime.fs.file_system import FileSystem, exists
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.fs.whole_files import TEMPORARY_PREFIX
from yarrow.runtime.snapshot.errors import (
    MissingSnapshotFilesError,
    SnapshotNotFoundError,
    SnapshotStorageError,
)
from yarrow.runtime.snapshot.handles import CheckpointMetadata, FileStateHandle, StateHandle
from yarrow.runtime.snapshot.metadata import METADATA_FILE, Seal, decode_metadata, seal_of
from yarrow.runtime.snapshot.snapshot_reader import resolve
from yarrow.runtime.snapshot.worker_file import STATE_FILE_PREFIX


class OpenedSnapshot(msgspec.Struct, frozen=True):
    """A checkpoint or savepoint that can be restored."""

    metadata: CheckpointMetadata
    #: Folder of its `_metadata`: base of the relative paths in it.
    directory: str
    seal: Seal = Seal.UNCHECKED


def open_snapshot(pointer: str, *, verify: bool = True, secret: bytes = b"") -> OpenedSnapshot:
    """The checkpoint or savepoint at a folder, a `_metadata` file, or a URL of either.

    `verify` checks that every referenced file exists with its full length (contents are verified as they are
    read). Raises SnapshotNotFoundError, CorruptSnapshotError, MissingSnapshotFilesError,
    SnapshotStorageError.
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
    within = [entry.path for entry in entries if entry.is_dir and is_complete(file_system, entry.path)]
    hint = f" Did you mean {' or '.join(within[-3:])}?" if within else ""
    return SnapshotNotFoundError(
        f"{pointer}: the folder holds no checkpoint or savepoint: it has no {METADATA_FILE}.{hint}"
    )


def is_complete(file_system: FileSystem, folder: str) -> bool:
    """Whether a folder holds the metadata of a snapshot."""
    return exists(file_system, join(folder, METADATA_FILE))


def missing_files(metadata: CheckpointMetadata, directory: str) -> Iterator[str]:
    """Referenced files of a checkpoint that are gone or too short, each with the owner of its state.

    Raises SnapshotStorageError if that cannot be found out.
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
            # Not missing: a storage that is briefly out of reach must not end a recovered job.
            raise SnapshotStorageError(f"{path} ({owner}) cannot be read ({error}).") from error
        if size < end:
            yield f"{path} ({owner}) has {size} bytes of {end}"


def handles_of(metadata: CheckpointMetadata) -> Iterator[tuple[str, StateHandle]]:
    """Every handle of a checkpoint, with the operator of its state."""
    for operator in metadata.operators:
        owner = f"operator '{operator.name}'"
        if operator.coordinator is not None:
            yield owner, operator.coordinator
        for subtask in operator.subtasks.values():
            for handle in subtask.state_handles():
                yield owner, handle
