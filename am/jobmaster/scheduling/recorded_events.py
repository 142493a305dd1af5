"""The stored form of a JobScheduler's events and actions: without programs and results, texts cut, secrets redacted.

Owner: none (pure functions). A stored event leads to the same decisions as the original, because no decision
reads the parts that are left out. The stored form of an action holds no text, so that stored and repeated
actions can be compared.
"""

from __future__ import annotations

import re
from typing import Any, Final

from msgspec import structs

from yarrow.am.jobmaster.scheduling.scheduler_actions import (
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
    FailedGlobally,
    JobCancelled,
    JobFailed,
    JobSuspended,
    RescaleBegun,
    RescaleSlotsFailed,
    RescaleSlotsWanted,
    RestartCancellationTimedOut,
    SchedulerEvent,
    SlotLost,
    SlotRequestTimedOut,
    SlotsOffered,
    TaskExecutorLost,
    TasksLost,
    TasksUpdated,
)
from yarrow.am.jobmaster.scheduling.scheduler_state import SchedulerSnapshot, without_programs
from yarrow.common.values.secret_keys import REDACTED, is_secret_key
from yarrow.runtime.rpc.messages import FailureCause, SlotOffer, TaskExecutionStateUpdate

#: Most characters of a stored message, and of a stack trace, counted from its end.
_MESSAGE_CHARACTERS: Final = 300
_STACKTRACE_CHARACTERS: Final = 1500
#: The name in `name: value` or `name=value`, with or without quotes.
_NAME: Final = re.compile(r"""(?<![\w.-])(?P<name>[\w.-]+)["']?\s*[:=]\s*""")
#: A value ends with its quotes, or at white space or a separator; text in brackets belongs to it.
_VALUE: Final = re.compile(
    r"""
    "[^"]*" | '[^']*'
    | (?:(?:Bearer|Basic)\s+)?
      (?: "[^"\n]*"? | '[^'\n]*'? | [(\[{][^)\]}\n]*[)\]}]? | [^\s,;&"'] )+
    """,
    re.VERBOSE,
)
#: User and password of an address.
_USER_OF_ADDRESS: Final = re.compile(r"://[^/\s]+@")

RecordedAction = dict[str, Any]


def recorded_event(event: SchedulerEvent) -> SchedulerEvent:
    """The part of an event that is needed to repeat its decision."""
    match event:
        case SlotsOffered(_, _, offers):
            return structs.replace(event, offers=tuple(map(_recorded_offer, offers)))
        case TasksUpdated(_, updates):
            return structs.replace(event, updates=tuple(map(_recorded_update, updates)))
        case RescaleSlotsWanted(_, job) | RescaleBegun(_, job):
            return structs.replace(event, job=without_programs(job))
        case RescaleSlotsFailed(_, why):
            return structs.replace(event, why=cut(why))
        case JobCancelled(_, reason):
            return structs.replace(event, reason=cut(reason))
        case CancellationTimedOut(_, text):
            return structs.replace(event, text=cut(text))
        case JobSuspended(_, text):
            return structs.replace(event, cause=cut(text))
        case (
            SlotLost()
            | TaskExecutorLost()
            | TasksLost()
            | SlotRequestTimedOut()
            | JobFailed()
            | FailedGlobally()
            | RestartCancellationTimedOut()
        ):
            return structs.replace(event, cause=recorded_cause(event.cause))
        case _:
            return event


def recorded_snapshot(snapshot: SchedulerSnapshot) -> SchedulerSnapshot:
    """The part of a snapshot that is needed to repeat decisions."""
    rescale = snapshot.rescale
    return structs.replace(
        snapshot,
        job=without_programs(snapshot.job),
        rescale=structs.replace(
            rescale,
            next_job=rescale.next_job and without_programs(rescale.next_job),
            fallback=rescale.fallback and without_programs(rescale.fallback),
            failure=rescale.failure and recorded_cause(rescale.failure),
        ),
    )


def recorded_cause(cause: FailureCause) -> FailureCause:
    """The cause with its texts cut, and without the current record."""
    trace = redacted(cause.stacktrace)
    if len(trace) > _STACKTRACE_CHARACTERS:
        trace = f"(cut) ...{trace[-_STACKTRACE_CHARACTERS:]}"
    record = f"(left out: {len(cause.record)} characters)" if cause.record else ""
    return structs.replace(cause, message=cut(cause.message), stacktrace=trace, record=record)


def cut(text: str) -> str:
    """The beginning of a text, without its secrets."""
    text = redacted(text)
    return text if len(text) <= _MESSAGE_CHARACTERS else f"{text[:_MESSAGE_CHARACTERS]}... (cut)"


def redacted(text: str) -> str:
    """The text without values of names that look secret (`is_secret_key`), and without users in addresses."""
    # Text that cannot be encoded, as in a foreign file name, must not fail the caller.
    text = text.encode("utf-8", "backslashreplace").decode()
    text = _USER_OF_ADDRESS.sub(f"://{REDACTED}@", text)
    parts, end = list[str](), 0
    for found in _NAME.finditer(text):
        name = found["name"]
        if found.start() < end or not (is_secret_key(name) or name.lower() == "authorization"):
            continue
        if (value := _VALUE.match(text, found.end())) is not None:
            parts += (text[end : found.end()], REDACTED)
            end = value.end()
    return "".join((*parts, text[end:]))


def _recorded_offer(offer: SlotOffer) -> SlotOffer:
    return structs.replace(offer, worker=structs.replace(offer.worker, unix_path="", host_key=""))


def _recorded_update(update: TaskExecutionStateUpdate) -> TaskExecutionStateUpdate:
    cause = recorded_cause(update.cause) if update.cause is not None else None
    return structs.replace(
        update,
        cause=cause,
        accumulators={},
        metrics={},
        late_records=(),
        threads_left=tuple(map(cut, update.threads_left)),
    )


def recorded_action(action: SchedulerAction) -> RecordedAction:
    """An action in JSON types. Of a failure it keeps only that there is one."""
    return {"action": type(action).__name__, **_fields(action)}


def _fields(action: SchedulerAction) -> RecordedAction:
    match action:
        case DeclareRequirements(slots):
            return {"slots": slots}
        case SlotsAccepted(allocations):
            return {"allocations": list(allocations)}
        case Deploy(executions):
            return {
                "executions": [
                    [each.attempt_id, each.allocation_id, each.worker.resource_id if each.worker else None]
                    for each in executions
                ]
            }
        case CancelTasksAction(resource_id, attempts):
            return {"resource_id": resource_id, "attempts": list(attempts)}
        case FreeSlot(slot):
            return {"allocation_id": slot.allocation_id, "resource_id": slot.resource_id}
        case ArmCancellationTimeout(restart_id):
            return {"restart_id": restart_id}
        case ArmRestart(restart_id, seconds):
            return {"restart_id": restart_id, "seconds": seconds}
        case TasksRestarting(attempts, delay, cause):
            return {"attempts": sorted(attempts), "delay": delay, "failed": cause is not None}
        case ResetReaderAction(resource_id, vertex_id, operator_id, subtask, attempt_id):
            return {
                "resource_id": resource_id,
                "vertex_id": vertex_id,
                "operator_id": operator_id,
                "subtask": subtask,
                "attempt_id": attempt_id,
            }
        case JobReplaced(job):
            return {"parallelism": {vertex.id: vertex.parallelism for vertex in job.vertices}}
        case RescaleSlotsAnswered(failure) | RescaleEnded(failure):
            return {"failed": failure is not None}
        case JobEnded(status):
            return {"status": status.value}
