"""EventTimeQueries: asks the TaskExecutors of a job for its event time, and finds who holds it back.

Owner: the JobMaster's loop. Nothing here changes the job. A TaskExecutor that does not answer leaves its subtasks
silent. TimeHolders decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

from yarrow.am.execution.execution_graph import Execution, ExecutionGraph
from yarrow.am.jobmaster.event_time.time_holders import AskedTask, TimeHolders
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import ExecutionAttemptID, JobID, ResourceID
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import EventTimeDetails, TaskTimeReport

_log = logging.getLogger(__name__)


class TimeAnswers(Protocol):
    """A gateway that tells event times."""

    async def request_event_times(self, job_id: JobID) -> tuple[TaskTimeReport, ...]:
        """Event time in the tasks of a job."""
        ...


class AskedTaskExecutor(Protocol):
    """A TaskExecutor of the job."""

    @property
    def gateway(self) -> TimeAnswers: ...


class EventTimeQueries:
    """Answers the question for one job."""

    def __init__(
        self, graph: ExecutionGraph, links: Mapping[ResourceID, AskedTaskExecutor], clock: Clock
    ) -> None:
        """`links`: TaskExecutors of the job; the mapping is always current."""
        self._graph = graph
        self._links = links
        self._clock = clock

    async def details(self) -> EventTimeDetails:
        """Event time of the job, operator by operator, and who holds it back."""
        answers = await asyncio.gather(*(self._ask(name, link) for name, link in list(self._links.items())))
        reports = {report.attempt_id: report for answer in answers for report in answer}
        tasks = [self._task(execution, reports) for execution in self._graph.executions()]
        search = TimeHolders(self._graph.job, tasks)
        return EventTimeDetails(
            job_id=self._graph.job.job_id,
            status=self._graph.status,
            now_ms=self._clock.epoch_ms(),
            operators=search.operators(),
            holders=search.holders(),
            silent=search.silent(),
        )

    async def _ask(self, name: ResourceID, link: AskedTaskExecutor) -> tuple[TaskTimeReport, ...]:
        try:
            return await link.gateway.request_event_times(self._graph.job.job_id)
        except YarrowError as error:
            _log.info("TaskExecutor %s does not tell the event times of its tasks: %s", name, error)
            return ()

    @staticmethod
    def _task(execution: Execution, reports: Mapping[ExecutionAttemptID, TaskTimeReport]) -> AskedTask:
        worker = execution.worker
        return AskedTask(
            execution.vertex,
            execution.subtask,
            "" if worker is None else worker.worker_id,
            execution.state is ExecutionState.RUNNING,
            execution.state is ExecutionState.FINISHED,
            reports.get(execution.attempt_id),
        )
