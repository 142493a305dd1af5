"""TaskExecutorHeartbeats: who of a job's TaskExecutors is alive, and what it says that it runs.

Owner: the JobMaster's loop. A part of the JobMaster class, apart from scheduling: the scheduler is told what is lost.
A task that only one side knows is cancelled there or has failed here.
"""

from __future__ import annotations

import logging

from yarrow.am.execution.errors import TaskExecutorLostError, failure_of
from yarrow.am.jobmaster.links.task_executor_link import TaskExecutorLink
from yarrow.am.jobmaster.scheduler_decisions import SchedulerDecisions
from yarrow.am.jobmaster.scheduling.scheduler_events import TaskExecutorLost, TasksLost
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import ExecutionAttemptID, ResourceID
from yarrow.runtime.rpc.heartbeat import HeartbeatMonitor
from yarrow.runtime.rpc.messages import AllocatedSlotReport, TaskExecutorToJobMasterHeartbeat

_log = logging.getLogger(__name__)


class TaskExecutorHeartbeats(SchedulerDecisions):
    """The methods of a JobMaster that keep in touch with its TaskExecutors."""

    _beats: HeartbeatMonitor[ResourceID]

    def _beat(self) -> None:
        beats = self._beats.tick()
        for resource_id in beats.silent:
            seconds = self._settings.heartbeat.timeout
            self._give_up(resource_id, f"no heartbeat for {seconds:g} s (heartbeat.timeout)")
        for resource_id in beats.ask:
            link = self._links[resource_id]
            if not link.asking:
                link.asking = True
                self.spawn(self._ask(link), f"heartbeat {resource_id}")
        self._resource_manager.beat()

    async def _ask(self, link: TaskExecutorLink) -> None:
        report = AllocatedSlotReport(
            job_id=self.graph.job.job_id, allocations=self._pool.allocations_of(link.resource_id)
        )
        known = frozenset(link.acknowledged)
        try:
            payload = await link.gateway.heartbeat_from_job_master(self.leader_id, report)
        except YarrowError as error:
            _log.info("%s: no heartbeat from %s: %s", self.name, link.resource_id, error)
            link.failed_heartbeats += 1
            if link.failed_heartbeats >= self._settings.heartbeat.failure_threshold > 0:
                self._give_up(link.resource_id, f"it cannot be reached: {error}")
        else:
            link.failed_heartbeats = 0
            self._take_payload(link, payload)
            self._heal(link, payload, known)
        finally:
            link.asking = False

    def _take_payload(self, link: TaskExecutorLink, payload: TaskExecutorToJobMasterHeartbeat) -> None:
        self._beats.heard(link.resource_id)
        for metrics in payload.metrics:
            execution = self.graph.execution(metrics.attempt_id)
            if execution is not None and not execution.state.is_terminal:
                execution.metrics = metrics.values
        for report in payload.accumulators:
            execution = self.graph.execution(report.attempt_id)
            if execution is not None and not execution.state.is_terminal:
                execution.accumulators = report.values

    def _heal(
        self,
        link: TaskExecutorLink,
        payload: TaskExecutorToJobMasterHeartbeat,
        known: frozenset[ExecutionAttemptID],
    ) -> None:
        """Tasks that only one side knows: cancelled there, or failed here when lacking twice in a row."""
        running = set(payload.running)
        stray = [attempt for attempt in running if self._is_over(attempt)]
        if stray:
            link.cancel(tuple(stray))
        over = {attempt for attempt in known if self._is_over(attempt)}
        link.acknowledged -= over
        lacking = known - over - running
        lost = lacking & link.suspects
        link.suspects = lacking - lost
        if lost:
            text = f"TaskExecutor {link.resource_id} does not have the task any more: its message was lost"
            cause = failure_of(TaskExecutorLostError, text)
            self._decide(TasksLost(self._now(), tuple(lost), cause))

    def _is_over(self, attempt: ExecutionAttemptID) -> bool:
        execution = self.graph.execution(attempt)
        return execution is None or execution.state.is_terminal

    def _give_up(self, resource_id: ResourceID, why: str) -> None:
        """Like losing it, but it may be alive: it is told, so that it frees what it holds for the job."""
        link = self._links.get(resource_id)
        self._lose_task_executor(resource_id, why)
        if link is not None:
            self.spawn(self._say_goodbye(link, why), f"goodbye {resource_id}")

    async def _say_goodbye(self, link: TaskExecutorLink, why: str) -> None:
        try:
            await link.gateway.disconnect_job_master(self.graph.job.job_id, self.leader_id, why)
        except YarrowError as error:
            _log.debug("TaskExecutor %s does not answer: %s", link.resource_id, error)

    def _lose_task_executor(self, resource_id: ResourceID, why: str) -> None:
        self.assert_main_thread()
        self._beats.unmonitor(resource_id)
        link = self._links.pop(resource_id, None)
        if link is None:
            return
        link.close()
        cause = failure_of(TaskExecutorLostError, f"TaskExecutor {resource_id} is lost: {why}")
        self._decide(TaskExecutorLost(self._now(), resource_id, cause))
