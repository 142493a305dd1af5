"""Tasks that are cancelled or have failed, as the JobMaster decides: their states, and whom to tell.

Owner: the JobMaster's loop, by way of the JobScheduler. Pure. What follows from an end is decided there.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from yarrow.am.execution.execution_graph import Execution
from yarrow.am.jobmaster.scheduling.scheduler_actions import Actions, CancelTasks
from yarrow.runtime.common.ids import ExecutionAttemptID, ResourceID
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import FailureCause


def cancel_tasks(executions: Iterable[Execution]) -> Actions:
    """Cancels what lives: here what was not deployed, by its TaskExecutor the rest."""
    asked: dict[ResourceID, list[ExecutionAttemptID]] = {}
    for execution in executions:
        if execution.state in (ExecutionState.CREATED, ExecutionState.SCHEDULED):
            execution.machine.transition(ExecutionState.CANCELED)
        elif execution.machine.can(ExecutionState.CANCELING) and execution.worker is not None:
            execution.machine.transition(ExecutionState.CANCELING)
            asked.setdefault(execution.worker.resource_id, []).append(execution.attempt_id)
    return [CancelTasks(resource, tuple(attempts)) for resource, attempts in asked.items()]


def fail_tasks(
    executions: Iterable[Execution], cause: FailureCause
) -> tuple[list[Execution], list[Execution]]:
    """Marks what lives as ended: those that have FAILED by the cause, and those that were being cancelled."""
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
    """Why it has FAILED."""
    return execution.cause or _cause(f"{execution.title} failed and its worker gave no cause")


def unexpected_cancel(execution: Execution) -> FailureCause:
    """Why it is CANCELED although nobody has cancelled it."""
    return _cause(f"{execution.title} was cancelled by its worker, not by the JobMaster")


def last_cause(cause: FailureCause, restarts: int, strategy: str) -> FailureCause:
    """The cause of a job that fails for good: the last one, and why it does not restart once more."""
    if not restarts:
        return cause
    told = cause.stacktrace.rstrip() or f"{cause.exception_name}: {cause.message}"
    times = "once" if restarts == 1 else f"{restarts} times"
    return structs.replace(
        cause, stacktrace=f"{told}\nThe job had restarted {times}, and does not again ({strategy})."
    )


def restart_reason(cause: FailureCause, task: str) -> str:
    """Behind "after a failure": where it was, at which record, what it was, and its traceback on lines of its own.

    `task`: the title of the task that failed, "" = it was no single task's.
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
