"""EventTimeBuffer: rows of a keyed stream that wait in keyed state for the watermark, and leave in order of time.

Owner: the task thread. An operator embeds a buffer, or one for each input:

- `setup`: `self._buffer = EventTimeBuffer(context, "_my_rows", row_type)`. The name is that of the state. Only a
  stream needs a buffer: of bounded input (`environment.bounded`) the rows of a key come in order.
- a row: `if buffer.is_late(key, time)` it is late, else `buffer.add(key, time, row)`. `generate_add` is faster.
- `on_watermark`: `buffer.advance(timestamp)`; `buffer.watermark` is the event time, also after a restore.
- `event_timers_due`: `buffer.is_due`.
- `fire_event_timers(deadline)`: `for time, rows in buffer.take(): for number, key, row in rows: ...`, and behind all
  `rows` a `return` if the deadline has passed. Rows that were yielded count as gone: process each of them. A key is raw
  or canonical; `user_key` makes the one that user code sees.
- `snapshot_state`: `buffer.snapshot()`. The spec sets `ended_subtasks_leave_no_unions = True`.

Rows of a subtask leave by time, whatever their keys; rows of one time leave as they came. They stand in tables by
window, one a second of event time. A second that the watermark has reached is also held in memory, in order. Its table
goes when its last row has left. Until then the *position* says which rows have left, so that none is removed one by
one. Must not know user functions. See docs/design/0037-event-time-order.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, Final

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.event_time_order.order_position import (
    OrderPosition,
    RestoredPositions,
    stored_watermark,
)
from yarrow.container.operators.event_time_order.rows_by_time import NumberedRow, RowsByTime
from yarrow.container.operators.window.window_values import WindowValues
from yarrow.container.state.value_table import MISSING, ValueTable
from yarrow.container.state.window_tables import TIME_WINDOWS, WindowTables
from yarrow.datastream.state import ListStateDescriptor
from yarrow.datastream.window_types import TimeWindow
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.runtime.data.key_groups import group_of_raw_key, key_group_range_for_operator_index

#: Milliseconds of event time whose rows have a table of their own.
LENGTH: Final = 1000


class EventTimeBuffer:
    """Rows that wait for the watermark, in the keyed state of one operator."""

    def __init__(self, context: OperatorContext, name: str, row_type: TypeInformation | None) -> None:
        """`name`: that of the state. `row_type`: the declared type of rows; None = not declared."""
        environment = context.environment
        self._max_parallelism = environment.max_parallelism
        number = Types.LONG()
        stored: TypeInformation = Types.PICKLED_BYTE_ARRAY()
        if row_type is not None:
            stored = Types.LIST(Types.TUPLE([number, number, row_type]))
        #: A list a key and second: (time, number of arrival, row) in order of arrival.
        self._tables: WindowTables[TimeWindow] = context.state.window_tables(name, stored, TIME_WINDOWS)
        self._values = WindowValues(self._tables)
        self._position = context.operator_state.union_list_state(
            ListStateDescriptor(f"{name}_position", Types.TUPLE([number] * len(OrderPosition._fields)))
        )
        self._groups = key_group_range_for_operator_index(
            environment.max_parallelism, environment.parallelism, environment.subtask
        )
        restored = RestoredPositions(self._position.get(), self._groups)
        #: The present event time.
        self.watermark = restored.watermark
        #: A row at or below it may be late: `is_late` knows. A row above it is not.
        self.perhaps_late_until = _below_first(restored.last_watermark)
        #: While some key groups had come further than others; None = the watermark has passed them all.
        self._unequal = restored if restored.last_watermark > restored.watermark else None
        self._numbers = count(restored.next_number)
        self._taken = MIN_TIMESTAMP, -1
        self._in_order = RowsByTime()
        #: Starts of the seconds whose rows are in memory too: those up to `opened_until`.
        self._opened: set[int] = set()
        self.opened_until = MIN_TIMESTAMP - 1
        self._remove_taken(restored)

    def _remove_taken(self, restored: RestoredPositions) -> None:
        """Removes restored rows that had left before the snapshot."""
        last = restored.last_taken_time
        if last is None:
            return
        for second in self._seconds_until(last):
            changed = []
            for keys, values in self._tables.rows(second):
                for key, entries in zip(keys, values, strict=True):
                    group = group_of_raw_key(key, self._max_parallelism)
                    left = [entry for entry in entries if not restored.has_left(group, entry[0], entry[1])]
                    if len(left) < len(entries):
                        changed.append((key, left))
            for key, left in changed:
                if left:
                    self._values.put(second, key, left)
                else:
                    self._values.remove(second, key)
        self._values.drop_empty()

    # ------------------------------------------------------------------ rows that come

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

    def add(self, key: Any, time: int, row: Any) -> None:
        """Adds a row that is not late; nobody changes it any more. `key` is raw or canonical."""
        start = time - time % LENGTH
        number = next(self._numbers)
        key, entries, found = self._values.find(_second(start), key)
        rows = [] if found is MISSING else found
        rows.append((time, number, row))
        entries[key] = rows
        if start <= self.opened_until:
            self.add_opened(start, time, number, key, row)

    def generate_add(self, code: CodeWriter, key: str, time: str, row: str) -> None:
        """Generates `add`; the arguments are variables, and that of the key may change."""
        tables, table, entries = code.fresh("tables"), code.fresh("table"), code.fresh("entries")
        start, number, rows = code.fresh("start"), code.fresh("number"), code.fresh("rows")
        missing = code.bind_as("MISSING", MISSING)
        # Tables are asked for once a call; see WindowTables.
        code.at_start(f"{tables} = {{}}")
        code.line(f"{start} = {time} - {time} % {LENGTH}")
        with code.block("try:"):
            code.line(f"{table} = {tables}[{start}]")
        with code.block("except KeyError:"):
            code.line(f"{table} = {tables}[{start}] = {code.bind('table_of', self.table_of)}({start})")
        code.line(f"{number} = {code.bind('next_number', self._numbers.__next__)}()")
        with code.block("try:"):
            code.line(f"{entries} = {table}.live")
            code.line(
                f"{entries} = {entries}[0] if len({entries}) == 1 else {entries}[hash({key}) % len({entries})]"
            )
            code.line(f"{rows} = {entries}[{key}]")
        with code.block("except (KeyError, TypeError):"):
            code.line(f"{key}, {entries}, {rows} = {table}.miss({key})")
            with code.block(f"if {rows} is {missing}:"):
                code.line(f"{rows} = []")
        code.line(f"{rows}.append(({time}, {number}, {row}))")
        code.line(f"{entries}[{key}] = {rows}")
        with code.block(f"if {start} <= {code.bind('buffer', self)}.opened_until:"):
            code.line(f"{code.bind('add_opened', self.add_opened)}({start}, {time}, {number}, {key}, {row})")

    def table_of(self, start: int) -> ValueTable:
        """The table of the second that begins at `start`; for generated code."""
        return self._tables.table(_second(start))

    def add_opened(self, start: int, time: int, number: int, key: Any, row: Any) -> None:
        """Notes a row of a second whose rows are in memory, too; it is in state already."""
        self._opened.add(start)
        self._in_order.add(time, number, key, row)

    # ------------------------------------------------------------------ rows that leave

    def advance(self, watermark: int) -> None:
        """Takes a watermark. After a restore it may be below the restored one, which then holds."""
        if watermark > self.watermark:
            self.watermark = watermark
            if watermark >= self.perhaps_late_until:
                self.perhaps_late_until = watermark
                self._unequal = None

    @property
    def is_due(self) -> bool:
        """True while rows that the watermark has passed may wait: `take` gives them."""
        first = self._in_order.first_time
        return (first is not None and first <= self.watermark) or any(self._unopened(self.watermark))

    def take(self) -> Iterator[tuple[int, list[NumberedRow]]]:
        """Removes the rows up to the watermark, and yields them in order: some rows of one time together.

        A row is (number of arrival, key, row). Who ends the iteration early leaves the rows that were not yielded.
        """
        self._open(self.watermark)
        try:
            for time, rows in self._in_order.take_until(self.watermark):
                self._taken = time, rows[-1][0]
                yield time, rows
        finally:
            self._drop_empty_seconds()

    def snapshot(self) -> None:
        """Puts the position into the state, at the cut."""
        watermark = stored_watermark(self.watermark)
        groups = self._groups
        position = OrderPosition(groups.start, groups.end, watermark, *self._taken, next(self._numbers))
        unequal = self._unequal
        stored = [position] if unequal is None else unequal.stored_at(position)
        self._position.update([tuple(each) for each in stored])

    # ------------------------------------------------------------------ seconds

    def _seconds_until(self, time: int) -> list[TimeWindow]:
        """The seconds that begin at `time` or before it."""
        return self._tables.windows_until(min(time - time % LENGTH + LENGTH - 1, MAX_TIMESTAMP))

    def _unopened(self, watermark: int) -> Iterator[TimeWindow]:
        return (each for each in self._seconds_until(watermark) if _start(each) not in self._opened)

    def _open(self, watermark: int) -> None:
        """Holds in memory, too, the rows of all seconds that the watermark has reached."""
        add_all = self._in_order.add_all
        for second in self._unopened(watermark):
            self._opened.add(_start(second))
            for keys, values in self._tables.rows(second):
                for key, entries in zip(keys, values, strict=True):
                    add_all(key, entries)
        self.opened_until = max(self.opened_until, watermark)

    def _drop_empty_seconds(self) -> None:
        """Drops the tables of seconds whose last row has left."""
        first = self._in_order.first_time
        for start in [each for each in self._opened if first is None or each + LENGTH <= first]:
            self._opened.discard(start)
            self._values.drop(_second(start))


def _second(start: int) -> TimeWindow:
    """The second that begins at `start`, cut to times of 64 bits."""
    return TimeWindow(max(start, MIN_TIMESTAMP), min(start + LENGTH, MAX_TIMESTAMP))


def _start(second: TimeWindow) -> int:
    return second.start - second.start % LENGTH


def _below_first(watermark: int) -> int:
    """The last time that a watermark makes late: the least watermark makes none late."""
    return watermark if watermark > MIN_TIMESTAMP else MIN_TIMESTAMP - 1
