"""The progress that YARN shows of an application with one job: the part of its subtasks that have finished.

Owner: the master's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from yarrow.am.deployment_modes.cluster import RunningCluster
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import ExecutionGraphDetails

#: Seconds between two reports; YARN itself learns of it with the next heartbeat.
_INTERVAL = 5.0


def progress_of(job: ExecutionGraphDetails) -> float:
    """0.0 to 1.0; an unbounded job stays at 0."""
    states = [subtask.state for vertex in job.vertices for subtask in vertex.subtasks]
    return states.count(ExecutionState.FINISHED) / len(states) if states else 0.0


@contextlib.asynccontextmanager
async def following(cluster: RunningCluster, job_id: JobID) -> AsyncIterator[None]:
    """Reports the job's progress inside the block."""
    task = asyncio.create_task(_follow(cluster, job_id), name="progress")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _follow(cluster: RunningCluster, job_id: JobID) -> None:
    dispatcher = cluster.plane.dispatcher_gateway()
    while True:
        with contextlib.suppress(YarrowError):
            cluster.report_progress(progress_of(await dispatcher.request_job_details(job_id)))
        await asyncio.sleep(_INTERVAL)
