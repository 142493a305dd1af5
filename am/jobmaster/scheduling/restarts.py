"""Restarts under way, and the task ends that lead to them.

Owner: the JobMaster's loop, through the JobScheduler. Pure. A restart is a set of subtasks that have failed
or are being cancelled, and wait to start again. It is ready when all have ended and its pause has passed.
Overlapping sets become one. job_scheduler.py decides what follows from an end, and makes the new attempts.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import structs

from yarrow.am.execution.errors import trace_of
from yarrow.am.execution.execution_graph import Execution
from yarrow.am.jobmaster.scheduling.regions import Subtask
from yarrow.am.jobmaster.scheduling.scheduler_actions import Actions, CancelTasksAction
from yarrow.runtime.common.ids import ExecutionAttemptID, ResourceID
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import FailureCause


class PendingRestart(msgspec.Struct):
    """One set of subtasks that restart together."""

    id: int
    members: frozenset[Subtask]
    #: Seconds from the failure to the new attempts.
    delay: float
    #: Monotonic time in seconds before which they do not start.
    due: float
    pause_over: bool


class RestartsSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The whole state of Restarts."""

    #: The id of the last restart.
    count: int
    #: Oldest first.
    pending: tuple[PendingRestart, ...]


class Restarts:
    """All restarts of a job that are under way."""

    def __init__(self) -> None:
        self._pending: dict[int, PendingRestart] = {}
        self._of: dict[Subtask, PendingRestart] = {}
        self._count = 0

    def snapshot(self) -> RestartsSnapshot:
        """The present state."""
        return RestartsSnapshot(
            count=self._count, pending=tuple(map(structs.replace, self._pending.values()))
        )

    @classmethod
    def restored(cls, snapshot: RestartsSnapshot) -> Restarts:
        """The restarts of a snapshot."""
        restarts = cls()
        restarts._count = snapshot.count
        for restart in map(structs.replace, snapshot.pending):
            restarts._pending[restart.id] = restart
            restarts._of.update(dict.fromkeys(restart.members, restart))
        return restarts

    def __bool__(self) -> bool:
        return bool(self._pending)

    def __contains__(self, subtask: Subtask) -> bool:
        return subtask in self._of

    def pending(self) -> tuple[PendingRestart, ...]:
        """All of them, oldest first."""
        return tuple(self._pending.values())

    def get(self, restart_id: int) -> PendingRestart | None:
        """The restart with that id; None if it has begun or was merged into another."""
        return self._pending.get(restart_id)

    def of(self, subtask: Subtask) -> PendingRestart | None:
        """The restart to which a subtask belongs."""
        return self._of.get(subtask)

    def add(self, members: frozenset[Subtask], delay: float, now: float) -> PendingRestart:
        """A new restart; it takes in all restarts that share a subtask with it."""
        for other in {id(found): found for member in members if (found := self._of.get(member))}.values():
            members |= other.members
            delay = max(delay, other.due - now)
            self.remove(other)
        self._count += 1
        restart = PendingRestart(self._count, members, delay, now + delay, delay <= 0)
        self._pending[restart.id] = restart
        self._of.update(dict.fromkeys(members, restart))
        return restart

    def remove(self, restart: PendingRestart) -> None:
        """Removes a restart that begins or is given up."""
        del self._pending[restart.id]
        for member in restart.members:
            del self._of[member]

    def clear(self) -> None:
        """Removes all restarts, because the job ends."""
        self._pending.clear()
        self._of.clear()


def cancel_tasks(executions: Iterable[Execution]) -> Actions:
    """Cancels live executions: here if not deployed yet, else through their TaskExecutors."""
    asked: dict[ResourceID, list[ExecutionAttemptID]] = {}
    for execution in executions:
        if execution.state in (ExecutionState.CREATED, ExecutionState.SCHEDULED):
            execution.machine.transition(ExecutionState.CANCELED)
        elif execution.machine.can(ExecutionState.CANCELING) and execution.worker is not None:
            execution.machine.transition(ExecutionState.CANCELING)
            asked.setdefault(execution.worker.resource_id, []).append(execution.attempt_id)
    return [CancelTasksAction(resource, tuple(attempts)) for resource, attempts in asked.items()]


def fail_tasks(
    executions: Iterable[Execution], cause: FailureCause
) -> tuple[list[Execution], list[Execution]]:
    """Ends live executions.

    Returns those that have FAILED by the cause, and those that were being cancelled.
    """
    ended, failed = [], []
    for execution in executions:
        if execution.state.is_terminal:
            continue
        if execution.state is ExecutionState.CANCELING:
            execution.machine.transition(ExecutionState.CANCELED, cause.message)
            ended.append(execution)
        else:
            execution.cause = cause
            execution.machine.transition(ExecutionState.FAILED, cause.message)
            failed.append(execution)
    return failed, ended


def cause_of(execution: Execution) -> FailureCause:
    """Why the execution has FAILED."""
    return execution.cause or _cause(f"{execution.title} failed and its worker gave no cause")


def unexpected_cancel(execution: Execution) -> FailureCause:
    """The cause for an execution that is CANCELED although no cancel was sent."""
    return _cause(f"{execution.title} was cancelled by its worker, not by the JobMaster")


def last_cause(cause: FailureCause, restarts: int, strategy: str) -> FailureCause:
    """The cause of a job that fails for good: the last failure, and why it does not restart."""
    if not restarts:
        return cause
    times = "once" if restarts == 1 else f"{restarts} times"
    return structs.replace(
        cause,
        stacktrace=f"{trace_of(cause)}\nThe job had restarted {times}, and does not again ({strategy}).",
    )


def cause_at_start(cause: FailureCause) -> FailureCause:
    """The cause of a job that its restart strategy would begin again, although only the user can mend the cause."""
    why = "The job does not restart: it has no checkpoint yet, and only you can mend the cause."
    return structs.replace(cause, stacktrace=f"{trace_of(cause)}\n{why}")


def restart_reason(cause: FailureCause, task: str) -> str:
    """The text after "after a failure": place, record, message, and the traceback on lines of its own.

    `task`: the title of the failed task; "" = no single task failed.
    """
    places = [
        f"operator {cause.operator_name!r}" if cause.operator_name else "",
        f"task {task!r}" if task else "",
    ]
    where = " of ".join(filter(None, places))
    record = f" at the record {cause.record}" if cause.record else ""
    kind = cause.exception_name.rpartition(".")[2]
    what = cause.message.strip().partition("\n")[0]
    line = f"{f' in {where}' if where else ''}{record}: {f'{kind}: ' if kind else ''}{what}"
    trace = cause.stacktrace.strip()
    return f"{line}\n{trace}" if trace and trace != cause.message.strip() else line


def _cause(text: str) -> FailureCause:
    return FailureCause(exception_name="", message=text, stacktrace=text)
