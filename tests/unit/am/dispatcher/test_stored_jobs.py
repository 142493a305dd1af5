"""Stored jobs and pointers to checkpoints, over records in memory: what another leadership finds and may not change."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from tests.support.counting_ids import CountingIdFactory
from yarrow.am.checkpoint.recovery_records import RecordedCheckpointRecovery
from yarrow.am.checkpoint.recovery_store import RecoveryStoreError, UnknownOutcomeError
from yarrow.am.dispatcher.job_graph_store import (
    RECORD_VERSION,
    JobGraphStore,
    JobStorageRefusedError,
    StoredJobError,
    StoredResult,
)
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.ha.records import (
    Change,
    Delete,
    LeadershipLostError,
    Put,
    RecordsError,
    RecordsInMemory,
    UnknownWriteError,
)
from yarrow.runtime.ha.zookeeper_records import _refused

JOB = JobID("ab" * 16)


def test_records_are_written_by_the_newest_leadership_alone() -> None:
    records = RecordsInMemory()
    first = records.next_leadership()
    first.write(Put("a/b", b"1"), Put("a/b/c", b"2"), Put("ab", b"3"))
    second = records.next_leadership()
    assert (second.epoch, second.children("a"), second.children("a/b")) == (2, ("b",), ("c",))
    with pytest.raises(LeadershipLostError, match="epoch 1 is over"):
        first.write(Put("x", b""))
    second.write(Delete("a"))
    assert (second.read("a/b/c"), second.read("ab")) == (None, b"3")


@pytest.mark.parametrize("kind", ["memory", "files"])
def test_a_job_is_found_by_the_next_leadership(kind: str, tmp_path: Path) -> None:
    directory = str(tmp_path) if kind == "files" else ""
    records = RecordsInMemory()
    ids = CountingIdFactory()
    store = JobGraphStore(records.next_leadership(), directory, ids)
    with pytest.raises(KeyError):
        store.get(JOB)
    store.put(JOB, b"one", "name")
    store.put(JOB, b"two", "name")
    store.mark_cancelled(JOB)
    following = JobGraphStore(records.next_leadership(), directory, ids)
    assert (following.get(JOB), following.job_ids(), following.is_cancelled(JOB)) == (b"two", (JOB,), True)
    with pytest.raises(LeadershipLostError):
        store.put(JOB, b"three")
    with pytest.raises(LeadershipLostError):
        store.remove(JOB)
    result = StoredResult(name="name", status=JobStatus.CANCELED, end_time=5)
    following.mark_ended(JOB, result)
    following.remove(JOB)
    following.remove(JOB)
    assert (following.job_ids(), following.ended(), following.result(JOB)) == ((), (JOB,), result)
    following.forget_result(JOB)
    assert records.children("jobs") == records.children("results") == ()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("kind", ["memory", "files"])
def test_commits_of_a_removed_job_are_not_stored(kind: str, tmp_path: Path) -> None:
    directory = str(tmp_path) if kind == "files" else ""
    records = RecordsInMemory()
    store = JobGraphStore(records.next_leadership(), directory, CountingIdFactory())
    store.put(JOB, b"graph")
    store.put_commits(JOB, b"commits")
    assert store.commits(JOB) == b"commits"
    store.remove(JOB)
    with pytest.raises(KeyError):
        store.put_commits(JOB, b"late commits")
    assert (store.commits(JOB), records.children("jobs")) == (b"", ())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_no_path_is_taken_for_an_id(tmp_path: Path) -> None:
    store = JobGraphStore(RecordsInMemory().next_leadership(), str(tmp_path), CountingIdFactory())
    with pytest.raises(KeyError):
        store.put(JobID("../../outside"), b"")


def test_a_storage_directory_without_permission_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "ha"
    folder.mkdir(mode=0o500)
    store = JobGraphStore(RecordsInMemory().next_leadership(), str(folder), CountingIdFactory())
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(
            JobStorageRefusedError, match=r"high-availability\.storageDir.*Let the user of the process write"
        ):
            store.put(JOB, b"graph")
    finally:
        os.seteuid(user)


def test_a_damaged_graph_is_not_run(tmp_path: Path) -> None:
    leadership = RecordsInMemory().next_leadership()
    store = JobGraphStore(leadership, str(tmp_path), CountingIdFactory())
    store.put(JOB, b"graph", "name")
    path = Path(store.stored(JOB).path)
    path.write_bytes(b"grapf")
    with pytest.raises(StoredJobError, match=f"'name'.*{path.name}"):
        store.get(JOB)
    path.unlink()
    with pytest.raises(StoredJobError, match="does not exist"):
        store.get(JOB)
    newer = msgspec.structs.replace(store.stored(JOB), version=RECORD_VERSION + 1)
    leadership.write(Put(f"jobs/{JOB}", msgspec.msgpack.encode(newer)))
    with pytest.raises(StoredJobError, match=f"has version {RECORD_VERSION + 1}"):
        store.get(JOB)
    leadership.write(Put(f"jobs/{JOB}", b"\xc1"))
    with pytest.raises(StoredJobError, match="cannot be decoded"):
        store.get(JOB)


def test_pointers_outlive_a_leadership_and_are_fenced() -> None:
    records = RecordsInMemory()
    first = RecordedCheckpointRecovery(records.next_leadership()).of_job(JOB)
    assert (first.next_checkpoint_id(), first.completed(), first.latest_savepoint_id) == (1, (), -1)
    first.use_checkpoint_id(1)
    first.use_checkpoint_id(10)
    with pytest.raises(RecoveryStoreError, match="not above 10"):
        first.use_checkpoint_id(9)
    first.add(10, "chk-10")
    first.add(9, "chk-9", owned=False)
    assert first.add(10, "chk-10").epoch == 1
    with pytest.raises(RecoveryStoreError, match="is at chk-10 already"):
        first.add(10, "elsewhere")
    first.note_savepoint(8)
    first.note_savepoint(7)
    second = RecordedCheckpointRecovery(records.next_leadership()).of_job(JOB)
    assert [pointer.checkpoint_id for pointer in second.completed()] == [9, 10]
    assert (second.next_checkpoint_id(), second.latest_savepoint_id) == (11, 8)
    for refused in (
        lambda: first.use_checkpoint_id(11),
        lambda: first.add(11, "chk-11"),
        lambda: first.add(10, "chk-10"),
        lambda: first.discard(9),
        lambda: first.note_savepoint(12),
        lambda: first.close(terminal=True),
    ):
        with pytest.raises(RecoveryStoreError, match="epoch 1 is over"):
            refused()
    second.discard(9)
    second.discard(9)
    second.close(terminal=False)
    assert len(second.completed()) == 1
    second.close(terminal=True)
    second.close(terminal=True)
    assert records.children("checkpoints") == ()


class LosesWrites:
    """Records whose connection breaks after a write was sent."""

    epoch = 1

    def __init__(self) -> None:
        self.inner = RecordsInMemory().next_leadership()

    def read(self, path: str) -> bytes | None:
        return self.inner.read(path)

    def children(self, path: str) -> tuple[str, ...]:
        return self.inner.children(path)

    def write(self, *changes: Change) -> None:
        raise UnknownWriteError("lost")


def test_an_id_whose_write_got_lost_is_spent() -> None:
    store = RecordedCheckpointRecovery(LosesWrites()).of_job(JOB)
    with pytest.raises(UnknownOutcomeError):
        store.use_checkpoint_id(1)
    with pytest.raises(RecoveryStoreError, match="not above 1"):
        store.use_checkpoint_id(1)
    assert store.next_checkpoint_id() == 2


def test_a_write_that_was_refused_after_one_that_may_have_worked_is_in_doubt() -> None:
    assert type(_refused("a", "refused", None)) is RecordsError
    assert type(_refused("a", "refused", ConnectionResetError())) is UnknownWriteError
