"""Processing-time timers of a keyed operator: deduplicated per key and time, fired in timestamp order.

Owner: the task thread, which asks for the next deadline and fires what is due between slices. Event-time timers and
timers in checkpoints build on the same queue.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable
from typing import Any

from yarrow.datastream.timerservice import TimerService
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import UnsupportedFeatureError
from yarrow.runtime.data.elements import MIN_TIMESTAMP
from yarrow.runtime.data.keys import canonicalize


class ProcessingTimeTimers:
    """A queue of (timestamp, key)."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Any]] = []
        self._registered: set[tuple[int, Any]] = set()
        self._order = itertools.count()

    def register(self, timestamp: int, key: Any) -> None:
        """Adds a timer; one that is registered already stays one."""
        entry = (timestamp, key)
        if entry not in self._registered:
            self._registered.add(entry)
            heapq.heappush(self._heap, (timestamp, next(self._order), key))

    def delete(self, timestamp: int, key: Any) -> None:
        """Removes a timer if it is there."""
        self._registered.discard((timestamp, key))

    @property
    def next_timestamp(self) -> int | None:
        """Time of the earliest timer."""
        heap = self._heap
        while heap and (heap[0][0], heap[0][2]) not in self._registered:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now: int) -> Iterable[tuple[int, Any]]:
        """Takes out timers with a timestamp <= now one after another; ones registered meanwhile included."""
        while (first := self.next_timestamp) is not None and first <= now:
            _, _, key = heapq.heappop(self._heap)
            self._registered.discard((first, key))
            yield first, key

    def __len__(self) -> int:
        return len(self._registered)


class OperatorTimerService(TimerService):
    """What functions see; `current_key` None = the stream is not keyed, timers are refused."""

    def __init__(
        self,
        clock: Clock,
        operator_name: str,
        timers: ProcessingTimeTimers,
        current_key: Callable[[], Any] | None,
    ) -> None:
        self._clock = clock
        self._operator_name = operator_name
        self._timers = timers
        self._current_key = current_key
        self.watermark = MIN_TIMESTAMP

    def current_processing_time(self) -> int:
        return self._clock.epoch_ms()

    def current_watermark(self) -> int:
        return self.watermark

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._timers.register(timestamp, self._key())

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._timers.delete(timestamp, self._key())

    def register_event_time_timer(self, timestamp: int) -> None:
        raise self._no_event_time()

    def delete_event_time_timer(self, timestamp: int) -> None:
        raise self._no_event_time()

    def _key(self) -> Any:
        if self._current_key is None:
            raise UnsupportedFeatureError(
                f"operator '{self._operator_name}': timers need a keyed stream; call key_by before process"
            )
        return canonicalize(self._current_key())

    def _no_event_time(self) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(
            f"operator '{self._operator_name}': event-time timers are not available in this version; "
            "use register_processing_time_timer"
        )
