"""SchedulerDecisions: tells the JobScheduler what happens, and carries out what it decides: slots are asked for and
freed, tasks deployed and cancelled, pauses and limits armed.

Owner: the JobMaster's loop. A part of the JobMaster class. Must not decide anything itself: what comes of a decision,
or of the time that was armed for one, is told to the scheduler, whose answer is carried out in turn.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from functools import partial

from yarrow.am.execution.errors import NoResourceAvailableError, TaskExecutorLostError, failure_of
from yarrow.am.execution.execution_graph import Execution, ExecutionGraph
from yarrow.am.jobmaster.checkpoints.checkpoint_link import CheckpointLink
from yarrow.am.jobmaster.collecting.collect_buffers import CollectBuffers
from yarrow.am.jobmaster.links.deployment import EncodedGraph, build_deployments
from yarrow.am.jobmaster.links.named_timers import NamedTimers
from yarrow.am.jobmaster.links.operator_events import OperatorEvents
from yarrow.am.jobmaster.links.resource_manager_link import ResourceManagerLink
from yarrow.am.jobmaster.links.task_executor_link import TaskExecutorLink
from yarrow.am.jobmaster.rescaling import Rescaling
from yarrow.am.jobmaster.scheduling.job_scheduler import JobScheduler
from yarrow.am.jobmaster.scheduling.restarts import restart_reason
from yarrow.am.jobmaster.scheduling.scheduler_actions import (
    Actions,
    ArmCancellationTimeout,
    ArmRestart,
    CancelTasksAction,
    DeclareRequirements,
    Deploy,
    FreeSlot,
    JobEnded,
    JobReplaced,
    RescaleEnded,
    RescaleSlotsAnswered,
    ResetReaderAction,
    SchedulerAction,
    SlotsAccepted,
    TasksRestarting,
)
from yarrow.am.jobmaster.scheduling.scheduler_events import (
    CancellationTimedOut,
    CheckpointsChanged,
    ClientAwaited,
    FailedGlobally,
    RestartCancellationTimedOut,
    RestartDue,
    SchedulerEvent,
    SlotRequestTimedOut,
    TasksLost,
)
from yarrow.am.jobmaster.scheduling.settings import JobMasterSettings
from yarrow.am.jobmaster.scheduling.slot_pool import SlotPool
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import ExecutionAttemptID, JobMasterID, ResourceID
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.messages import FailureCause

#: Seconds that a TaskExecutor gets to kill a worker before its JobMaster has it killed.
_KILL_GRACE = 5.0
#: Name of the timer of slot.request.timeout, which runs while the job waits for slots.
_SLOT_REQUEST = "slot request"
#: Of the same one, while a rescale waits for slots.
RESCALE_SLOTS = "slots for a rescale"
_log = logging.getLogger(__name__)


class SchedulerDecisions(RpcEndpoint):
    """The methods of a JobMaster that do what its JobScheduler says."""

    leader_id: JobMasterID
    graph: ExecutionGraph
    _checkpoints: CheckpointLink
    _collects: CollectBuffers
    _encoded: EncodedGraph
    _events: OperatorEvents
    #: Slots to give back at the end of the job.
    _last_slots: list[FreeSlot]
    _links: dict[ResourceID, TaskExecutorLink]
    _pool: SlotPool
    _rescaling: Rescaling
    _resource_manager: ResourceManagerLink
    _scheduler: JobScheduler
    _settings: JobMasterSettings
    _timers: NamedTimers
    #: What the scheduler was last told of `graph.is_ending`.
    _told_ending: bool = False

    @abstractmethod
    def _now(self) -> float:
        """Monotonic time."""

    @abstractmethod
    def waiting_for(self) -> str:
        """What the job waits for."""

    @abstractmethod
    def _job_replaced(self, job: JobGraph) -> None:
        """The job goes on as that one."""

    @abstractmethod
    async def _conclude(self) -> None:
        """The job has ended."""

    def _decide(self, event: SchedulerEvent) -> Actions:
        """Tells the scheduler, and does what it says; the actions."""
        self.assert_main_thread()
        if self.graph.is_ending != self._told_ending:
            self._told_ending = self.graph.is_ending
            self._scheduler.handle(ClientAwaited(event.now, self._told_ending))
        actions = self._scheduler.handle(event)
        self._carry_out(actions)
        return actions

    def checkpoints_changed(self, in_doubt: bool, ends_with_savepoint: bool) -> None:
        """No action follows at once: a restart looks at it when it is due."""
        self._scheduler.handle(CheckpointsChanged(self._now(), in_doubt, ends_with_savepoint))

    def _carry_out(self, actions: Actions) -> None:
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
        self.loop.call_soon(lambda: self._decide(FailedGlobally(self._now(), cause)))

    def _do(self, action: SchedulerAction) -> None:
        match action:
            case DeclareRequirements(slots):
                self._resource_manager.declare(slots)
            case SlotsAccepted():
                pass  # The answer to the offer: `offer_slots` takes it from the actions.
            case Deploy(executions):
                self._deploy(executions)
            case CancelTasksAction(resource_id, attempts):
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
            case RescaleSlotsAnswered(failure):
                self._timers.cancel(RESCALE_SLOTS)
                self._rescaling.slots_answered(failure)
            case RescaleEnded(failure):
                self._rescaling.ended(failure)
            case ResetReaderAction():
                self._events.reset_reader(action, self._checkpoints.checkpoint_id)
            case JobEnded(status):
                text = f"the job is {status.value}"
                self._rescaling.ended(FailureCause(exception_name="", message=text, stacktrace=text))
                self.spawn(self._conclude(), "conclude")

    def _tell_restart(self, tasks: int, delay: float, cause: FailureCause) -> None:
        _log.warning(
            "the job %r restarts %d of its tasks in %.3g s, after a failure%s",
            self.graph.job.name,
            tasks,
            delay,
            restart_reason(cause, self.graph.task_that_failed_by(cause)),
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
        self._decide(TasksLost(self._now(), attempts, cause))

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
        self._decide(CancellationTimedOut(self._now(), self._not_ended_in_time()))

    def _restart_cancel_timed_out(self, restart_id: int) -> None:
        cause = failure_of(TaskExecutorLostError, self._not_ended_in_time())
        self._decide(RestartCancellationTimedOut(self._now(), restart_id, cause))

    def _restart_due(self, restart_id: int) -> None:
        if self._checkpoints.in_doubt:
            _log.info("the job %r waits with its restart: its checkpoints are in doubt", self.graph.job.name)
        self._decide(RestartDue(self._now(), restart_id))

    def _slots_timed_out(self) -> None:
        seconds = self._settings.slot_request_timeout
        text = f"no slots within {seconds:g} s (slot.request.timeout): the job {self.waiting_for()}"
        cause = failure_of(NoResourceAvailableError, text)
        self._decide(SlotRequestTimedOut(self._now(), cause))
