"""JobMaster: runs one job; carries out what its JobScheduler decides.

Owner: its endpoint loop. Must not decide about tasks or slots itself (job_scheduler.py, slot_pool.py), nor about
checkpoints (checkpoint_link.py), and must not look into user code, rows or operator events (operator_events.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import msgspec

from yarrow.am.checkpoint.completed import CompletedCheckpoint
from yarrow.am.checkpoint.recovery_in_memory import InMemoryCheckpointRecovery
from yarrow.am.checkpoint.recovery_store import CheckpointRecovery
from yarrow.am.checkpoint.restore import StartingPoint, in_memory
from yarrow.am.dispatcher.blob_store import BlobStore
from yarrow.am.errors import (
    NoResourceAvailableError,
    TaskExecutorLostError,
    UnknownTaskExecutorError,
    failure_of,
)
from yarrow.am.jobmaster.checkpoint_link import CheckpointLink, CheckpointServices
from yarrow.am.jobmaster.checkpoint_requests import CheckpointRequests
from yarrow.am.jobmaster.collect import CollectBuffer
from yarrow.am.jobmaster.collect_buffers import CollectBuffers
from yarrow.am.jobmaster.deployment import EncodedGraph, build_deployments
from yarrow.am.jobmaster.details import job_details, job_overview, job_result
from yarrow.am.jobmaster.execution_graph import Execution, ExecutionGraph
from yarrow.am.jobmaster.job_scheduler import JobScheduler
from yarrow.am.jobmaster.named_timers import NamedTimers
from yarrow.am.jobmaster.operator_events import OperatorEvents
from yarrow.am.jobmaster.rescaling import RescaleRefusedError, Rescaling, parallelism_for_all
from yarrow.am.jobmaster.resource_manager_link import ResourceManagerLink
from yarrow.am.jobmaster.scheduler_actions import (
    Actions,
    ArmCancellationTimeout,
    ArmRestart,
    CancelTasks,
    DeclareRequirements,
    Deploy,
    FreeSlot,
    JobEnded,
    JobReplaced,
    RescaleEnded,
    ResetReader,
    SchedulerAction,
    TasksRestarting,
)
from yarrow.am.jobmaster.settings import JobMasterSettings
from yarrow.am.jobmaster.slot_pool import SlotPool
from yarrow.am.jobmaster.task_executor_heartbeats import TaskExecutorHeartbeats
from yarrow.am.jobmaster.task_executor_link import TaskExecutorLink
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import (
    AllocationID,
    ExecutionAttemptID,
    IdFactory,
    JobMasterID,
    ResourceID,
)
from yarrow.runtime.common.timers import Timers
from yarrow.runtime.graph.job_graph import JobGraph, encode_job_graph
from yarrow.runtime.graph.states import JobStatus
from yarrow.runtime.ha.services import token_of_epoch
from yarrow.runtime.rpc.errors import EndpointStoppedError
from yarrow.runtime.rpc.gateway_type import JOB_MASTER, TASK_EXECUTOR
from yarrow.runtime.rpc.heartbeat import HeartbeatMonitor
from yarrow.runtime.rpc.job_interpreter import interpreter_of
from yarrow.runtime.rpc.leader import LeaderRetrieval
from yarrow.runtime.rpc.messages import (
    Acknowledge,
    BlobPart,
    CollectConfirmation,
    CollectPosition,
    CollectRows,
    ExecutionGraphDetails,
    FailureCause,
    JobOverview,
    JobResult,
    OperatorEvent,
    RegistrationRejection,
    RegistrationSuccess,
    RescaleRequest,
    SlotOffer,
    TaskExecutionStateUpdate,
    TaskExecutorToJobMasterHeartbeat,
)
from yarrow.runtime.rpc.service import RpcService
from yarrow.runtime.snapshot.options import SnapshotKind

#: Seconds that a TaskExecutor gets to kill a worker before its JobMaster has it killed.
_KILL_GRACE = 5.0
#: Name of the timer of slot.request.timeout, which runs while the job waits for slots.
_SLOT_REQUEST = "slot request"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobMasterServices:
    """What a JobMaster gets from its surroundings."""

    rpc: RpcService
    resource_manager: LeaderRetrieval
    blobs: BlobStore
    clock: Clock
    timers: Timers
    ids: IdFactory
    #: Of the leadership under which jobs run: their fencing tokens begin with it.
    epoch: int = 0
    #: What of the jobs' checkpoints outlives their masters.
    checkpoint_recovery: CheckpointRecovery = field(default_factory=InMemoryCheckpointRecovery)


async def _nothing(master: JobMaster) -> None:
    """Nobody wants to know."""


class JobMaster(CheckpointRequests, TaskExecutorHeartbeats):
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
        self._scheduler.needs_global_restart = lambda: (
            self.graph.is_ending or self._checkpoints.needs_global_restart()
        )
        self._scheduler.checkpoints_in_doubt = lambda: self._checkpoints.later_may_complete
        self._encoded = EncodedGraph(b"")
        self._links: dict[ResourceID, TaskExecutorLink] = {}
        self._savepoint_directory = settings.checkpoints.savepoint_directory
        self._checkpoints = CheckpointLink(
            self,
            self,
            self.graph,
            CheckpointServices(services.clock, services.timers, services.ids, self._links),
            settings.checkpoints,
            starting_point or in_memory(job.job_id),
        )
        self._rescaling = Rescaling(self, services.clock, services.ids)
        #: The job's graphs as they travel, by what they are: there are two while it is rescaled.
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
        #: Slots to give back at the end of the job.
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
        #: Why the last worker for this job did not start, "" when slots have come since.
        self._not_started = ""

    # Life cycle.

    async def on_start(self) -> None:
        self._encoded = await self._encode(self.graph.job)
        if self.graph.machine.is_terminal:
            raise EndpointStoppedError(f"{self.name} was stopped before it had started")
        self.address = self._services.rpc.serve(JOB_MASTER, self)
        self._resource_manager.on_rejected = self._rejected
        self._checkpoints.begin()
        self._carry_out(self._scheduler.start(self._now()))
        self._resource_manager.start(self.address)
        self._timers.every("heartbeat", self._settings.heartbeat.interval, self._beat)
        self._timers.every("check", self._settings.check_interval, self._check)

    async def on_stop(self) -> None:
        self._timers.cancel_all()
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
        self._carry_out(self._scheduler.fail(cause, self._now()))

    # Another parallelism.

    async def rescale(self, request: RescaleRequest) -> None:
        """Returns when all tasks run so. Raises RescaleRefusedError and RescaleFailedError."""
        self.assert_main_thread()
        if request.waits:
            await self._rescaling.idle()
        if self.graph.status is not JobStatus.RUNNING:
            raise RescaleRefusedError(
                f"the job {self.graph.job.name!r} is {self.graph.status.value}: only a RUNNING job is rescaled"
            )
        job = self.graph.job
        wanted = parallelism_for_all(job, request.every) if request.every > 0 else request.parallelism
        await self._rescaling.rescale(job, wanted, request.trigger_cause)

    async def _encode(self, job: JobGraph) -> EncodedGraph:
        data = encode_job_graph(job)
        if len(data) <= self._settings.inline_graph_bytes:
            return EncodedGraph(data)
        return EncodedGraph(b"", await self.run_blocking(self._services.blobs.put_here, data))

    async def stop_with_checkpoint(self) -> CompletedCheckpoint:
        """For Rescaling: takes a checkpoint with which all tasks end, and the job does not."""
        self._carry_out(self._scheduler.stop_to_rescale(True))
        try:
            return await self._checkpoints.request(SnapshotKind.RESCALE)
        except BaseException:
            self._carry_out(self._scheduler.stop_to_rescale(False))
            raise

    async def go_on_as(self, job: JobGraph) -> None:
        """For Rescaling: what is left of the tasks is cancelled, then all start as `job`."""
        former = self.graph.job
        encoded = self._encoded if job is former else await self._encode(job)
        self._prepared = {id(former): self._encoded, id(job): encoded}
        self._carry_out(self._scheduler.rescale(job, self._now()))

    def _job_replaced(self, job: JobGraph) -> None:
        self._encoded = self._prepared[id(job)]
        self._checkpoints.job_replaced(job)
        attempt_number = min(execution.attempt_number for execution in self.graph.executions())
        self._collects.replaced(job, attempt_number, self._checkpoints.checkpoint_id)

    # For the Dispatcher.

    def details(self) -> ExecutionGraphDetails:
        """All that REST shows of the job."""
        statistics = self.checkpoint_statistics
        details = job_details(self.graph, self.waiting_for(), statistics.metrics())
        return msgspec.structs.replace(
            details, rescales=self._rescaling.history, last_checkpoint_path=statistics.last_path
        )

    @property
    def left_checkpoints(self) -> bool:
        """The job has ended, and not all of its checkpoints that should go with it could be deleted."""
        return self._checkpoints.left_some

    def overview(self) -> JobOverview:
        """The job's line in a list."""
        return msgspec.structs.replace(job_overview(self.graph), waiting_for=self.waiting_for())

    def result(self) -> JobResult:
        """How the job ended; to be called when it has."""
        return job_result(self.graph)

    async def wait_until_ended(self) -> JobStatus:
        """Returns when the job has ended."""
        await self._ended.wait()
        return self.graph.status

    def cancel(self) -> None:
        """Starts cancelling."""
        self.assert_main_thread()
        self._carry_out(self._scheduler.cancel(self._now()))

    def suspend(self, cause: str) -> None:
        """The job ends here and nowhere else: another master goes on with it. To be followed by `stop`."""
        self.assert_main_thread()
        if self.graph.machine.can(JobStatus.SUSPENDED):
            self.graph.transition(JobStatus.SUSPENDED, cause)

    def waiting_for(self) -> str:
        """What the job waits for, "" when for nothing."""
        text = self._scheduler.explanation(self._now())
        if not text or not self._pool.waiting:
            return text
        return "; ".join(filter(None, (text, self._resource_manager.explanation, self._not_started)))

    async def fetch_collected(
        self, collect_id: str, max_rows: int, position: CollectPosition
    ) -> tuple[CollectRows, ...]:
        """The rows behind those that the client has."""
        return await self._collects.of(collect_id).fetch(max_rows, position)

    def collect_buffer(self, collect_id: str) -> CollectBuffer:
        """The buffer itself: it outlives the JobMaster until the client has read it."""
        return self._collects.of(collect_id)

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
        taken, actions = self._scheduler.offered(resource_id, offers, self._now())
        self._not_started = ""
        self._carry_out(actions)
        return taken

    async def fail_slot(
        self, resource_id: ResourceID, allocation_id: AllocationID, cause: FailureCause
    ) -> Acknowledge:
        if cause.is_final:
            self._carry_out(self._scheduler.fail(cause, self._now()))
        elif self._pool.allocation(allocation_id) is None:
            # It was never offered: others are asked for, and the job waits on.
            self._not_started = f"on {resource_id} {cause.message}"
        else:
            self._carry_out(self._scheduler.slot_lost(allocation_id, cause, self._now()))
        return Acknowledge()

    async def update_task_execution_states(
        self, updates: tuple[TaskExecutionStateUpdate, ...]
    ) -> Acknowledge:
        self._carry_out(self._scheduler.updated(updates, self._now()))
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

    async def notify_not_enough_resources(self, explanation: str) -> Acknowledge:
        self._resource_manager.heard(explanation)
        return Acknowledge()

    def _rejected(self, reason: str) -> None:
        text = f"the ResourceManager refused the job: {reason}"
        self._carry_out(self._scheduler.fail(failure_of(NoResourceAvailableError, text), self._now()))

    # Carrying out.

    def _carry_out(self, actions: Actions) -> None:
        self.assert_main_thread()
        for action in actions:
            self._do(action)
        if not self._pool.waiting or self.graph.status not in (JobStatus.RUNNING, JobStatus.RESTARTING):
            self._timers.cancel(_SLOT_REQUEST)
        elif not self._timers.is_set(_SLOT_REQUEST):
            self._timers.after(_SLOT_REQUEST, self._settings.slot_request_timeout, self._slots_timed_out)
        if self._collects.look():
            self.spawn(self._collects.wake(), "wake collecting subtasks")
        self._checkpoints.observe()

    def fail_by_checkpoints(self, cause: FailureCause) -> None:
        """More checkpoints failed than are tolerated; acted on behind what is being done now."""
        self.loop.call_soon(lambda: self._carry_out(self._scheduler.fail_globally(cause, self._now())))

    def _do(self, action: SchedulerAction) -> None:
        match action:
            case DeclareRequirements(slots):
                self._resource_manager.declare(slots)
            case Deploy(executions):
                self._deploy(executions)
            case CancelTasks(resource_id, attempts):
                if (link := self._links.get(resource_id)) is not None:
                    link.cancel(attempts)
            case FreeSlot() if self.graph.machine.is_terminal:
                self._last_slots.append(action)
            case FreeSlot(slot, cause):
                if (link := self._links.get(slot.resource_id)) is not None:
                    link.free_slot(slot.allocation_id, cause)
            case ArmCancellationTimeout(restart_id):
                self._arm_cancellation_timeout(restart_id)
            case ArmRestart(restart_id, seconds):
                self._timers.after(f"restart {restart_id}", seconds, partial(self._restart_due, restart_id))
            case TasksRestarting(attempts, delay, cause):
                if cause is not None:
                    self._tell_restart(len(attempts), delay, cause)
                self._collects.restart(filter(None, map(self.graph.execution, attempts)))
                self._checkpoints.on_restart(attempts)
            case JobReplaced(job):
                self._job_replaced(job)
            case RescaleEnded(failure):
                self._rescaling.ended(failure)
            case ResetReader():
                self._events.reset_reader(action, self._checkpoints.checkpoint_id)
            case JobEnded(status):
                text = f"the job is {status.value}"
                self._rescaling.ended(FailureCause(exception_name="", message=text, stacktrace=text))
                self.spawn(self._conclude(), "conclude")

    def _tell_restart(self, tasks: int, delay: float, cause: FailureCause) -> None:
        what = cause.message.strip().partition("\n")[0]
        _log.warning(
            "the job %r restarts %d of its tasks in %.3g s%s: %s: %s",
            self.graph.job.name,
            tasks,
            delay,
            f", after a failure in {cause.operator_name}" if cause.operator_name else "",
            cause.exception_name.rpartition(".")[2] or "failure",
            what,
        )

    def _deploy(self, executions: tuple[Execution, ...]) -> None:
        deployments = build_deployments(
            self.graph, self.leader_id, self._encoded, executions, self._checkpoints.restore_for(executions)
        )
        for resource_id, deployment in deployments.items():
            self._links[resource_id].submit(deployment)
        self._events.deployed(executions)

    def _submit_failed(self, attempts: tuple[ExecutionAttemptID, ...], error: YarrowError) -> None:
        cause = failure_of(type(error), f"tasks could not be deployed: {error}")
        self._carry_out(self._scheduler.tasks_lost(attempts, cause, self._now()))

    def _arm_cancellation_timeout(self, restart_id: int | None) -> None:
        timeout = self._settings.cancellation_timeout
        if timeout <= 0:
            return
        if restart_id is None:
            self._timers.after("cancellation", timeout, self._cancellation_timed_out)
        else:
            # The TaskExecutor kills the worker of such a task itself: this is for one that does not.
            name = f"cancellation of restart {restart_id}"
            self._timers.after(
                name, timeout + _KILL_GRACE, partial(self._restart_cancel_timed_out, restart_id)
            )

    def _not_ended_in_time(self) -> str:
        seconds = self._settings.cancellation_timeout
        return f"the task did not end within {seconds:g} s of its cancellation (task.cancellation.timeout)"

    def _cancellation_timed_out(self) -> None:
        self._carry_out(self._scheduler.cancellation_timed_out(self._now(), self._not_ended_in_time()))

    def _restart_cancel_timed_out(self, restart_id: int) -> None:
        cause = failure_of(TaskExecutorLostError, self._not_ended_in_time())
        self._carry_out(self._scheduler.restart_cancel_timed_out(restart_id, cause, self._now()))

    def _restart_due(self, restart_id: int) -> None:
        if self._checkpoints.in_doubt:
            _log.info("the job %r waits with its restart: its checkpoints are in doubt", self.graph.job.name)
        self._carry_out(self._scheduler.restart_due(restart_id, self._now()))

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

    def _slots_timed_out(self) -> None:
        seconds = self._settings.slot_request_timeout
        text = f"no slots within {seconds:g} s (slot.request.timeout): the job {self.waiting_for()}"
        cause = failure_of(NoResourceAvailableError, text)
        self._carry_out(self._scheduler.slots_timed_out(cause, self._now()))

    def _check(self) -> None:
        self._carry_out(self._scheduler.check(self._now()))
