"""RegisteredTaskExecutors: the TaskExecutors that are registered with a JobMaster, with their heartbeats.

Owner: the JobMaster's loop. A loss, an offer or a failure becomes an event for the scheduler; must not decide
what follows. A task that only one side knows is cancelled there or failed here.
"""

from __future__ import annotations

import asyncio
import logging

from yarrow.am.execution.errors import TaskExecutorLostError, UnknownTaskExecutorError, failure_of
from yarrow.am.jobmaster.decide import Decide
from yarrow.am.jobmaster.links.task_executor_link import LinkServices, TaskExecutorLink
from yarrow.am.jobmaster.missing_slots import MissingSlots
from yarrow.am.jobmaster.scheduling.job_scheduler import JobScheduler
from yarrow.am.jobmaster.scheduling.scheduler_actions import CancelTasksAction, FreeSlot, SlotsAccepted
from yarrow.am.jobmaster.scheduling.scheduler_events import (
    JobFailed,
    SlotLost,
    SlotsOffered,
    TaskExecutorLost,
    TasksLost,
)
from yarrow.am.jobmaster.scheduling.settings import JobMasterSettings
from yarrow.am.jobmaster.services import JobMasterServices
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import AllocationID, ExecutionAttemptID, JobMasterID, ResourceID
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.gateway_type import TASK_EXECUTOR
from yarrow.runtime.rpc.heartbeat import HeartbeatMonitor
from yarrow.runtime.rpc.messages import (
    Acknowledge,
    AllocatedSlotReport,
    FailureCause,
    RegistrationRejection,
    RegistrationSuccess,
    SlotOffer,
    TaskExecutorToJobMasterHeartbeat,
)

_log = logging.getLogger(__name__)


class RegisteredTaskExecutors:
    """The TaskExecutors of one job, each behind its link."""

    def __init__(
        self,
        owner: RpcEndpoint,
        leader_id: JobMasterID,
        scheduler: JobScheduler,
        missing_slots: MissingSlots,
        services: JobMasterServices,
        settings: JobMasterSettings,
        decide: Decide,
    ) -> None:
        #: By TaskExecutor id; always current.
        self.links: dict[ResourceID, TaskExecutorLink] = {}
        self._owner = owner
        self._leader_id = leader_id
        self._graph = scheduler.graph
        self._pool = scheduler.pool
        self._missing_slots = missing_slots
        self._services = services
        self._settings = settings
        self._decide = decide
        self._beats: HeartbeatMonitor[ResourceID] = HeartbeatMonitor(settings.heartbeat, services.clock)
        #: Slots to free at the end of the job.
        self._last_slots: list[FreeSlot] = []

    def _now(self) -> float:
        return self._services.clock.monotonic()

    # Messages from TaskExecutors.

    def register(self, resource_id: ResourceID, address: str) -> RegistrationSuccess | RegistrationRejection:
        """Registers a TaskExecutor, for the first time or again; refuses it once the job has ended."""
        job_id = self._graph.job.job_id
        if self._graph.machine.is_terminal:
            return RegistrationRejection(reason=f"job {job_id} is {self._graph.status.value}")
        if resource_id not in self.links:
            self.links[resource_id] = TaskExecutorLink(
                self._owner,
                resource_id,
                self._services.rpc.connect(address, TASK_EXECUTOR),
                job_id,
                self._leader_id,
                self._submit_failed,
                LinkServices(
                    self._services.clock,
                    self._services.timers,
                    self._services.blobs,
                    self._settings.inline_graph_bytes,
                ),
            )
        self._beats.monitor(resource_id)
        interval = int(self._settings.heartbeat.interval * 1000)
        return RegistrationSuccess(leader_id=self._leader_id, heartbeat_interval_ms=interval)

    def offered(self, resource_id: ResourceID, offers: tuple[SlotOffer, ...]) -> tuple[AllocationID, ...]:
        """Returns the accepted ones of the offered slots.

        Raises UnknownTaskExecutorError for an unregistered TaskExecutor.
        """
        if resource_id not in self.links:
            raise UnknownTaskExecutorError(
                f"TaskExecutor {resource_id} is not registered with {self._owner.name}: register before "
                "offering slots"
            )
        self._missing_slots.not_started = ""
        actions = self._decide(SlotsOffered(self._now(), resource_id, offers))
        taken = (action.allocations for action in actions if isinstance(action, SlotsAccepted))
        return next(taken)

    def slot_failed(
        self, resource_id: ResourceID, allocation_id: AllocationID, cause: FailureCause
    ) -> Acknowledge:
        """Reports that the worker of a slot did not start or has ended."""
        if cause.is_final:
            self._decide(JobFailed(self._now(), cause))
        elif self._pool.allocation(allocation_id) is None:
            # The slot was never offered. The job asks for others and keeps waiting.
            self._missing_slots.not_started = f"on {resource_id} {cause.message}"
        else:
            self._decide(SlotLost(self._now(), allocation_id, cause))
        return Acknowledge()

    def heard(self, payload: TaskExecutorToJobMasterHeartbeat) -> Acknowledge:
        """Takes a heartbeat. Raises UnknownTaskExecutorError for an unregistered TaskExecutor."""
        link = self.links.get(payload.resource_id)
        if link is None:
            raise UnknownTaskExecutorError(
                f"TaskExecutor {payload.resource_id} is not registered with this JobMaster: register again"
            )
        self._take_payload(link, payload)
        return Acknowledge()

    def lost(self, resource_id: ResourceID, why: str) -> Acknowledge:
        """Reports the loss of a TaskExecutor with its tasks; no effect if it is not registered."""
        self._owner.assert_main_thread()
        self._beats.unmonitor(resource_id)
        link = self.links.pop(resource_id, None)
        if link is not None:
            link.close()
            cause = failure_of(TaskExecutorLostError, f"TaskExecutor {resource_id} is lost: {why}")
            self._decide(TaskExecutorLost(self._now(), resource_id, cause))
        return Acknowledge()

    def _submit_failed(self, attempts: tuple[ExecutionAttemptID, ...], error: YarrowError) -> None:
        cause = failure_of(type(error), f"tasks could not be deployed: {error}")
        self._decide(TasksLost(self._now(), attempts, cause))

    # Messages to TaskExecutors.

    def cancel(self, action: CancelTasksAction) -> None:
        """Cancels tasks on their TaskExecutor; no effect if it is gone."""
        if (link := self.links.get(action.resource_id)) is not None:
            link.cancel(action.attempts)

    def free_slot(self, action: FreeSlot) -> None:
        """Frees a slot; at the end of the job only in `dismiss`."""
        if self._graph.machine.is_terminal:
            self._last_slots.append(action)
        elif (link := self.links.get(action.slot.resource_id)) is not None:
            link.free_slot(action.slot.allocation_id, action.cause)

    async def dismiss(self) -> None:
        """Frees the last slots after the end of the job, disconnects, and waits until all messages are sent."""
        for free in self._last_slots:
            if (link := self.links.get(free.slot.resource_id)) is not None:
                link.free_slot(free.slot.allocation_id, free.cause)
        for link in self.links.values():
            link.disconnect(f"the job is {self._graph.status.value}")
        await asyncio.gather(*(link.drained() for link in self.links.values()))

    def close(self) -> None:
        """Sends nothing more, and repeats no message: the JobMaster is suspended or stops."""
        for link in self.links.values():
            link.close()

    # Heartbeats.

    def beat(self) -> None:
        """Asks each TaskExecutor for a heartbeat, and gives up silent ones.

        Call it every heartbeat interval.
        """
        beats = self._beats.tick()
        for resource_id in beats.silent:
            seconds = self._settings.heartbeat.timeout
            self._give_up(resource_id, f"no heartbeat for {seconds:g} s (heartbeat.timeout)")
        for resource_id in beats.ask:
            link = self.links[resource_id]
            if not link.asking:
                link.asking = True
                self._owner.spawn(self._ask(link), f"heartbeat {resource_id}")

    async def _ask(self, link: TaskExecutorLink) -> None:
        report = AllocatedSlotReport(
            job_id=self._graph.job.job_id, allocations=self._pool.allocations_of(link.resource_id)
        )
        known = frozenset(link.acknowledged)
        try:
            payload = await link.heartbeat(report)
        except YarrowError as error:
            _log.info("%s: no heartbeat from %s: %s", self._owner.name, link.resource_id, error)
            link.failed_heartbeats += 1
            if link.failed_heartbeats >= self._settings.heartbeat.failure_threshold > 0:
                self._give_up(link.resource_id, f"the TaskExecutor cannot be reached: {error}")
        else:
            link.failed_heartbeats = 0
            self._take_payload(link, payload)
            self._heal(link, payload, known)
        finally:
            link.asking = False

    def _take_payload(self, link: TaskExecutorLink, payload: TaskExecutorToJobMasterHeartbeat) -> None:
        self._beats.heard(link.resource_id)
        for metrics in payload.metrics:
            execution = self._graph.execution(metrics.attempt_id)
            if execution is not None and not execution.state.is_terminal:
                execution.metrics = metrics.values
                execution.late_records = metrics.late_records
        for report in payload.accumulators:
            execution = self._graph.execution(report.attempt_id)
            if execution is not None and not execution.state.is_terminal:
                execution.accumulators = report.values

    def _heal(
        self,
        link: TaskExecutorLink,
        payload: TaskExecutorToJobMasterHeartbeat,
        known: frozenset[ExecutionAttemptID],
    ) -> None:
        """Cancels tasks that only the TaskExecutor knows.

        Fails tasks that two heartbeats in a row have lacked.
        """
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
            text = (
                f"TaskExecutor {link.resource_id} does not run the task, since the message that "
                "deployed it was lost"
            )
            cause = failure_of(TaskExecutorLostError, text)
            self._decide(TasksLost(self._now(), tuple(lost), cause))

    def _is_over(self, attempt: ExecutionAttemptID) -> bool:
        execution = self._graph.execution(attempt)
        return execution is None or execution.state.is_terminal

    def _give_up(self, resource_id: ResourceID, why: str) -> None:
        """Treats a TaskExecutor as lost and tells it so, because it may be alive and hold slots for the job."""
        link = self.links.get(resource_id)
        self.lost(resource_id, why)
        if link is not None:
            self._owner.spawn(link.say_goodbye(why), f"goodbye {resource_id}")
