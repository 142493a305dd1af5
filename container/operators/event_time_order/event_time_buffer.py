"""EventTimeBuffer: rows of a keyed stream that wait in tables of keyed state, which may lie on disk.

Owner: the task thread. The first rows by time are also held in memory, in order. A second's table goes when its last
row has left. Until then the *position* says which rows have left, so that none is removed one by one. Must not know
user functions. See docs/design/0037-event-time-order.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, Final

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.event_time_order.keyed_buffer import LENGTH, KeyedBuffer, second_of
from yarrow.container.operators.event_time_order.rows_by_time import RowsByTime, unnumbered
from yarrow.container.operators.window.window_values import WindowValues
from yarrow.container.state.value_table import MISSING, ValueTable
from yarrow.container.state.window_tables import WindowTables
from yarrow.datastream.window_types import TimeWindow
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP

#: Rows held in memory, if so many wait. It is looked at when as many have come again, so at most twice as many are.
ROWS_IN_MEMORY: Final = 200_000


class EventTimeBuffer(KeyedBuffer):
    """Rows that wait for the watermark, in the tables of one operator."""

    def __init__(self, context: OperatorContext, name: str, tables: WindowTables[TimeWindow]) -> None:
        super().__init__(context, name, tables)
        #: A list a key and second: (time, number of arrival, row) in order of arrival.
        self._values = WindowValues(tables)
        next_number = self._restored.next_number
        self._numbers = count(next_number)
        self._taken = MIN_TIMESTAMP, -1
        self._in_order = RowsByTime()
        #: Exactly the rows up to this time are in memory too.
        self.in_memory_until = MIN_TIMESTAMP - 1
        #: The number of a row at which the rows in memory are counted again.
        self._next_count = next_number + ROWS_IN_MEMORY
        self._remove_taken()
        #: Whether all rows are in memory.
        self._all_in_memory = not tables.windows()

    def _remove_taken(self) -> None:
        """Removes restored rows that had left before the snapshot."""
        last = self._restored.last_taken_time
        if last is None:
            return
        for second in self._seconds_until(last):
            changed = []
            for keys, values in self._tables.rows(second):
                for key, entries in zip(keys, values, strict=True):
                    left = self._left_of(key, entries)
                    if len(left) < len(entries):
                        changed.append((key, left))
            for key, left in changed:
                if left:
                    self._values.put(second, key, left)
                else:
                    self._values.remove(second, key)
        self._values.drop_empty()

    # ------------------------------------------------------------------ rows that come

    def add(self, key: Any, time: int, row: Any) -> None:
        start = time - time % LENGTH
        self.table_of(start)
        key, entries, found = self._values.find(second_of(start), key)
        rows = [] if found is MISSING else found
        numbered = (time, next(self._numbers), row)
        rows.append(numbered)
        entries[key] = rows
        if time <= self.in_memory_until:
            self._in_order.add(numbered)

    def generate_add(self, code: CodeWriter, key: str, time: str, row: str) -> None:
        tables, table, entries = code.fresh("tables"), code.fresh("table"), code.fresh("entries")
        start, numbered, rows = code.fresh("start"), code.fresh("numbered"), code.fresh("rows")
        missing, in_order = code.bind_as("MISSING", MISSING), code.bind("in_order", self._in_order.rows)
        # Tables are asked for once a call; see WindowTables.
        code.at_start(f"{tables} = {{}}")
        code.line(f"{start} = {time} - {time} % {LENGTH}")
        with code.block("try:"):
            code.line(f"{table} = {tables}[{start}]")
        with code.block("except KeyError:"):
            code.line(f"{table} = {tables}[{start}] = {code.bind('table_of', self.table_of)}({start})")
        code.line(f"{numbered} = ({time}, {code.bind('next_number', self._numbers.__next__)}(), {row})")
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
        code.line(f"{rows}.append({numbered})")
        code.line(f"{entries}[{key}] = {rows}")
        with code.block(f"if {time} in {in_order}:"):
            code.line(f"{in_order}[{time}].append({numbered})")
        with code.block(f"elif {time} <= {code.bind('buffer', self)}.in_memory_until:"):
            code.line(f"{code.bind('add', self._in_order.add)}({numbered})")

    def table_of(self, start: int) -> ValueTable:
        """The table of the second that begins at `start`, to which rows are added; for generated code."""
        if self._all_in_memory:
            self.in_memory_until = max(self.in_memory_until, start + LENGTH - 1)
        self._bound_memory()
        return self._tables.table(second_of(start))

    def _bound_memory(self) -> None:
        """Leaves late rows to the state alone, if many have come since they were counted."""
        coming = next(self._numbers)
        if coming >= self._next_count:
            self._next_count = coming + ROWS_IN_MEMORY
            if self._in_order.count > ROWS_IN_MEMORY:
                self.in_memory_until = self._in_order.keep_first(ROWS_IN_MEMORY)
                self._all_in_memory = False

    # ------------------------------------------------------------------ rows that leave

    @property
    def is_due(self) -> bool:
        first = self._in_order.first_time
        return (first is not None and first <= self.watermark) or bool(self._unread(self.watermark))

    def take(self) -> Iterator[tuple[list[Any], list[int]]]:
        try:
            while True:
                for rows in self._in_order.take_until(min(self.watermark, self.in_memory_until)):
                    self._taken = rows[-1][:2]
                    yield unnumbered(rows)
                if not self._unread(self.watermark):
                    break
                self._read_from_state()
        finally:
            self._drop_empty_seconds()

    def snapshot(self) -> None:
        self._store_position(self._taken, next(self._numbers))

    # ------------------------------------------------------------------ seconds

    def _seconds_until(self, time: int) -> list[TimeWindow]:
        """The seconds that begin at `time` or before it."""
        return self._tables.windows_until(min(time - time % LENGTH + LENGTH - 1, MAX_TIMESTAMP))

    def _unread(self, watermark: int) -> list[TimeWindow]:
        """The seconds up to the watermark some of whose rows are perhaps not in memory."""
        if self._all_in_memory or watermark <= self.in_memory_until:
            return []
        return [each for each in self._seconds_until(watermark) if _last_time(each) > self.in_memory_until]

    def _read_from_state(self) -> None:
        """Reads the next rows by time into memory, where none is left: as many as may be there."""
        after, in_order = self.in_memory_until, self._in_order
        seconds = [each for each in self._tables.windows() if _last_time(each) > after]
        last, found = MAX_TIMESTAMP, 0
        for second in seconds:
            for _, values in self._tables.rows(second):
                for rows in values:
                    found += in_order.add_between(rows, after, last)
                if found > 2 * ROWS_IN_MEMORY:
                    last = in_order.keep_first(ROWS_IN_MEMORY)
                    found = in_order.count
            if found > ROWS_IN_MEMORY or last < MAX_TIMESTAMP:
                last = min(last, _last_time(second))
                break
        in_order.sort_after(after)
        self._all_in_memory = last == MAX_TIMESTAMP
        self.in_memory_until = _last_time(seconds[-1]) if self._all_in_memory else last

    def _drop_empty_seconds(self) -> None:
        """Drops the tables of seconds whose last row has left."""
        first = self._in_order.first_time
        left_until = self.in_memory_until if first is None else first - 1
        for second in self._seconds_until(left_until):
            if _last_time(second) <= left_until:
                self._values.drop(second)


def _last_time(second: TimeWindow) -> int:
    """The last time of a second, also beyond times of 64 bits."""
    return second.start - second.start % LENGTH + LENGTH - 1
