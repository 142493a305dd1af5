"""Checkpoint storages on local files: folders, completion, opening, disposal, and everything that may be wrong."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.counting_ids import CountingIdFactory
from tests.unit.runtime.snapshot.test_metadata import METADATA
from yarrow.runtime.common import fault_points
from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.common.ids import JobID, OperatorID
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, SnapshotKind
from yarrow.runtime.fs import local
from yarrow.runtime.fs.file_system import FileStatus
from yarrow.runtime.fs.local import LocalFileSystem
from yarrow.runtime.snapshot.errors import (
    CorruptSnapshotError,
    MissingSnapshotFilesError,
    SnapshotNotFoundError,
    SnapshotStorageError,
    StateTooLargeError,
)
from yarrow.runtime.snapshot.handles import (
    CheckpointMetadata,
    FileStateHandle,
    InlineStateHandle,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    StateHandle,
)
from yarrow.runtime.snapshot.opening import open_snapshot
from yarrow.runtime.snapshot.snapshot_folders import dispose_savepoint
from yarrow.runtime.snapshot.snapshot_reader import SnapshotReader, resolve
from yarrow.runtime.snapshot.storage import FileSystemSnapshotStorage, JobManagerSnapshotStorage
from yarrow.runtime.snapshot.worker_file import FileSystemWorkerStorage, WorkerSnapshotFile

JOB = JobID("0123456789abcdef" * 2)
LARGE = b"x" * 100


def storage_in(path: Path) -> FileSystemSnapshotStorage:
    return FileSystemSnapshotStorage(str(path), JOB, inline_threshold=10, ids=CountingIdFactory())


def metadata_of(*handles: StateHandle, kind: SnapshotKind = SnapshotKind.CHECKPOINT) -> CheckpointMetadata:
    subtasks = {
        index: OperatorSubtaskState(operator=(OperatorStateHandle(states=(), handle=handle),))
        for index, handle in enumerate(handles)
    }
    operator = OperatorState(
        operator_id=OperatorID("a" * 32), name="counting", uid=None, parallelism=len(subtasks) or 1,
        max_parallelism=128, subtasks=subtasks,
    )  # fmt: skip
    return msgspec.structs.replace(METADATA, kind=kind, operators=(operator,))


def output_of(location: CheckpointLocation) -> WorkerSnapshotFile:
    return FileSystemWorkerStorage().open_output(location)


def written(
    path: Path, kind: SnapshotKind = SnapshotKind.CHECKPOINT
) -> tuple[FileSystemSnapshotStorage, CheckpointLocation, str]:
    storage = storage_in(path)
    location = storage.begin(7, kind, str(path / "savepoints"))
    output = output_of(location)
    metadata = metadata_of(
        output.write([b"small"]), output.write([LARGE, LARGE]), output.write([LARGE]), kind=kind
    )
    output.close()
    return storage, location, storage.complete(location, metadata)


def test_a_checkpoint_lies_where_it_should_and_opens(tmp_path: Path) -> None:
    _, location, pointer = written(tmp_path)
    folder = tmp_path / JOB / "chk-7"
    assert Path(pointer) == Path(location.directory) == folder
    assert sorted(entry.name for entry in (tmp_path / JOB).iterdir()) == ["chk-7", "shared", "taskowned"]
    names = sorted(entry.name for entry in folder.iterdir())
    assert names[0] == "_metadata" and names[1].startswith("state-") and len(names) == 2
    for way in (
        pointer,
        f"{pointer}/",
        f"{pointer}/_metadata",
        f"file://{pointer}",
        f"file://{pointer}/_metadata",
    ):
        opened = open_snapshot(way)
        assert opened.metadata.checkpoint_id == 7
        reader = SnapshotReader(opened.directory)
        states = opened.metadata.operators[0].subtasks.values()
        assert [reader.read(h) for state in states for h in state.state_handles()] == [
            b"small", LARGE + LARGE, LARGE
        ]  # fmt: skip


def test_a_savepoint_may_be_moved(tmp_path: Path) -> None:
    _, location, pointer = written(tmp_path, SnapshotKind.SAVEPOINT)
    folder = Path(location.directory)
    assert folder.parent == tmp_path / "savepoints"
    assert folder.name == "savepoint-012345-" + "0" * 11 + "1"
    moved = tmp_path / "elsewhere"
    folder.rename(moved)
    opened = open_snapshot(str(moved))
    handles = [h for state in opened.metadata.operators[0].subtasks.values() for h in state.state_handles()]
    assert SnapshotReader(opened.directory).read(handles[1]) == LARGE + LARGE
    with pytest.raises(SnapshotNotFoundError, match="no such checkpoint or savepoint"):
        open_snapshot(pointer)


def test_metadata_are_never_overwritten_and_ids_used_once(tmp_path: Path) -> None:
    storage, location, pointer = written(tmp_path)
    before = (Path(pointer) / "_metadata").read_bytes()
    with pytest.raises(SnapshotStorageError, match="completed once and never overwritten"):
        storage.complete(location, metadata_of())
    with pytest.raises(SnapshotStorageError, match="holds a complete checkpoint already"):
        storage.begin(7, SnapshotKind.CHECKPOINT)
    assert (Path(pointer) / "_metadata").read_bytes() == before
    assert not list(Path(pointer).glob("_tmp-*"))


class CrashError(Exception):
    """The process ended here."""


class CrashAt:
    def __init__(self, point: str) -> None:
        self._point = point

    def reached(self, point: str, detail: dict[str, object]) -> None:
        if point == self._point:
            assert detail["checkpoint_id"] == 7
            raise CrashError


@pytest.mark.parametrize(("point", "complete"), [("before", False), ("after", True)])
def test_a_crash_at_the_rename_leaves_whole_or_nothing(tmp_path: Path, point: str, complete: bool) -> None:
    storage = storage_in(tmp_path)
    location = storage.begin(7, SnapshotKind.CHECKPOINT)
    fault_points.install(CrashAt(f"checkpoint.{point}-metadata-rename"))
    try:
        with pytest.raises(CrashError):
            storage.complete(location, metadata_of())
    finally:
        fault_points.install(None)
    if complete:
        assert open_snapshot(location.directory).metadata.checkpoint_id == 7
    else:
        with pytest.raises(SnapshotNotFoundError, match="was never completed"):
            open_snapshot(location.directory)


def test_the_folder_above_names_what_is_in_it(tmp_path: Path) -> None:
    _, _, pointer = written(tmp_path)
    with pytest.raises(SnapshotNotFoundError, match=f"Did you mean {pointer}"):
        open_snapshot(str(tmp_path / JOB))


def test_a_file_of_which_nothing_can_be_found_out_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, pointer = written(tmp_path)

    def unreachable(self: LocalFileSystem, path: str) -> FileStatus:
        raise FileSystemError(f"{path}: the name node is in safe mode")

    monkeypatch.setattr(LocalFileSystem, "status", unreachable)
    with pytest.raises(SnapshotStorageError, match=r"operator 'counting'.*safe mode") as caught:
        open_snapshot(pointer)
    assert isinstance(caught.value.__cause__, FileSystemError), (
        "by which it is told that it may pass by itself"
    )


def test_files_that_are_missing_or_short_are_named_with_their_operator(tmp_path: Path) -> None:
    _, location, pointer = written(tmp_path)
    (file,) = Path(location.directory).glob("state-*")
    os.truncate(file, 250)
    with pytest.raises(
        MissingSnapshotFilesError, match=f"{file} \\(operator 'counting'\\) has 250 bytes of 300"
    ):
        open_snapshot(pointer)
    file.unlink()
    with pytest.raises(MissingSnapshotFilesError, match=f"{file} \\(operator 'counting'\\) is missing"):
        open_snapshot(pointer)
    opened = open_snapshot(pointer, verify=False)
    handle = next(opened.metadata.operators[0].subtasks[1].state_handles())
    with pytest.raises(SnapshotStorageError, match=f"operator 'counting', state 's': the state file {file}"):
        SnapshotReader(opened.directory).read(handle, "operator 'counting', state 's'")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.binary(min_size=11, max_size=60), bit=st.integers(0, 10**6), cut=st.integers(0, 10**6))
def test_a_flipped_bit_or_a_cut_of_a_state_file_is_found(
    tmp_path: Path, data: bytes, bit: int, cut: int
) -> None:
    output = output_of(CheckpointLocation(directory=str(tmp_path / "c"), inline_threshold=10))
    handle = output.write([data])
    output.close()
    assert isinstance(handle, FileStateHandle)
    reader, file = SnapshotReader(str(tmp_path / "c")), tmp_path / "c" / handle.path
    copied = tmp_path / handle.path
    reader.copy(handle, str(copied))
    assert reader.read(handle) == copied.read_bytes() == data
    damaged = bytearray(data)
    damaged[bit // 8 % len(data)] ^= 1 << bit % 8
    file.write_bytes(bytes(damaged))
    with pytest.raises(CorruptSnapshotError, match=f"^{file}: .*SHA-256 differs"):
        reader.read(handle)
    file.write_bytes(data[: cut % len(data)])
    with pytest.raises(CorruptSnapshotError, match="truncated"):
        reader.copy(handle, str(copied) + "-2")
    assert not Path(f"{copied}-2").exists()


def test_discarding_leaves_nothing_and_may_be_repeated(tmp_path: Path) -> None:
    storage, location, _ = written(tmp_path)
    shared = Path(location.shared_directory) / "1"
    shared.write_bytes(b"x")
    for _ in range(2):
        storage.discard(location, [str(shared)])
    assert not Path(location.directory).exists() and not shared.exists()


def test_disposal_takes_savepoints_only_and_what_is_theirs(tmp_path: Path) -> None:
    _, _, checkpoint = written(tmp_path / "a")
    with pytest.raises(SnapshotStorageError, match=r"checkpoint 7 of job .* no savepoint"):
        dispose_savepoint(checkpoint)
    with pytest.raises(SnapshotNotFoundError):
        dispose_savepoint(str(tmp_path))
    _, _, savepoint = written(tmp_path / "b", SnapshotKind.SAVEPOINT)
    dispose_savepoint(savepoint)
    assert not Path(savepoint).exists()
    _, _, savepoint = written(tmp_path / "c", SnapshotKind.SAVEPOINT)
    (Path(savepoint) / "notes.txt").write_text("mine")
    dispose_savepoint(savepoint)
    assert [entry.name for entry in Path(savepoint).iterdir()] == ["notes.txt"]


def test_metadata_that_lead_out_of_their_folder_are_refused(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(LARGE)
    outside = FileStateHandle(path="../../precious", offset=0, length=100, sha256=b"")
    storage = storage_in(tmp_path)
    location = storage.begin(7, SnapshotKind.SAVEPOINT, str(tmp_path / "savepoints"))
    pointer = storage.complete(location, metadata_of(outside, kind=SnapshotKind.SAVEPOINT))
    for use in (open_snapshot, dispose_savepoint):
        with pytest.raises(CorruptSnapshotError, match=r"outside of the folder: '\.\./\.\./precious'"):
            use(pointer)
    with pytest.raises(CorruptSnapshotError, match="outside of the folder"):
        SnapshotReader(pointer).read(outside)
    assert precious.exists()


def test_urls_and_absolute_paths_are_taken_as_they_are() -> None:
    for path in ("/a/b", "file:/a/b", "file:///a/b", "hdfs://h:1/a/b", "webhdfs://h:1/a"):
        assert resolve(path, "/folder") == path
    assert resolve("state-1", "hdfs://h:1/x/chk-1") == "hdfs://h:1/x/chk-1/state-1"


def test_a_folder_without_permission_or_name_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    storage = FileSystemSnapshotStorage(str(tmp_path / "file"), JOB)
    with pytest.raises(SnapshotStorageError, match=f"{tmp_path}/file/.*cannot be made"):
        storage.begin(1, SnapshotKind.CHECKPOINT)
    with pytest.raises(SnapshotStorageError, match="savepoint-dir"):
        storage_in(tmp_path).begin(1, SnapshotKind.SAVEPOINT)


def test_job_manager_storage_keeps_everything_inline_up_to_its_limit(tmp_path: Path) -> None:
    storage = JobManagerSnapshotStorage(JOB, max_state_size=200)
    location = storage.begin(7, SnapshotKind.CHECKPOINT)
    output = output_of(location)
    assert output.write([LARGE, LARGE]) == InlineStateHandle(data=LARGE + LARGE)
    with pytest.raises(StateTooLargeError, match=r"state of 400 bytes is over the 200 .*max-state-size"):
        output.write([LARGE] * 4)
    output.close()
    assert storage.complete(location, metadata_of()) == ""
    storage.discard(location)
    with pytest.raises(SnapshotStorageError, match=r"200 bytes and a message has at most 100"):
        JobManagerSnapshotStorage(JOB, max_state_size=200, message_limit=100)


def test_job_manager_storage_writes_savepoints_and_with_a_folder_metadata(tmp_path: Path) -> None:
    storage = JobManagerSnapshotStorage(JOB, directory=str(tmp_path / "chk"))
    savepoint = storage.begin(7, SnapshotKind.SAVEPOINT, str(tmp_path / "sp"))
    assert storage.complete(savepoint, metadata_of(kind=SnapshotKind.SAVEPOINT)) == savepoint.directory
    assert storage.open(savepoint.directory).metadata.kind is SnapshotKind.SAVEPOINT
    pointer = storage.complete(storage.begin(7, SnapshotKind.CHECKPOINT), metadata_of())
    assert Path(pointer) == tmp_path / "chk" / JOB / "chk-7"
    assert storage.open(pointer).metadata.checkpoint_id == 7


def test_of_a_claimed_snapshot_only_its_own_files_go(tmp_path: Path) -> None:
    storage, _, savepoint = written(tmp_path, SnapshotKind.SAVEPOINT)
    opened = storage.open(savepoint)
    foreign = ["notes.txt", "state-of-affairs", "_tmp-copy", "photos/one.png"]
    Path(savepoint, "photos").mkdir()
    for name in foreign:
        Path(savepoint, name).write_text("mine")
    storage.discard_claimed(opened)
    left = sorted(str(path.relative_to(savepoint)) for path in Path(savepoint).rglob("*") if path.is_file())
    assert left == sorted(foreign)
    storage.discard_claimed(opened)  # what is gone already is no error
    _, _, alone = written(tmp_path / "other", SnapshotKind.SAVEPOINT)
    shared = tmp_path / "shared-file"
    shared.write_bytes(LARGE)
    storage.discard_claimed(storage.open(alone), [str(shared)])
    assert not Path(alone).exists() and not shared.exists() and Path(savepoint).exists()
    storage.discard_claimed(opened)


def test_output_of_a_worker(tmp_path: Path) -> None:
    location = storage_in(tmp_path).begin(7, SnapshotKind.CHECKPOINT)
    local = tmp_path / "local"
    local.write_bytes(LARGE)
    output = output_of(location)
    shared, own = output.write_shared_file(str(local)), output.write_own_file(str(local))
    assert Path(shared.path).parent == Path(location.shared_directory)
    assert isinstance(own, FileStateHandle) and own.offset == 0
    with pytest.raises(ZeroDivisionError):
        output.write(LARGE for number in (1, 0) if 1 // number)
    behind = output.write([b"y" * 50])
    output.close()
    assert isinstance(behind, FileStateHandle) and (own.path, behind.offset) == (behind.path, 200)
    reader = SnapshotReader(location.directory)
    assert [reader.read(handle) for handle in (shared, own, behind)] == [LARGE, LARGE, b"y" * 50]
    assert output.uploaded == 250
    with pytest.raises(SnapshotStorageError, match="was closed"):
        output.write([LARGE])
    output.discard()
    assert not os.path.exists(shared.path) and not os.path.exists(location.directory)
    savepoint = storage_in(tmp_path).begin(7, SnapshotKind.SAVEPOINT, str(tmp_path))
    with pytest.raises(SnapshotStorageError, match=r"execution\.checkpointing\.dir"):
        output_of(savepoint).write_shared_file(str(local))


def test_checkpoints_in_memory_whose_metadata_are_in_files_are_found_again(tmp_path: Path) -> None:
    storage = JobManagerSnapshotStorage(JOB, directory=str(tmp_path / "chk"))
    pointer = storage.complete(storage.begin(7, SnapshotKind.CHECKPOINT), metadata_of())
    Path(pointer).with_name("chk-8").mkdir()
    left = sorted(storage.earlier(), key=lambda each: each.checkpoint_id)
    assert [(each.pointer, each.complete) for each in left] == [
        (pointer, True),
        (str(Path(pointer).with_name("chk-8")), False),
    ]
    assert JobManagerSnapshotStorage(JOB).earlier() == ()


def test_a_folder_that_cannot_be_listed_is_not_taken_for_one_without_checkpoints(tmp_path: Path) -> None:
    storage, location, _ = written(tmp_path)
    shared = Path(location.shared_directory, "0" * 32)
    shared.write_bytes(LARGE)

    class Unlisted(LocalFileSystem):
        """Refuses to list the folder of the job, and nothing else."""

        def list(self, path: str) -> list[FileStatus]:
            if path == storage.job_folder:
                raise FileSystemError("the name node is in safe mode")
            return super().list(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "LocalFileSystem", Unlisted)
        storage.clean_up()
    assert shared.exists()


def test_what_killed_workers_left_goes_with_the_job_where_no_checkpoint_is_kept(tmp_path: Path) -> None:
    storage, location, pointer = written(tmp_path)
    left = Path(location.shared_directory, "0" * 32)
    left.write_bytes(LARGE)
    storage.clean_up()
    assert left.exists() and [each.complete for each in storage.earlier()] == [True]
    assert storage.earlier()[0].pointer == pointer and storage.earlier()[0].checkpoint_id == 7
    storage.discard(location)
    foreign = left.with_name("notes.txt")
    foreign.write_text("mine")
    storage.clean_up()
    assert not left.exists() and foreign.exists()
    foreign.unlink()
    storage.clean_up()
    assert not (tmp_path / JOB).exists()
    storage.clean_up()
