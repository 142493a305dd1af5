"""TimerService: the clocks and timers of a user function; and TimeDomain, which clock a timer belongs to.

An interface, called only while a function of the task is being called, by the thread that owns the task.
Times are milliseconds since the epoch in UTC.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum


class TimeDomain(Enum):
    """The clock of a timer."""

    #: Time as watermarks tell it.
    EVENT_TIME = 0
    #: Time as the machine's clock tells it.
    PROCESSING_TIME = 1


class TimerService(ABC):
    """Reads both clocks and sets timers for the current key.

    There is one timer for a key, clock and time, however often it is registered. Without a key, registering
    and deleting raise an error that names the operator.
    """

    @abstractmethod
    def current_processing_time(self) -> int:
        """Return the machine's time."""

    @abstractmethod
    def current_watermark(self) -> int:
        """Return the event time reached; the smallest 64-bit integer before the first watermark."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` when the machine's time is `timestamp` or later."""

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` when the watermark is `timestamp` or later."""

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Delete a timer; an unset timer is no error."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Delete a timer; an unset timer is no error."""
