"""Bootstrap functions in the operator of process functions: state and event-time timers are the operator's.

Processing-time timers are not set: one whose time has passed would fire while state is being made. Nobody
would hear it, and the restored job would lack it. The operator emits a function's changes of them as rows
`(key, timestamp, registered)`, to be written beside its state. Owner: the calling thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from yarrow.container.state.timers import TimerQueue
from yarrow.datastream.functions import KeyedProcessFunction, RuntimeContext
from yarrow.datastream.functions.timers import TimerService
from yarrow.runtime.data.keys import canonicalize
from yarrow.state_processor.functions import KeyedStateBootstrapFunction

#: A timer of the machine's clock: key, timestamp, and True = registered, False = deleted.
TimerChange = tuple[Any, int, bool]


class Bootstrapping(KeyedProcessFunction[Any, Any, TimerChange]):
    """Runs a bootstrap function; it emits the function's changes of timers of the machine's clock."""

    def __init__(self, function: KeyedStateBootstrapFunction[Any, Any]) -> None:
        self._function = function

    def open(self, runtime_context: RuntimeContext) -> None:
        self._context = _Context()
        self._function.open(runtime_context)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[TimerChange]:
        changes: list[TimerChange] = []
        self._context.begin(ctx, changes)
        self._function.process_element(value, self._context)
        return changes

    def close(self) -> None:
        self._function.close()


class _Context(KeyedStateBootstrapFunction.Context, TimerService):
    """The operator as the bootstrap function sees it, row after row."""

    def begin(self, ctx: KeyedProcessFunction.Context, changes: list[TimerChange]) -> None:
        """The next row."""
        self._key = ctx.get_current_key
        self._timers = ctx.timer_service()
        self._changes = changes

    def get_current_key(self) -> Any:
        return self._key()

    def timer_service(self) -> TimerService:
        return self

    def current_processing_time(self) -> int:
        return self._timers.current_processing_time()

    def current_watermark(self) -> int:
        return self._timers.current_watermark()

    def register_event_time_timer(self, timestamp: int) -> None:
        self._timers.register_event_time_timer(timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._timers.delete_event_time_timer(timestamp)

    def register_processing_time_timer(self, timestamp: int) -> None:
        # The operator refuses a value that is no time; nothing fires within a row.
        self._timers.register_processing_time_timer(timestamp)
        self._timers.delete_processing_time_timer(timestamp)
        self._changes.append((self._key(), timestamp, True))

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._changes.append((self._key(), timestamp, False))


def note_timers(changes: Iterable[TimerChange], timers: TimerQueue) -> None:
    """Carry out in a queue the changes that functions have made to timers."""
    for key, timestamp, registered in changes:
        change = timers.register if registered else timers.delete
        change(timestamp, canonicalize(key))
