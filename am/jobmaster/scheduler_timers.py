"""SchedulerTimers: the pauses and time limits of the scheduler. Each becomes an event when it has passed.

Owner: the JobMaster's loop. Must not decide what follows.
"""

from __future__ import annotations

import logging
from functools import partial

from yarrow.am.execution.errors import NoResourceAvailableError, TaskExecutorLostError, failure_of
from yarrow.am.execution.execution_graph import ExecutionGraph
from yarrow.am.jobmaster.checkpoints.checkpoint_link import CheckpointLink
from yarrow.am.jobmaster.decide import Decide
from yarrow.am.jobmaster.links.named_timers import NamedTimers
from yarrow.am.jobmaster.missing_slots import MissingSlots
from yarrow.am.jobmaster.scheduling.restarts import restart_reason
from yarrow.am.jobmaster.scheduling.scheduler_actions import (
    ArmCancellationTimeout,
    ArmRestart,
    TasksRestarting,
)
from yarrow.am.jobmaster.scheduling.scheduler_events import (
    CancellationTimedOut,
    RestartCancellationTimedOut,
    RestartDue,
    SlotRequestTimedOut,
)
from yarrow.am.jobmaster.scheduling.settings import JobMasterSettings
from yarrow.runtime.common.clock import Clock

#: Seconds in which a TaskExecutor has to kill a worker, before the JobMaster has it killed.
_KILL_GRACE_SECONDS = 5.0
#: Name of the timer of slot.request.timeout, which runs while the job waits for slots.
_SLOT_REQUEST = "slot request"
_log = logging.getLogger(__name__)


class SchedulerTimers:
    """The timers of one job's scheduler."""

    def __init__(
        self,
        timers: NamedTimers,
        graph: ExecutionGraph,
        checkpoints: CheckpointLink,
        missing_slots: MissingSlots,
        settings: JobMasterSettings,
        clock: Clock,
        decide: Decide,
    ) -> None:
        self._timers = timers
        self._graph = graph
        self._checkpoints = checkpoints
        self._missing_slots = missing_slots
        self._settings = settings
        self._now = clock.monotonic
        self._decide = decide

    # Restarts.

    def announce_restart(self, action: TasksRestarting) -> None:
        """Logs which failure restarts how many tasks, and when; logs nothing without a failure."""
        if action.cause is None:
            return
        _log.warning(
            "the job %r restarts %d of its tasks in %.3g s, after a failure%s",
            self._graph.job.name,
            len(action.attempts),
            action.delay,
            restart_reason(action.cause, self._graph.task_that_failed_by(action.cause)),
        )

    def arm_restart(self, action: ArmRestart) -> None:
        """Arms the timer of RestartDue."""
        restart_id = action.restart_id
        self._timers.after(f"restart {restart_id}", action.seconds, partial(self._restart_due, restart_id))

    def _restart_due(self, restart_id: int) -> None:
        if self._checkpoints.in_doubt:
            _log.info("the job %r postpones its restart: its checkpoints are in doubt", self._graph.job.name)
        self._decide(RestartDue(self._now(), restart_id))

    # Cancellations.

    def arm_cancellation(self, action: ArmCancellationTimeout) -> None:
        """Arms CancellationTimedOut, or RestartCancellationTimedOut for a restart; does nothing without a limit."""
        timeout, restart_id = self._settings.cancellation_timeout, action.restart_id
        if timeout <= 0:
            return
        if restart_id is None:
            self._timers.after("cancellation", timeout, self._cancellation_timed_out)
        else:
            # The TaskExecutor normally kills the worker of such a task itself; this timer serves if it does
            # not.
            name = f"cancellation of restart {restart_id}"
            late = partial(self._restart_cancel_timed_out, restart_id)
            self._timers.after(name, timeout + _KILL_GRACE_SECONDS, late)

    def _not_ended_in_time(self) -> str:
        seconds = self._settings.cancellation_timeout
        return f"the task did not end within {seconds:g} s of its cancellation (task.cancellation.timeout)"

    def _cancellation_timed_out(self) -> None:
        self._decide(CancellationTimedOut(self._now(), self._not_ended_in_time()))

    def _restart_cancel_timed_out(self, restart_id: int) -> None:
        cause = failure_of(TaskExecutorLostError, self._not_ended_in_time())
        self._decide(RestartCancellationTimedOut(self._now(), restart_id, cause))

    # Slots.

    def watch_slots(self) -> None:
        """Arms SlotRequestTimedOut while the job lacks slots; call it after each change."""
        if not self._missing_slots.any:
            self._timers.cancel(_SLOT_REQUEST)
        elif not self._timers.is_set(_SLOT_REQUEST):
            self._timers.after(_SLOT_REQUEST, self._settings.slot_request_timeout, self._slots_timed_out)

    def _slots_timed_out(self) -> None:
        seconds = self._settings.slot_request_timeout
        waiting_for = self._missing_slots.waiting_for()
        text = f"no slots within {seconds:g} s (slot.request.timeout): the job {waiting_for}"
        cause = failure_of(NoResourceAvailableError, text)
        self._decide(SlotRequestTimedOut(self._now(), cause))
