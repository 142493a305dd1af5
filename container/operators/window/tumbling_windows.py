"""TumblingWindows: tumbling windows of time with the default trigger and reduce or aggregate, without a timer a key.

Owner: the task thread. State lies by window, then by key: generated code folds rows into the dict of their window. A
heap holds the ends of windows. A window that ends gives its rows in pieces, which are gone once they have fired. With
lateness they move to the windows that have fired. See docs/design/0034-fast-windows.md.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.registry import runs
from yarrow.container.operators.window.folding_windows import (
    KEYS_AT_ONCE,
    FiringWindow,
    FoldingWindows,
    closed_entry,
)
from yarrow.container.operators.window.missing_timers import FIRED_CONTENTS, fired_tables
from yarrow.container.operators.window.stored_forms import restored_names
from yarrow.container.operators.window.window_contents import (
    CONTENTS,
    WindowContents,
    contents_of,
    open_contents,
)
from yarrow.container.operators.window.window_folding import Entry
from yarrow.container.operators.window.window_rules import is_window_late
from yarrow.container.operators.window.windowing_base import Results
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.container.state.value_table import MISSING, ValueTable
from yarrow.container.state.window_tables import WindowTables
from yarrow.datastream.window import TimeWindow
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.data.elements import MIN_TIMESTAMP
from yarrow.runtime.data.keys import user_key
from yarrow.runtime.graph.window_spec import AllTumblingWindowOperator, TumblingWindowOperator


@runs(TumblingWindowOperator, AllTumblingWindowOperator)
class TumblingWindows(FoldingWindows):
    """Runs tumbling windows whose trigger fires them at their end."""

    _spec: TumblingWindowOperator

    # ------------------------------------------------------------------ life

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        spec = self._spec
        self._length, self._offset = spec.size_ms, spec.offset_ms
        self._contents = open_contents(spec, context, self._form, self._combining)
        self._tables = self._contents.values.tables
        names = restored_names(context)
        self._fired: WindowContents[TimeWindow] | None = None
        if self._lateness or FIRED_CONTENTS in names:
            self._fired = contents_of(spec, context, fired_tables(spec, context), self._combining)
        fired_contents = None if self._fired is None else self._fired.values.tables
        self._take_restored(context, self._tables if CONTENTS in names else None, fired_contents)
        #: The last times of windows with rows, and of windows that have fired and wait for their lateness: heaps.
        self._ends = [window.max_timestamp() for window in self._tables.windows()]
        fired = [] if fired_contents is None else fired_contents.windows()
        self._fired_ends = [window.max_timestamp() for window in fired]
        #: Windows that have fired for some keys only, since their subtasks had different watermarks.
        self._mixed = {window for window in fired if window.max_timestamp() > self._timers.watermark}
        self._open = {window.start for window in self._tables.windows()}
        self._firing = FiringWindow(self._contents.values)
        self._owes = self.event_timers_due
        self._latest = None

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
        if window in self._mixed:
            miss = _Missing(self._tables.table(window), self._fired_values_table(window)).miss
        return self._entry(window, known, miss)

    def _fired_values_table(self, window: TimeWindow) -> ValueTable:
        assert self._fired is not None
        return self._fired.values.tables.table(window)

    def take_closed(self, key: Any, row: Any, timestamp: int | None, start: int) -> Results:
        """See WindowEntries: fires what is owed, and takes a row that is late, or whose window has fired."""
        yield from self.fire_what_is_owed()
        self.context.state.current_key = key
        window = self._stretch(start)
        watermark = self._timers.watermark
        if is_window_late(window, self._lateness, watermark, event_time=self._event_time):
            yield from self._late_row(row, timestamp, late=True, windows=(window,))
            return
        has_fired = self._event_time and window.max_timestamp() <= watermark
        contents = self._fired if has_fired else self._contents
        assert contents is not None
        try:
            if has_fired:
                self._note_fired(window)
            else:
                known: dict[int, Entry] = {}
                found = self.enter(start, known)[4](key)
                if found[2] is not MISSING:
                    contents.values.put(window, key, found[2])
            contents.add(window, key, row, MIN_TIMESTAMP if timestamp is None else timestamp)
            if has_fired:
                stamp = window.max_timestamp()
                for value in contents.fire(
                    window, window, key, lambda shown: self._call.fire(key, window, shown)
                ):
                    yield value, stamp
        except OperatorFailure:
            raise
        except Exception as error:
            raise self._failure_in(short_record(self._row_of(row)), window, error) from error

    def _note_fired(self, window: TimeWindow) -> None:
        """The window stays until the end of its lateness."""
        assert self._fired is not None
        end = window.max_timestamp()
        if end not in self._fired_ends:
            heappush(self._fired_ends, end)

    # ------------------------------------------------------------------ windows that end

    def _window_of(self, last_time: int) -> TimeWindow:
        return TimeWindow(last_time + 1 - self._length, last_time + 1)

    def _fire_window(self, window: TimeWindow, deadline: float) -> Results:
        firing = self._firing
        if firing.window is None:
            firing.begin(window)
        while firing.has_rows():
            yield from self._fire_piece(window, deadline)
            if perf_counter() >= deadline:
                return
        firing.end()
        self._open.discard(window.start)
        if self._latest == window:
            self._latest = None
        self._tables.drop(window)
        if not self._keeps_fired(window):
            self._drop_states(window)

    def _keeps_fired(self, window: TimeWindow) -> bool:
        """Whether a window that has fired waits for late rows."""
        return (
            self._event_time
            and self._lateness > 0
            and not is_window_late(window, self._lateness, self._timers.watermark, event_time=True)
        )

    def _fire_piece(self, window: TimeWindow, deadline: float) -> Results:
        firing, keys, values = self._firing, self._firing.keys, self._firing.values
        stamp, keeps = window.max_timestamp(), self._keeps_fired(window)
        if keeps:
            self._note_fired(window)
        alone = self._spec.window_function is None
        step = KEYS_AT_ONCE if alone else 1
        while firing.at < len(keys):
            start, end = firing.at, min(firing.at + step, len(keys))
            if alone:
                for result in self._plain_results(window, keys[start:end], values[start:end]):
                    yield result, stamp
            else:
                for at in range(start, end):
                    yield from self._fire_key(window, keys[at], values[at], ends=not keeps)
            if keeps and self._fired is not None:
                for at in range(start, end):
                    self._fired.values.put(window, keys[at], values[at])
            firing.at = end
            self.fired_timers += end - start
            if perf_counter() >= deadline:
                return

    def _clean_up(self, limit: int, deadline: float) -> None:
        """Removes windows whose lateness is over."""
        ends = self._fired_ends
        while ends and ends[0] + self._lateness <= limit:
            assert self._fired is not None
            window = self._window_of(ends[0])
            tables = self._fired.values.tables
            if self._spec.window_function is None or self._clear_keys(window, tables, deadline):
                heappop(ends)
                self._mixed.discard(window)
                tables.drop(window)
                self._drop_states(window)
            if perf_counter() >= deadline:
                return

    def _clear_keys(self, window: TimeWindow, tables: WindowTables[TimeWindow], deadline: float) -> bool:
        """Takes the rows of a window, and tells its function of each key; False = the deadline has cut that."""
        for keys, _ in tables.take(window):
            for key in keys:
                self.context.state.current_key = user_key(key)
                try:
                    self._call.clear(window)
                except Exception as error:
                    raise self._failure_of_end(window, key, error) from error
            if perf_counter() >= deadline:
                return False
        return True

    # ------------------------------------------------------------------ time

    @property
    def event_timers_due(self) -> bool:
        fired = self._fired_ends
        cleanup = bool(fired) and fired[0] + self._lateness <= self._timers.watermark
        return super().event_timers_due or cleanup


class _Missing:
    """Finds a key of a window also among the contents that have fired, and takes it from there."""

    def __init__(self, table: ValueTable, fired: ValueTable) -> None:
        self._table, self._fired = table, fired

    def miss(self, key: Any) -> tuple[Any, dict[Any, Any], Any]:
        """See ValueTable."""
        key, entries, value = self._table.miss(key)
        return key, entries, self._fired.take(key) if value is MISSING else value
