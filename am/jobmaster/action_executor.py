"""ActionExecutor: carries out the actions of the JobScheduler.

It asks for slots and frees them, deploys and cancels tasks, and arms pauses and limits.

Owner: the JobMaster's loop. Must not decide anything itself. The part that carries an action out tells the
scheduler of its outcome.
"""

from __future__ import annotations

from collections.abc import Callable

from yarrow.am.jobmaster.checkpoints.checkpoint_link import CheckpointLink
from yarrow.am.jobmaster.collecting.collect_buffers import CollectBuffers
from yarrow.am.jobmaster.links.resource_manager_link import ResourceManagerLink
from yarrow.am.jobmaster.registered_task_executors import RegisteredTaskExecutors
from yarrow.am.jobmaster.rescale_requests import RescaleRequests
from yarrow.am.jobmaster.scheduler_timers import SchedulerTimers
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
from yarrow.am.jobmaster.task_deployments import TaskDeployments
from yarrow.common.job_status import JobStatus


class ActionExecutor:
    """Hands each action of one job's scheduler to the part that carries it out."""

    def __init__(
        self,
        resource_manager: ResourceManagerLink,
        task_executors: RegisteredTaskExecutors,
        deployments: TaskDeployments,
        timers: SchedulerTimers,
        checkpoints: CheckpointLink,
        collects: CollectBuffers,
        rescales: RescaleRequests,
        on_job_ended: Callable[[JobStatus], None],
    ) -> None:
        self._resource_manager = resource_manager
        self._task_executors = task_executors
        self._deployments = deployments
        self._timers = timers
        self._checkpoints = checkpoints
        self._collects = collects
        self._rescales = rescales
        self._on_job_ended = on_job_ended

    def carry_out(self, actions: Actions) -> None:
        """Carries out the actions in their order."""
        for action in actions:
            self._do(action)
        self._timers.watch_slots()

    def _do(self, action: SchedulerAction) -> None:
        match action:
            case DeclareRequirements(slots):
                self._resource_manager.declare(slots)
            case SlotsAccepted():
                pass  # The answer to an offer: the caller takes it from the actions.
            case Deploy(executions):
                self._deployments.deploy(executions)
            case CancelTasksAction():
                self._task_executors.cancel(action)
            case FreeSlot():
                self._task_executors.free_slot(action)
            case ArmCancellationTimeout():
                self._timers.arm_cancellation(action)
            case ArmRestart():
                self._timers.arm_restart(action)
            case TasksRestarting(attempts):
                self._timers.announce_restart(action)
                self._collects.restart(attempts)
                self._checkpoints.on_restart(attempts)
            case JobReplaced():
                self._collects.replaced(self._checkpoints.checkpoint_id)
            case RescaleSlotsAnswered(failure):
                self._rescales.slots_answered(failure)
            case RescaleEnded(failure):
                self._rescales.rescaling.ended(failure)
            case ResetReaderAction():
                self._deployments.reset_reader(action)
            case JobEnded(status):
                self._on_job_ended(status)
