"""Messages of a JobMaster to a TaskExecutor that do not get an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.manual_timers import ManualTimers
from yarrow.am.execution.blob_store import BlobStore
from yarrow.am.jobmaster.links import task_executor_link
from yarrow.am.jobmaster.links.task_executor_link import LinkServices, TaskExecutorLink
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.ids import (
    AllocationID,
    ExecutionAttemptID,
    JobID,
    JobMasterID,
    JobVertexID,
    OperatorID,
    ResourceID,
)
from yarrow.runtime.common.timers import LoopTimers, Timers
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.errors import RpcTimeoutError
from yarrow.runtime.rpc.gateways import TaskExecutorGateway
from yarrow.runtime.rpc.messages import (
    Acknowledge,
    Deployment,
    OperatorEvent,
    ResetSubtask,
    TaskDeploymentDescriptor,
    WatermarkBounds,
)
from yarrow.runtime.rpc.restored_tasks import with_restored
from yarrow.runtime.snapshot.handles import InlineStateHandle, OperatorStateHandle, OperatorSubtaskState


class Owner:
    """Spawns on the running loop."""

    async def run_blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.to_thread(function, *arguments)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return asyncio.create_task(work, name=name)


class Deaf:
    """Answers only when it was asked often enough."""

    def __init__(self, lost: int) -> None:
        self.lost = lost
        self.taken: list[object] = []

    def _take(self, message: object) -> Acknowledge:
        self.taken.append(message)
        if self.lost > 0:
            self.lost -= 1
            raise RpcTimeoutError("no answer")
        return Acknowledge()

    async def send_operator_event(self, leader: JobMasterID, event: OperatorEvent) -> Acknowledge:
        return self._take(event)

    async def send_watermark_bounds(self, leader: JobMasterID, bounds: WatermarkBounds) -> Acknowledge:
        return self._take(bounds)

    async def reset_subtask(self, leader: JobMasterID, reset: ResetSubtask) -> Acknowledge:
        return self._take(reset)

    async def submit_tasks(self, deployment: Deployment) -> Acknowledge:
        return self._take(deployment)

    async def cancel_tasks(self, job: JobID, leader: JobMasterID, attempts: object) -> Acknowledge:
        return self._take("cancel")

    async def disconnect_job_master(self, job: JobID, leader: JobMasterID, cause: str) -> Acknowledge:
        return self._take("disconnect")


EVENT = OperatorEvent(
    job_id=JobID("j"),
    vertex_id=JobVertexID("v"),
    operator_id=OperatorID("o"),
    target_subtask=1,
    source_subtask=-1,
    payload=b"",
)
RESET = ResetSubtask(
    job_id=JobID("j"),
    operator_id=OperatorID("o"),
    subtask=1,
    attempt_id=ExecutionAttemptID("a"),
    checkpoint_id=1,
)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for pause in ("FIRST_PAUSE_SECONDS", "LONGEST_PAUSE_SECONDS"):
        monkeypatch.setattr(task_executor_link, pause, 0.0)


def link_to(
    gateway: Deaf, blobs: Path = Path("never made"), inline: int = 1000, timers: Timers | None = None
) -> TaskExecutorLink:
    return TaskExecutorLink(
        cast(RpcEndpoint, Owner()),
        ResourceID("te"),
        cast(TaskExecutorGateway, gateway),
        JobID("j"),
        JobMasterID("m"),
        lambda attempts, error: None,
        LinkServices(ManualClock(), timers or LoopTimers(), BlobStore(blobs), inline),
    )


def test_what_readers_and_enumerators_wait_for_is_repeated_in_its_order() -> None:
    async def run() -> list[object]:
        gateway = Deaf(lost=3)
        link = link_to(gateway)
        link.reset_subtask(RESET)
        link.send_event(EVENT)
        link.cancel((ExecutionAttemptID("a"),))
        await link.drained()
        return gateway.taken

    assert asyncio.run(run()) == [RESET] * 4 + [EVENT, "cancel"]


def test_a_task_executor_that_is_left_is_not_asked_for_ever() -> None:
    async def run() -> list[object]:
        gateway = Deaf(lost=1000)
        link = link_to(gateway)
        link.send_event(EVENT)
        link.disconnect("the job is over")
        await link.drained()
        return gateway.taken

    assert asyncio.run(run()) == [EVENT, "disconnect"]


def test_one_that_is_given_up_is_not_asked_any_more() -> None:
    async def run() -> int:
        gateway = Deaf(lost=1000)
        link = link_to(gateway)
        link.send_event(EVENT)
        await asyncio.sleep(0)
        link.close()
        await link.drained()
        return len(gateway.taken)

    assert asyncio.run(run()) < 10


@pytest.mark.parametrize("end", ["disconnect", "close"])
def test_nothing_is_sent_behind_the_end(end: str) -> None:
    async def run() -> list[object]:
        gateway = Deaf(lost=0)
        link = link_to(gateway)
        if end == "close":
            link.close()
        else:
            link.disconnect("the job is over")
        link.send_event(EVENT)
        link.cancel((ExecutionAttemptID("a"),))
        await link.drained()
        link.send_event(EVENT)
        await link.drained()
        return gateway.taken

    assert asyncio.run(run()) == (["disconnect"] if end == "disconnect" else [])


async def settled() -> None:
    """Lets everything run that waits for no timer."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("end", ["disconnect", "close"])
def test_a_message_is_repeated_after_pauses_that_grow(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setattr(task_executor_link, "FIRST_PAUSE_SECONDS", 1.0)
    monkeypatch.setattr(task_executor_link, "LONGEST_PAUSE_SECONDS", 4.0)

    async def run() -> None:
        gateway, timers = Deaf(lost=1000), ManualTimers(ManualClock())
        link = link_to(gateway, timers=timers)
        link.send_event(EVENT)
        # Chance shortens each pause, never to nothing.
        for tried, longest in enumerate((1.0, 2.0, 4.0, 4.0), 1):
            await settled()
            assert (len(gateway.taken), timers.pending) == (tried, 1)
            timers.advance(longest)
        await settled()
        if end == "close":
            link.close()
        else:
            link.disconnect("the job is over")
        await link.drained()
        assert timers.pending == 0, "it waits for no other try"
        assert gateway.taken[5:] == ([] if end == "close" else [EVENT, "disconnect"])

    asyncio.run(run())


def test_newer_bounds_replace_those_that_wait() -> None:
    def bounds(**readers: int) -> WatermarkBounds:
        named = {ExecutionAttemptID(name): bound for name, bound in readers.items()}
        return WatermarkBounds(job_id=JobID("j"), bounds=named)

    async def run() -> list[object]:
        gateway = Deaf(lost=0)
        link = link_to(gateway)
        link.send_bounds(bounds(first=1, second=1))
        link.send_bounds(bounds(other=5))
        link.send_bounds(bounds(first=2, second=2))
        await link.drained()
        return gateway.taken

    assert asyncio.run(run()) == [bounds(other=5), bounds(first=2, second=2)]


def deployment(state: bytes) -> Deployment:
    """Three tasks: one with state, one with an enumerator's, one that begins anew."""
    restored = OperatorSubtaskState(
        operator=(OperatorStateHandle(states=(), handle=InlineStateHandle(data=state)),)
    )
    parts: list[dict[str, Any]] = [
        {"restore": {OperatorID("o"): restored}},
        {"restore_coordinator": InlineStateHandle(data=state)},
        {},
    ]
    return Deployment(
        job_id=JobID("j"),
        job_master_id=JobMasterID("m"),
        job_graph=b"graph",
        workers=(),
        placements=(),
        tasks=tuple(
            TaskDeploymentDescriptor(
                attempt_id=ExecutionAttemptID(f"a{number}"),
                vertex_id=JobVertexID("v"),
                subtask=number,
                attempt_number=1,
                allocation_id=AllocationID("s"),
                **part,
            )
            for number, part in enumerate(parts)
        ),
    )


class Fetching(Deaf):
    """A TaskExecutor that fetches what tasks restore."""

    def __init__(self, blobs: Path, lost: int = 0) -> None:
        super().__init__(lost)
        self._blobs = blobs

    async def submit_tasks(self, deployment: Deployment) -> Acknowledge:
        if not deployment.restored_blob_key:
            return self._take(deployment)
        assert not any(task.restore or task.restore_coordinator for task in deployment.tasks)
        return self._take(with_restored(deployment, BlobStore(self._blobs).get(deployment.restored_blob_key)))


@pytest.mark.parametrize("lost", [0, 1])
def test_what_tasks_restore_travels_apart_where_it_is_long(tmp_path: Path, lost: int) -> None:
    async def run(sent: Deployment) -> Fetching:
        gateway = Fetching(tmp_path, lost)
        link = link_to(gateway, tmp_path)
        link.submit(sent)
        link.cancel((ExecutionAttemptID("a0"),))
        await link.drained()
        return gateway

    for size in (10, 5000):
        sent = deployment(b"x" * size)
        assert asyncio.run(run(sent)).taken == [sent, "cancel"]
        assert not list(tmp_path.iterdir()), "nothing of it stays"
