"""SlotTasks refuses a deployment for a slot or a worker that is not the one that its JobMaster means."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tests.cluster.task_executor.conftest import attempt, graph_of, task
from tests.unit.container.supervisor.test_slot_table import JOB, OTHER_JOB, A, make_table
from yarrow.container.protocol.errors import SlotNotAvailableError
from yarrow.container.supervisor.slot_tasks import SlotTasks
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.ids import JobID, JobMasterID, JobVertexID, ResourceID, WorkerID
from yarrow.runtime.common.timers import LoopTimers
from yarrow.runtime.graph.job_graph import encode_job_graph
from yarrow.runtime.rpc.messages import Deployment, VertexPlacement, WorkerAddress

WORKER = WorkerID("te-1/2")


class Handle:
    """The supervisor's end of a worker."""

    def __init__(self, *, is_ready: bool = True) -> None:
        self.worker_id = WORKER
        self.is_ready = is_ready
        self.sent: list[Any] = []

    def send(self, message: Any) -> None:
        self.sent.append(message)


class Slots:
    """Slot 0 has the allocation A of a job."""

    def __init__(self, job: JobID = JOB, handle: Handle | None = None) -> None:
        self.table = make_table()
        self.table.allocate(0, job, A)
        workers = {} if handle is None else {0: SimpleNamespace(handle=handle)}
        self.workers = cast(Any, SimpleNamespace(get=workers.get))
        self.checkpoints = cast(Any, SimpleNamespace(tasks_started=lambda graph, tasks: None))
        self._job = SimpleNamespace(
            job_id=JOB, deploying=set(), cancelled_early=set(), files=SimpleNamespace(fetch=_no_files)
        )

    def job(self, job_id: JobID, job_master_id: JobMasterID) -> Any:
        return self._job


async def _no_files(keys: Iterable[str]) -> dict[str, str]:
    assert not list(keys)
    return {}


def deployment(worker: WorkerID | None = None) -> Deployment:
    """One task in the slot; its placement says that it is for that worker."""
    address = WorkerAddress(
        worker_id=worker or WORKER,
        resource_id=ResourceID("te-1"),
        host="127.0.0.1",
        port=0,
        unix_path="",
        host_key="",
    )
    placement = VertexPlacement(vertex_id=JobVertexID("v0"), graph_id="g", workers=(0, 0), attempts=(0, 0))
    return Deployment(
        job_id=JOB,
        job_master_id=JobMasterID("jm-1"),
        job_graph=encode_job_graph(msgspec.structs.replace(graph_of("hold"), job_id=JOB)),
        workers=(address,),
        placements=(placement,),
        tasks=(task(0, 0, A),),
    )


def submit(slots: Slots, wanted: Deployment) -> None:
    tasks = SlotTasks(slots, "te-1", ManualClock(), LoopTimers(), cancellation_timeout=0)
    asyncio.run(tasks.submit(wanted))


def test_tasks_reach_the_worker_that_is_meant() -> None:
    handle = Handle()
    submit(Slots(handle=handle), deployment())
    (message,) = handle.sent
    assert [each.attempt_id for each in message.deployment.tasks] == [attempt()]


def test_a_slot_that_is_being_freed_takes_no_tasks() -> None:
    slots = Slots(handle=(handle := Handle()))
    slots.table.release(A, "done")
    with pytest.raises(SlotNotAvailableError, match=r"slot 0 .* is being freed"):
        submit(slots, deployment())
    assert not handle.sent


def test_a_slot_of_another_job_takes_no_tasks() -> None:
    with pytest.raises(SlotNotAvailableError, match=f"another job than {JOB}"):
        submit(Slots(OTHER_JOB, handle := Handle()), deployment())
    assert not handle.sent


@pytest.mark.parametrize("handle", [None, Handle(is_ready=False)])
def test_a_slot_whose_worker_is_not_ready_takes_no_tasks(handle: Handle | None) -> None:
    with pytest.raises(SlotNotAvailableError, match="request a slot again"):
        submit(Slots(handle=handle), deployment())
    assert handle is None or not handle.sent


def test_tasks_for_a_worker_that_has_ended_do_not_start_in_the_next_one() -> None:
    handle = Handle()
    with pytest.raises(SlotNotAvailableError, match=f"meant for the worker te-1/1, .* {WORKER} now"):
        submit(Slots(handle=handle), deployment(WorkerID("te-1/1")))
    assert not handle.sent
