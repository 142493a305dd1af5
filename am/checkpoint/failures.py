"""Failure causes of checkpoints, as text.

Owner: the JobMaster's loop. Pure; failure_manager.py decides how many failures a job survives.
"""

from __future__ import annotations

import msgspec

from yarrow.am.checkpoint.completed import CompletedCheckpoint
from yarrow.am.checkpoint.pending import PendingCheckpoint
from yarrow.am.execution.errors import failure_of, trace_of
from yarrow.runtime.common.errors import CheckpointFailedError
from yarrow.runtime.config.options import checkpointing
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.messages import FailureCause

#: Most tasks that a message names; it counts the rest.
_NAMED = 5


def expired_cause(
    pending: PendingCheckpoint, job: JobGraph, timeout: float, retried: str = ""
) -> FailureCause:
    """The checkpoint timed out; names the missing tasks.

    `retried`: why storage is being retried now, "" = it is not.
    """
    waiting = _missing(pending, job)
    if retried:
        waiting += f"; the JobMaster retries checkpoint storage, whose last error was: {retried}"
    return failure_of(
        CheckpointFailedError,
        f"checkpoint {pending.checkpoint_id} expired before completing: it took longer than {timeout:g} s"
        f" (execution.checkpointing.timeout){waiting}",
    )


def _missing(pending: PendingCheckpoint, job: JobGraph) -> str:
    names: list[str] = []
    if pending.plan is not None:
        titles = {vertex.id: vertex.name for vertex in job.vertices}
        places = [pending.plan.acknowledge[attempt] for attempt in pending.missing_tasks]
        names = [f"{titles[vertex]} ({subtask + 1})" for vertex, subtask in sorted(places)]
    if pending.missing_coordinators:
        return "; the split enumerators of its sources did not answer"
    if not names:
        return f"; its state was {pending.state.value}"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"; not acknowledged by {', '.join(names[:_NAMED])}{more}"


def restart_cause(why: str) -> FailureCause:
    """The checkpoint was given up because tasks restart."""
    return failure_of(CheckpointFailedError, f"the checkpoint was aborted: {why}")


def union_cause(operator: str) -> FailureCause:
    """A union list would lack the elements of subtasks that have ended."""
    return failure_of(
        CheckpointFailedError,
        f"operator {operator!r} has a union list state, and some of its subtasks have ended. No "
        "checkpoint can hold the elements of the ended subtasks. Let all subtasks of the operator end "
        "together, or use get_list_state, which deals the elements out",
    )


def unavailable_cause(job_name: str, why: str) -> FailureCause:
    """No checkpoint is possible now."""
    return failure_of(CheckpointFailedError, f"job {job_name!r} takes no checkpoint now: {why}")


def final_cause(cause: FailureCause, latest: CompletedCheckpoint | None) -> FailureCause:
    """The cause of a job that failed by a final error, with the place of the checkpoint that stays."""
    if latest is None:
        return cause
    what = "Savepoint" if latest.kind.is_savepoint else f"Checkpoint {latest.checkpoint_id}"
    if latest.pointer:
        told = (
            f"{what} of the job stays at {latest.pointer}. Mend the cause, then start the program again from there:"
            f" yarrow run -s {latest.pointer}"
        )
    else:
        told = f"{what} of the job was in the master's memory alone, and is lost. Set {checkpointing.DIRECTORY.key}"
    return msgspec.structs.replace(
        cause,
        message=f"{cause.message.removesuffix('.')}. {told}",
        stacktrace=f"{trace_of(cause)}\n{told}.\n",
    )
