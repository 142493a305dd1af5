"""LostTask: the failure cause after the death of a task's Python process: what it did, how it ended. Pure.

Owner: none. The caller passes what the process has told before.
"""

from __future__ import annotations

from typing import Final

from yarrow.container.batch.driver.task_messages import AttemptAt, AttemptStarted
from yarrow.container.protocol.failure import LONGEST_MESSAGE, LONGEST_TRACE
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.short_text import cut_in_the_middle
from yarrow.runtime.graph.batch.batch_plan import BatchStage
from yarrow.runtime.rpc.messages import FailureCause

_WORDLESS: Final = (
    "has died without a word. It was killed, has run out of memory, or its code has ended the process: see the log of"
    " the SparkDriver"
)


class TaskLostError(YarrowError):
    """The Python process of a task has died, or was killed."""


_NAME: Final = f"{TaskLostError.__module__}.{TaskLostError.__qualname__}"


def lost_task_cause(stage: BatchStage, started: AttemptStarted, last: AttemptAt | None) -> FailureCause:
    """The cause of failure; `last` is what the process has told last of its doing, None = nothing."""
    superstep = f", superstep {started.superstep}" if started.superstep else ""
    message = (
        f"the Python process {started.pid} of task '{stage.name}' (subtask {started.subtask + 1}/"
        f"{stage.parallelism}{superstep}) "
    )
    if last is None:
        message = cut_in_the_middle(message + _WORDLESS, LONGEST_MESSAGE)
        return FailureCause(exception_name=_NAME, message=message, stacktrace=f"{_NAME}: {message}")
    doing = f"operator '{last.operator_name}'" + (f" with the record {last.record}" if last.record else "")
    if last.end:
        message += f"has died while it ran {doing}: {last.end}"
    else:
        message += f"{_WORDLESS}. When it was last looked at, it ran {doing}"
    message = cut_in_the_middle(message, LONGEST_MESSAGE)
    where = f"  in operator '{last.operator_name}', task '{stage.name}'\n"
    record = f"  while it had the record {last.record}\n" if last.record else ""
    stack = f"Traceback (most recent call last):\n{last.stack}" if last.stack else ""
    return FailureCause(
        exception_name=_NAME,
        message=message,
        stacktrace=cut_in_the_middle(f"{stack}{_NAME}: {message}\n{where}{record}", LONGEST_TRACE),
        operator_name=last.operator_name,
        record=last.record,
    )
