"""WaitingJoiningOperator: the base of joins whose rows wait in state for a timer of event time.

Owner: the task thread. A key has one timer, at the time at which something is to be done for it. If the timer fires too
early, it is set again. Firing is cut into slices between two keys. Must not know which rows meet.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import insort_right
from collections.abc import Iterable, Iterator
from functools import partial
from math import inf
from typing import Any, Final

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.operators.base import Emit, OperatorContext, declared_type
from yarrow.container.operators.join.as_of_rule import TIME_OF, TimedRow
from yarrow.container.operators.join.key_rows import KeyRows, WaitingRows
from yarrow.container.operators.join.keyed_join import KeyedJoiningOperator
from yarrow.container.operators.join.pair_calls import Results
from yarrow.container.operators.join.pair_code import generate_emitted
from yarrow.container.operators.process.process_function import EVENT_TIMERS
from yarrow.container.operators.rows.key_selection import KeyReader
from yarrow.container.state.heap_keyed_state import NO_KEY
from yarrow.container.state.timers import OperatorTimerService
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.runtime.data.keys import user_key

LEFT: Final = 0
RIGHT: Final = 1
#: Rows are counted by minutes: their times may spread over months.
_COUNTED_SPAN: Final = 60_000

_Results = Iterable[tuple[Any, int | None]]


class WaitingJoiningOperator(KeyedJoiningOperator):
    """Base of the joins whose rows wait for a timer."""

    has_upkeep = True
    late_at_watermark = True

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        left, right = map(declared_type, self._joined.row_types)
        self._rows = KeyRows(context.state, (left, right))
        self._side_sizes = self.count_rows(context, _COUNTED_SPAN)
        context.state.register_timers(EVENT_TIMERS, self._timers.event_timers)
        #: Keys whose rows are still to be forgotten at the end of the input; None = it has not ended.
        self._left_keys: Iterator[Any] | None = None
        #: No row is left behind the end of the input.
        self._has_forgotten = False

    def _make_timers(self, context: OperatorContext) -> OperatorTimerService:
        state = context.state
        return OperatorTimerService(context.environment.clock, self.name, lambda: state.current_key)

    # ------------------------------------------------------------------ for subclasses

    def keep(self, index: int, rows: list[TimedRow], row: TimedRow) -> None:
        """Adds a row to the rows of its side."""
        if rows and rows[-1][0] > row[0]:
            insort_right(rows, row, key=TIME_OF)
        else:
            rows.append(row)
        self._side_sizes[index].added(*row)

    def take(self, index: int, rows: list[TimedRow], number: int) -> list[TimedRow]:
        """Takes the first rows of a side out of the state."""
        taken = rows[:number]
        del rows[:number]
        self._side_sizes[index].removed(map(TIME_OF, taken))
        return taken

    @abstractmethod
    def next_time(self, left: list[TimedRow], right: list[TimedRow]) -> int | None:
        """The watermark at which something is to be done for a key; None = never."""

    @abstractmethod
    def release(self, left: list[TimedRow], right: list[TimedRow], watermark: int) -> _Results:
        """Takes the rows that wait no more at a watermark, at once; the results come as one asks for them."""

    # ------------------------------------------------------------------ rows

    def key_reader(self, index: int) -> KeyReader:
        return self._rows.table

    def generate_row(
        self, code: CodeWriter, index: int, row: tuple[str, str, str | None], emit: Emit
    ) -> None:
        _, value, timestamp = row
        on_row = code.bind("on_row", partial(self.on_row, index))
        generate_emitted(code, f"{on_row}({value}, {timestamp})", emit)

    def on_row(self, index: int, row: Any, timestamp: int | None) -> _Results:
        """Keeps a row of the current key, or gives a late row back."""
        timestamp = self.checked_time(row, timestamp)
        watermark = self._timers.watermark
        if timestamp <= watermark and watermark != MIN_TIMESTAMP:
            return self.late(index, row, timestamp)
        rows = self._rows.of(self.context.state.current_key)
        self.keep(index, rows.sides[index], (timestamp, self.fixed(index, row)))
        self._arm(rows)
        rows.put()
        return ()

    def _arm(self, rows: WaitingRows) -> None:
        """Sets the timer of a key, unless it has an earlier one."""
        time, armed = self.next_time(*rows.sides), rows.armed
        if time is None or (armed is not None and armed <= time):
            return
        timers = self._timers.event_timers
        if armed is not None:
            timers.delete(armed, rows.key)
        timers.register(time, rows.key)
        rows.armed = time

    # ------------------------------------------------------------------ time

    @property
    def event_timers_due(self) -> bool:
        """True while keys are left for which something is to be done."""
        timers, watermark = self._timers, self._timers.watermark
        first = timers.event_timers.next_timestamp
        if first is not None and first <= watermark:
            return True
        return watermark == MAX_TIMESTAMP and not self._has_forgotten

    def fire_event_timers(self, deadline: float) -> Results:
        timers, state = self._timers, self.context.state
        try:
            while (timer := timers.event_timers.pop(timers.watermark)) is not None:
                self.fired_timers += 1
                yield from self._fire(timer[1])
                if perf_counter() >= deadline:
                    return
        finally:
            state.current_key = NO_KEY
        if timers.watermark == MAX_TIMESTAMP:
            self._forget(deadline)

    def _fire(self, key: Any) -> Results:
        """Releases the due rows of a canonical key. The operator writes the state before a result leaves."""
        self.context.state.current_key = user_key(key)
        rows = self._rows.of(key)
        rows.armed = None
        results = self.release(*rows.sides, self._timers.watermark)
        if any(rows.sides):
            self._arm(rows)
            rows.put()
        else:
            self._rows.remove(key)
        yield from results

    def end_rows(self) -> Results:
        # Whoever ends the keys empties their state.
        self._has_forgotten = True
        yield from self.fire_event_timers(inf)
        self._has_forgotten = False

    def _forget(self, deadline: float) -> None:
        """Removes rows that have no timer, since no row will ask for them, until the deadline."""
        if self._has_forgotten:
            return
        if self._left_keys is None:
            self._left_keys = iter(tuple(self._rows.all_keys()))
        for key in self._left_keys:
            self._rows.remove(key)
            if perf_counter() >= deadline:
                return
        self._has_forgotten = True
