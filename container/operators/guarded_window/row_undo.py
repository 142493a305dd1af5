"""RowUndo: takes back what a row has changed of the windows of its key, if the trigger fails at the row.

Owner: the task thread, for one row at a time. A trigger decides behind the change of its window, and may set timers and
state before it fails. So values are kept as they were, and changes of timers are noted. Must not know triggers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from yarrow.container.operators.window.window_states import WindowStates
from yarrow.container.operators.window.window_timers import WindowTimers
from yarrow.container.operators.window.window_values import WindowValues
from yarrow.container.state.timers import TimerQueue
from yarrow.container.state.value_table import MISSING
from yarrow.runtime.data.immutability import freeze_or_copy

#: A value, MISSING = none, of a window.
_Former = tuple[WindowValues[Any], Any, Any]


class NotedTimers(WindowTimers):
    """Timers of windows, whose changes can be taken back while they are noted."""

    #: Queue, time, key and namespace of each changed timer, and whether it was set before; None = nobody asks.
    _changes: list[tuple[TimerQueue, int, Any, Any, bool]] | None = None

    def note_changes(self) -> None:
        """Notes all changes from now on."""
        self._changes = []

    def forget_changes(self) -> None:
        """Ends that."""
        self._changes = None

    def take_back(self) -> None:
        """Takes the noted changes back, the last one first, and notes no more."""
        changes, self._changes = self._changes or (), None
        for queue, timestamp, key, namespace, was_set in reversed(changes):
            if was_set:
                queue.register(timestamp, key, namespace)
            else:
                queue.delete(timestamp, key, namespace)

    def _note(self, queue: TimerQueue, timestamp: int, namespace: Any) -> None:
        if self._changes is not None:
            key = self._key()
            was_set = queue.holds(timestamp, key, namespace)
            self._changes.append((queue, timestamp, key, namespace, was_set))

    def set_event_timer(self, timestamp: int, namespace: Any) -> None:
        self._note(self.event_timers, self.checked(timestamp), namespace)
        super().set_event_timer(timestamp, namespace)

    def delete_event_timer(self, timestamp: int, namespace: Any) -> None:
        self._note(self.event_timers, timestamp, namespace)
        super().delete_event_timer(timestamp, namespace)

    def set_processing_timer(self, timestamp: int, namespace: Any) -> None:
        self._note(self.processing_timers, self.checked(timestamp), namespace)
        super().set_processing_timer(timestamp, namespace)

    def delete_processing_timer(self, timestamp: int, namespace: Any) -> None:
        self._note(self.processing_timers, timestamp, namespace)
        super().delete_processing_timer(timestamp, namespace)


class RowUndo:
    """Keeps the windows of a key as they were before the present row."""

    def __init__(
        self,
        contents: WindowValues[Any],
        states: WindowStates,
        timers: NotedTimers,
        former_content: Callable[[Any], Callable[[], Any]],
    ) -> None:
        """`states`: those of the trigger. `former_content`: see GuardedWindowingOperator."""
        self._contents = contents
        self._states = states
        self._timers = timers
        self._former_content = former_content
        self._key: Any = None
        self._windows: Collection[Any] = ()
        self._former_contents: list[tuple[Any, Callable[[], Any]]] = []
        self._former_states: list[_Former] = []

    def begin(self, key: Any, windows: Collection[Any], state_windows: Collection[Any]) -> None:
        """Keeps how everything is before a row of a key, which changes these windows and these contents at most."""
        self._key, self._windows = key, windows
        self._former_contents = [
            (window, self._former_content(self._contents.get(window, key))) for window in state_windows
        ]
        self._former_states = []
        for values in self._states.values:
            self.keep(values)
        self._timers.note_changes()

    def keep(self, values: WindowValues[Any]) -> None:
        """Keeps the values of a state of the trigger, which may ask for a restored one late."""
        for window in self._windows:
            found = values.get(window, self._key)
            # A trigger may add to an accumulator in its place.
            former = found if found is MISSING else freeze_or_copy(found)
            self._former_states.append((values, window, former))

    def end(self) -> None:
        """The row stays."""
        self._timers.forget_changes()
        self._windows, self._former_contents, self._former_states = (), [], []

    def take_back(self) -> None:
        """Makes everything as it was before the row."""
        key = self._key
        self._timers.take_back()
        former = [(self._contents, window, content()) for window, content in self._former_contents]
        for values, window, value in (*former, *self._former_states):
            if value is MISSING:
                values.remove(window, key)
            else:
                values.put(window, key, value)
