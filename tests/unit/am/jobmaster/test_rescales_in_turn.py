"""Rescales of one job: one at a time, what follows waits where it is told to, all are remembered."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import structs

from tests.unit.am.jobmaster.test_rescaling import keyed
from tests.unit.runtime.snapshot.test_metadata import METADATA
from yarrow.am.checkpoint.completed import CompletedCheckpoint
from yarrow.am.jobmaster.rescaling import RescaleFailedError, RescaleRefusedError, Rescaling
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.ids import JobVertexID, RandomIdFactory
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.messages import FailureCause


class Job:
    """Rescales as soon as it is let."""

    def __init__(self) -> None:
        self.graph = keyed(2, 2)
        self.let = asyncio.Event()
        self.rescaling = Rescaling(self, ManualClock(), RandomIdFactory())
        #: What happened, in order.
        self.steps: list[str] = []
        self.has_slots = True

    def hold_slots_for(self, job: JobGraph) -> None:
        self.steps.append(f"slots for {job.vertices[1].parallelism}")
        if self.has_slots:
            self.rescaling.slots_answered(None)

    def let_slots_go(self) -> None:
        self.steps.append("slots go")

    async def stop_with_checkpoint(self) -> CompletedCheckpoint:
        self.steps.append("stop")
        await self.let.wait()
        metadata = structs.replace(METADATA, operators=())
        return CompletedCheckpoint(
            checkpoint_id=1, kind=SnapshotKind.RESCALE, metadata=metadata, directory="", pointer=""
        )

    async def go_on_as(self, job: JobGraph) -> None:
        self.steps.append("go on")
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


def failure(text: str) -> FailureCause:
    return FailureCause(exception_name="", message=text, stacktrace=text)


def test_a_job_is_stopped_when_it_has_its_slots_and_not_before() -> None:
    async def body() -> None:
        job = Job()
        job.let.set()
        job.has_slots = False
        rescale = asyncio.create_task(job.rescale(3))
        await asyncio.sleep(0)
        assert job.steps == ["slots for 3"]
        job.rescaling.slots_answered(None)
        await rescale
        assert job.steps == ["slots for 3", "stop", "go on", "slots go"]

    asyncio.run(body())


@pytest.mark.parametrize("how", ["no slots", "the job has ended"])
def test_a_job_whose_slots_do_not_come_is_never_stopped(how: str) -> None:
    async def body() -> None:
        job = Job()
        job.has_slots = False
        rescale = asyncio.create_task(job.rescale(3))
        await asyncio.sleep(0)
        if how == "no slots":
            job.rescaling.slots_answered(failure(how))
        else:
            job.rescaling.ended(failure(how))
        with pytest.raises(RescaleFailedError, match=f"was not rescaled: {how}"):
            await rescale
        assert job.steps == ["slots for 3", "slots go"]
        assert [(record.state, record.reason) for record in job.rescaling.history] == [("FAILED", how)]
        job.has_slots = True
        job.let.set()
        await job.rescale(4)
        assert job.graph.vertices[1].parallelism == 4

    asyncio.run(body())
