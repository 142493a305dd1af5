"""JobMaster: runs one job from its start to its end, and takes messages of TaskExecutors and the ResourceManager.

Owner: its endpoint loop. It joins its parts, and hands each call to the part that answers it. Must not decide
about tasks or slots (job_scheduler.py, slot_pool.py), nor about checkpoints (checkpoint_link.py). Must not
look into user code, rows or operator events (operator_events.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from yarrow.am.checkpoint.restore import StartingPoint, in_memory
from yarrow.am.execution.errors import NoResourceAvailableError, failure_of
from yarrow.am.execution.execution_graph import ExecutionGraph
from yarrow.am.jobmaster.action_executor import ActionExecutor
from yarrow.am.jobmaster.checkpoints.checkpoint_api import CheckpointApi
from yarrow.am.jobmaster.checkpoints.checkpoint_link import (
    CheckpointFlags,
    CheckpointLink,
    CheckpointServices,
)
from yarrow.am.jobmaster.collecting.collect_buffer import CollectBuffer
from yarrow.am.jobmaster.collecting.collect_buffers import CollectBuffers
from yarrow.am.jobmaster.encoded_graphs import EncodedGraphs
from yarrow.am.jobmaster.job_queries import JobQueries
from yarrow.am.jobmaster.links.named_timers import NamedTimers
from yarrow.am.jobmaster.links.operator_events import OperatorEvents
from yarrow.am.jobmaster.links.resource_manager_link import ResourceManagerLink, ResourceManagerServices
from yarrow.am.jobmaster.missing_slots import MissingSlots
from yarrow.am.jobmaster.registered_task_executors import RegisteredTaskExecutors
from yarrow.am.jobmaster.rescale_requests import RescaleRequests
from yarrow.am.jobmaster.running_job import RunningJob
from yarrow.am.jobmaster.scheduler_dumps import SchedulerDumps
from yarrow.am.jobmaster.scheduler_timers import SchedulerTimers
from yarrow.am.jobmaster.scheduling.job_scheduler import JobScheduler
from yarrow.am.jobmaster.scheduling.scheduler_actions import Actions
from yarrow.am.jobmaster.scheduling.scheduler_events import (
    CheckpointsChanged,
    ClientAwaited,
    FailedGlobally,
    IdleSlotsChecked,
    JobCancelled,
    JobFailed,
    JobStarted,
    JobSuspended,
    SchedulerEvent,
    TasksUpdated,
)
from yarrow.am.jobmaster.scheduling.scheduler_log import SchedulerLog
from yarrow.am.jobmaster.scheduling.settings import JobMasterSettings
from yarrow.am.jobmaster.scheduling.slot_pool import SlotPool
from yarrow.am.jobmaster.services import JobMasterServices
from yarrow.am.jobmaster.task_deployments import TaskDeployments
from yarrow.common.job_status import JobStatus
from yarrow.common.values.rate_limit import RateLimit
from yarrow.runtime.common.ids import (
    AllocationID,
    ExecutionAttemptID,
    JobID,
    JobMasterID,
    OperatorID,
    ResourceID,
)
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.ha.services import token_of_epoch
from yarrow.runtime.rpc.batch_gateways import NoSparkPagesError
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.errors import EndpointStoppedError
from yarrow.runtime.rpc.gateway_type import JOB_MASTER as JOB_MASTER_GATEWAY
from yarrow.runtime.rpc.messages import (
    JOB_MASTER_SUBTASK,
    Acknowledge,
    AcknowledgeCheckpoint,
    AcknowledgeCoordinator,
    BlobPart,
    CollectConfirmation,
    CollectRows,
    DeclineCheckpoint,
    EventTimeDetails,
    FailureCause,
    OperatorEvent,
    RateLimitDetails,
    RegistrationRejection,
    RegistrationSuccess,
    RescaleRequest,
    SlotOffer,
    SparkPage,
    SparkPageRequest,
    TaskExecutionStateUpdate,
    TaskExecutorToJobMasterHeartbeat,
    WatermarkReport,
)

if TYPE_CHECKING:
    from yarrow.am.jobmaster.event_time.aligned_sources import AlignedSources
    from yarrow.am.jobmaster.rate_limits import RateLimits


async def _nothing(master: RunningJob) -> None:
    """Ignores the end of the job."""


def _scheduler(graph: ExecutionGraph, settings: JobMasterSettings) -> JobScheduler:
    pool = SlotPool(settings.slot_idle_timeout)
    backoff = settings.restart_backoff()
    return JobScheduler(graph, pool, settings.scheduler_mode, backoff, settings.failover_scope)


def _limits_rates(job: JobGraph) -> bool:
    return any(
        operator.spec.rate_limit.limits_something for vertex in job.vertices for operator in vertex.operators
    )


class JobMaster(RpcEndpoint):
    """The JobMaster of one job.

    It implements JobMasterGateway; the Dispatcher beside it calls the other public methods.
    """

    def __init__(
        self,
        job: JobGraph,
        services: JobMasterServices,
        settings: JobMasterSettings,
        starting_point: StartingPoint | None = None,
        on_ending: Callable[[RunningJob], Awaitable[None]] = _nothing,
        on_ended: Callable[[RunningJob], None] = lambda master: None,
    ) -> None:
        """Runs one job.

        `on_ending` is awaited when the job has ended for good and all its messages are sent, before any data
        of the job is removed. `on_ended` is called once, after that.
        """
        self.leader_id = JobMasterID(token_of_epoch(services.epoch, services.ids.hex_id()))
        super().__init__(f"jobmanager_{job.job_id}", self.leader_id)
        clock, timers, ids = services.clock, services.timers, services.ids
        self._services = services
        self._settings = settings
        self._on_ending = on_ending
        self._on_ended = on_ended
        self._ended = asyncio.Event()
        self.address = ""
        self._timers = NamedTimers(timers)
        self.graph = ExecutionGraph(
            job, clock, ids, settings.exception_history_size, settings.attempts_history_size
        )
        #: The value of `graph.is_ending` that the scheduler knows.
        self._told_ending = False
        self._scheduler = _scheduler(self.graph, settings)
        self._scheduler_log = SchedulerLog(self._scheduler, clock)
        self._dumps = SchedulerDumps(services.log_directory, clock, self._write_decisions)
        self._resource_manager = self._resource_manager_link(job)
        self._missing_slots = MissingSlots(self._scheduler, self._resource_manager, clock)
        self._task_executors = RegisteredTaskExecutors(
            self, self.leader_id, self._scheduler, self._missing_slots, services, settings, self._decide
        )
        links = self._task_executors.links
        self._checkpoints = self._checkpoint_link(
            CheckpointServices(clock, timers, ids, links), starting_point or in_memory(job.job_id)
        )
        self._collects = self._collect_buffers()
        self._events = OperatorEvents(self.graph, links)
        self._links = links
        self._clock = clock
        self._encoded = EncodedGraphs(self, self.graph, services.blobs, settings.inline_graph_bytes)
        self._rescales = self._rescale_requests()
        #: Shares of rate limits have to be told.
        self._is_limited = _limits_rates(job)
        self._actions = self._action_executor()
        #: Takes requests about checkpoints and savepoints.
        self.checkpoint_api = CheckpointApi(
            self._checkpoints, settings.checkpoints.savepoint_directory, self.cancel, self.wait_until_ended
        )
        #: Answers questions about the job.
        self.queries = JobQueries(
            self.graph, self._checkpoints, self._rescales.rescaling, self._missing_slots
        )

    def _write_decisions(self, work: Callable[[], None]) -> None:
        self.spawn(self.run_blocking(work), "write decisions")

    def _resource_manager_link(self, job: JobGraph) -> ResourceManagerLink:
        services = self._services
        return ResourceManagerLink(
            self,
            job,
            self.leader_id,
            ResourceManagerServices(services.rpc, services.resource_manager, services.clock, services.timers),
            self._settings,
            self._rejected,
        )

    def _checkpoint_link(self, services: CheckpointServices, starting_point: StartingPoint) -> CheckpointLink:
        return CheckpointLink(
            self,
            self.graph,
            services,
            self._settings.checkpoints,
            starting_point,
            self.fail_by_checkpoints,
            self._checkpoints_changed,
        )

    def _collect_buffers(self) -> CollectBuffers:
        return CollectBuffers(
            self.graph,
            self.leader_id,
            self._settings.collect_buffer_rows,
            exactly_once=self._settings.checkpoints.covers_each_row_once,
            checkpoint_id=self._checkpoints.checkpoint_id,
        )

    def _rescale_requests(self) -> RescaleRequests:
        return RescaleRequests(
            self._scheduler,
            self._checkpoints,
            self._encoded,
            self._missing_slots,
            self._timers,
            self._services,
            self._settings.slot_request_timeout,
            self._decide,
        )

    def _action_executor(self) -> ActionExecutor:
        checkpoints, task_executors = self._checkpoints, self._task_executors
        deployments = TaskDeployments(
            self.leader_id, self.graph, self._encoded, task_executors, checkpoints, self._events
        )
        timers = SchedulerTimers(
            self._timers,
            self.graph,
            checkpoints,
            self._missing_slots,
            self._settings,
            self._services.clock,
            self._decide,
        )
        return ActionExecutor(
            self._resource_manager,
            task_executors,
            deployments,
            timers,
            checkpoints,
            self._collects,
            self._rescales,
            self._job_ended,
        )

    # Life cycle.

    async def on_start(self) -> None:
        await self._encoded.prepare(self.graph.job)
        if self.graph.machine.is_terminal:
            raise EndpointStoppedError(f"{self.name} was stopped before it had started")
        self.address = self._services.rpc.serve(JOB_MASTER_GATEWAY, self)
        self._checkpoints.begin()
        self._decide(JobStarted(self._now()))
        self._resource_manager.start(self.address)
        self._timers.every("heartbeat", self._settings.heartbeat.interval, self._beat)
        self._timers.every("check", self._settings.check_interval, self._check)

    async def on_stop(self) -> None:
        self._timers.cancel_all()
        self._task_executors.close()
        self._rescales.job_ended(f"its JobMaster ends; the status of the job is {self.graph.status.value}")
        self._checkpoints.stop()
        self._resource_manager.stop()
        self._services.rpc.stop_serving(self.name)
        await self._collects.close()
        await self._checkpoints.release(terminal=False)

    def on_background_failure(self, error: BaseException) -> None:
        """Fails the job after a bug of the control plane, so that the job does not hang."""
        super().on_background_failure(error)
        self._dumps.failed(error, self.graph.job.job_id, self._scheduler_log)
        cause = failure_of(type(error), f"internal error of the JobMaster: {error!r}")
        self._decide(JobFailed(self._now(), cause))

    def _now(self) -> float:
        return self._services.clock.monotonic()

    def _beat(self) -> None:
        self._task_executors.beat()
        self._resource_manager.beat()

    def _check(self) -> None:
        self._decide(IdleSlotsChecked(self._now()))
        self._missing_slots.log()

    def _job_ended(self, status: JobStatus) -> None:
        self._rescales.job_ended(f"the job is {status.value}")
        self.spawn(self._conclude(), "conclude")

    async def _conclude(self) -> None:
        """Takes leave of all TaskExecutors and the ResourceManager, then tells the Dispatcher."""
        await self._collects.close()
        await self._resource_manager.leave(self.graph.status)
        await self._task_executors.dismiss()
        await self._on_ending(self)
        await self._checkpoints.end()
        self._ended.set()
        self._on_ended(self)

    # Decisions.

    def _decide(self, event: SchedulerEvent) -> Actions:
        """Passes an event to the scheduler, carries out the actions and returns them.

        All parts report events here.
        """
        self.assert_main_thread()
        if self.graph.is_ending != self._told_ending:
            self._told_ending = self.graph.is_ending
            self._tell(ClientAwaited(event.now, self._told_ending))
        actions = self._tell(event)
        self._actions.carry_out(actions)
        if self._collects.look():
            self.spawn(self._collects.wake(), "wake collecting subtasks")
        self._checkpoints.observe()
        return actions

    def _tell(self, event: SchedulerEvent) -> Actions:
        """The scheduler's actions for an event.

        An internal error is dumped with the events that led to it.
        """
        try:
            return self._scheduler_log.handle(event)
        except Exception as error:
            self._dumps.failed(error, self.graph.job.job_id, self._scheduler_log)
            raise

    def _checkpoints_changed(self, flags: CheckpointFlags) -> None:
        """Tells the scheduler. It asks for no action: a failure or a restart looks at these flags."""
        self._tell(
            CheckpointsChanged(self._now(), flags.in_doubt, flags.ends_with_savepoint, flags.awaits_first)
        )

    def fail_by_checkpoints(self, cause: FailureCause) -> None:
        """Fails the job because more checkpoints failed than are tolerated. Runs after the current call."""
        self.loop.call_soon(lambda: self._decide(FailedGlobally(self._now(), cause)))

    def _rejected(self, reason: str) -> None:
        text = f"the ResourceManager refused the job: {reason}"
        self._decide(JobFailed(self._now(), failure_of(NoResourceAvailableError, text)))

    # For the Dispatcher.

    async def wait_until_ended(self) -> JobStatus:
        """Returns when the job has ended."""
        await self._ended.wait()
        return self.graph.status

    def cancel(self, reason: str = "") -> None:
        """Starts cancelling. `reason` is set if no user has asked for it."""
        self._decide(JobCancelled(self._now(), reason))

    def suspend(self, cause: str) -> None:
        """Ends the job on this master alone, because another master continues it. Call `stop` afterwards."""
        self.assert_main_thread()
        self._tell(JobSuspended(self._now(), cause))
        self._task_executors.close()

    async def rescale(self, request: RescaleRequest) -> None:
        """Returns when all tasks run at the new parallelism.

        Raises RescaleRefusedError and RescaleFailedError.
        """
        self.assert_main_thread()
        await self._rescales.rescale(request)

    @cached_property
    def _rate_limits(self) -> RateLimits:
        # Imported late: most jobs have no limits.
        from yarrow.am.jobmaster.rate_limits import RateLimits

        return RateLimits(self.graph, self._events, self._encoded, self._rescales.rescaling)

    def rate_limits(self) -> RateLimitDetails:
        """The rate limits of the job's sources and sinks."""
        return self._rate_limits.details()

    async def change_rate_limits(self, limits: Mapping[OperatorID, RateLimit]) -> None:
        """Sets other limits. Raises RateLimitRefusedError."""
        self.assert_main_thread()
        self._is_limited = True
        await self._rate_limits.change(limits)

    @cached_property
    def _aligned_sources(self) -> AlignedSources:
        # Imported late: most jobs align no sources.
        from yarrow.am.jobmaster.event_time.aligned_sources import AlignedSources

        return AlignedSources(self.graph, self._links, self._timers)

    async def spark_page(self, request: SparkPageRequest) -> SparkPage:
        """Raises NoSparkPagesError: a stream does not run on Spark."""
        raise NoSparkPagesError(f"job {self.graph.job.job_id} is a stream: only bounded jobs run on Spark")

    async def event_time(self) -> EventTimeDetails:
        """Event time of the job, operator by operator, and who holds it back."""
        # Imported late: most jobs are never asked.
        from yarrow.am.jobmaster.event_time.event_time_queries import EventTimeQueries

        return await EventTimeQueries(self.graph, self._links, self._clock).details()

    def scheduler_decisions(self, last: int) -> tuple[bytes, ...]:
        """The last events with their actions, each as JSON, oldest first."""
        return self._scheduler_log.events(last)

    def collect_buffer(self, collect_id: str) -> CollectBuffer:
        """The buffer of that collect operator; it outlives the JobMaster until the client has read it."""
        return self._collects.of(collect_id)

    # The gateway: TaskExecutors.

    async def register_task_executor(
        self, resource_id: ResourceID, address: str, host: str
    ) -> RegistrationSuccess | RegistrationRejection:
        return self._task_executors.register(resource_id, address)

    async def offer_slots(
        self, resource_id: ResourceID, offers: tuple[SlotOffer, ...]
    ) -> tuple[AllocationID, ...]:
        return self._task_executors.offered(resource_id, offers)

    async def fail_slot(
        self, resource_id: ResourceID, allocation_id: AllocationID, cause: FailureCause
    ) -> Acknowledge:
        return self._task_executors.slot_failed(resource_id, allocation_id, cause)

    async def heartbeat_from_task_executor(self, payload: TaskExecutorToJobMasterHeartbeat) -> Acknowledge:
        return self._task_executors.heard(payload)

    async def disconnect_task_executor(self, resource_id: ResourceID, cause: str) -> Acknowledge:
        return self._task_executors.lost(resource_id, cause)

    # The gateway: workers.

    async def update_task_execution_states(
        self, updates: tuple[TaskExecutionStateUpdate, ...]
    ) -> Acknowledge:
        self._decide(TasksUpdated(self._now(), updates))
        if self._is_limited:
            self._rate_limits.divide()
        return Acknowledge()

    async def send_operator_event(self, event: OperatorEvent) -> Acknowledge:
        if event.target_subtask == JOB_MASTER_SUBTASK:
            self._rate_limits.take(event)
        else:
            self._events.send(event)
        return Acknowledge()

    async def report_watermark(self, report: WatermarkReport) -> Acknowledge:
        self._aligned_sources.report(report)
        return Acknowledge()

    async def acknowledge_checkpoint(self, acknowledgement: AcknowledgeCheckpoint) -> Acknowledge:
        return self.checkpoint_api.take(acknowledgement)

    async def acknowledge_coordinator(self, acknowledgement: AcknowledgeCoordinator) -> Acknowledge:
        return self.checkpoint_api.take(acknowledgement)

    async def decline_checkpoint(self, decline: DeclineCheckpoint) -> Acknowledge:
        return self.checkpoint_api.take(decline)

    async def notify_end_of_data(
        self, job_id: JobID, attempts: tuple[ExecutionAttemptID, ...]
    ) -> Acknowledge:
        return self.checkpoint_api.end_of_data(attempts)

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
            self._rescales.slots_limited(most_slots)
        return Acknowledge()
