"""LostWorker: the failure cause after a worker's death: whose code it ran, how it ended, its last output. Pure.

Owner: none. Must not read files or ask processes: the caller passes the evidence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from yarrow.container.launch.worker_launcher import WorkerExit
from yarrow.container.protocol.errors import WorkerLostError
from yarrow.container.protocol.worker_protocol import CurrentUserCall
from yarrow.container.supervisor.slot_table import SubtaskName
from yarrow.runtime.common.ids import ExecutionAttemptID
from yarrow.runtime.rpc.messages import FailureCause

EXCEPTION_NAME = f"{WorkerLostError.__module__}.{WorkerLostError.__qualname__}"
#: Begins the file of a frame of generated code, which calls the user's functions.
_ENGINE_FRAME = 'File "<yarrow '
_CRASHED_THREAD = "Current thread "
_GENERATED_FRAME = re.compile(r'File "(<yarrow chain [^"]*>)", line (\d+) in ')
#: Most tasks that are named; the rest is counted.
_NAMED_TASKS = 3


def lost_worker_cause(
    slot_index: int,
    end: WorkerExit,
    tasks: Mapping[ExecutionAttemptID, SubtaskName],
    call: CurrentUserCall | None,
    tail: str,
    supervisor_cause: str = "",
) -> FailureCause:
    """The cause of failure for all tasks of the worker.

    `call` is the last operator that it was known to run, and `tail` is the end of its raw output.
    `supervisor_cause` is set if the supervisor ended the worker on purpose.
    """
    message = f"the worker of slot {slot_index} {end} while {_doing(tasks, call)}"
    told = "" if call is None else call.end
    if supervisor_cause or told:
        message += f": {supervisor_cause or told}"
    elif end.status is not None:
        message += ": user code ended the process (sys.exit, os._exit), or a library did"
    stacktrace = f"{EXCEPTION_NAME}: {message}"
    if call is not None and call.stack and _CRASHED_THREAD not in tail:
        stacktrace = f"Traceback (most recent call last):\n{call.stack}{stacktrace}"
    if tail:
        stacktrace += f"\nThe last output of the worker:\n{_without_other_threads(tail)}"
    return FailureCause(
        exception_name=EXCEPTION_NAME,
        message=message,
        stacktrace=stacktrace,
        operator_name=call.operator_name if call is not None else "",
        record=call.record if call is not None else "",
    )


def crashed_frame(tail: str) -> tuple[str, int] | None:
    """File and line of the innermost generated frame in a crash dump; None without a dump or such a frame."""
    _, crashed, dump = tail.rpartition(_CRASHED_THREAD)
    if not crashed:
        return None
    found = _GENERATED_FRAME.search(dump.partition("\n\n")[0])
    return None if found is None else (found[1], int(found[2]))


def _without_other_threads(tail: str) -> str:
    """The stack of the crashed thread, down to our own frames, from a crash dump.

    Any other text is returned whole.

    Python's faulthandler writes the threads in arbitrary order and lists the C extensions at the end.
    """
    before, crashed, dump = tail.rpartition(_CRASHED_THREAD)
    if not crashed:
        return tail
    reason = [line for line in before.splitlines() if line.startswith("Fatal Python error")]
    stack = dump.partition("\n\n")[0].splitlines()
    first_of_ours = next((i for i, line in enumerate(stack) if _ENGINE_FRAME in line), len(stack))
    # A crash in the engine itself is shown whole.
    shown = stack[:first_of_ours] if first_of_ours > 1 else stack
    return "\n".join([*reason[-1:], f"{crashed}{shown[0]}", *shown[1:]])


def _with_record(call: CurrentUserCall) -> str:
    if not call.record:
        return ""
    if call.end:
        return f" with the record {call.record}"
    return f". When it was last looked at, it had the record {call.record}"


def _doing(tasks: Mapping[ExecutionAttemptID, SubtaskName], call: CurrentUserCall | None) -> str:
    if call is not None:
        task = tasks.get(call.attempt_id)
        where = f" (subtask {task.subtask + 1}/{task.parallelism})" if task is not None else ""
        return f"it ran operator '{call.operator_name}'{where}{_with_record(call)}"
    if not tasks:
        return "it ran no task"
    names = [str(task) for task in tasks.values()]
    more = f" and {len(names) - _NAMED_TASKS} more" if len(names) > _NAMED_TASKS else ""
    return f"it ran {', '.join(names[:_NAMED_TASKS])}{more}"
