"""JobMaster: runs one job, from its start to its end, and hears what TaskExecutors and the ResourceManager say of it.

Owner: its endpoint loop. Must not decide about tasks or slots itself (job_scheduler.py, slot_pool.py), nor about
checkpoints (checkpoint_link.py), and must not look into user code, rows or operator events (operator_events.py). Parts
of the class are in modules of their own: requests about checkpoints and parallelism, answers about the job, heartbeats,
and the carrying out of what its JobScheduler decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from yarrow.am.checkpoint.restore import StartingPoint, in_memory
from yarrow.am.execution.errors import NoResourceAvailableError, UnknownTaskExecutorError, failure_of
from yarrow.am.execution.execution_graph import ExecutionGraph
from yarrow.am.jobmaster.checkpoints.checkpoint_link import CheckpointLink, CheckpointServices
from yarrow.am.jobmaster.checkpoints.checkpoint_requests import CheckpointRequests
from yarrow.am.jobmaster.collecting.collect_buffers import CollectBuffers
from yarrow.am.jobmaster.job_answers import JobAnswers
from yarrow.am.jobmaster.links.deployment import EncodedGraph
from yarrow.am.jobmaster.links.named_timers import NamedTimers
from yarrow.am.jobmaster.links.operator_events import OperatorEvents
from yarrow.am.jobmaster.links.resource_manager_link import ResourceManagerLink
from yarrow.am.jobmaster.links.task_executor_link import TaskExecutorLink
from yarrow.am.jobmaster.rescale_requests import RescaleRequests
from yarrow.am.jobmaster.rescaling import Rescaling
from yarrow.am.jobmaster.scheduling.job_scheduler import JobScheduler
from yarrow.am.jobmaster.scheduling.scheduler_actions import FreeSlot, SlotsAccepted
from yarrow.am.jobmaster.scheduling.scheduler_events import (
    IdleSlotsChecked,
    JobCancelled,
    JobFailed,
    JobStarted,
    JobSuspended,
    SlotLost,
    SlotsOffered,
    TasksUpdated,
)
from yarrow.am.jobmaster.scheduling.settings import JobMasterSettings
from yarrow.am.jobmaster.scheduling.slot_pool import SlotPool
from yarrow.am.jobmaster.services import JobMasterServices
from yarrow.am.jobmaster.task_executor_heartbeats import TaskExecutorHeartbeats
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.ids import AllocationID, JobMasterID, ResourceID
from yarrow.runtime.common.repeated_notice import RepeatedNotice
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.ha.services import token_of_epoch
from yarrow.runtime.interpreters.job_interpreter import interpreter_of
from yarrow.runtime.rpc.errors import EndpointStoppedError
from yarrow.runtime.rpc.gateway_type import JOB_MASTER, TASK_EXECUTOR
from yarrow.runtime.rpc.heartbeat import HeartbeatMonitor
from yarrow.runtime.rpc.messages import (
    Acknowledge,
    BlobPart,
    CollectConfirmation,
    CollectRows,
    FailureCause,
    OperatorEvent,
    RegistrationRejection,
    RegistrationSuccess,
    SlotOffer,
    TaskExecutionStateUpdate,
    TaskExecutorToJobMasterHeartbeat,
)

_log = logging.getLogger(__name__)
#: Seconds that a job waits for slots before anything is said: as a rule they are there by then.
_SLOT_PATIENCE = 10.0


async def _nothing(master: JobMaster) -> None:
    """Nobody wants to know."""


class JobMaster(CheckpointRequests, JobAnswers, RescaleRequests, TaskExecutorHeartbeats):
    """Implements JobMasterGateway; the Dispatcher beside it calls the other public methods."""

    def __init__(
        self,
        job: JobGraph,
        services: JobMasterServices,
        settings: JobMasterSettings,
        starting_point: StartingPoint | None = None,
    ) -> None:
        self.leader_id = JobMasterID(token_of_epoch(services.epoch, services.ids.hex_id()))
        super().__init__(f"jobmanager_{job.job_id}", self.leader_id)
        self._services = services
        self._settings = settings
        self.graph = ExecutionGraph(
            job,
            services.clock,
            services.ids,
            settings.exception_history_size,
            settings.attempts_history_size,
        )
        self._pool = SlotPool(settings.slot_idle_timeout)
        self._scheduler = JobScheduler(
            self.graph,
            self._pool,
            settings.scheduler_mode,
            settings.restart_backoff(),
            settings.failover_scope,
        )
        self._encoded = EncodedGraph(b"")
        self._links: dict[ResourceID, TaskExecutorLink] = {}
        self._savepoint_directory = settings.checkpoints.savepoint_directory
        self._checkpoints = CheckpointLink(
            self,
            self.graph,
            CheckpointServices(services.clock, services.timers, services.ids, self._links),
            settings.checkpoints,
            starting_point or in_memory(job.job_id),
            self.fail_by_checkpoints,
            self.checkpoints_changed,
        )
        self._rescaling = Rescaling(self, services.clock, services.ids)
        self._prepared: dict[int, EncodedGraph] = {}
        self._beats: HeartbeatMonitor[ResourceID] = HeartbeatMonitor(settings.heartbeat, services.clock)
        self._collects = CollectBuffers(
            self.graph,
            self.leader_id,
            settings.collect_buffer_rows,
            exactly_once=settings.checkpoints.covers_each_row_once,
            checkpoint_id=self._checkpoints.checkpoint_id,
        )
        self._events = OperatorEvents(self.graph, self._links)
        self._last_slots: list[FreeSlot] = []
        self._timers = NamedTimers(services.timers)
        self._ended = asyncio.Event()
        #: Awaited when the job has ended for good and all its messages are out, before anything of it is removed.
        self.on_ending: Callable[[JobMaster], Awaitable[None]] = _nothing
        #: Called once, after that.
        self.on_ended: Callable[[JobMaster], None] = lambda master: None
        self.address = ""
        self._resource_manager = ResourceManagerLink(
            self,
            job.job_id,
            self.leader_id,
            settings,
            services.rpc,
            services.resource_manager,
            services.clock,
            services.timers,
            interpreter_of(job),
        )
        self._not_started = ""
        self._slot_notice = RepeatedNotice(patience=_SLOT_PATIENCE)

    # Life cycle.

    async def on_start(self) -> None:
        self._encoded = await self._encode(self.graph.job)
        if self.graph.machine.is_terminal:
            raise EndpointStoppedError(f"{self.name} was stopped before it had started")
        self.address = self._services.rpc.serve(JOB_MASTER, self)
        self._resource_manager.on_rejected = self._rejected
        self._checkpoints.begin()
        self._decide(JobStarted(self._now()))
        self._resource_manager.start(self.address)
        self._timers.every("heartbeat", self._settings.heartbeat.interval, self._beat)
        self._timers.every("check", self._settings.check_interval, self._check)

    async def on_stop(self) -> None:
        self._timers.cancel_all()
        text = f"its JobMaster ends; the job is {self.graph.status.value}"
        self._rescaling.ended(FailureCause(exception_name="", message=text, stacktrace=text))
        self._checkpoints.stop()
        self._resource_manager.stop()
        self._services.rpc.stop_serving(self.name)
        await self._collects.close()
        await self._checkpoints.release(terminal=False)

    def _now(self) -> float:
        return self._services.clock.monotonic()

    def on_background_failure(self, error: BaseException) -> None:
        """A bug of the control plane fails the job instead of leaving it hanging."""
        super().on_background_failure(error)
        cause = failure_of(type(error), f"internal error of the JobMaster: {error!r}")
        self._decide(JobFailed(self._now(), cause))

    # For the Dispatcher.

    async def wait_until_ended(self) -> JobStatus:
        """Returns when the job has ended."""
        await self._ended.wait()
        return self.graph.status

    def cancel(self, reason: str = "") -> None:
        """Starts cancelling; `reason` where nobody has asked for it."""
        self.assert_main_thread()
        self._decide(JobCancelled(self._now(), reason))

    def suspend(self, cause: str) -> None:
        """The job ends here and nowhere else: another master goes on with it. To be followed by `stop`."""
        self.assert_main_thread()
        self._scheduler.handle(JobSuspended(self._now(), cause))

    # The gateway: TaskExecutors.

    async def register_task_executor(
        self, resource_id: ResourceID, address: str, host: str
    ) -> RegistrationSuccess | RegistrationRejection:
        if self.graph.machine.is_terminal:
            return RegistrationRejection(reason=f"job {self.graph.job.job_id} is {self.graph.status.value}")
        if resource_id not in self._links:
            gateway = self._services.rpc.connect(address, TASK_EXECUTOR)
            self._links[resource_id] = TaskExecutorLink(
                self,
                resource_id,
                gateway,
                self.graph.job.job_id,
                self.leader_id,
                self._submit_failed,
                self._services.blobs,
                self._settings.inline_graph_bytes,
            )
        self._beats.monitor(resource_id)
        interval = int(self._settings.heartbeat.interval * 1000)
        return RegistrationSuccess(leader_id=self.leader_id, heartbeat_interval_ms=interval)

    async def offer_slots(
        self, resource_id: ResourceID, offers: tuple[SlotOffer, ...]
    ) -> tuple[AllocationID, ...]:
        if resource_id not in self._links:
            raise UnknownTaskExecutorError(
                f"TaskExecutor {resource_id} is not registered with {self.name}: register before offering"
            )
        self._not_started = ""
        actions = self._decide(SlotsOffered(self._now(), resource_id, offers))
        taken = (action.allocations for action in actions if isinstance(action, SlotsAccepted))
        return next(taken)

    async def fail_slot(
        self, resource_id: ResourceID, allocation_id: AllocationID, cause: FailureCause
    ) -> Acknowledge:
        if cause.is_final:
            self._decide(JobFailed(self._now(), cause))
        elif self._pool.allocation(allocation_id) is None:
            # It was never offered: others are asked for, and the job waits on.
            self._not_started = f"on {resource_id} {cause.message}"
        else:
            self._decide(SlotLost(self._now(), allocation_id, cause))
        return Acknowledge()

    async def update_task_execution_states(
        self, updates: tuple[TaskExecutionStateUpdate, ...]
    ) -> Acknowledge:
        self._decide(TasksUpdated(self._now(), updates))
        return Acknowledge()

    async def heartbeat_from_task_executor(self, payload: TaskExecutorToJobMasterHeartbeat) -> Acknowledge:
        link = self._links.get(payload.resource_id)
        if link is None:
            raise UnknownTaskExecutorError(f"TaskExecutor {payload.resource_id} is not registered here")
        self._take_payload(link, payload)
        return Acknowledge()

    async def disconnect_task_executor(self, resource_id: ResourceID, cause: str) -> Acknowledge:
        self._lose_task_executor(resource_id, cause)
        return Acknowledge()

    async def send_operator_event(self, event: OperatorEvent) -> Acknowledge:
        self._events.send(event)
        return Acknowledge()

    async def push_collected(self, rows: CollectRows) -> CollectConfirmation:
        return await self._collects.push(rows)

    async def read_blob(self, key: str, offset: int, length: int) -> BlobPart:
        data, size = await self.run_blocking(self._services.blobs.read, key, offset, length)
        return BlobPart(data=data, total_size=size)

    # The gateway: the ResourceManager.

    async def notify_not_enough_resources(
        self, explanation: str, most_slots: int | None = None
    ) -> Acknowledge:
        self._resource_manager.heard(explanation)
        if most_slots is not None:
            self._slots_limited(most_slots)
        return Acknowledge()

    def _rejected(self, reason: str) -> None:
        text = f"the ResourceManager refused the job: {reason}"
        self._decide(JobFailed(self._now(), failure_of(NoResourceAvailableError, text)))

    async def _conclude(self) -> None:
        """Says goodbye to everybody, then tells the Dispatcher."""
        await self._collects.close()
        await self._resource_manager.leave(self.graph.status)
        for free in self._last_slots:
            if (link := self._links.get(free.slot.resource_id)) is not None:
                link.free_slot(free.slot.allocation_id, free.cause)
        for link in self._links.values():
            link.disconnect(f"the job is {self.graph.status.value}")
        await asyncio.gather(*(link.drained() for link in self._links.values()))
        await self.on_ending(self)
        await self._checkpoints.end()
        self._ended.set()
        self.on_ended(self)

    def _check(self) -> None:
        self._decide(IdleSlotsChecked(self._now()))
        self._say_what_it_waits_for()

    def _say_what_it_waits_for(self) -> None:
        waits = self._pool.waiting and self.graph.status in (JobStatus.RUNNING, JobStatus.RESTARTING)
        said = self._slot_notice.look(self.waiting_for() if waits else "", self._now())
        if said:
            _log.warning("the job %r %s", self.graph.job.name, said)
        elif said is not None:
            _log.warning("the job %r waits for slots no more", self.graph.job.name)
