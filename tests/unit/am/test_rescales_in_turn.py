"""Rescales of one job: one at a time, what follows waits where it is told to, all are remembered."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import structs

from tests.unit.am.test_rescaling import keyed
from tests.unit.snapshot.test_metadata import METADATA
from yarrow.am.checkpoint.completed import CompletedCheckpoint
from yarrow.am.jobmaster.rescaling import RescaleRefusedError, Rescaling
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.ids import JobVertexID, RandomIdFactory
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.snapshot.options import SnapshotKind


class Job:
    """Rescales as soon as it is let."""

    def __init__(self) -> None:
        self.graph = keyed(2, 2)
        self.let = asyncio.Event()
        self.rescaling = Rescaling(self, ManualClock(), RandomIdFactory())

    async def stop_with_checkpoint(self) -> CompletedCheckpoint:
        await self.let.wait()
        metadata = structs.replace(METADATA, operators=())
        return CompletedCheckpoint(
            checkpoint_id=1, kind=SnapshotKind.RESCALE, metadata=metadata, directory="", pointer=""
        )

    async def go_on_as(self, job: JobGraph) -> None:
        self.graph = job
        self.rescaling.ended(None)

    async def rescale(self, parallelism: int, waits: bool = False) -> None:
        if waits:
            await self.rescaling.idle()
        wanted = {self.graph.vertices[1].id: parallelism}
        await self.rescaling.rescale(self.graph, wanted, f"to {parallelism}")


def test_who_does_not_wait_is_refused_and_the_last_of_those_who_wait_has_its_way() -> None:
    async def body() -> None:
        job = Job()
        first = asyncio.create_task(job.rescale(3))
        await asyncio.sleep(0)
        with pytest.raises(RescaleRefusedError, match="being rescaled already"):
            await job.rescale(4)
        waiting = [asyncio.create_task(job.rescale(wanted, waits=True)) for wanted in (5, 6)]
        await asyncio.sleep(0)
        assert [record.state for record in job.rescaling.history] == ["IN_PROGRESS"]
        job.let.set()
        await asyncio.gather(first, *waiting)
        assert [vertex.parallelism for vertex in job.graph.vertices] == [2, 6]
        told = [(record.trigger_cause, record.state) for record in job.rescaling.history]
        assert told == [("to 3", "COMPLETED"), ("to 5", "COMPLETED"), ("to 6", "COMPLETED")]

    asyncio.run(body())


def test_what_cannot_be_is_remembered_with_its_reason() -> None:
    async def body() -> None:
        job = Job()
        with pytest.raises(RescaleRefusedError):
            await job.rescale(10_000)
        with pytest.raises(RescaleRefusedError):
            await job.rescaling.rescale(job.graph, {JobVertexID("f" * 32): 1}, "an unknown vertex")
        above, unknown = job.rescaling.history
        assert (above.state, unknown.state) == ("FAILED", "FAILED")
        assert "its max parallelism" in above.reason and "no vertex" in unknown.reason
        assert list(above.before.values()) == [2, 2] and list(above.after.values()) == [2, 10_000]
        assert above.end_ms >= above.start_ms

    asyncio.run(body())
