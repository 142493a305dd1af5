"""A folder into which others write: what nobody completes is removed, and what was given up is not completed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from yarrow.runtime.common.ids import JobID, OperatorID
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.fs.file_system import FileStatus
from yarrow.runtime.fs.local import LocalFileSystem
from yarrow.runtime.snapshot.errors import SnapshotStorageError
from yarrow.runtime.snapshot.handles import CheckpointMetadata, FileStateHandle, OperatorState
from yarrow.runtime.snapshot.metadata import METADATA_FILE
from yarrow.runtime.snapshot.worker_file import STATE_FILE_PREFIX
from yarrow.runtime.snapshot.writing.savepoint_folder import ForeignFiles, SavepointFolder

OWNER = "9" * 32
METADATA = CheckpointMetadata(
    engine_version="1",
    job_id=JobID(OWNER),
    job_name="job",
    checkpoint_id=1,
    timestamp_ms=0,
    kind=SnapshotKind.SAVEPOINT,
    operators=(),
)


def begun(path: Path, owner: str = OWNER) -> SavepointFolder:
    """A savepoint of which one file is written."""
    folder = SavepointFolder(str(path))
    (path / f"{STATE_FILE_PREFIX}{folder.foreign_files(owner).hex_id()}").write_bytes(b"state")
    return folder


def test_what_nobody_completes_is_removed_with_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "savepoint"
    begun(path)
    begun(path)
    ForeignFiles.remove_unfinished(str(path), OWNER)
    assert not path.exists()
    ForeignFiles.remove_unfinished(str(path), OWNER)


def test_files_of_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "savepoint"
    begun(path)
    others = {"notes.txt", f"{STATE_FILE_PREFIX}{'0' * 32}"}
    for name in others:
        (path / name).touch()
    ForeignFiles.remove_unfinished(str(path), OWNER)
    assert {entry.name for entry in path.iterdir()} == others


def test_a_complete_savepoint_stays(tmp_path: Path) -> None:
    path = tmp_path / "savepoint"
    begun(path).complete(METADATA)
    ForeignFiles.remove_unfinished(str(path), OWNER)
    assert [entry.name for entry in path.iterdir()] == [METADATA_FILE]


def test_what_was_given_up_is_not_completed(tmp_path: Path) -> None:
    path = tmp_path / "savepoint"
    lost = begun(path)
    ForeignFiles.remove_unfinished(str(path), OWNER)
    following = begun(path)
    with pytest.raises(SnapshotStorageError, match="was given up"), lost:
        lost.complete(METADATA)
    assert not (path / METADATA_FILE).exists()
    following.complete(METADATA)
    assert (path / METADATA_FILE).exists()


@pytest.mark.parametrize("other", ["", "8" * 32])
def test_what_another_one_writes_into_the_folder_stays(tmp_path: Path, other: str) -> None:
    path = tmp_path / "savepoint"
    foreign = begun(path, other)
    there = {entry.name for entry in path.iterdir()}
    begun(path)
    ForeignFiles.remove_unfinished(str(path), OWNER)
    assert {entry.name for entry in path.iterdir()} == there
    foreign.complete(METADATA)
    assert (path / METADATA_FILE).exists()


def test_a_savepoint_that_is_completed_meanwhile_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that counts as lost may still complete its savepoint: one of both has the files, never none."""
    path = tmp_path / "savepoint"
    folder = SavepointFolder(str(path))
    with folder.foreign_files(OWNER).open() as output:
        handle = output.file.write([bytes(1 << 20)])
    assert isinstance(handle, FileStateHandle)
    state = OperatorState(
        operator_id=OperatorID("1" * 32),
        name="source",
        uid=None,
        parallelism=1,
        max_parallelism=1,
        subtasks={},
        coordinator=handle,
    )
    metadata = msgspec.structs.replace(METADATA, operators=(state,))
    found = LocalFileSystem.list

    def listed(files: LocalFileSystem, place: str) -> list[FileStatus]:
        entries = found(files, place)
        monkeypatch.setattr(LocalFileSystem, "list", found)
        folder.complete(metadata)
        return entries

    monkeypatch.setattr(LocalFileSystem, "list", listed)
    ForeignFiles.remove_unfinished(str(path), OWNER)
    assert {entry.name for entry in path.iterdir()} == {METADATA_FILE, handle.path}
