"""Trigger: the interface of what decides when a window is evaluated, and its answers.

An interface alone; called by the window operator, in the thread that owns the task. A trigger keeps its memory as
state of the key and window, which its context reaches. One instance serves all keys and windows and keeps nothing
itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, Generic, TypeVar

from yarrow.common.metrics import MetricGroup
from yarrow.datastream.functions.window_functions import Window
from yarrow.datastream.state import StateDescriptor

T = TypeVar("T")
W = TypeVar("W", bound=Window)


class TriggerResult(Enum):
    """The decision about a window: whether it is evaluated, and whether its records are then removed."""

    CONTINUE = (False, False)
    FIRE_AND_PURGE = (True, True)
    FIRE = (True, False)
    PURGE = (False, True)

    def is_fire(self) -> bool:
        """Whether the window is evaluated."""
        return self._value_[0]

    def is_purge(self) -> bool:
        """Whether the records of the window are removed."""
        return self._value_[1]


class Trigger(ABC, Generic[T, W]):
    """Decides when a window is evaluated."""

    class TriggerContext(ABC):
        """The clocks, timers and state of a key and window."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the machine's time."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """Return the event time reached."""

        @abstractmethod
        def get_metric_group(self) -> MetricGroup:
            """Return the metric group of the operator."""

        @abstractmethod
        def register_processing_time_timer(self, time: int) -> None:
            """Call `on_processing_time` when the machine's time is `time` or later."""

        @abstractmethod
        def register_event_time_timer(self, time: int) -> None:
            """Call `on_event_time` when the watermark is `time` or later."""

        @abstractmethod
        def delete_processing_time_timer(self, time: int) -> None:
            """Delete a timer; an unset timer is no error."""

        @abstractmethod
        def delete_event_time_timer(self, time: int) -> None:
            """Delete a timer; an unset timer is no error."""

        @abstractmethod
        def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
            """Return the handle of a state of the key and window."""

    class OnMergeContext(TriggerContext):
        """The context while windows merge."""

        @abstractmethod
        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Merge the state of the windows that were merged into that of the result."""

    @abstractmethod
    def on_element(self, element: T, timestamp: int, window: W, ctx: TriggerContext) -> TriggerResult:
        """Decide after a record was added."""

    @abstractmethod
    def on_processing_time(self, time: int, window: W, ctx: TriggerContext) -> TriggerResult:
        """Decide when a timer of the machine's clock fires."""

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: TriggerContext) -> TriggerResult:
        """Decide when an event-time timer fires."""

    def can_merge(self) -> bool:
        """Whether the trigger works where windows merge, as session windows do."""
        return False

    def on_merge(self, window: W, ctx: OnMergeContext) -> None:
        """Bring timers and state of merged windows to `window`.

        Raises TypeError for triggers that cannot merge.
        """
        raise TypeError(
            f"{type(self).__name__} cannot be used with windows that merge: choose another trigger"
        )

    @abstractmethod
    def clear(self, window: W, ctx: TriggerContext) -> None:
        """Remove the timers and state of a window that is purged."""
