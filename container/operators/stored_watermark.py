"""StoredWatermark: the event time of an operator as state, so that a late row stays late after a restore.

Owner: the task thread. Each subtask stores its watermark with its range of key groups. A subtask begins at the least
watermark of the ranges that its own key groups come from, and knows which of them were ahead. Must not know windows,
joins or patterns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from yarrow.common.typeinfo import Types
from yarrow.container.operators.base import Operator, OperatorContext
from yarrow.container.state.heap_keyed_state import NO_KEY
from yarrow.container.state.timers import OperatorTimerService
from yarrow.datastream.state import ListStateDescriptor
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.runtime.data.key_groups import key_group_of, key_group_range_for_operator_index
from yarrow.runtime.graph.window_spec import WATERMARKS


def _descriptor() -> ListStateDescriptor[Any]:
    """The state: (first key group, last key group, watermark) of each subtask, and of those that were ahead of it."""
    number = Types.LONG()
    return ListStateDescriptor(WATERMARKS, Types.TUPLE([number, number, number]))


def restored_watermarks(context: OperatorContext) -> Iterator[int]:
    """The restored watermarks of all subtasks, for an operator that stores none itself."""
    return (watermark for _, _, watermark in context.operator_state.take_union_list(_descriptor()))


class StoredWatermark:
    """The watermark of one subtask in operator state."""

    def __init__(self, context: OperatorContext) -> None:
        environment = context.environment
        groups = key_group_range_for_operator_index(
            environment.max_parallelism, environment.parallelism, environment.subtask
        )
        self._first, self._last = groups.start, groups.end
        self._max_parallelism = environment.max_parallelism
        self._state = context.operator_state.union_list_state(_descriptor())
        #: (first key group, last key group, watermark) for own key groups: the watermarks of their former subtasks, and
        #: higher ones that these had restored themselves.
        self._former = [
            (max(first, self._first), min(last, self._last), watermark)
            for first, last, watermark in self._state.get()
            if first <= self._last and self._first <= last
        ]
        watermarks = [watermark for _, _, watermark in self._former]
        #: Where event time begins: MIN_TIMESTAMP if nothing was restored.
        self.restored = min(watermarks, default=MIN_TIMESTAMP)
        #: The greatest watermark of these subtasks.
        self.greatest = max(watermarks, default=MIN_TIMESTAMP)

    def had_reached(self, key: Any, timestamp: int) -> bool:
        """Whether the watermark of a subtask that had a canonical key before the restore had reached a time."""
        if timestamp <= self.restored:
            return True
        group = key_group_of(key, self._max_parallelism)
        return any(
            first <= group <= last and timestamp <= watermark for first, last, watermark in self._former
        )

    def store(self, watermark: int) -> None:
        """Puts the present watermark into the state.

        The greatest one says that the input has ended. A job that goes on from there begins event time anew. Watermarks
        of former subtasks that are higher stay for their key groups, until the present one has reached them.
        """
        ended = watermark == MAX_TIMESTAMP
        ahead = [each for each in self._former if each[2] > watermark]
        self._state.update([(self._first, self._last, MIN_TIMESTAMP if ended else watermark), *ahead])


class StoredTimeOperator(Operator):
    """Base of keyed row operators whose event time is state."""

    _timers: OperatorTimerService

    def keep_time(self, context: OperatorContext, timers: OperatorTimerService) -> None:
        """Takes the timers of the operator, whose time begins at the restored watermark. Called by `setup`."""
        self._timers = timers
        self._stored_watermark = StoredWatermark(context)
        timers.watermark = self._stored_watermark.restored

    def finish(self) -> None:
        self.context.state.current_key = NO_KEY

    def snapshot_state(self, checkpoint_id: int) -> None:
        super().snapshot_state(checkpoint_id)
        self._stored_watermark.store(self._timers.watermark)

    @property
    def timer_service(self) -> OperatorTimerService | None:
        return self._timers

    def on_watermark(self, timestamp: int) -> Iterable[tuple[Any, int | None]]:
        # After a restore the inputs begin below the restored watermark.
        self._timers.watermark = max(self._timers.watermark, timestamp)
        return ()
