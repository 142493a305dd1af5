"""A deployment that comes twice, or when its task has ended, starts nothing again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.cluster.task_executor.conftest import JOB, attempt, cluster, graph_of, task
from tests.unit.container.supervisor.conftest import eventually, run
from yarrow.runtime.common.ids import JobMasterID
from yarrow.runtime.graph.states import ExecutionState

pytestmark = pytest.mark.cluster
JOB_MASTER_ID = JobMasterID("jm-1")


def test_a_deployment_that_comes_twice_or_late_starts_its_tasks_once(start_mode: str, tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster(start_mode, tmp_path) as c:
            slot = await c.active_slot()
            graph = graph_of("hold", "hold")
            await asyncio.gather(*(c.submit(graph, task(0, 0, slot)) for _ in range(2)))
            await eventually(
                lambda: c.job_master.state_of(attempt(0)) is ExecutionState.RUNNING, "the task runs"
            )
            await c.gateway.cancel_tasks(JOB, JOB_MASTER_ID, (attempt(0),))
            await eventually(
                lambda: c.job_master.state_of(attempt(0)) is ExecutionState.CANCELED, "it was cancelled"
            )
            await c.submit(graph, task(0, 0, slot))
            # A worker takes messages in their order: what runs behind it tells that it was passed over.
            await c.submit(graph, task(1, 0, slot))
            await eventually(
                lambda: c.job_master.state_of(attempt(1)) is ExecutionState.RUNNING, "the other runs"
            )
            states = [each.state for each in c.job_master.updates if each.attempt_id == attempt(0)]
            assert states.count(ExecutionState.RUNNING) == 1 and states[-1] is ExecutionState.CANCELED

    run(body())
