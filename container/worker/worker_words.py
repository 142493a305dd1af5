"""WorkerWords: notes in the worker's folder what its tasks are doing, with the record, for whoever finds it dead.

Owner: the worker's task thread; LastWords has a thread of its own, which tells what it sees. Must not cost a row
anything. One-process workers have none, since nobody outlives them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from yarrow.container.operators.base import Operator
from yarrow.container.protocol.worker_protocol import CurrentUserCall
from yarrow.container.worker.current_call import CurrentCallWriter
from yarrow.container.worker.last_words import LastWords
from yarrow.container.worker.present_call import PresentCall, RunningCode, shown_record
from yarrow.runtime.common.ids import ExecutionAttemptID, OperatorID

#: Gives the operators of the running tasks. Any thread.
Operators = Callable[[], Iterable[Operator]]


def noted(calls: CurrentCallWriter, call: PresentCall, end: str, attempt: str = "") -> None:
    """Notes what a task does and how the process ends; `attempt` is that of the only task. Raises OSError."""
    if not call.operator_name:
        calls.note_last(None)
        return
    calls.note_last(
        CurrentUserCall(
            attempt_id=ExecutionAttemptID(call.attempt or attempt),
            operator_id=OperatorID(""),
            operator_name=call.operator_name,
            record=call.record,
            stack=call.stack,
            end=end,
        )
    )


class WorkerWords:
    """The words of one worker, from its start until its process ends."""

    def __init__(self, calls: CurrentCallWriter, operators: Operators) -> None:
        self.code = RunningCode()
        self._operators = operators
        self._words = LastWords(self.code, lambda call, end: noted(calls, call, end), self._in_flight)

    def begin(self) -> None:
        """Looks from now on. Worker's task thread."""
        self._words.__enter__()

    def _in_flight(self) -> PresentCall | None:
        """The oldest call that waits for its answer."""
        for operator in self._operators():
            arguments = operator.calls_in_flight()
            if arguments:
                number = len(arguments)
                more = f" (the oldest of {number} calls in flight)" if number > 1 else ""
                attempt = operator.context.environment.attempt_id
                return PresentCall(operator.name, shown_record(arguments[0]) + more, "", attempt)
        return None
