"""Messages of a JobMaster to a TaskExecutor that do not get an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from yarrow.am.jobmaster import task_executor_link
from yarrow.am.jobmaster.task_executor_link import TaskExecutorLink
from yarrow.runtime.common.ids import (
    ExecutionAttemptID,
    JobID,
    JobMasterID,
    JobVertexID,
    OperatorID,
    ResourceID,
)
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.errors import RpcTimeoutError
from yarrow.runtime.rpc.gateways import TaskExecutorGateway
from yarrow.runtime.rpc.messages import Acknowledge, OperatorEvent, ResetSubtask


class Owner:
    """Spawns on the running loop."""

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

    async def reset_subtask(self, leader: JobMasterID, reset: ResetSubtask) -> Acknowledge:
        return self._take(reset)

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
    monkeypatch.setattr(task_executor_link, "RETRY_SECONDS", 0.0)


def link_to(gateway: Deaf) -> TaskExecutorLink:
    return TaskExecutorLink(
        cast(RpcEndpoint, Owner()),
        ResourceID("te"),
        cast(TaskExecutorGateway, gateway),
        JobID("j"),
        JobMasterID("m"),
        lambda attempts, error: None,
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
