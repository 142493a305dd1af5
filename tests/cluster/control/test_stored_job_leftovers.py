"""What a broken connection or a late request may leave in the records of jobs, and that no leader runs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.cluster.control.control_cluster import eventually
from tests.cluster.control.test_leaderships import ByHand, Masters
from tests.support.job_graphs import Stage, linear_job
from tests.unit.runtime.rpc.loops import run, settled
from yarrow.am.dispatcher.refused_jobs import RefusedJobs
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.errors import JobAlreadyEndedError
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.graph.job_graph import JobGraph, encode_job_graph
from yarrow.runtime.ha.records import (
    Change,
    Delete,
    LeaderRecords,
    Put,
    RecordsError,
    UnknownWriteError,
)


class Breaking:
    """Records whose store can be made to answer badly."""

    def __init__(self, inner: LeaderRecords, election: Breakable) -> None:
        self._inner, self._election = inner, election
        self.epoch = inner.epoch

    def read(self, path: str) -> bytes | None:
        return self._inner.read(path)

    def children(self, path: str) -> tuple[str, ...]:
        return self._inner.children(path)

    def write(self, *changes: Change) -> None:
        self._election.before_write(changes)
        self._inner.write(*changes)
        self._election.after_write(changes)


class Breakable(ByHand):
    """An election whose records do so."""

    before_write: Callable[[tuple[Change, ...]], None] = staticmethod(lambda changes: None)
    after_write: Callable[[tuple[Change, ...]], None] = staticmethod(lambda changes: None)

    def records(self, epoch: int) -> LeaderRecords:
        return Breaking(super().records(epoch), self)


@asynccontextmanager
async def leading(directory: Path) -> AsyncIterator[tuple[Masters, Breakable]]:
    cluster = Masters(directory)
    cluster.election = election = Breakable(directory / "ha")
    cluster.plane = cluster.new_plane(None)
    await cluster.plane.start()
    await cluster.lead()
    try:
        yield cluster, election
    finally:
        for executor in cluster.executors:
            await executor.stop()
        await cluster.plane.stop()


def _job_node(graph: JobGraph) -> str:
    return f"jobs/{graph.job_id}"


def _answers_get_lost(election: Breakable, graph: JobGraph) -> list[int]:
    """Of the job's record: stored, and nobody knows; then the store cannot be reached. The number of removals tried."""
    removals = [0]

    def after(changes: tuple[Change, ...]) -> None:
        if any(isinstance(change, Put) and change.path == _job_node(graph) for change in changes):
            raise UnknownWriteError("the connection broke")

    def before(changes: tuple[Change, ...]) -> None:
        if any(isinstance(change, Delete) and change.path == _job_node(graph) for change in changes):
            removals[0] += 1
            raise RecordsError("out of reach")

    election.after_write, election.before_write = after, before
    return removals


def _heal(election: Breakable) -> None:
    election.after_write = election.before_write = lambda changes: None


def test_a_refused_job_that_was_stored_is_removed_when_the_store_is_back(tmp_path: Path) -> None:
    async def body() -> None:
        async with leading(tmp_path) as (cluster, election):
            graph = linear_job(Stage(1))
            removals = _answers_get_lost(election, graph)
            with pytest.raises(UnknownWriteError):
                await cluster.plane.dispatcher.submit_job(encode_job_graph(graph))
            records = election.records(1)
            assert (removals[0], records.children("jobs")) == (1, (graph.job_id,))

            async def tried_again() -> bool:
                await cluster.pass_time(0.5)
                return removals[0] > 2

            await eventually(tried_again)
            _heal(election)

            async def removed() -> bool:
                await cluster.pass_time(0.5)
                return not records.children("jobs")

            await eventually(removed)
            await cluster.follow()
            await cluster.lead()
            assert await cluster.dispatcher.list_jobs() == ()

    run(body())


def test_a_refused_job_that_is_submitted_again_is_not_removed(tmp_path: Path) -> None:
    async def body() -> None:
        async with leading(tmp_path) as (cluster, election):
            graph = linear_job(Stage(1))
            _answers_get_lost(election, graph)
            with pytest.raises(UnknownWriteError):
                await cluster.plane.dispatcher.submit_job(encode_job_graph(graph))
            _heal(election)
            await cluster.submit(graph)
            await cluster.pass_time(20)
            await settled()
            assert election.records(1).read(_job_node(graph))

    run(body())


def test_a_removal_under_way_is_awaited_before_the_job_is_stored_anew() -> None:
    async def body() -> None:
        released, begun = asyncio.Event(), asyncio.Event()
        order: list[str] = []

        async def remove(job_id: JobID) -> None:
            order.append("removes")
            if len(order) == 1:
                raise RecordsError("out of reach")
            begun.set()
            await released.wait()
            order.append("removed")

        refused = RefusedJobs(remove, lambda seconds: asyncio.sleep(0))
        job_id = JobID("ab" * 16)
        assert not await refused.take_back(job_id)
        removing = asyncio.ensure_future(refused.until_removed(job_id))
        await begun.wait()
        again = asyncio.ensure_future(refused.submitted_again(job_id))
        await settled()
        assert not again.done()
        released.set()
        await again
        await removing
        assert order == ["removes", "removes", "removed"]

    run(body())


def test_a_request_to_cancel_that_comes_too_late_makes_no_job(tmp_path: Path) -> None:
    async def body() -> None:
        async with leading(tmp_path) as (cluster, election):
            graph = linear_job(Stage(1))
            job_id = await cluster.submit(graph)
            records = election.records(1)
            dispatcher = cluster.plane.dispatcher
            ended: list[bool] = []
            run_blocking = dispatcher.run_blocking

            async def late(function: Callable[..., object], *args: object, **kwargs: object) -> object:
                if function == dispatcher._store.mark_cancelled and not ended:
                    # Another has cancelled the job, which ends and is removed before this one's mark is stored.
                    ended.append(True)
                    await cluster.dispatcher.cancel_job(job_id)
                    await cluster.result(job_id)
                    await eventually(lambda: not records.children("jobs"))
                return await run_blocking(function, *args, **kwargs)

            dispatcher.run_blocking = late  # type: ignore[method-assign,assignment]
            with pytest.raises(JobAlreadyEndedError):
                await dispatcher.cancel_job(job_id)
            assert ended and records.children("jobs") == ()

    run(body())


def test_a_mark_without_a_job_is_no_job_to_the_next_leader(tmp_path: Path) -> None:
    async def body() -> None:
        async with leading(tmp_path) as (cluster, election):
            # As ZooKeeper makes the node above the mark: empty.
            election.records(1).write(
                Put("jobs/" + "ab" * 16, b""), Put("jobs/" + "ab" * 16 + "/cancelled", b"")
            )
            assert not await cluster.plane.dispatcher.has_unfinished_jobs()
            await cluster.follow()
            await cluster.lead()
            assert await cluster.dispatcher.list_jobs() == ()
            assert election.records(2).children("jobs") == ()
            graph = linear_job(Stage(1))
            await cluster.submit(graph)
            assert await cluster.dispatcher.request_job_status(graph.job_id) is not JobStatus.FAILED
            assert await cluster.plane.dispatcher.has_unfinished_jobs()

    run(body())
