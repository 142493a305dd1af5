"""WindowTimers: the timers of a window operator, each of a key and a window; WaitingTimers: those that wait, as state.

Owner: the task thread. The namespace of a timer is the stored form of its window. Must not know triggers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from yarrow.common.typeinfo import Types
from yarrow.container.operators.base import OperatorContext
from yarrow.container.state.timers import OperatorTimerService
from yarrow.datastream.state import ListState, ListStateDescriptor
from yarrow.runtime.data.elements import MIN_TIMESTAMP
from yarrow.runtime.data.key_groups import key_group_of, key_group_range_for_operator_index

#: Name of the operator state with the key groups whose timers wait.
WAITING_TIMERS: Final = "_waiting_timers"


class WindowTimers(OperatorTimerService):
    """The timers of both clocks, of the current key and a namespace."""

    def set_event_timer(self, timestamp: int, namespace: Any) -> None:
        """Sets a timer of event time. Raises TimerError for a time that is no int64."""
        self.event_timers.register(self._checked(timestamp), self._key(), namespace)

    def checked(self, timestamp: int) -> int:
        """The time of a timer, as given. Raises TimerError for a time that is no int64."""
        return self._checked(timestamp)

    def delete_event_timer(self, timestamp: int, namespace: Any) -> None:
        """Removes a timer of event time; no effect if it is missing."""
        self.event_timers.delete(timestamp, self._key(), namespace)

    def set_processing_timer(self, timestamp: int, namespace: Any) -> None:
        """Sets a timer of the machine's clock. Raises TimerError for a time that is no int64."""
        self.processing_timers.register(self._checked(timestamp), self._key(), namespace)

    def delete_processing_timer(self, timestamp: int, namespace: Any) -> None:
        """Removes a timer of the machine's clock; no effect if it is missing."""
        self.processing_timers.delete(timestamp, self._key(), namespace)


class WaitingTimers:
    """Whether timers at or below the watermark fire now, or wait for the next watermark.

    A trigger may set such a timer, which fires at the next watermark. A watermark whose timers are firing has others,
    of which a checkpoint holds the rest. So a subtask that fires nothing stores its key groups as those of waiting
    timers, if it has any. Behind a restore these wait for a watermark above the restored one. All others go on at once,
    as do those of snapshots without such marks.
    """

    def __init__(self, context: OperatorContext, restored: int) -> None:
        """`restored`: the restored watermark, MIN_TIMESTAMP = none."""
        environment = context.environment
        own = key_group_range_for_operator_index(
            environment.max_parallelism, environment.parallelism, environment.subtask
        )
        self._own = own.start, own.end
        self._max_parallelism = environment.max_parallelism
        self._operator_state = context.operator_state
        self._state: ListState[Any] | None = None
        marks = context.operator_state.take_union_list(_waiting_groups())
        #: Own key groups whose timers wait for a watermark above the restored one.
        self._marked: list[tuple[int, int]] = [
            (max(first, own.start), min(last, own.end))
            for first, last in marks
            if first <= own.end and own.start <= last
        ]
        #: True until a watermark above the restored one.
        self._restored = restored != MIN_TIMESTAMP
        #: True while a watermark's timers fire, or those that a former subtask had not come to.
        self._under_way = self._restored and not self._all_marked

    @property
    def _all_marked(self) -> bool:
        marked = sum(last - first + 1 for first, last in self._marked)
        return marked == self._own[1] - self._own[0] + 1

    @property
    def held(self) -> bool:
        """True while no timer fires before the next watermark."""
        return self._restored and not self._under_way

    @property
    def waits(self) -> Callable[[Any], bool] | None:
        """Tells whether the timers of a canonical key wait while those of others fire; None = none of them waits."""
        return self._is_marked if self._under_way and self._marked else None

    def _is_marked(self, key: Any) -> bool:
        group = key_group_of(key, self._max_parallelism)
        return any(first <= group <= last for first, last in self._marked)

    def begin(self) -> None:
        """A watermark above the last one has come."""
        self._under_way, self._restored, self._marked = True, False, []

    def end(self) -> None:
        """All timers that are due have fired."""
        self._under_way = False

    def store(self, *, due: bool) -> None:
        """Puts the key groups of waiting timers into the state; `due`: there are timers at or below the watermark."""
        marked = self._marked if self._under_way else [self._own]
        if due and marked:
            if self._state is None:
                self._state = self._operator_state.union_list_state(_waiting_groups())
            self._state.update(marked)
        elif self._state is not None:
            self._state.update([])


def _waiting_groups() -> ListStateDescriptor[Any]:
    """The state: (first key group, last key group) of subtasks whose timers wait."""
    return ListStateDescriptor(WAITING_TIMERS, Types.TUPLE([Types.LONG(), Types.LONG()]))
