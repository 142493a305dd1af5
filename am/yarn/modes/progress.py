"""The progress of an application in YARN: the finished part of its jobs' subtasks.

Owner: the master's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable

from yarrow.am.yarn.modes.cluster import RunningCluster
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import ExecutionGraphDetails

#: Seconds between two reports; YARN itself hears of it with the next heartbeat.
_INTERVAL = 5.0


def progress_of(jobs: Iterable[ExecutionGraphDetails]) -> float:
    """0.0 to 1.0, over the present jobs; unbounded ones stay at 0."""
    states = [subtask.state for job in jobs for vertex in job.vertices for subtask in vertex.subtasks]
    return states.count(ExecutionState.FINISHED) / len(states) if states else 0.0


@contextlib.asynccontextmanager
async def following(cluster: RunningCluster) -> AsyncIterator[None]:
    """Reports the progress of all jobs while the block runs."""
    task = asyncio.create_task(_follow(cluster), name="progress")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _follow(cluster: RunningCluster) -> None:
    dispatcher = cluster.plane.dispatcher_gateway()
    while True:
        with contextlib.suppress(YarrowError):
            jobs = [job.job_id for job in await dispatcher.list_jobs()]
            cluster.report_progress(progress_of([await dispatcher.request_job_details(job) for job in jobs]))
        await asyncio.sleep(_INTERVAL)
