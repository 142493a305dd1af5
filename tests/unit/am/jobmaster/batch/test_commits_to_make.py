"""What sinks have prepared, on its way into the master's store: in parts, all or nothing."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import msgspec
import pytest

from tests.unit.runtime.rpc.loops import run, settled
from yarrow.am.execution.blob_store import BlobStore
from yarrow.am.execution.commit_records import CommitRecords, CommitRecordsInMemory
from yarrow.am.jobmaster.batch.commits_to_make import CommitsToMake
from yarrow.runtime.common.ids import JobID, JobVertexID, OperatorID
from yarrow.runtime.rpc.batch_gateways import BatchRunError
from yarrow.runtime.rpc.messages import BatchCommittables, StoredCommittables


def part(
    text: str, sequence: int, *, subtask: int = 0, run_number: int = 0, continued: bool = False
) -> BatchCommittables:
    return BatchCommittables(
        job_id=JobID("1"),
        run=run_number,
        vertex_id=JobVertexID("2"),
        operator_id=OperatorID("3"),
        subtask=subtask,
        attempt=0,
        sequence=sequence,
        payload=text.encode(),
        continued=continued,
    )


def commits_in(folder: Path, records: CommitRecords | None = None) -> CommitsToMake:
    return CommitsToMake(JobID("1"), BlobStore(folder), records or CommitRecordsInMemory(), asyncio.to_thread)


def stored(folder: Path, commits: CommitsToMake) -> list[str]:
    data = (folder / commits.blob_key).read_bytes()
    messages = msgspec.msgpack.decode(data, type=StoredCommittables).messages
    return [message.payload.decode() for message in messages]


def test_parts_are_stored_in_their_order(tmp_path: Path) -> None:
    commits = commits_in(tmp_path)
    for message in (
        part("a", 0, continued=True),
        part("b", 1, continued=True),
        part("b", 1, continued=True),
        part("c", 2),
        part("d", 0, subtask=1),
    ):
        commits.add(message)
    run(commits.store(0))
    assert stored(tmp_path, commits) == ["a", "b", "c", "d"]
    run(commits.remove())
    assert list(tmp_path.iterdir()) == []


def test_a_subtask_that_begins_anew_replaces_its_parts(tmp_path: Path) -> None:
    commits = commits_in(tmp_path)
    for message in (
        part("a", 0, continued=True),
        part("x", 0, continued=True),
        part("y", 1),
        part("d", 0, subtask=1),
        part("late", 0, run_number=-1),
    ):
        commits.add(message)
    run(commits.store(0))
    assert stored(tmp_path, commits) == ["x", "y", "d"]


def test_missing_parts_are_never_stored(tmp_path: Path) -> None:
    commits = commits_in(tmp_path)
    commits.add(part("a", 0, continued=True))
    with pytest.raises(BatchRunError, match="nothing of it is committed"):
        run(commits.store(0))
    assert commits.blob_key == ""
    assert list(tmp_path.iterdir()) == []
    # The parts of the next run are whole.
    commits.add(part("b", 0, run_number=1))
    run(commits.store(1))
    assert stored(tmp_path, commits) == ["b"]


class HeldRecords(CommitRecordsInMemory):
    """Writes when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.gate = threading.Event(), threading.Event()
        self.writes = 0

    def put_commits(self, job_id: JobID, commits: bytes) -> None:
        self.writes += 1
        self.inside.set()
        assert self.gate.wait(60)
        super().put_commits(job_id, commits)


def test_parts_of_the_next_run_change_nothing_of_what_is_being_stored(tmp_path: Path) -> None:
    async def body() -> None:
        records = HeldRecords()
        commits = commits_in(tmp_path, records)
        commits.add(part("a", 0))
        first = asyncio.ensure_future(commits.store(0))
        await asyncio.to_thread(records.inside.wait, 60)
        commits.add(part("b", 0, run_number=1))
        second = asyncio.ensure_future(commits.store(1))
        await settled()
        records.gate.set()
        await first
        with pytest.raises(BatchRunError, match="and nothing of run 1"):
            await second
        # Asked again, because the first answer was lost.
        await commits.store(0)
        assert (stored(tmp_path, commits), records.writes) == (["a"], 1)

    run(body())


def test_a_run_that_has_sent_nothing_stores_nothing(tmp_path: Path) -> None:
    commits = commits_in(tmp_path)
    commits.add(part("a", 0))
    with pytest.raises(BatchRunError, match=r"run 1 .* has sent nothing"):
        run(commits.store(1))
    assert commits.blob_key == ""


def test_a_later_master_stores_nothing_beside_what_its_former_one_has_stored(tmp_path: Path) -> None:
    records = CommitRecordsInMemory()
    former = commits_in(tmp_path, records)
    former.add(part("a", 0))
    run(former.store(0))
    commits = commits_in(tmp_path, records)
    run(commits.recover())
    commits.add(part("b", 0))
    with pytest.raises(BatchRunError, match="are stored"):
        run(commits.store(0))
    assert stored(tmp_path, commits) == ["a"]
