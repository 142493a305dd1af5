"""FoldingWindows: what windows without a timer a key have in common, however they are cut.

Owner: the task thread. State lies by a stretch of time, then by key. A stretch is a window or a slice of windows.
Generated code folds rows into the dict of their stretch, and a heap holds the ends of windows. Must not know which
stretches a window has. See docs/design/0034-fast-windows.md.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop
from math import inf
from typing import Any

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.inlining.functions import is_traced
from yarrow.container.codegen.user_functions import results_of
from yarrow.container.codegen.value_loop import ValueLoop
from yarrow.container.operators.base import Emit, OperatorContext
from yarrow.container.operators.process.process_function import EVENT_TIMERS, PROCESSING_TIMERS
from yarrow.container.operators.rows.key_selection import generate_key
from yarrow.container.operators.window.fired_contents import FiredContents
from yarrow.container.operators.window.missing_timers import (
    RestoredTimers,
    fired_tables,
    marks_of,
    set_fired_apart,
)
from yarrow.container.operators.window.stored_forms import restored_names
from yarrow.container.operators.window.window_contents import CONTENTS, WindowContents, contents_of
from yarrow.container.operators.window.window_folding import Combination, Entry, generate_window_fold
from yarrow.container.operators.window.window_values import WindowValues
from yarrow.container.operators.window.windowing_base import Fired, Results, WindowingBase
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.container.state.folded_states import refuse_none
from yarrow.container.state.heap_keyed_state import NO_KEY
from yarrow.container.state.window_tables import Rows, WindowTables
from yarrow.datastream.window import TimeWindow
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.config.options import pipeline
from yarrow.runtime.data.keys import user_key
from yarrow.runtime.graph.window_spec import WindowKind

#: Keys that fire between two looks at the clock, if no window function runs.
KEYS_AT_ONCE = 256


class FoldingWindows(WindowingBase):
    """Windows of time with the default trigger and reduce or aggregate.

    A subclass sets up what stands below, and says which window ends at a time and how it fires.
    """

    #: The contents of the stretches of time, and the tables in which they lie.
    _contents: WindowContents[TimeWindow]
    _tables: WindowTables[TimeWindow]
    #: Stretches have this length, and one begins at the offset; in ms.
    _length: int
    _offset: int
    #: The last times of windows that have to fire: a heap.
    _ends: list[int]
    _firing: FiringWindow
    #: The stretch that rows came to last; None = it is gone.
    _latest: TimeWindow | None
    #: A restored operator fires what its watermark had made due before it takes a row.
    _owes: bool
    #: The windows that have fired and wait for late rows; None = no window waits.
    _fired: FiredContents | None = None
    #: Small functions are written into loops.
    _inlines: bool
    #: Gives the results of many accumulators at once; None = the results leave one by one, or are accumulators.
    _results_of: ValueLoop | None = None

    # ------------------------------------------------------------------ life

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self.emits_lists = self._spec.window_function is None and self._results_stay
        self._inlines = context.environment.settings.get(pipeline.INLINE_FUNCTIONS) and not is_traced()
        if self.emits_lists and self._spec.kind is not WindowKind.REDUCED:
            self._results_of = ValueLoop(self._combining.get_result, inlines=self._inlines)

    def _open_fired(self, context: OperatorContext, name: str) -> None:
        """Opens the state `name` of windows that have fired, if some wait for late rows.

        Restored windows may wait although the program has no lateness. They end at once, and their function hears so.
        """
        if self._event_time and (self._lateness or restored_names(context) & {CONTENTS, name}):
            tables = fired_tables(self._spec, context, name)
            contents = contents_of(self._spec, context, tables, self._combining)
            self._fired = FiredContents(contents, self._lateness, self._timers.watermark)

    def _take_restored(self, context: OperatorContext, contents: WindowTables[TimeWindow] | None) -> None:
        """Takes the timers of a former operator, which kept one a key and window. None = there are no such contents."""
        self._marks = marks_of(context)
        timers = RestoredTimers()
        context.state.register_timers(EVENT_TIMERS, timers)
        context.state.register_timers(PROCESSING_TIMERS, RestoredTimers())
        if contents is not None and self._fired is not None and not self._marks.get():
            set_fired_apart(contents, self._fired.tables, timers.unfired, self._stored_watermark)
            self._fired.note_ahead(self._timers.watermark)

    def open(self) -> None:
        self._open_functions(merging=False)

    def close(self) -> None:
        self._firing.close()
        if self._results_of is not None:
            self._results_of.close()
        super().close()

    def snapshot_state(self, checkpoint_id: int) -> None:
        super().snapshot_state(checkpoint_id)
        self._marks.update([1])
        self._firing.put_back()

    # ------------------------------------------------------------------ rows

    def generate_at(
        self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit, is_head: bool
    ) -> None:
        key = generate_key(code, self._selector, value, self if is_head else None)
        if self.uses_current_key:
            code.line(f"{code.bind('state', self.context.state)}.current_key = {key}")
        time = str(timestamp)
        if not self._event_time:
            time = code.fresh("t")
            code.line(f"{time} = {code.bind('now', self._now)}()")
        generate_window_fold(
            code,
            self,
            (self._length, self._offset),
            self._combination(),
            (key, value, time, timestamp),
            emit,
            is_head=is_head,
        )

    def _combination(self) -> Combination:
        if self._spec.pre_aggregated:
            return Combination.of_partial_values(self._contents)
        return Combination.of(self._spec, self._combining, self.context)

    def _now(self) -> int:
        """The time of a row by the machine's clock."""
        return self._timers.current_processing_time()

    @property
    def wants_keys(self) -> bool:
        """Whether tables take the keys of a chunk in advance."""
        return self.context.state.wants_keys

    def prefetch(self, keys: Sequence[Any]) -> None:
        """Takes the raw keys of the coming rows, for the stretch of time that rows came to last."""
        if self._latest is not None:
            self._tables.table(self._latest).prefetch(keys)

    @abstractmethod
    def enter(self, start: int, known: dict[int, Entry]) -> Entry:
        """See WindowEntries."""

    @abstractmethod
    def take_closed(self, key: Any, row: Any, timestamp: int | None, start: int) -> Results:
        """See WindowEntries."""

    def _stretch(self, start: int) -> TimeWindow:
        """The stretch of time that starts there."""
        return TimeWindow(start, start + self._length)

    def _entry(self, stretch: TimeWindow, known: dict[int, Entry], miss: Any = None) -> Entry:
        """A stretch that generated code may write to; `miss` replaces that of its table."""
        table = self._tables.table(stretch)
        self._latest = stretch
        live = table.live
        is_whole = miss is None and table.whole is not None
        entry = live, live[0], len(live), len(live) > 1, miss or table.miss, is_whole, stretch.end
        known[stretch.start] = entry
        return entry

    def refuse_none(self, row: Any) -> Exception:
        """See WindowEntries."""
        return refuse_none(self.name, CONTENTS)

    def explain(self, row: Any, key: Any, start: int, error: Exception) -> Exception:
        """See WindowEntries."""
        self.context.state.current_key = key
        return self._failure_in(short_record(self._row_of(row)), self._shown_window(start), error)

    def _shown_window(self, start: int) -> TimeWindow:
        """The window that messages name for a row of this stretch."""
        return self._stretch(start)

    def forget(self, key: Any, start: int) -> None:
        """See WindowEntries."""
        self._contents.values.remove(self._stretch(start), key)

    # ------------------------------------------------------------------ windows that end

    @abstractmethod
    def _window_of(self, last_time: int) -> TimeWindow:
        """The window with this last time."""

    @abstractmethod
    def _fire_window(self, window: TimeWindow, deadline: float) -> Fired:
        """Fires the keys of a window until the deadline; `_firing` has no window behind the last one."""

    def _fire_due(self, limit: int, deadline: float) -> Fired:
        """Fires the windows whose last time is `limit` or before, and removes what is not needed any more."""
        ends, state = self._ends, self.context.state
        while ends and ends[0] <= limit:
            yield from self._fire_window(self._window_of(ends[0]), deadline)
            if self._firing.window is not None:
                break
            heappop(ends)
            if perf_counter() >= deadline:
                break
        if self._firing.window is None:
            self._clean_up(limit, deadline)
        state.current_key = NO_KEY

    # ------------------------------------------------------------------ windows that have fired

    def _keeps_fired(self, window: TimeWindow) -> bool:
        """Whether a window that fires waits for late rows."""
        return self._fired is not None and self._fired.keeps(window, self._timers.watermark)

    def _fire_again(self, window: TimeWindow, key: Any, row: Any, stamp: int) -> Results:
        """Adds a late row of the current key to a window that has fired, and fires it for this key."""
        assert self._fired is not None
        contents, last_time = self._fired.contents, window.max_timestamp()
        contents.add(window, key, row, stamp)
        for value in contents.fire(window, window, key, lambda shown: self._call.fire(key, window, shown)):
            yield value, last_time

    def _clean_up(self, limit: int, deadline: float) -> None:
        """Removes windows whose lateness is over."""
        fired = self._fired
        if fired is None:
            return
        for window in fired.due(limit):
            if self._spec.window_function is None or self._clear_keys(window, fired.tables, deadline):
                fired.drop(window)
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

    # ------------------------------------------------------------------ functions of windows that end

    def _plain_results(self, window: TimeWindow, keys: Sequence[Any], values: Sequence[Any]) -> Fired:
        """The results of keys where no window function runs: one for each."""
        stamp = window.max_timestamp()
        results: Iterable[Any] = values
        if self._spec.kind is not WindowKind.REDUCED:
            at_once = self.emits_lists and not self.uses_current_key
            results = (self._aggregates_at_once if at_once else self._aggregates)(window, keys, values)
        if self.emits_lists:
            yield list(results), [stamp] * len(keys)
        else:
            for result in results:
                yield result, stamp

    def _aggregates_at_once(
        self, window: TimeWindow, keys: Sequence[Any], values: Sequence[Any]
    ) -> list[Any]:
        results: list[Any] = []
        loop = self._results_of
        assert loop is not None
        try:
            loop.extend(results, values)
        except Exception as error:
            told = loop.told(error)
            raise self._failure_of_end(window, keys[len(results)], told) from told
        return results

    def _aggregates(self, window: TimeWindow, keys: Sequence[Any], values: Sequence[Any]) -> Iterator[Any]:
        get_result, state, uses_key = self._combining.get_result, self.context.state, self.uses_current_key
        for key, value in zip(keys, values, strict=True):
            if uses_key:
                state.current_key = user_key(key)
            try:
                result = get_result(value)
            except Exception as error:
                raise self._failure_of_end(window, key, error) from error
            yield result

    def _fire_key(self, window: TimeWindow, key: Any, value: Any, *, ends: bool) -> Results:
        """The results of one key; `ends`: nothing of the window is needed any more."""
        shown_key = self.context.state.current_key = user_key(key)
        stamp = window.max_timestamp()
        try:
            for result in results_of(self._call.fire(shown_key, window, self._contents.shown(value))):
                yield result, stamp
            if ends:
                self._call.clear(window)
        except OperatorFailure:
            raise
        except Exception as error:
            raise self._failure_of_end(window, key, error) from error

    def _failure_of_end(self, window: TimeWindow, key: Any, error: BaseException) -> OperatorFailure:
        """The error of a function for a key of a window that ends; `key` is canonical."""
        self.context.state.current_key = user_key(key)
        return self._failure_in(f"timer at {window.max_timestamp()}", window, error)

    def _drop_unless_waiting(self, window: TimeWindow) -> None:
        """Removes state of a window that has fired, unless it waits for late rows of some key."""
        if self._fired is None or window not in self._fired:
            self._drop_states(window)

    def _drop_states(self, window: TimeWindow) -> None:
        """Removes state of a window that the function has left."""
        for values in self._function_states.values:
            values.drop(window)

    # ------------------------------------------------------------------ time

    @property
    def event_timers_due(self) -> bool:
        if not self._event_time:
            return False
        ends, watermark = self._ends, self._timers.watermark
        if ends and ends[0] <= watermark:
            return True
        return self._fired is not None and bool(self._fired.due(watermark))

    def fire_event_timers(self, deadline: float) -> Fired:
        self._owes = False
        return self._fire_due(self._timers.watermark, deadline) if self._event_time else iter(())

    def fire_what_is_owed(self) -> Results:
        """What a restored operator has to fire before it takes a row."""
        if self._owes:
            for results, times in self.fire_event_timers(inf):
                if self.emits_lists:
                    yield from zip(results, times, strict=True)
                else:
                    yield results, times

    def next_timer(self) -> int | None:
        return None if self._event_time or not self._ends else self._ends[0]

    def fire_timers(self, now: int, deadline: float) -> Fired:
        return iter(()) if self._event_time else self._fire_due(now, deadline)


class FiringWindow:
    """The window whose keys fire at present, at most one, and the rows that have still to fire.

    Rows are taken out of the state in pieces, and what a piece has left goes back before a cut. So a snapshot holds
    exactly the keys that have not fired.
    """

    def __init__(self, values: WindowValues[TimeWindow]) -> None:
        self._values = values
        #: The window that fires; None = there is none.
        self.window: TimeWindow | None = None
        self._pieces: Iterator[Rows] = iter(())
        #: The piece at hand, and the number of its keys that have fired.
        self.keys: Sequence[Any] = ()
        self.values: Sequence[Any] = ()
        self.at = 0
        #: True if the window may have rows that the pieces do not give.
        self._again = False

    def begin(self, window: TimeWindow) -> None:
        """Begins a window, whose rows are taken from the first `has_rows` on."""
        self.window, self._again = window, True

    def note_rows(self) -> None:
        """Rows were put into the window meanwhile."""
        self._again = True

    def has_rows(self) -> bool:
        """Takes the next rows if none are at hand; False = none are left."""
        while self.at >= len(self.keys):
            piece = next(self._pieces, None)
            if piece is not None:
                (self.keys, self.values), self.at = piece, 0
            elif self._again and self.window is not None:
                self._pieces, self._again = self._values.tables.take(self.window), False
            else:
                return False
        return True

    def put_back(self) -> None:
        """Puts rows at hand that have not fired back into the state."""
        if self.window is not None and self.at < len(self.keys):
            for key, value in zip(self.keys[self.at :], self.values[self.at :], strict=True):
                self._values.put(self.window, key, value)
            self._again = True
        self.keys, self.values, self.at = (), (), 0

    def end(self) -> None:
        """The window has fired."""
        self.window = None
        self.close()

    def close(self) -> None:
        """Lets go of the rows: they may be those of an iterator of the backend."""
        self._pieces = iter(())
        self.keys, self.values, self.at = (), (), 0


def closed_entry(start: int) -> Entry:
    """The entry of a stretch that generated code must not write to."""
    return [], {}, 1, False, _closed, False, start


def _closed(key: Any) -> tuple[Any, dict[Any, Any], Any]:
    raise AssertionError(f"a row of the key {key!r} reached a closed window")
