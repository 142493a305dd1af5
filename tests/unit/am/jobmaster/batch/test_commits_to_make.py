"""What sinks have prepared, on its way into the master's store: in parts, all or nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from yarrow.am.execution.blob_store import BlobStore
from yarrow.am.execution.commit_records import CommitRecordsInMemory
from yarrow.am.jobmaster.batch.commits_to_make import CommitsToMake
from yarrow.runtime.common.ids import JobID, JobVertexID, OperatorID
from yarrow.runtime.rpc.batch_gateways import BatchRunError
from yarrow.runtime.rpc.messages import BatchCommittables, StoredCommittables


def part(
    text: str, sequence: int, *, subtask: int = 0, run: int = 0, continued: bool = False
) -> BatchCommittables:
    return BatchCommittables(
        job_id=JobID("1"),
        run=run,
        vertex_id=JobVertexID("2"),
        operator_id=OperatorID("3"),
        subtask=subtask,
        attempt=0,
        sequence=sequence,
        payload=text.encode(),
        continued=continued,
    )


def stored(folder: Path, commits: CommitsToMake) -> list[str]:
    data = (folder / commits.blob_key).read_bytes()
    messages = msgspec.msgpack.decode(data, type=StoredCommittables).messages
    return [message.payload.decode() for message in messages]


def test_parts_are_stored_in_their_order(tmp_path: Path) -> None:
    commits = CommitsToMake(JobID("1"), BlobStore(tmp_path), CommitRecordsInMemory())
    for message in (
        part("a", 0, continued=True),
        part("b", 1, continued=True),
        part("b", 1, continued=True),
        part("c", 2),
        part("d", 0, subtask=1),
    ):
        commits.add(message)
    commits.store(0)
    assert stored(tmp_path, commits) == ["a", "b", "c", "d"]
    commits.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_subtask_that_begins_anew_replaces_its_parts(tmp_path: Path) -> None:
    commits = CommitsToMake(JobID("1"), BlobStore(tmp_path), CommitRecordsInMemory())
    for message in (
        part("a", 0, continued=True),
        part("x", 0, continued=True),
        part("y", 1),
        part("d", 0, subtask=1),
        part("late", 0, run=-1),
    ):
        commits.add(message)
    commits.store(0)
    assert stored(tmp_path, commits) == ["x", "y", "d"]


def test_missing_parts_are_never_stored(tmp_path: Path) -> None:
    commits = CommitsToMake(JobID("1"), BlobStore(tmp_path), CommitRecordsInMemory())
    commits.add(part("a", 0, continued=True))
    with pytest.raises(BatchRunError, match="nothing of it is committed"):
        commits.store(0)
    assert commits.blob_key == ""
    assert list(tmp_path.iterdir()) == []
    # The parts of the next run are whole.
    commits.add(part("b", 0, run=1))
    commits.store(1)
    assert stored(tmp_path, commits) == ["b"]
