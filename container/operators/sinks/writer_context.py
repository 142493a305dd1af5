"""WriterContext and WriterTimers: the engine as the writer of a Sink sees it.

Owner: the task thread. Must not know what the writer does with rows, nor when it commits.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any

from yarrow.common.values.error_handling import ErrorPolicy
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.subtask_context import SubtaskContext
from yarrow.datastream.connectors.base import DeliveryGuarantee, Sink, delivery_of


class WriterTimers:
    """Processing-time timers of a writer, fired in order of their time."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def register(self, timestamp: int, action: Callable[[], None]) -> None:
        """Calls `action` once at `timestamp`, epoch ms."""
        heapq.heappush(self._heap, (timestamp, next(self._order), action))

    @property
    def first(self) -> int | None:
        """Epoch ms of the earliest timer; None = none."""
        return self._heap[0][0] if self._heap else None

    def fire(self, now: int) -> None:
        """Calls due actions; a timer that an action registers waits for the next call."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap)[2])
        for action in due:
            action()


class WriterContext(SubtaskContext):
    """The SinkWriterContext of one subtask."""

    def __init__(self, context: OperatorContext, timers: WriterTimers, sink: Sink[Any]) -> None:
        super().__init__(context)
        declared = delivery_of(sink)
        settled = context.descriptor.spec.settled_guarantee
        self._guarantee = settled or declared.asked or declared.strongest()
        self._context = context
        self._sink_id = context.descriptor.id
        self._timers = timers

    @property
    def job_id(self) -> str:
        """32 hex digits."""
        return self._environment.job_id

    @property
    def sink_id(self) -> str:
        """32 hex digits."""
        return self._sink_id

    @property
    def attempt_number(self) -> int:
        """0 at first."""
        return self._environment.attempt_number

    @property
    def restored_checkpoint_id(self) -> int | None:
        """None = no checkpoint was restored."""
        restored = self._environment.restored
        return restored.checkpoint_id if restored.is_restored else None

    @property
    def delivery_guarantee(self) -> DeliveryGuarantee:
        """The guarantee that the writer has to keep."""
        return self._guarantee

    @property
    def leaves_out_rows(self) -> bool:
        """Whether `on_error` of the sink leaves out rows."""
        return self._context.descriptor.errors.policy is not ErrorPolicy.FAIL

    @property
    def latest_savepoint_id(self) -> int | None:
        """None = the job has none."""
        latest = self._environment.latest_savepoint_id
        return latest if latest >= 0 else None

    def current_processing_time(self) -> int:
        """Epoch ms."""
        return self._environment.clock.epoch_ms()

    def register_timer(self, timestamp: int, action: Callable[[], None]) -> None:
        """See SinkWriterContext."""
        self._timers.register(timestamp, action)
