"""TumblingWindows: tumbling windows of time with the default trigger and reduce or aggregate, without a timer a key.

Owner: the task thread. State lies by window, then by key: generated code folds rows into the dict of their window. A
heap holds the ends of windows. A window that ends gives its rows in pieces, which are gone once they have fired. With
lateness they move to the windows that have fired. See docs/design/0034-fast-windows.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from math import inf
from typing import Any

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.operators.base import Emit, OperatorContext
from yarrow.container.operators.process.process_function import EVENT_TIMERS, PROCESSING_TIMERS
from yarrow.container.operators.registry import runs
from yarrow.container.operators.rows.key_selection import generate_key
from yarrow.container.operators.window.missing_timers import (
    FIRED_CONTENTS,
    RestoredTimers,
    fired_tables,
    marks_of,
    restored_names,
    set_fired_apart,
)
from yarrow.container.operators.window.window_contents import (
    CONTENTS,
    WindowContents,
    contents_of,
    open_contents,
)
from yarrow.container.operators.window.window_folding import Combination, Entry, generate_window_fold
from yarrow.container.operators.window.window_rules import is_window_late
from yarrow.container.operators.window.windowing_base import Results, WindowingBase
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.container.state.folded_states import refuse_none
from yarrow.container.state.heap_keyed_state import NO_KEY
from yarrow.container.state.value_table import MISSING, ValueTable
from yarrow.container.state.window_tables import Rows, WindowTables
from yarrow.datastream.window import TimeWindow
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.data.elements import MIN_TIMESTAMP
from yarrow.runtime.data.keys import user_key
from yarrow.runtime.graph.window_spec import AllTumblingWindowOperator, TumblingWindowOperator, WindowKind

#: Keys that fire between two looks at the clock, if no window function runs.
_KEYS_AT_ONCE = 256


@runs(TumblingWindowOperator, AllTumblingWindowOperator)
class TumblingWindows(WindowingBase):
    """Runs tumbling windows whose trigger fires them at their end."""

    _spec: TumblingWindowOperator

    # ------------------------------------------------------------------ life

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        spec = self._spec
        self._size, self._offset = spec.size_ms, spec.offset_ms
        self._contents: WindowContents[TimeWindow] = open_contents(spec, context, self._form, self._combining)
        self._tables: WindowTables[TimeWindow] = self._contents.values.tables
        names = restored_names(context)
        self._fired: WindowContents[TimeWindow] | None = None
        if self._lateness or FIRED_CONTENTS in names:
            self._fired = contents_of(spec, context, fired_tables(spec, context), self._combining)
        self._take_restored(context, CONTENTS in names)
        #: The last times of windows with rows, and of windows that have fired and wait for their lateness: heaps.
        self._ends = [window.max_timestamp() for window in self._tables.windows()]
        fired = () if self._fired is None else self._fired.values.tables.windows()
        self._fired_ends = [window.max_timestamp() for window in fired]
        #: Windows that have fired for some keys only, since their subtasks had different watermarks.
        self._mixed = {window for window in fired if window.max_timestamp() > self._timers.watermark}
        self._open = {window.start for window in self._tables.windows()}
        #: The window that fires, its pieces, the piece at hand, and the number of its keys that have fired.
        self._firing: TimeWindow | None = None
        self._pieces: Iterator[Rows] = iter(())
        self._piece: Rows = ((), ())
        self._at = 0
        #: True if rows of the window that fires were put back.
        self._put_back = False
        #: A restored operator fires what its watermark had made due before it takes a row.
        self._owes = self.event_timers_due
        #: The window that rows came to last.
        self._latest: TimeWindow | None = None

    def _take_restored(self, context: OperatorContext, has_contents: bool) -> None:
        """Takes the timers of a former operator, which kept one a key and window."""
        self._marks = marks_of(context)
        timers = RestoredTimers()
        context.state.register_timers(EVENT_TIMERS, timers)
        context.state.register_timers(PROCESSING_TIMERS, RestoredTimers())
        if has_contents and self._event_time and not self._marks.get():
            fired = None if self._fired is None else self._fired.values.tables
            set_fired_apart(self._tables, fired, timers.unfired, self._timers.watermark)

    def open(self) -> None:
        self._open_functions(merging=False)

    def close(self) -> None:
        # The pieces may hold an iterator of the backend.
        self._pieces = iter(())
        super().close()

    def snapshot_state(self, checkpoint_id: int) -> None:
        super().snapshot_state(checkpoint_id)
        self._marks.update([1])
        keys, values = self._piece
        if self._firing is not None and self._at < len(keys):
            put = self._contents.values.put
            for key, value in zip(keys[self._at :], values[self._at :], strict=True):
                put(self._firing, key, value)
            self._put_back = True
        self._piece, self._at = ((), ()), 0

    # ------------------------------------------------------------------ rows

    def generate_at(
        self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit, is_head: bool
    ) -> None:
        key = generate_key(code, self._selector, value, self if is_head else None)
        if self._uses_current_key:
            code.line(f"{code.bind('state', self.context.state)}.current_key = {key}")
        time = str(timestamp)
        if not self._event_time:
            time = code.fresh("t")
            code.line(f"{time} = {code.bind('now', self._timers.current_processing_time)}()")
        generate_window_fold(
            code,
            self,
            (self._size, self._offset),
            Combination.of(self._spec, self._combining, self.context),
            (key, value, time, timestamp),
            emit,
            is_head=is_head,
        )

    @property
    def _uses_current_key(self) -> bool:
        """Whether a user's function may have state of the key; `yarrow info --code` compiles unopened operators."""
        return self._opened and self._runtime_context.has_keyed_state

    @property
    def wants_keys(self) -> bool:
        """Whether tables take the keys of a chunk in advance."""
        return self.context.state.wants_keys

    def prefetch(self, keys: Sequence[Any]) -> None:
        """Takes the raw keys of the coming rows, for the window that rows came to last."""
        if self._latest is not None:
            self._tables.table(self._latest).prefetch(keys)

    def enter(self, start: int, known: dict[int, Entry]) -> Entry:
        """See WindowEntries: a window that is late, has fired, or waits for others to fire is closed."""
        window = TimeWindow(start, start + self._size)
        if self._owes or (self._event_time and window.max_timestamp() <= self._timers.watermark):
            return [], {}, 1, False, _closed, start
        if window == self._firing:
            # The clock of the machine has gone back.
            self._put_back = True
        if start not in self._open:
            self._open.add(start)
            heappush(self._ends, window.max_timestamp())
        table = self._tables.table(window)
        self._latest = window
        miss = table.miss
        if window in self._mixed:
            miss = _Missing(table, self._fired_values_table(window)).miss
        live = table.live
        entry = known[start] = live, live[0], len(live), len(live) > 1, miss, window.end
        return entry

    def _fired_values_table(self, window: TimeWindow) -> ValueTable:
        assert self._fired is not None
        return self._fired.values.tables.table(window)

    def take_closed(self, key: Any, row: Any, timestamp: int | None, start: int) -> Results:
        """See WindowEntries: fires what is owed, and takes a row that is late, or whose window has fired."""
        if self._owes:
            yield from self.fire_event_timers(inf)
        self.context.state.current_key = key
        window = TimeWindow(start, start + self._size)
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
            raise self._failure_in(short_record(row), window, error) from error

    def _note_fired(self, window: TimeWindow) -> None:
        """The window stays until the end of its lateness."""
        assert self._fired is not None
        end = window.max_timestamp()
        if end not in self._fired_ends:
            heappush(self._fired_ends, end)

    def refuse_none(self, row: Any) -> Exception:
        """See WindowEntries."""
        return refuse_none(self.name, CONTENTS)

    def explain(self, row: Any, key: Any, start: int, error: Exception) -> Exception:
        """See WindowEntries."""
        self.context.state.current_key = key
        return self._failure_in(short_record(row), TimeWindow(start, start + self._size), error)

    def forget(self, key: Any, start: int) -> None:
        """See WindowEntries."""
        self._contents.values.remove(TimeWindow(start, start + self._size), key)

    # ------------------------------------------------------------------ windows that end

    def _fire_due(self, limit: int, deadline: float) -> Results:
        """Fires the windows whose last time is `limit` or before, and removes those whose lateness is over."""
        ends, state = self._ends, self.context.state
        while ends and ends[0] <= limit:
            window = TimeWindow(ends[0] + 1 - self._size, ends[0] + 1)
            yield from self._fire_window(window, deadline)
            if self._firing is not None:
                break
            heappop(ends)
            if perf_counter() >= deadline:
                break
        if self._firing is None:
            self._clean_up(limit, deadline)
        state.current_key = NO_KEY

    def _fire_window(self, window: TimeWindow, deadline: float) -> Results:
        """Fires the keys of a window until the deadline; `_firing` is None behind the last one."""
        if self._firing is None:
            self._firing, self._pieces, self._put_back = window, self._tables.take(window), False
        while self._has_piece(window):
            yield from self._fire_piece(window, deadline)
            if self._at < len(self._piece[0]):
                return
            self._piece, self._at = ((), ()), 0
            if perf_counter() >= deadline:
                return
        self._firing = None
        self._open.discard(window.start)
        if self._latest == window:
            self._latest = None
        self._tables.drop(window)
        if not self._keeps_fired(window):
            self._drop_states(window)

    def _has_piece(self, window: TimeWindow) -> bool:
        """Takes the next rows of a window if none are at hand; False = none are left."""
        while not self._piece[0]:
            piece = next(self._pieces, None)
            if piece is not None:
                self._piece, self._at = piece, 0
            elif self._put_back:
                self._pieces, self._put_back = self._tables.take(window), False
            else:
                return False
        return True

    def _keeps_fired(self, window: TimeWindow) -> bool:
        """Whether a window that has fired waits for late rows."""
        return (
            self._event_time
            and self._lateness > 0
            and not is_window_late(window, self._lateness, self._timers.watermark, event_time=True)
        )

    def _fire_piece(self, window: TimeWindow, deadline: float) -> Results:
        keys, values = self._piece
        stamp, keeps = window.max_timestamp(), self._keeps_fired(window)
        if keeps:
            self._note_fired(window)
        alone = self._spec.window_function is None
        step = _KEYS_AT_ONCE if alone else 1
        while self._at < len(keys):
            start, end = self._at, min(self._at + step, len(keys))
            if alone:
                for result in self._plain_results(window, keys[start:end], values[start:end]):
                    yield result, stamp
            else:
                for at in range(start, end):
                    yield from self._fire_key(window, keys[at], values[at], ends=not keeps)
            if keeps and self._fired is not None:
                for at in range(start, end):
                    self._fired.values.put(window, keys[at], values[at])
            self._at = end
            self.fired_timers += end - start
            if perf_counter() >= deadline:
                return

    def _plain_results(self, window: TimeWindow, keys: Sequence[Any], values: Sequence[Any]) -> Iterable[Any]:
        """The results of keys where no window function runs: one for each."""
        if self._spec.kind is WindowKind.REDUCED:
            return values
        return self._aggregates(window, keys, values)

    def _aggregates(self, window: TimeWindow, keys: Sequence[Any], values: Sequence[Any]) -> Iterator[Any]:
        get_result, state, uses_key = self._combining.get_result, self.context.state, self._uses_current_key
        for key, value in zip(keys, values, strict=True):
            if uses_key:
                state.current_key = user_key(key)
            try:
                result = get_result(value)
            except Exception as error:
                state.current_key = user_key(key)
                raise self._failure_in(f"timer at {window.max_timestamp()}", window, error) from error
            yield result

    def _fire_key(self, window: TimeWindow, key: Any, value: Any, *, ends: bool) -> Results:
        """The results of one key; `ends`: nothing of the window is needed any more."""
        shown_key = self.context.state.current_key = user_key(key)
        stamp = window.max_timestamp()
        try:
            for result in self._call.fire(shown_key, window, self._contents.shown(value)) or ():
                yield result, stamp
            if ends:
                self._call.clear(window)
        except OperatorFailure:
            raise
        except Exception as error:
            raise self._failure_in(f"timer at {stamp}", window, error) from error

    def _clean_up(self, limit: int, deadline: float) -> None:
        """Removes windows whose lateness is over."""
        ends = self._fired_ends
        while ends and ends[0] + self._lateness <= limit:
            assert self._fired is not None
            window = TimeWindow(ends[0] + 1 - self._size, ends[0] + 1)
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
                    raise self._failure_in(f"timer at {window.max_timestamp()}", window, error) from error
            if perf_counter() >= deadline:
                return False
        return True

    def _drop_states(self, window: TimeWindow) -> None:
        """Removes state of a window that the function has left."""
        for values in self._function_states.values:
            values.drop(window)

    # ------------------------------------------------------------------ time

    @property
    def event_timers_due(self) -> bool:
        if not self._event_time:
            return False
        watermark = self._timers.watermark
        ends, fired = self._ends, self._fired_ends
        return bool(ends and ends[0] <= watermark) or bool(fired and fired[0] + self._lateness <= watermark)

    def fire_event_timers(self, deadline: float) -> Results:
        self._owes = False
        return self._fire_due(self._timers.watermark, deadline) if self._event_time else iter(())

    def next_timer(self) -> int | None:
        return None if self._event_time or not self._ends else self._ends[0]

    def fire_timers(self, now: int, deadline: float) -> Results:
        return iter(()) if self._event_time else self._fire_due(now, deadline)


class _Missing:
    """Finds a key of a window also among the contents that have fired, and takes it from there."""

    def __init__(self, table: ValueTable, fired: ValueTable) -> None:
        self._table, self._fired = table, fired

    def miss(self, key: Any) -> tuple[Any, dict[Any, Any], Any]:
        """See ValueTable."""
        key, entries, value = self._table.miss(key)
        return key, entries, self._fired.take(key) if value is MISSING else value


def _closed(key: Any) -> tuple[Any, dict[Any, Any], Any]:
    raise AssertionError(f"a row of the key {key!r} reached a closed window")
