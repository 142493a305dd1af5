"""Where a job begins: storages that are refused, snapshots that do not fit, what an earlier run has left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from tests.support.job_graphs import Stage, linear_job
from yarrow.am.checkpoint.completed import CompletedCheckpointStore, FinalOutcome
from yarrow.am.checkpoint.recovery_in_memory import InMemoryCheckpointRecovery
from yarrow.am.checkpoint.restore import (
    StartingPoint,
    dispose_savepoint,
    remove_checkpoints,
    starting_point,
)
from yarrow.am.checkpoint.settings import CheckpointSettings, StorageKind
from yarrow.am.checkpoint.shared_state import SharedStateRegistry
from yarrow.am.checkpoint.targets import InvalidSavepointPathError, savepoint_target
from yarrow.common.execution_modes import ExternalizedCheckpointRetention
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.errors import RestoreError
from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.config.options.execution import ClaimMode
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, SnapshotKind
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.ha.settings import CHECKPOINTS_FOLDER
from yarrow.runtime.ha.stored_files import KEPT_FILE, remove_stored_files
from yarrow.runtime.snapshot.errors import SnapshotStorageError
from yarrow.runtime.snapshot.handles import (
    CheckpointMetadata,
    FileStateHandle,
    InlineStateHandle,
    KeyGroupsSnapshot,
    OperatorState,
    OperatorSubtaskState,
    SerializerConfig,
    StateKind,
    StateMetaInfo,
    ValueFormat,
)
from yarrow.runtime.snapshot.storage import FileSystemSnapshotStorage

JOB = linear_job(Stage(2, max_parallelism=64), Stage(2, max_parallelism=64))
_DELETED_ON_CANCELLATION = ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION
_NEVER_KEPT = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
KEYED = OperatorID(f"{2:032x}")


def keyed(max_parallelism: int = 64, path: str = "") -> OperatorState:
    """State of the second operator, at parallelism 1."""
    handle = (
        FileStateHandle(path=path, offset=0, length=5, sha256=b"")
        if path
        else InlineStateHandle(data=b"state")
    )
    snapshot = KeyGroupsSnapshot(key_groups=(0, max_parallelism - 1), states=(), handle=handle)
    return OperatorState(
        operator_id=KEYED,
        name="totals",
        uid="total",
        parallelism=1,
        max_parallelism=max_parallelism,
        subtasks={0: OperatorSubtaskState(keyed=(snapshot,))},
    )


def saved(
    folder: Path, *operators: OperatorState, kind: SnapshotKind = SnapshotKind.SAVEPOINT, number: int = 7
) -> str:
    storage = FileSystemSnapshotStorage(str(folder), JOB.job_id)
    location = storage.begin(number, kind, str(folder))
    metadata = CheckpointMetadata(
        engine_version="0",
        job_id=JOB.job_id,
        job_name="other",
        checkpoint_id=number,
        timestamp_ms=1,
        kind=kind,
        operators=operators,
    )
    return storage.complete(location, metadata)


def begun(path: str, job: JobGraph = JOB, **settings: object) -> tuple[JobGraph, StartingPoint]:
    return starting_point(job, replace(CheckpointSettings(restore_path=path), **settings))  # type: ignore[arg-type]


def on_files(folder: Path) -> CheckpointSettings:
    return CheckpointSettings(interval=1.0, storage=StorageKind.FILE_SYSTEM, directory=str(folder))


def test_ids_go_on_behind_what_is_restored_and_its_owner_is_known(tmp_path: Path) -> None:
    path = saved(tmp_path, keyed())
    for mode, owned in ((ClaimMode.NO_CLAIM, False), (ClaimMode.CLAIM, True)):
        _, start = begun(path, claim_mode=mode)
        assert start.restored is not None
        assert (start.restored.checkpoint_id, start.restored.owned) == (7, owned)
        assert start.restored.claimed is owned


def test_max_parallelism_is_that_of_the_state_where_the_program_set_none(tmp_path: Path) -> None:
    job, _ = begun(saved(tmp_path, keyed(max_parallelism=128)))
    assert [vertex.max_parallelism for vertex in job.vertices] == [64, 128]


def test_an_explicit_max_parallelism_is_kept_and_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, keyed(max_parallelism=128))
    vertices = tuple(msgspec.structs.replace(each, max_parallelism_explicit=True) for each in JOB.vertices)
    with pytest.raises(RestoreError, match=rf"{path}.*operator 1.*128.*64"):
        begun(path, msgspec.structs.replace(JOB, vertices=vertices))


def test_state_that_nobody_claims_is_refused_unless_that_is_wanted(tmp_path: Path) -> None:
    job = linear_job(Stage(1))
    path = saved(tmp_path, keyed())
    with pytest.raises(RestoreError, match=r"'totals' \(uid 'total'"):
        begun(path, job)
    _, start = begun(path, job, ignore_unclaimed_state=True)
    assert start.restored is not None


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = saved(tmp_path, keyed(path="state-1"))
    with pytest.raises(RestoreError, match=r"state-1 \(operator 'totals'\) is missing"):
        begun(path)


def test_legacy_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(RestoreError, match=r"LEGACY is refused.*Use NO_CLAIM"):
        begun(saved(tmp_path, keyed()), claim_mode=ClaimMode.LEGACY)


@pytest.mark.parametrize("path", ["relative/savepoint", "s3://bucket/savepoint", "/sp/../../etc"])
def test_no_path_is_used_unchecked(path: str) -> None:
    with pytest.raises(InvalidSavepointPathError, match=r"execution\.state-recovery\.path"):
        begun(path)
    with pytest.raises(InvalidSavepointPathError):
        savepoint_target(path, "")
    with pytest.raises(InvalidSavepointPathError):
        dispose_savepoint(path)


def test_a_savepoint_needs_a_place() -> None:
    assert savepoint_target(None, "/configured") == "/configured"
    assert savepoint_target("/asked", "/configured") == "/asked"
    for same in ("/data/sp", "/data/sp/", "file:///data/sp", " file:///data/sp/ "):
        assert savepoint_target(same, "") == savepoint_target(None, same.strip()) == "/data/sp"
    assert savepoint_target("hdfs://nn:9000/sp/", "") == "hdfs://nn:9000/sp"
    with pytest.raises(InvalidSavepointPathError, match="savepoint-dir is not set"):
        savepoint_target("", "")


def test_a_folder_that_is_no_savepoint_is_not_disposed_of(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    with pytest.raises(SnapshotStorageError):
        dispose_savepoint(str(tmp_path))
    checkpoint = saved(tmp_path, keyed(), kind=SnapshotKind.CHECKPOINT)
    with pytest.raises(SnapshotStorageError, match="no savepoint"):
        dispose_savepoint(checkpoint)
    assert (tmp_path / "precious").exists()


def test_a_folder_without_permission_is_found_before_the_job_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RestoreError, match=r"file/below.*execution\.checkpointing\.dir"):
        starting_point(JOB, on_files(tmp_path / "file" / "below"))


def test_ids_of_an_earlier_run_are_not_used_again(tmp_path: Path) -> None:
    saved(tmp_path, keyed(), kind=SnapshotKind.CHECKPOINT, number=12)
    (tmp_path / JOB.job_id / "chk-15").mkdir()
    _, start = starting_point(JOB, on_files(tmp_path))
    assert (start.restored, start.next_id) == (None, 16)


def test_a_recovered_job_goes_on_from_its_latest_complete_checkpoint(tmp_path: Path) -> None:
    path = saved(tmp_path, keyed(), kind=SnapshotKind.CHECKPOINT, number=12)
    (tmp_path / JOB.job_id / "chk-15").mkdir()
    _, start = starting_point(JOB, on_files(tmp_path), recovering=True)
    assert start.restored is not None
    assert (start.restored.pointer, start.restored.owned, start.next_id) == (path, True, 16)


def test_a_recovered_job_begins_where_the_newest_pointer_says(tmp_path: Path) -> None:
    leadership = InMemoryCheckpointRecovery()
    paths = {
        number: saved(tmp_path, keyed(), kind=SnapshotKind.CHECKPOINT, number=number)
        for number in (12, 13, 14, 15)
    }
    former = leadership.of_job(JOB.job_id)
    former.use_checkpoint_id(17)
    former.note_savepoint(16)
    # 15 is whole and was never complete: its pointer is not there.
    former.add(12, paths[12])
    former.add(13, paths[13], owned=False)
    former.add(14, paths[14], claimed=True)
    _, start = starting_point(JOB, on_files(tmp_path), recovering=True, recovery=leadership.next_leadership())
    assert start.restored is not None
    assert (start.restored.pointer, start.restored.owned, start.restored.claimed) == (paths[14], True, True)
    assert [(each.pointer, each.owned, each.claimed) for each in start.older] == [
        (paths[12], True, False),
        (paths[13], False, False),
    ]
    assert (start.next_id, start.latest_savepoint_id) == (18, 16)


def test_a_newest_pointer_that_leads_nowhere_is_not_passed_over(tmp_path: Path) -> None:
    recovery = InMemoryCheckpointRecovery()
    store = recovery.of_job(JOB.job_id)
    store.add(3, saved(tmp_path, keyed(), kind=SnapshotKind.CHECKPOINT, number=3))
    store.add(4, str(tmp_path / JOB.job_id / "chk-4"))
    with pytest.raises(RestoreError, match="chk-4"):
        starting_point(JOB, on_files(tmp_path), recovering=True, recovery=recovery)
    # One before it is no loss.
    store.add(5, saved(tmp_path, keyed(), kind=SnapshotKind.CHECKPOINT, number=5))
    _, start = starting_point(JOB, on_files(tmp_path), recovering=True, recovery=recovery)
    assert start.restored is not None
    assert [each.checkpoint_id for each in (*start.older, start.restored)] == [3, 4, 5]


def test_an_older_checkpoint_that_cannot_be_read_now_goes_in_its_turn(tmp_path: Path) -> None:
    recovery = InMemoryCheckpointRecovery()
    store = recovery.of_job(JOB.job_id)
    paths = {
        number: saved(tmp_path, keyed(), kind=SnapshotKind.CHECKPOINT, number=number) for number in (3, 4)
    }
    for number, path in paths.items():
        store.add(number, path)
    content = (Path(paths[3]) / "_metadata").read_bytes()
    (Path(paths[3]) / "_metadata").write_bytes(b"?")
    _, start = starting_point(JOB, on_files(tmp_path), recovering=True, recovery=recovery)
    (Path(paths[3]) / "_metadata").write_bytes(content)
    assert start.restored is not None and start.restored.checkpoint_id == 4
    (unread,) = start.older
    kept = CompletedCheckpointStore(1, SharedStateRegistry())
    for each in (unread, start.restored):
        kept.restored(each)
    (first, _) = kept.add(msgspec.structs.replace(start.restored, checkpoint_id=5))
    assert (first.checkpoint.checkpoint_id, first.shared) == (3, ())
    start.storage.discard(CheckpointLocation(directory=first.checkpoint.pointer))
    assert not Path(paths[3]).exists() and Path(paths[4]).exists()


def test_a_checkpoint_without_a_pointer_was_never_complete(tmp_path: Path) -> None:
    """Of another job of the same id, or one whose pointer was discarded: nothing is begun from it."""
    saved(tmp_path, keyed(), kind=SnapshotKind.CHECKPOINT, number=12)
    recovery = InMemoryCheckpointRecovery()
    _, start = starting_point(JOB, on_files(tmp_path), recovering=True, recovery=recovery)
    assert (start.restored, start.older, start.next_id) == (None, (), 13)
    savepoint = saved(tmp_path / "first", keyed(), number=2)
    settings = replace(on_files(tmp_path), restore_path=savepoint)
    _, start = starting_point(JOB, settings, recovering=True, recovery=recovery)
    assert start.restored is not None and start.restored.pointer == savepoint


def test_a_new_master_finds_what_nobody_points_to_and_no_more(tmp_path: Path) -> None:
    leadership = InMemoryCheckpointRecovery()
    folder = tmp_path / JOB.job_id
    paths = {
        number: saved(tmp_path, keyed(), kind=SnapshotKind.CHECKPOINT, number=number)
        for number in (2, 12, 13, 14, 15, 17)
    }
    former = leadership.of_job(JOB.job_id)
    for number in range(12, 17):
        former.use_checkpoint_id(number)
    (folder / "chk-16").mkdir()
    former.add(13, paths[13])
    former.add(14, paths[14], claimed=True)
    _, start = starting_point(JOB, on_files(tmp_path), recovering=True, recovery=leadership.next_leadership())
    # 2 and 17 are of another job of this id: this one has never begun them. 12 was dropped for newer ones, 15 was cut
    # off before its pointer, 16 before its metadata.
    left = {Path(location.directory).name for location in start.leftovers}
    assert left == {"chk-12", "chk-15", "chk-16"}
    # Without a pointer to any the same holds; a job that begins anew finds nothing.
    _, start = starting_point(JOB, on_files(tmp_path), recovering=False, recovery=leadership)
    assert start.leftovers == ()


def test_a_pointer_goes_before_the_savepoint_that_the_job_was_submitted_with(tmp_path: Path) -> None:
    recovery = InMemoryCheckpointRecovery()
    savepoint = saved(tmp_path / "first", keyed(), number=2)
    settings = replace(on_files(tmp_path), restore_path=savepoint)
    _, start = starting_point(JOB, settings, recovering=True, recovery=recovery)
    assert start.restored is not None and start.restored.pointer == savepoint
    start.recovery.add(6, saved(tmp_path, keyed(), kind=SnapshotKind.CHECKPOINT, number=6))
    _, start = starting_point(JOB, settings, recovering=True, recovery=recovery)
    assert start.restored is not None and start.restored.checkpoint_id == 6


def test_the_latest_savepoint_is_known_without_pointers_too(tmp_path: Path) -> None:
    storage = FileSystemSnapshotStorage(str(tmp_path), JOB.job_id)
    location = storage.begin(12, SnapshotKind.CHECKPOINT, str(tmp_path))
    plain = FileSystemSnapshotStorage(str(tmp_path), JOB.job_id)
    metadata = plain.open(saved(tmp_path / "model", keyed(), number=12)).metadata
    storage.complete(
        location, msgspec.structs.replace(metadata, kind=SnapshotKind.CHECKPOINT, latest_savepoint_id=11)
    )
    _, start = starting_point(JOB, on_files(tmp_path), recovering=True)
    assert start.latest_savepoint_id == 11


def pickled(max_parallelism: int = 64) -> OperatorState:
    config = SerializerConfig(format=ValueFormat.PLAIN, pickled=("a.B",))
    states = (StateMetaInfo(name="seen", kind=StateKind.VALUE, value=config),)
    handle = KeyGroupsSnapshot(
        key_groups=(0, max_parallelism - 1), states=states, handle=InlineStateHandle(data=b"")
    )
    return msgspec.structs.replace(
        keyed(max_parallelism), subtasks={0: OperatorSubtaskState(keyed=(handle,))}
    )


def test_pickled_state_needs_the_secret_with_which_it_was_written(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef" * 2)
    secret.chmod(0o600)
    path = saved(tmp_path, pickled())
    with pytest.raises(RestoreError, match=r"bears no seal.*operator 'totals', state 'seen'"):
        begun(path, secret_file=str(secret))
    with pytest.raises(RestoreError, match="trust-pickle is false"):
        begun(path, trust_pickle=False)
    # What a job with the secret writes, it may read.
    settings = replace(on_files(tmp_path / "chk"), secret_file=str(secret))
    _, start = starting_point(JOB, settings)
    location = start.storage.begin(8, SnapshotKind.SAVEPOINT, str(tmp_path))
    sealed = start.storage.complete(location, start.storage.open(path).metadata)
    _, again = begun(sealed, secret_file=str(secret))
    assert again.restored is not None and again.restored.trusted
    secret.write_text("another secret than before")
    with pytest.raises(RestoreError, match="another secret, or changed"):
        begun(sealed, secret_file=str(secret))
    _, unsealed = begun(saved(tmp_path / "plain", keyed()), secret_file=str(secret))
    assert unsealed.restored is not None and not unsealed.restored.trusted
    secret.chmod(0o644)
    with pytest.raises(RestoreError, match="chmod 600"):
        begun(sealed, secret_file=str(secret))


@pytest.mark.parametrize(
    ("outcome", "retention", "left"),
    [
        (FinalOutcome(JobStatus.FINISHED), _DELETED_ON_CANCELLATION, set()),
        (FinalOutcome(JobStatus.CANCELED), _DELETED_ON_CANCELLATION, set()),
        (FinalOutcome(JobStatus.FAILED), _DELETED_ON_CANCELLATION, {"chk-3", "chk-4"}),
        (FinalOutcome(JobStatus.FAILED), _NEVER_KEPT, set()),
        (FinalOutcome(JobStatus.FAILED, by_final_error=True), _NEVER_KEPT, {"chk-3", "chk-4", KEPT_FILE}),
    ],
)
def test_what_a_master_had_no_time_to_remove_goes_unless_it_is_to_outlive_the_job(
    tmp_path: Path, outcome: FinalOutcome, retention: ExternalizedCheckpointRetention, left: set[str]
) -> None:
    recovery = InMemoryCheckpointRecovery()
    store = recovery.of_job(JOB.job_id)
    for number in (3, 4):
        store.add(number, saved(tmp_path, keyed(), kind=SnapshotKind.CHECKPOINT, number=number))
    theirs = saved(tmp_path / "theirs", keyed(), number=2)
    store.add(2, theirs, owned=False)
    folder = tmp_path / JOB.job_id
    (folder / "shared" / ("a" * 32)).write_text("state")
    (folder / "chk-5").mkdir()
    # Its metadata are whole, its pointer was never written.
    saved(tmp_path, keyed(), kind=SnapshotKind.CHECKPOINT, number=6)
    for number in (3, 4, 5, 6):
        store.use_checkpoint_id(number)
    settings = replace(on_files(tmp_path), retention=retention)
    for _ in range(2):
        remove_checkpoints(JOB, settings, outcome, recovery)
    there = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
    assert there - {"shared", "taskowned"} == left
    assert folder.exists() == bool(left), "shared files go with the last checkpoint"
    assert Path(theirs).exists()


def test_what_stays_behind_a_final_error_survives_the_end_of_the_cluster_id(tmp_path: Path) -> None:
    """The former master had recorded the end of the job, and died before it marked the folder."""
    checkpoints = tmp_path / CHECKPOINTS_FOLDER
    recovery = InMemoryCheckpointRecovery()
    store = recovery.of_job(JOB.job_id)
    store.add(3, saved(checkpoints, keyed(), kind=SnapshotKind.CHECKPOINT, number=3))
    savepoint = saved(checkpoints / "theirs", keyed(), number=2)
    store.add(2, savepoint, owned=False)
    outcome = FinalOutcome(JobStatus.FAILED, by_final_error=True, why="rows are lost")
    remove_checkpoints(JOB, on_files(checkpoints), outcome, recovery)
    remove_stored_files(str(tmp_path))
    assert [folder.name for folder in checkpoints.iterdir()] == [JOB.job_id]
    assert (checkpoints / JOB.job_id / "chk-3" / "_metadata").exists()
    assert (checkpoints / JOB.job_id / KEPT_FILE).read_text() == "rows are lost\n"


def test_what_an_earlier_job_of_the_same_id_has_kept_stays(tmp_path: Path) -> None:
    recovery = InMemoryCheckpointRecovery()
    store = recovery.of_job(JOB.job_id)
    theirs = saved(tmp_path, keyed(), kind=SnapshotKind.CHECKPOINT, number=2)
    store.use_checkpoint_id(3)
    store.add(3, saved(tmp_path, keyed(), kind=SnapshotKind.CHECKPOINT, number=3))
    remove_checkpoints(JOB, on_files(tmp_path), FinalOutcome(JobStatus.FINISHED), recovery)
    folders = {entry.name for entry in (tmp_path / JOB.job_id).iterdir()}
    assert folders - {"shared", "taskowned"} == {"chk-2"} and Path(theirs).exists()


@pytest.mark.parametrize("status", [JobStatus.FINISHED, JobStatus.FAILED])
def test_where_checkpoints_cannot_be_listed_none_are_taken_for_gone(
    tmp_path: Path, status: JobStatus
) -> None:
    """A file in the folder's place stands for storage that is away."""
    folder = tmp_path / JOB.job_id
    folder.write_text("no folder")
    settings = replace(on_files(tmp_path), retention=ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION)
    with pytest.raises(SnapshotStorageError, match=str(folder)):
        remove_checkpoints(JOB, settings, FinalOutcome(status), InMemoryCheckpointRecovery())
    with pytest.raises(RestoreError, match=str(folder)):
        starting_point(JOB, settings)
    # It takes none by itself, and may never take any.
    assert starting_point(JOB, replace(settings, interval=None))[1].next_id == 1
