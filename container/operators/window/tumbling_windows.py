"""TumblingWindows: tumbling windows of time with the default trigger and reduce or aggregate, without a timer a key.

Owner: the task thread. State lies by window, then by key: generated code folds rows into the dict of their window. A
heap holds the ends of windows. A window that ends gives its rows in pieces, which are gone once they have fired. With
lateness they move to the windows that have fired. Windows that a program with another size has begun fire at their own
ends. See docs/design/0034-fast-windows.md.
"""

from __future__ import annotations

from collections.abc import Collection
from heapq import heappush
from typing import Any

from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.registry import runs
from yarrow.container.operators.window.folding_windows import (
    KEYS_AT_ONCE,
    FiringWindow,
    FoldingWindows,
    closed_entry,
)
from yarrow.container.operators.window.stored_forms import FIRED_CONTENTS, restored_names
from yarrow.container.operators.window.window_contents import CONTENTS, open_contents
from yarrow.container.operators.window.window_folding import Entry
from yarrow.container.operators.window.window_rules import is_window_late
from yarrow.container.operators.window.windowing_base import Fired, Results
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.container.state.value_table import MISSING, ValueTable
from yarrow.datastream.window import TimeWindow
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.data.elements import MIN_TIMESTAMP
from yarrow.runtime.graph.window_spec import AllTumblingWindowOperator, TumblingWindowOperator


@runs(TumblingWindowOperator, AllTumblingWindowOperator)
class TumblingWindows(FoldingWindows):
    """Runs tumbling windows whose trigger fires them at their end."""

    _spec: TumblingWindowOperator

    # ------------------------------------------------------------------ life

    @property
    def _read_forms(self) -> Collection[str]:
        return (FIRED_CONTENTS,)

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        spec = self._spec
        self._length, self._offset = spec.size_ms, spec.offset_ms
        self._contents = open_contents(spec, context, self._form, self._combining)
        self._tables = self._contents.values.tables
        self._open_fired(context, FIRED_CONTENTS)
        self._take_restored(context, self._tables if CONTENTS in restored_names(context) else None)
        restored = self._tables.windows()
        self._ends = [window.max_timestamp() for window in restored]
        self._open = {window.start for window in restored if self._is_own(window)}
        #: Restored windows of another size or offset, by their last time. They take no rows.
        self._former: dict[int, list[TimeWindow]] = {}
        for window in restored:
            if not self._is_own(window):
                self._former.setdefault(window.max_timestamp(), []).append(window)
        self._firing = FiringWindow(self._contents.values)
        self._owes = self.event_timers_due
        self._latest = None

    def _is_own(self, window: TimeWindow) -> bool:
        """Whether rows can belong to a window: a restored one may have another size or offset."""
        return window.end - window.start == self._length and (window.start - self._offset) % self._length == 0

    # ------------------------------------------------------------------ rows

    def enter(self, start: int, known: dict[int, Entry]) -> Entry:
        """See WindowEntries: a window that is late, has fired, or waits for others to fire is closed."""
        window = self._stretch(start)
        if self._owes or (self._event_time and window.max_timestamp() <= self._timers.watermark):
            return closed_entry(start)
        if window == self._firing.window:
            # The clock of the machine has gone back.
            self._firing.note_rows()
        if start not in self._open:
            self._open.add(start)
            heappush(self._ends, window.max_timestamp())
        miss = None
        if self._fired is not None and window in self._fired.ahead:
            miss = _Missing(self._tables.table(window), self._fired.tables.table(window)).miss
        return self._entry(window, known, miss)

    def take_closed(self, key: Any, row: Any, timestamp: int | None, start: int) -> Results:
        """See WindowEntries: fires what is owed, and takes a row that is late, or whose window has fired."""
        yield from self.fire_what_is_owed()
        self.context.state.current_key = key
        window = self._stretch(start)
        watermark = self._timers.watermark
        if is_window_late(window, self._lateness, watermark, event_time=self._event_time):
            yield from self._late_row(row, timestamp, late=True, windows=(window,))
            return
        stamp = MIN_TIMESTAMP if timestamp is None else timestamp
        try:
            if self._event_time and window.max_timestamp() <= watermark:
                yield from self._fire_again(window, key, row, stamp)
            else:
                known: dict[int, Entry] = {}
                found = self.enter(start, known)[4](key)
                if found[2] is not MISSING:
                    self._contents.values.put(window, key, found[2])
                self._contents.add(window, key, row, stamp)
        except OperatorFailure:
            raise
        except Exception as error:
            raise self._failure_in(short_record(self._row_of(row)), window, error) from error

    # ------------------------------------------------------------------ windows that end

    def _window_of(self, last_time: int) -> TimeWindow:
        former = self._former.get(last_time)
        return former[-1] if former else TimeWindow(last_time + 1 - self._length, last_time + 1)

    def _fire_window(self, window: TimeWindow, deadline: float) -> Fired:
        firing = self._firing
        if firing.window is None:
            firing.begin(window)
        while firing.has_rows():
            yield from self._fire_piece(window, deadline)
            if perf_counter() >= deadline:
                return
        firing.end()
        if self._is_own(window):
            self._open.discard(window.start)
        else:
            self._forget_former(window)
        if self._latest == window:
            self._latest = None
        self._contents.values.drop(window)
        self._drop_unless_waiting(window)

    def _forget_former(self, window: TimeWindow) -> None:
        """Removes the former window that has fired; another one, or an own window, may end at the same time."""
        last_time = window.max_timestamp()
        former = self._former[last_time]
        former.remove(window)
        if not former:
            del self._former[last_time]

    def _fire_piece(self, window: TimeWindow, deadline: float) -> Fired:
        firing, keys, values = self._firing, self._firing.keys, self._firing.values
        keeps, alone = self._keeps_fired(window), self._spec.window_function is None
        step = KEYS_AT_ONCE if alone else 1
        while firing.at < len(keys):
            start, end = firing.at, min(firing.at + step, len(keys))
            if alone:
                yield from self._plain_results(window, keys[start:end], values[start:end])
            else:
                for at in range(start, end):
                    yield from self._fire_key(window, keys[at], values[at], ends=not keeps)
            if keeps and self._fired is not None:
                self._fired.put(window, keys[start:end], values[start:end])
            firing.at = end
            self.fired_timers += end - start
            if perf_counter() >= deadline:
                return


class _Missing:
    """Finds a key of a window also among the contents that have fired, and takes it from there."""

    def __init__(self, table: ValueTable, fired: ValueTable) -> None:
        self._table, self._fired = table, fired

    def miss(self, key: Any) -> tuple[Any, dict[Any, Any], Any]:
        """See ValueTable."""
        key, entries, value = self._table.miss(key)
        return key, entries, self._fired.take(key) if value is MISSING else value
