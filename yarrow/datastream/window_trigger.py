"""Triggers: when a window is evaluated. `functions.trigger` has their interface.

Called by the window operator, in the thread that owns the task. Their memory is state of the key and window.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from yarrow.common.time import Duration, Time, milliseconds_of
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.common.watermark_strategy import MAX_TIMESTAMP
from yarrow.datastream.functions.delta_function import DeltaFunction, checked_threshold, delta_of
from yarrow.datastream.functions.trigger import Trigger, TriggerResult
from yarrow.datastream.state import ReducingState, ReducingStateDescriptor, ValueStateDescriptor
from yarrow.datastream.window_types import GlobalWindow, TimeWindow, Window

__all__ = [
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountTrigger",
    "DeltaTrigger",
    "EndOfStreamTrigger",
    "EventTimeTrigger",
    "NeverTrigger",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "Trigger",
    "TriggerResult",
]

T = TypeVar("T")
W = TypeVar("W", bound=Window)


class _WaitingTrigger(Trigger[T, W]):
    """Does nothing when a timer fires, unless a subclass says so for its clock."""

    def on_processing_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE


class EventTimeTrigger(_WaitingTrigger[Any, TimeWindow]):
    """Fires when the watermark passes the end of the window, and then at each late record."""

    @staticmethod
    def create() -> EventTimeTrigger:
        """Return the trigger."""
        return EventTimeTrigger()

    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None:
        # At or behind the watermark the next record fires the window by itself.
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())


class ProcessingTimeTrigger(_WaitingTrigger[Any, TimeWindow]):
    """Fires when the machine's clock passes the end of the window."""

    @staticmethod
    def create() -> ProcessingTimeTrigger:
        """Return the trigger."""
        return ProcessingTimeTrigger()

    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None:
        if window.max_timestamp() > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(window.max_timestamp())

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp())


class _ContinuousTrigger(_WaitingTrigger[Any, TimeWindow]):
    """The common part of triggers that fire at intervals, on either clock: the next firing time, kept as state."""

    def __init__(self, interval: int) -> None:
        if interval < 1:
            raise ValueError(
                f"the interval of {type(self).__name__} must be at least 1 ms, not {interval} ms"
            )
        self.interval = interval
        # Windows that merge fire next at the earlier of their times.
        self._next_fire = ReducingStateDescriptor[int]("continuous-trigger-next-fire", _earlier, Types.LONG())

    @abstractmethod
    def _register(self, time: int, ctx: Trigger.TriggerContext) -> None:
        """Set a timer of the trigger's clock."""

    @abstractmethod
    def _delete(self, time: int, ctx: Trigger.TriggerContext) -> None:
        """Delete a timer of the trigger's clock."""

    def register_next_fire_timestamp(
        self,
        time: int,
        window: TimeWindow,
        ctx: Trigger.TriggerContext,
        fire_timestamp_state: ReducingState[int],
    ) -> None:
        """Set the timer one interval after `time`, or at the window's end if that comes first."""
        next_fire = self._next_time(time, window)
        fire_timestamp_state.add(next_fire)
        self._register(next_fire, ctx)

    def _next_time(self, time: int, window: TimeWindow) -> int:
        """The time of that timer."""
        # A window may end at `time`, and still merge.
        return min(time + self.interval, window.max_timestamp())

    def _start(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        state = ctx.get_partitioned_state(self._next_fire)
        if state.get() is None:
            self.register_next_fire_timestamp(time - time % self.interval, window, ctx, state)

    def _fire(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        state = ctx.get_partitioned_state(self._next_fire)
        if state.get() != time:
            return TriggerResult.CONTINUE
        state.clear()
        # At its end the window of a clock is gone. A timer there would fire that of event time without end. So would
        # one behind the end of the stream, in a window that has no end.
        end = window.max_timestamp()
        if time < end and not (end == MAX_TIMESTAMP == ctx.get_current_watermark()):
            self.register_next_fire_timestamp(time, window, ctx, state)
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self._next_fire)
        next_fire = ctx.get_partitioned_state(self._next_fire).get()
        if next_fire is not None:
            self._register(next_fire, ctx)

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        state = ctx.get_partitioned_state(self._next_fire)
        next_fire = state.get()
        if next_fire is not None:
            self._delete(next_fire, ctx)
            state.clear()


class ContinuousEventTimeTrigger(_ContinuousTrigger):
    """Fires at each interval of event time, and at the end of the window."""

    @staticmethod
    def of(interval: Time | Duration) -> ContinuousEventTimeTrigger:
        """Return the trigger of an interval."""
        return ContinuousEventTimeTrigger(milliseconds_of(interval, "interval"))

    def _register(self, time: int, ctx: Trigger.TriggerContext) -> None:
        ctx.register_event_time_timer(time)

    def _delete(self, time: int, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(time)

    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        self._start(timestamp, window, ctx)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE if time == window.max_timestamp() else self._fire(time, window, ctx)


class ContinuousProcessingTimeTrigger(_ContinuousTrigger):
    """Fires at each interval of the machine's time, and at the end of the window."""

    @staticmethod
    def of(interval: Time | Duration) -> ContinuousProcessingTimeTrigger:
        """Return the trigger of an interval."""
        return ContinuousProcessingTimeTrigger(milliseconds_of(interval, "interval"))

    def _register(self, time: int, ctx: Trigger.TriggerContext) -> None:
        ctx.register_processing_time_timer(time)

    def _delete(self, time: int, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_processing_time_timer(time)

    def _next_time(self, time: int, window: TimeWindow) -> int:
        # A window of event time may have ended long ago by this clock, and still take records.
        return super()._next_time(time, window) if time <= window.max_timestamp() else time + self.interval

    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        self._start(ctx.get_current_processing_time(), window, ctx)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return self._fire(time, window, ctx)


class CountTrigger(_WaitingTrigger[Any, Window]):
    """Fires at every `window_size`-th record of the window."""

    def __init__(self, window_size: int) -> None:
        if not isinstance(window_size, int) or window_size < 1:
            raise ValueError(
                f"the count of CountTrigger must be a whole number from 1 on, not {window_size!r}"
            )
        self.window_size = window_size
        self._count = ReducingStateDescriptor("count-trigger-count", _add, Types.LONG())

    @staticmethod
    def of(window_size: int) -> CountTrigger:
        """Return the trigger of a count."""
        return CountTrigger(window_size)

    def on_element(
        self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        state = ctx.get_partitioned_state(self._count)
        state.add(1)
        if state.get() < self.window_size:
            return TriggerResult.CONTINUE
        state.clear()
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self._count)

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        ctx.get_partitioned_state(self._count).clear()


class DeltaTrigger(_WaitingTrigger[T, W]):
    """Fires when a record is farther than a threshold from the record that fired last.

    The first record of a window is kept and does not fire. Time alone never fires the window.
    """

    def __init__(
        self,
        threshold: float,
        delta_function: Callable[[T, T], float] | DeltaFunction[T],
        element_type: TypeInformation | None = None,
    ) -> None:
        self.threshold = checked_threshold(threshold, "DeltaTrigger")
        self._delta = delta_of(delta_function, "DeltaTrigger")
        self._last = ValueStateDescriptor[T]("last-element", element_type or Types.PICKLED_BYTE_ARRAY())

    @staticmethod
    def of(
        threshold: float,
        delta_function: Callable[[T, T], float] | DeltaFunction[T],
        element_type: TypeInformation | None = None,
    ) -> DeltaTrigger[T, Any]:
        """Return the trigger of a threshold and a distance; the kept record is pickled if no type is given."""
        return DeltaTrigger(threshold, delta_function, element_type)

    def on_element(self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        state = ctx.get_partitioned_state(self._last)
        last = state.value()
        if last is None:
            state.update(element)
            return TriggerResult.CONTINUE
        if self._delta(last, element) > self.threshold:
            state.update(element)
            return TriggerResult.FIRE
        return TriggerResult.CONTINUE

    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        ctx.get_partitioned_state(self._last).clear()


class PurgingTrigger(Trigger[T, W]):
    """A trigger that acts like another trigger, and removes the records whenever the other fires."""

    def __init__(self, nested_trigger: Trigger[T, W]) -> None:
        if not isinstance(nested_trigger, Trigger):
            raise TypeError(
                f"PurgingTrigger.of takes a Trigger, such as CountTrigger.of(3), not {nested_trigger!r}"
            )
        self.nested_trigger = nested_trigger

    @staticmethod
    def of(nested_trigger: Trigger[T, W]) -> PurgingTrigger[T, W]:
        """Return the trigger around another."""
        return PurgingTrigger(nested_trigger)

    def on_element(self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _purge_if_fired(self.nested_trigger.on_element(element, timestamp, window, ctx))

    def on_processing_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _purge_if_fired(self.nested_trigger.on_processing_time(time, window, ctx))

    def on_event_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _purge_if_fired(self.nested_trigger.on_event_time(time, window, ctx))

    def can_merge(self) -> bool:
        return self.nested_trigger.can_merge()

    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        self.nested_trigger.on_merge(window, ctx)

    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        self.nested_trigger.clear(window, ctx)


class NeverTrigger(_WaitingTrigger[Any, Window]):
    """Never fires: the trigger of global windows for which none was set."""

    def on_element(
        self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        pass

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        pass


class EndOfStreamTrigger(_WaitingTrigger[Any, GlobalWindow]):
    """Fires once, when the stream has ended, and removes the records: the watermark is at its maximum then."""

    def on_element(
        self, element: Any, timestamp: int, window: GlobalWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        ctx.register_event_time_timer(MAX_TIMESTAMP)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: GlobalWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        # A stream that goes on from a savepoint of its end must not give these records again.
        return TriggerResult.FIRE_AND_PURGE if time == MAX_TIMESTAMP else TriggerResult.CONTINUE

    def clear(self, window: GlobalWindow, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(MAX_TIMESTAMP)


def _earlier(time1: int, time2: int) -> int:
    return min(time1, time2)


def _add(value1: int, value2: int) -> int:
    return value1 + value2


def _purge_if_fired(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result.is_fire() else result
