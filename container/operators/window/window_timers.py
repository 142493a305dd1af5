"""WindowTimers: the timers of a window operator, each of a key and a window.

Owner: the task thread. The namespace of a timer is the stored form of its window. Must not know triggers.
"""

from __future__ import annotations

from typing import Any

from yarrow.container.state.timers import OperatorTimerService


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
