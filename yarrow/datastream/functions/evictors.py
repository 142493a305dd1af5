"""Evictors: which records leave a window when it fires, before or behind its function.

Called by the window operator, in the thread that owns the task. An evictor is settings alone: one instance serves all
keys and windows. Meaning and names are Flink's. Flink gives an iterable whose iterator removes; here it is a list.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Generic, TypeVar

from yarrow.common.metrics import MetricGroup
from yarrow.common.time import Duration, Time, milliseconds_of
from yarrow.datastream.functions.delta_function import DeltaFunction, checked_threshold, delta_of
from yarrow.datastream.functions.window_functions import Window

T = TypeVar("T")
W = TypeVar("W", bound=Window)


class TimestampedValue(Generic[T]):
    """A record of a window with its event time in milliseconds; None = it has no time. It must not be changed."""

    __slots__ = ("timestamp", "value")

    def __init__(self, value: T, timestamp: int | None = None) -> None:
        self.value = value
        self.timestamp = timestamp

    def has_timestamp(self) -> bool:
        """Whether the record has an event time."""
        return self.timestamp is not None

    def __repr__(self) -> str:
        return f"TimestampedValue({self.value!r}, {self.timestamp!r})"


class Evictor(ABC, Generic[T, W]):
    """Removes records of a window that fires. Removed records leave the window's state."""

    class EvictorContext(ABC):
        """The clocks and metrics that an evictor can ask for."""

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
    def evict_before(
        self, elements: list[TimestampedValue[T]], size: int, window: W, ctx: EvictorContext
    ) -> None:
        """Remove records from the list before the window function gets what is left.

        `elements` holds the records of the window in the order in which they came, `size` of them. Remove them from
        the list itself, as in `del elements[:2]`. Nothing else may change in it.
        """

    @abstractmethod
    def evict_after(
        self, elements: list[TimestampedValue[T]], size: int, window: W, ctx: EvictorContext
    ) -> None:
        """Remove records from the list behind the window function, in the same way."""


class _EvictorOfOneSide(Evictor[T, W]):
    """The common part of evictors that act either before or behind the window function."""

    def __init__(self, do_evict_after: bool) -> None:
        self.do_evict_after = do_evict_after

    def evict_before(
        self, elements: list[TimestampedValue[T]], size: int, window: W, ctx: Evictor.EvictorContext
    ) -> None:
        if not self.do_evict_after and elements:
            self._evict(elements)

    def evict_after(
        self, elements: list[TimestampedValue[T]], size: int, window: W, ctx: Evictor.EvictorContext
    ) -> None:
        if self.do_evict_after and elements:
            self._evict(elements)

    @abstractmethod
    def _evict(self, elements: list[TimestampedValue[T]]) -> None:
        """Remove records from a list that has some."""


class CountEvictor(_EvictorOfOneSide[Any, Window]):
    """Keeps a number of records: it removes the others from the beginning."""

    def __init__(self, max_count: int, do_evict_after: bool = False) -> None:
        if isinstance(max_count, bool) or not isinstance(max_count, int) or max_count < 0:
            raise ValueError(
                f"CountEvictor keeps a whole number of records from 0 on; it cannot keep {max_count!r}"
            )
        super().__init__(do_evict_after)
        self.max_count = max_count

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> CountEvictor:
        """Return the evictor that keeps the last `max_count` records, before or behind the window function."""
        return CountEvictor(max_count, do_evict_after)

    def _evict(self, elements: list[TimestampedValue[Any]]) -> None:
        del elements[: max(0, len(elements) - self.max_count)]


class TimeEvictor(_EvictorOfOneSide[Any, Window]):
    """Keeps the records of the last time: those that are less than `window_size` older than the latest one.

    It removes nothing if the first record has no timestamp. Other records without timestamp stay.
    """

    def __init__(self, window_size: int, do_evict_after: bool = False) -> None:
        """`window_size` in ms."""
        if isinstance(window_size, bool) or not isinstance(window_size, int) or window_size < 1:
            raise ValueError(f"TimeEvictor keeps at least 1 ms of records; it cannot keep {window_size!r} ms")
        super().__init__(do_evict_after)
        self.window_size = window_size

    @staticmethod
    def of(window_size: int | Time | Duration | timedelta, do_evict_after: bool = False) -> TimeEvictor:
        """Return the evictor of a length of time (a whole number is in ms), before or behind the window function."""
        size = window_size if isinstance(window_size, int) else milliseconds_of(window_size, "window_size")
        return TimeEvictor(size, do_evict_after)

    def _evict(self, elements: list[TimestampedValue[Any]]) -> None:
        if elements[0].timestamp is None:
            return
        latest = max(each.timestamp for each in elements if each.timestamp is not None)
        cutoff = latest - self.window_size
        elements[:] = [each for each in elements if each.timestamp is None or each.timestamp > cutoff]


class DeltaEvictor(_EvictorOfOneSide[T, Window]):
    """Keeps the records near the last one: it removes those whose distance from it is `threshold` or more."""

    def __init__(
        self,
        threshold: float,
        delta_function: Callable[[T, T], float] | DeltaFunction[T],
        do_evict_after: bool = False,
    ) -> None:
        super().__init__(do_evict_after)
        self.threshold = checked_threshold(threshold, "DeltaEvictor")
        self._delta = delta_of(delta_function, "DeltaEvictor")

    @staticmethod
    def of(
        threshold: float,
        delta_function: Callable[[T, T], float] | DeltaFunction[T],
        do_evict_after: bool = False,
    ) -> DeltaEvictor[T]:
        """Return the evictor of a threshold and a distance.

        The distance function gets a record and the last record of the window.
        """
        return DeltaEvictor(threshold, delta_function, do_evict_after)

    def _evict(self, elements: list[TimestampedValue[T]]) -> None:
        last, delta = elements[-1].value, self._delta
        elements[:] = [each for each in elements if not delta(each.value, last) >= self.threshold]
