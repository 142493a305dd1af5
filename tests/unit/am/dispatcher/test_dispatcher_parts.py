"""What a Dispatcher stands on: validation, stores, finished jobs, collected rows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from tests.support.job_graphs import Stage, linear_job
from tests.unit.am.jobmaster.scheduling.scheduling import Scheduling
from tests.unit.runtime.rpc.loops import run, settled
from yarrow.am.checkpoint.settings import CheckpointSettings
from yarrow.am.checkpoint.statistics import CheckpointStatisticsTracker
from yarrow.am.dispatcher.finished_jobs import FinishedJob, FinishedJobs
from yarrow.am.dispatcher.validation import decode_and_validate
from yarrow.am.execution.blob_store import BlobNotFoundError, BlobStore
from yarrow.am.jobmaster.collecting.collect_buffer import CollectBuffer
from yarrow.am.jobmaster.details import job_details, job_overview, job_result
from yarrow.client.collected_rows import CollectedRows
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.errors import JobSubmissionError
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.graph.job_graph import JobGraph, encode_job_graph
from yarrow.runtime.rpc.errors import EndpointStoppedError
from yarrow.runtime.rpc.messages import COLLECT_START, CollectPosition, CollectRows
from yarrow.runtime.security.result_proof import SAME_PROCESS
from yarrow.runtime.snapshot.result_rows import ResultReader, ResultStream, ResultWriter

replace = msgspec.structs.replace
GOOD = linear_job(Stage(1), Stage(2))


def with_edge_to_nowhere() -> JobGraph:
    return replace(GOOD, vertices=GOOD.vertices[:1])


def with_unequal_forward() -> JobGraph:
    forward = linear_job(Stage(2), Stage(2)).edges
    return replace(GOOD, edges=forward)


def test_a_good_graph_passes_unchanged() -> None:
    assert decode_and_validate(encode_job_graph(GOOD)) == GOOD


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (replace(GOOD, version=7), r"version 7, this cluster runs version 1: install the same version"),
        (replace(GOOD, job_id=JobID("x")), "'x' is no job id"),
        (replace(GOOD, vertices=()), "has no operators"),
        (replace(GOOD, vertices=GOOD.vertices[:1] * 2), "two vertices"),
        (replace(GOOD, user_code=replace(GOOD.user_code, python_version=(3, 6))), r"built with Python 3\.6"),
        (linear_job(Stage(5, max_parallelism=4)), "parallelism 5 is above its max parallelism 4"),
        (linear_job(Stage(1, max_parallelism=40000)), "above 32768"),
        (linear_job(Stage(0)), "below 1"),
        (with_edge_to_nowhere(), "edge 0 names the vertex"),
        (with_unequal_forward(), "parallelism 1 and 2 differ"),
    ],
)
def test_bad_graphs_are_refused_in_words(graph: JobGraph, message: str) -> None:
    with pytest.raises(JobSubmissionError, match=message):
        decode_and_validate(encode_job_graph(graph))


@pytest.mark.parametrize("data", [b"", b"\xc0", msgspec.msgpack.encode({"version": 1})])
def test_what_is_no_graph_is_refused(data: bytes) -> None:
    with pytest.raises(JobSubmissionError, match="no job graph"):
        decode_and_validate(data)


def test_blobs_of_a_shared_folder_are_found_by_another_master(tmp_path: Path) -> None:
    first = BlobStore(tmp_path / "first", str(tmp_path / "shared"))
    key = first.put(b"abcdef")
    second = BlobStore(tmp_path / "second", str(tmp_path / "shared"))
    assert second.read(key, 2, 3) == (b"cde", 6)
    second.remove(key)
    assert list((tmp_path / "shared").iterdir()) == []
    third = BlobStore(tmp_path / "third", str(tmp_path / "shared"))
    with pytest.raises(BlobNotFoundError, match=key):
        third.require((key,))


def test_a_damaged_blob_of_a_shared_folder_is_not_taken(tmp_path: Path) -> None:
    key = BlobStore(tmp_path / "first", str(tmp_path / "shared")).put(b"abcdef")
    (tmp_path / "shared" / key).write_bytes(b"abcdeX")
    with pytest.raises(BlobNotFoundError, match="damaged"):
        BlobStore(tmp_path / "second", str(tmp_path / "shared")).get(key)


def test_blobs_are_kept_under_their_hash_and_read_in_parts(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "blobs")
    key = store.put(b"abcdef")
    assert store.put(b"abcdef") == key
    assert store.get(key) == b"abcdef"
    assert store.read(key, 2, 3) == (b"cde", 6)
    assert store.read(key, 6, 3) == (b"", 6)
    store.remove(key)
    assert store.get(key) == b"abcdef", "whoever has put it may still submit the job that needs it"
    store.require((key,))
    store.expect_no_more((key,))
    store.remove(key)
    with pytest.raises(BlobNotFoundError, match=key):
        store.get(key)
    with pytest.raises(BlobNotFoundError, match="64 hexadecimal digits"):
        store.get("../secret")


def finished(number: int) -> FinishedJob:
    graph = Scheduling(linear_job(Stage(1), job_id=number)).graph
    checkpoints = CheckpointStatisticsTracker(graph.job, CheckpointSettings(), ManualClock())
    return FinishedJob(job_overview(graph), job_details(graph), job_result(graph), {}, checkpoints)


def test_finished_jobs_go_by_number_and_by_age() -> None:
    clock = ManualClock()
    jobs = FinishedJobs(capacity=2, expiration_seconds=100, clock=clock)
    first, second, third = (finished(number) for number in (1, 2, 3))
    jobs.add(first)
    clock.advance(50)
    jobs.add(second)
    assert jobs.all() == [first, second]
    jobs.add(third)
    assert jobs.all() == [second, third]
    assert jobs.get(first.overview.job_id) is None
    clock.advance(99)
    assert jobs.get(third.overview.job_id) == third
    clock.advance(1)
    assert jobs.all() == []


def rows(subtask: int, sequence: int, count: int, last: bool = False) -> CollectRows:
    return CollectRows(
        job_id=JobID("j"),
        collect_id="c",
        subtask=subtask,
        sequence=sequence,
        payload=f"{subtask}.{sequence}".encode(),
        row_count=count,
        last=last,
    )


def test_rows_do_not_end_where_the_job_goes_on_under_another_master() -> None:
    async def body() -> None:
        buffer = CollectBuffer(JobID("j"), "c", subtasks=1, max_rows=10, version="m")
        waiting = asyncio.ensure_future(buffer.fetch(100))
        await asyncio.sleep(0)
        await buffer.abandon()
        with pytest.raises(EndpointStoppedError, match="another master"):
            await waiting
        ended = CollectBuffer(JobID("j"), "c", subtasks=1, max_rows=10, version="m")
        await ended.close(complete=True)
        await ended.abandon()
        assert (await ended.fetch(100))[0].last

    asyncio.run(body())


def test_a_subtask_is_told_when_it_may_end() -> None:
    async def body() -> None:
        buffer = CollectBuffer(JobID("j"), "c", subtasks=2, max_rows=100, version="m")
        await buffer.push(rows(0, 0, 3, last=True))
        question = msgspec.structs.replace(rows(0, -1, 0), awaits=True)
        answer = asyncio.ensure_future(buffer.settle(question))
        (first,) = await buffer.fetch(100)
        await asyncio.sleep(0)
        assert not answer.done(), "the client has not said that it has them"
        more = asyncio.ensure_future(buffer.fetch(100, CollectPosition(version="m", delivery=first.delivery)))
        await asyncio.wait_for(answer, 120)
        await buffer.push(rows(1, 0, 3, last=True))
        other = asyncio.ensure_future(buffer.settle(msgspec.structs.replace(rows(1, -1, 0), awaits=True)))
        await more
        buffer.release()
        await buffer.wake()
        await asyncio.wait_for(other, 120)

    asyncio.run(body())


def test_collected_rows_come_in_order_and_end_with_the_job() -> None:
    async def body() -> None:
        buffer = CollectBuffer(JobID("j"), "c", subtasks=2, max_rows=10, version="m")
        await buffer.push(rows(0, 0, 3))
        await buffer.push(rows(0, 0, 3))
        await buffer.push(rows(1, 0, 3, last=True))
        assert [(r.payload, r.last) for r in await buffer.fetch(100)] == [(b"0.0", False), (b"1.0", False)]
        waiting = asyncio.ensure_future(buffer.fetch(100, CollectPosition(version="m", delivery=1)))
        await settled()
        assert not waiting.done()
        await buffer.push(rows(0, 1, 0, last=True))
        await settled()
        assert not waiting.done()
        await buffer.close(complete=True)
        (end,) = await waiting
        assert end.complete
        assert (end.last, end.row_count) == (True, 0)
        assert (await buffer.fetch(1, CollectPosition(version="m", delivery=1)))[0].last

    run(body())


def test_a_full_buffer_holds_the_operator_up_and_loses_nothing() -> None:
    async def body() -> None:
        buffer = CollectBuffer(JobID("j"), "c", subtasks=1, max_rows=5, version="m")
        assert (await buffer.push(rows(0, 0, 4))).positions == {}
        held = asyncio.ensure_future(buffer.push(rows(0, 1, 4)))
        await settled()
        assert not held.done()
        for position in (COLLECT_START, COLLECT_START, CollectPosition(version="another", delivery=7)):
            assert [r.sequence for r in await buffer.fetch(4, position)] == [0]
            await settled()
            assert not held.done(), "what was handed out may have been lost"
        assert [r.sequence for r in await buffer.fetch(1, CollectPosition(version="m", delivery=0))] == [1]
        assert (await held).positions == {"": 4}

    run(body())


def test_the_end_of_the_job_ends_everything() -> None:
    async def body() -> None:
        buffer = CollectBuffer(JobID("j"), "c", subtasks=1, max_rows=1, version="m")
        held = asyncio.ensure_future(buffer.push(rows(0, 0, 4)))
        await settled()
        await buffer.close(complete=False)
        await held
        assert [r.row_count for r in await buffer.fetch(1)] == [4]
        assert (await buffer.fetch(1, CollectPosition(version="m", delivery=0)))[0].last

    run(body())


def test_large_rows_hold_the_operator_up_too() -> None:
    async def body() -> None:
        buffer = CollectBuffer(JobID("j"), "c", subtasks=1, max_rows=100, version="m")
        large = structs.replace(rows(0, 0, 0), payload=bytes(2 << 20), continued=True)
        held = asyncio.ensure_future(buffer.push(large))
        await settled()
        assert not held.done()
        assert [r.continued for r in await buffer.fetch(100)] == [True]
        waiting = asyncio.ensure_future(buffer.fetch(100, CollectPosition(version="m", delivery=0)))
        assert (await held).positions == {}
        await buffer.push(rows(0, 1, 1))
        assert [r.row_count for r in await waiting] == [1]

    run(body())


def test_what_a_former_attempt_sent_confirms_nothing_of_the_next() -> None:
    async def body() -> None:
        buffer = CollectBuffer(JobID("j"), "c", subtasks=1, max_rows=100, version="m")
        await buffer.push(rows(0, 0, 9))
        buffer.restarts(0)
        again = [structs.replace(rows(0, number, 1), attempt_number=1, first=number) for number in range(2)]
        await buffer.push(again[0])
        await buffer.fetch(100)
        waiting = asyncio.ensure_future(buffer.fetch(100, CollectPosition(version="m", delivery=0)))
        await settled()
        assert (await buffer.push(structs.replace(again[1], row_count=2))).positions == {}
        await waiting
        waiting = asyncio.ensure_future(buffer.fetch(100, CollectPosition(version="m", delivery=1)))
        await settled()
        late = structs.replace(rows(0, 5, 1))
        assert (await buffer.push(late)).positions == {}
        assert (await buffer.push(structs.replace(again[1], sequence=2))).positions == {"": 1}
        await waiting

    run(body())


def test_a_restarted_subtask_begins_anew_and_its_former_attempt_is_not_heard() -> None:
    async def body() -> None:
        buffer = CollectBuffer(JobID("j"), "c", subtasks=1, max_rows=10, version="m")
        again = [structs.replace(rows(0, number, 1), attempt_number=1) for number in range(2)]
        await buffer.push(rows(0, 0, 1))
        await buffer.push(rows(0, 1, 1, last=True))
        buffer.restarts(0)
        await buffer.push(again[0])
        await buffer.push(rows(0, 2, 1))
        found = [(r.attempt_number, r.sequence) for r in await buffer.fetch(100)]
        assert found == [(0, 0), (0, 1), (1, 0)]
        await buffer.push(structs.replace(again[1], last=True))
        position = CollectPosition(version="m", delivery=2)
        assert [r.last for r in await buffer.fetch(100, position)] == [False]

    run(body())


def test_a_row_that_a_former_attempt_left_unfinished_is_dropped() -> None:
    stream = ResultStream("j", "c")
    collected = CollectedRows(ResultReader(stream, SAME_PROCESS).load)
    whole = ResultWriter(stream, b"").dump(["row"])
    part = structs.replace(rows(0, 0, 0), payload=whole[:3], continued=True)
    assert collected.take([part]) == []
    assert collected.take([structs.replace(rows(0, 0, 1), payload=whole, attempt_id="second")]) == ["row"]
