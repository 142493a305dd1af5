"""KeyedBuffer: what buffers of a keyed stream share, wherever their rows wait: event time, and the stored position.

Owner: the task thread. An operator embeds a buffer, or one for each input:

- `setup`: `self._buffer = open_buffer(context, "_my_rows", row_type, selector)` of `buffers`. The name is that of the
  state. Only a stream needs a buffer: of bounded input (`environment.bounded`) the rows of a key come in order.
- a row: `if buffer.is_late(key, time)` it is late, else `buffer.add(key, time, row)`. `generate_add` is faster.
- `on_watermark`: `buffer.advance(timestamp)`; `buffer.watermark` is the event time, also after a restore.
- `event_timers_due`: `buffer.is_due`.
- `fire_event_timers(deadline)`: `for rows, times in buffer.take():`, and behind all `rows` a `return` if the deadline
  has passed. Rows that were yielded count as gone: process each of them.
- `snapshot_state`: `buffer.snapshot()`. The spec sets `ended_subtasks_leave_no_unions = True`.

Rows of a subtask leave by time, whatever their keys; rows of one time leave as they came. Stored, they stand in tables
by window, one a second of event time: a list of (time, number of arrival, row) a key. Must not know user functions.
See docs/design/0037-event-time-order.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Final

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.event_time_order.order_position import (
    OrderPosition,
    RestoredPositions,
    stored_watermark,
)
from yarrow.container.state.window_tables import TIME_WINDOWS, WindowTables
from yarrow.datastream.state import ListStateDescriptor
from yarrow.datastream.window_types import TimeWindow
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.runtime.data.key_groups import group_of_raw_key, key_group_range_for_operator_index

#: Milliseconds of event time whose rows have a table of their own.
LENGTH: Final = 1000


class KeyedBuffer(ABC):
    """Rows of one operator that wait for the watermark."""

    def __init__(self, context: OperatorContext, name: str, tables: WindowTables[TimeWindow]) -> None:
        """`name`: that of the state. `tables`: those of `waiting_tables`."""
        environment = context.environment
        self._max_parallelism = environment.max_parallelism
        self._tables = tables
        number = Types.LONG()
        self._position = context.operator_state.union_list_state(
            ListStateDescriptor(f"{name}_position", Types.TUPLE([number] * len(OrderPosition._fields)))
        )
        self._groups = key_group_range_for_operator_index(
            environment.max_parallelism, environment.parallelism, environment.subtask
        )
        self._restored = restored = RestoredPositions(self._position.get(), self._groups)
        #: The present event time.
        self.watermark = restored.watermark
        #: A row at or below it may be late: `is_late` knows. A row above it is not.
        self.perhaps_late_until = _below_first(restored.last_watermark)
        #: While some key groups had come further than others; None = the watermark has passed them all.
        self._unequal = restored if restored.last_watermark > restored.watermark else None

    # ------------------------------------------------------------------ time

    def is_late(self, key: Any, time: int) -> bool:
        """Whether the watermark has passed a row, so that it must not be added."""
        if time > self.perhaps_late_until:
            return False
        return time <= self.watermark_of(key)

    def watermark_of(self, key: Any) -> int:
        """The watermark by which rows of a key are late: that of its key group while some had come further."""
        if self._unequal is None:
            return self.watermark
        group = group_of_raw_key(key, self._max_parallelism)
        return max(self.watermark, self._unequal.watermark_of(group))

    def advance(self, watermark: int) -> None:
        """Takes a watermark. After a restore it may be below the restored one, which then holds."""
        if watermark > self.watermark:
            self.watermark = watermark
            if watermark >= self.perhaps_late_until:
                self.perhaps_late_until = watermark
                self._unequal = None

    # ------------------------------------------------------------------ rows

    @abstractmethod
    def add(self, key: Any, time: int, row: Any) -> None:
        """Adds a row that is not late; nobody changes it any more. `key` is raw or canonical."""

    @abstractmethod
    def generate_add(self, code: CodeWriter, key: str, time: str, row: str) -> None:
        """Generates `add`; the arguments are variables, and that of the key may change."""

    @property
    @abstractmethod
    def is_due(self) -> bool:
        """True while rows that the watermark has passed may wait: `take` gives them."""

    @abstractmethod
    def take(self) -> Iterator[tuple[list[Any], list[int]]]:
        """Removes the rows up to the watermark, and yields them in order with their times: some rows together.

        Who ends the iteration early leaves the rows that were not yielded.
        """

    # ------------------------------------------------------------------ stored

    def _left_of(self, key: Any, entries: list[Any]) -> list[Any]:
        """Those of the restored entries of a key that had not left before the snapshot."""
        group, has_left = group_of_raw_key(key, self._max_parallelism), self._restored.has_left
        return [entry for entry in entries if not has_left(group, entry[0], entry[1])]

    @abstractmethod
    def snapshot(self) -> None:
        """Puts the position into the state, at the cut."""

    def _store_position(self, taken: tuple[int, int], next_number: int) -> None:
        """`taken`: time and number of the last row that has left. `next_number`: behind those of all rows in state."""
        groups = self._groups
        position = OrderPosition(
            groups.start, groups.end, stored_watermark(self.watermark), *taken, next_number
        )
        unequal = self._unequal
        stored = [position] if unequal is None else unequal.stored_at(position)
        self._position.update([tuple(each) for each in stored])


def waiting_tables(
    context: OperatorContext, name: str, row_type: TypeInformation | None
) -> WindowTables[TimeWindow]:
    """The tables of rows that wait, by second. `row_type`: the declared type of rows; None = not declared."""
    stored: TypeInformation = Types.PICKLED_BYTE_ARRAY()
    if row_type is not None:
        number = Types.LONG()
        stored = Types.LIST(Types.TUPLE([number, number, row_type]))
    tables: WindowTables[TimeWindow] = context.state.window_tables(name, stored, TIME_WINDOWS)
    return tables


def second_of(start: int) -> TimeWindow:
    """The second that begins at `start`, cut to times of 64 bits."""
    return TimeWindow(max(start, MIN_TIMESTAMP), min(start + LENGTH, MAX_TIMESTAMP))


def _below_first(watermark: int) -> int:
    """The last time that a watermark makes late: the least watermark makes none late."""
    return watermark if watermark > MIN_TIMESTAMP else MIN_TIMESTAMP - 1
