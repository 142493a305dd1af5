"""WindowingOperator: windows of any assigner and any trigger, on both clocks, with merging windows.

Owner: the task thread. It joins the rules of windows (`window_rules`, `merging_windows`) to state and timers, a key at
a time. Results bear the last timestamp of their window. See docs/design/0030-windows.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from math import inf
from typing import Any, Final, NamedTuple, cast

from yarrow.common.typeinfo import Types
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.user_functions import load_function
from yarrow.container.operators.base import Emit, OperatorContext
from yarrow.container.operators.process.process_function import EVENT_TIMERS, PROCESSING_TIMERS
from yarrow.container.operators.registry import runs
from yarrow.container.operators.rows.key_selection import generate_current_key
from yarrow.container.operators.window.evicting_windows import (
    CONTENTS_WITH_TIMES,
    Evicting,
    open_evicting_windows,
    take_rows_with_times,
)
from yarrow.container.operators.window.merging_windows import Merge, MergingWindowSet, require_end_behind
from yarrow.container.operators.window.missing_timers import set_missing_timers
from yarrow.container.operators.window.stored_forms import FIRED_CONTENTS, restored_names
from yarrow.container.operators.window.window_contents import WindowContents, open_contents
from yarrow.container.operators.window.window_contexts import WindowEvictorContext, WindowTriggerContext
from yarrow.container.operators.window.window_rules import (
    checked_result,
    checked_window,
    cleanup_time,
    is_row_late,
    is_window_late,
    listed_windows,
)
from yarrow.container.operators.window.window_values import WindowValues
from yarrow.container.operators.window.windowing_base import Result, Results, WindowingBase
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.container.state.heap_keyed_state import NO_KEY
from yarrow.container.state.timers import TimerQueue
from yarrow.container.state.value_table import MISSING, ValueTable
from yarrow.datastream.state import ValueStateDescriptor
from yarrow.datastream.window import MergingWindowAssigner, Trigger, TriggerResult, Window
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.runtime.data.keys import canonicalize, user_key
from yarrow.runtime.graph.window_spec import AllWindowOperator, WindowKind, WindowOperator

#: Name of the state with the merging windows of a key: pairs of (window, state window) in stored form.
MERGING_WINDOWS = "_merging_windows"
#: Windows that may be empty above which they are looked at between two rows.
MOST_EMPTY = 1024
#: A member of an enum costs more than a name.
_CONTINUE: Final = TriggerResult.CONTINUE


class _WindowAtHand(NamedTuple):
    """A window of rows at hand, with values that the operator needs for each of these rows."""

    #: Its stored form.
    stored: Any
    #: When everything of it is removed; None = never.
    cleanup: int | None
    #: The table of its contents.
    table: ValueTable


@runs(WindowOperator, AllWindowOperator)
class WindowingOperator(WindowingBase):
    """Runs windows of a keyed stream, or of a whole stream whose rows have one key."""

    def __init__(self, name: str, spec: WindowOperator) -> None:
        super().__init__(name, spec)
        #: The window at hand, for messages.
        self._at: Any = None
        #: The windows of the rows at hand that are not late. Each call of the loop, each row of an operator that is no
        #: head, and drops of windows clear it. Watermarks and cuts come between calls. In a history the watermark rises
        #: within a call, but never up to the clean-up timer of a window that the key has.
        self._at_hand: dict[Any, _WindowAtHand] = {}

    # ------------------------------------------------------------------ life

    @property
    def _keeps_rows_alone(self) -> bool:
        """True if windows keep all rows, and nobody asks for their times."""
        return self._spec.kind is WindowKind.ROWS and self._spec.evictor is None

    @property
    def _read_forms(self) -> Collection[str]:
        return (FIRED_CONTENTS, CONTENTS_WITH_TIMES) if self._keeps_rows_alone else (FIRED_CONTENTS,)

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        spec, state = self._spec, context.state
        self._trigger: Trigger[Any, Any] = load_function(spec.trigger, self.name)
        merging = isinstance(self._assigner, MergingWindowAssigner)
        self._merger = cast(MergingWindowAssigner[Any, Any], self._assigner) if merging else None
        self._contents = self._open_contents(context)
        if merging:
            stored = self._form.stored_type
            self._merging_state = state.value_state(
                ValueStateDescriptor(MERGING_WINDOWS, Types.LIST(Types.TUPLE([stored, stored])))
            )
        state.register_timers(EVENT_TIMERS, self._timers.event_timers)
        state.register_timers(PROCESSING_TIMERS, self._timers.processing_timers)
        set_missing_timers(
            spec, context, self._contents.values.tables, self._timers, event_time=self._event_time
        )
        self._cleanups = self._timers.event_timers if self._event_time else self._timers.processing_timers
        if not self._has_due_timers:
            # A timer that a trigger sets from now on waits for the next watermark.
            self._waiting.end()
        #: A restored operator fires what its watermark had made due before it takes a row.
        self._owes_timers = self.event_timers_due

    def _open_contents(self, context: OperatorContext) -> WindowContents[Any]:
        spec, form = self._spec, self._form
        if spec.evictor is None:
            contents = open_contents(spec, context, form, self._combining)
            if self._keeps_rows_alone and CONTENTS_WITH_TIMES in restored_names(context):
                take_rows_with_times(spec, context, form, contents)
            return contents
        evictor_context = WindowEvictorContext(self._timers, context.metric_group)
        evicting = Evicting(load_function(spec.evictor, self.name), evictor_context)
        return open_evicting_windows(spec, context, form, self._combining, evicting)

    def open(self) -> None:
        self._open_functions(merging=self._merger is not None)
        self._trigger_context = WindowTriggerContext(
            self.context.state,
            self._timers,
            self._form,
            self.context.metric_group,
            restored_names(self.context),
            self._on_first_use,
        )

    def _on_first_use(self, values: WindowValues[Any]) -> None:
        """Hears of a state that the trigger asks for first, before it reads it."""

    # ------------------------------------------------------------------ rows

    def generate_at(
        self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit, is_head: bool
    ) -> None:
        generate_current_key(code, self._selector, value, self.context.state, is_head)
        forget = f"{code.bind('forget', self._at_hand.clear)}()"
        code.at_start(forget)
        if not is_head:
            # Watermarks come between the rows of one call.
            code.line(forget)
        result, stamp = code.fresh("v"), code.fresh("t")
        on_row = code.bind("on_row", self.on_row)
        with code.block(f"for {result}, {stamp} in {on_row}({value}, {timestamp}):"):
            emit(result, stamp)

    def on_row(self, row: Any, timestamp: int | None) -> Results:
        """Adds a row of the current key to its windows; the results of windows that fire, and a late row itself."""
        if self._owes_timers:
            yield from self._fire_owed_timers()
        self._at = None
        stamp = MIN_TIMESTAMP if timestamp is None else timestamp
        try:
            found = self._assigner.assign_windows(row, stamp, self._assigner_context)
            windows = found.copy() if type(found) is list else listed_windows(found, self._assigner)
            for window in windows:
                if type(window) is not self._window_type:
                    checked_window(window, self._window_type, self._assigner)
            takes = self._take if self._merger is None else self._take_merging
            taken = False
            for window in windows:
                self._at = window
                results = takes(window, row, stamp)
                if results is not None:
                    taken = True
                    yield from results
        except OperatorFailure:
            raise
        except Exception as error:
            raise self._failure(short_record(self._row_of(row)), error) from error
        if not taken:
            yield from self._row_without_window(row, timestamp, windows)
        if self._contents.values.perhaps_empty > MOST_EMPTY:
            self._drop_empty()

    def _row_without_window(self, row: Any, timestamp: int | None, windows: Sequence[Any]) -> Results:
        """Lets a row leave, or counts it, that no window takes. `windows`: those of its assigner, all late."""
        stamp = MIN_TIMESTAMP if timestamp is None else timestamp
        late = bool(windows) or is_row_late(
            stamp, self._lateness, self._timers.watermark, event_time=self._event_time
        )
        return self._late_row(row, timestamp, late=late, windows=windows)

    def _fire_owed_timers(self) -> Results:
        """Fires what the watermark of a restored operator has made due, before the row at hand."""
        key = self.context.state.current_key
        yield from self.fire_event_timers(inf)
        self.context.state.current_key = key

    def _take(self, window: Any, row: Any, stamp: int) -> Iterable[Result] | None:
        """Adds a row to a window; None = the window is late."""
        at_hand = self._at_hand.get(window)
        if at_hand is None:
            if self._is_late(window):
                return None
            at_hand = self._enter(window)
        stored, cleanup, table = at_hand
        key = canonicalize(self.context.state.current_key)
        self._contents.add_to(table, window, key, row, stamp)
        context, trigger = self._trigger_context, self._trigger
        context.enter(window, stored)
        result = trigger.on_element(row, stamp, window, context)
        if result is not _CONTINUE:
            return self._decided(checked_result(result, trigger), window, window)
        if cleanup is not None:
            self._cleanups.register(cleanup, key, stored)
        return ()

    def _enter(self, window: Any) -> _WindowAtHand:
        """Puts a window among those at hand."""
        cleanup = cleanup_time(window, self._lateness, event_time=self._event_time)
        if cleanup is not None:
            # A window of other numbers may equal one that has been found right.
            cleanup = self._timers.checked(cleanup)
        table = self._contents.values.tables.table(window)
        found = self._at_hand[window] = _WindowAtHand(self._form.stored(window), cleanup, table)
        return found

    def _take_merging(self, window: Any, row: Any, stamp: int) -> Iterable[Result] | None:
        """Merges the window of a row with those of its key, and adds the row; None = the window is late."""
        assert self._merger is not None
        live = self._merging_windows()
        actual, merges = live.add(window, self._merger)
        if self._is_merged_late(actual, merges):
            # A savepoint with a greater lateness has kept what the row joins. It stays as it is.
            return None
        for merge in merges:
            self._merge(merge)
        self._keep_merging(live)
        state_window = live.state_window(actual)
        assert state_window is not None
        return self._add(actual, state_window, row, stamp)

    def _is_merged_late(self, actual: Any, merges: Iterable[Merge[Any]]) -> bool:
        """Whether the window is late that the window of a row has become by merges.

        Raises InvalidProgramError if it ends before a window that it is made of.
        """
        self._at = actual
        if not self._is_late(actual):
            return False
        parts = [part for merge in merges if merge.result == actual for part in merge.merged]
        require_end_behind(actual, parts, self._assigner)
        return True

    def _merge(self, merge: Merge[Any]) -> None:
        """Moves timers, the trigger's state and content of merged windows to the one that replaces them."""
        self._merge_timers(merge)
        key = self.context.state.current_key
        self._contents.merge(merge.state_window, merge.merged_state_windows, key)

    def _merge_timers(self, merge: Merge[Any]) -> None:
        """Moves timers and the trigger's state of merged windows to the one that replaces them."""
        context = self._trigger_context
        context.window, context.merged = merge.result, merge.merged
        self._trigger.on_merge(merge.result, context)
        context.merged = ()
        for window in merge.merged:
            context.window = window
            self._trigger.clear(window, context)
            context.states.remove_all(window)
            self._set_cleanup(window, delete=True)

    def _add(self, window: Any, state_window: Any, row: Any, stamp: int) -> Results:
        self._contents.add(state_window, self.context.state.current_key, row, stamp)
        context, trigger = self._trigger_context, self._trigger
        context.window = window
        result = checked_result(trigger.on_element(row, stamp, window, context), trigger)
        return self._decided(result, window, state_window)

    def _decided(self, result: TriggerResult, window: Any, state_window: Any) -> Results:
        """Does what a trigger has decided about a window with one row more."""
        yield from self._act(result, window, state_window)
        self._set_cleanup(window)

    def _is_late(self, window: Window) -> bool:
        return is_window_late(window, self._lateness, self._timers.watermark, event_time=self._event_time)

    def _set_cleanup(self, window: Window, *, delete: bool = False) -> None:
        """Sets or deletes the timer that removes a window."""
        time = cleanup_time(window, self._lateness, event_time=self._event_time)
        if time is not None:
            timers = self._timers
            change = (
                (timers.delete_event_timer if delete else timers.set_event_timer)
                if self._event_time
                else (timers.delete_processing_timer if delete else timers.set_processing_timer)
            )
            change(time, self._form.stored(window))

    # ------------------------------------------------------------------ windows that fire

    def _act(self, result: TriggerResult, window: Any, state_window: Any) -> Results:
        """Does what a trigger has decided for the current key."""
        key = self.context.state.current_key
        if result.is_fire():
            stamp, call = window.max_timestamp(), partial(self._call.fire, key, window)
            for value in self._contents.fire(window, state_window, key, call):
                yield value, stamp
        if result.is_purge():
            self._contents.clear(state_window, key)

    def _clean_up(self, window: Any, state_window: Any) -> None:
        """Removes everything of a window that has ended, for the current key."""
        key, context = self.context.state.current_key, self._trigger_context
        self._contents.clear(state_window, key)
        context.window = window
        self._trigger.clear(window, context)
        context.states.remove_all(window)
        self._call.clear(window)
        if self._merger is not None:
            live = self._merging_windows()
            live.retire(window)
            self._keep_merging(live)

    def _on_timer(self, window: Any, timestamp: int, *, event_time: bool) -> Results:
        state_window = window
        if self._merger is not None:
            state_window = self._merging_windows().state_window(window)
            if state_window is None:
                # A trigger has left a timer of a window that was merged into another one.
                return
        context, trigger = self._trigger_context, self._trigger
        context.window = window
        on_timer = trigger.on_event_time if event_time else trigger.on_processing_time
        yield from self._act(
            checked_result(on_timer(timestamp, window, context), trigger), window, state_window
        )
        ends = cleanup_time(window, self._lateness, event_time=event_time)
        if event_time is not self._event_time or ends is None:
            return
        if timestamp == ends or (timestamp > ends and self._is_left(state_window)):
            self._clean_up(window, state_window)
        elif self._lateness and timestamp < ends:
            # A savepoint may have kept the window for a shorter lateness than the program now has.
            self._set_cleanup(window)

    def _is_left(self, state_window: Any) -> bool:
        """Whether a window lives on that had to be removed: a savepoint may have kept it for a greater lateness."""
        if not self._event_time:
            return False
        key = self.context.state.current_key
        return self._merger is not None or self._contents.values.get(state_window, key) is not MISSING

    def _fire(
        self, timers: TimerQueue, limit: int, deadline: float, waits: Callable[[Any], bool] | None = None
    ) -> Results:
        """Fires timers up to a time; those of keys that wait stay."""
        state, event_time = self.context.state, timers is self._timers.event_timers
        fired, waiting = 0, []
        namespace = window = None
        while (timer := timers.pop(limit)) is not None:
            timestamp, key, of_timer = timer
            if waits is not None and waits(key):
                waiting.append(timer)
                continue
            fired += 1
            state.current_key = user_key(key)
            if of_timer != namespace:
                namespace, window = of_timer, self._form.window(of_timer)
            self._at = window
            try:
                yield from self._on_timer(window, timestamp, event_time=event_time)
            except OperatorFailure:
                raise
            except Exception as error:
                raise self._failure(f"timer at {timestamp}", error) from error
            if perf_counter() >= deadline:
                break
        for timestamp, key, of_timer in waiting:
            timers.register(timestamp, key, of_timer)
        self.fired_timers += fired
        if fired:
            state.current_key = NO_KEY
            first = timers.next_timestamp
            if first is None or first > limit:
                self._drop_empty()

    def _failure(self, record: str, error: Exception) -> OperatorFailure:
        return self._failure_in(record, self._at, error)

    def _drop_empty(self) -> None:
        """Forgets windows that no key has any more."""
        self._at_hand.clear()
        self._contents.values.drop_empty()
        for states in (self._trigger_context.states, self._function_states):
            for values in states.values:
                values.drop_empty()

    # ------------------------------------------------------------------ merging windows

    def _merging_windows(self) -> MergingWindowSet[Any]:
        """The live windows of the current key."""
        window = self._form.from_stored
        pairs = self._merging_state.value() or ()
        return MergingWindowSet({window(live): window(state) for live, state in pairs})

    def _keep_merging(self, live: MergingWindowSet[Any]) -> None:
        if live.is_changed:
            stored = self._form.to_stored
            pairs = [(stored(window), stored(state)) for window, state in live.state_windows.items()]
            self._merging_state.update(pairs or cast(Any, None))

    # ------------------------------------------------------------------ time

    @property
    def event_timers_due(self) -> bool:
        return self._has_due_timers and not self._waiting.held

    @property
    def _has_due_timers(self) -> bool:
        first = self._timers.event_timers.next_timestamp
        return first is not None and first <= self._timers.watermark

    def on_watermark(self, timestamp: int) -> Iterable[Result]:
        if timestamp > self._timers.watermark:
            self._waiting.begin()
        return super().on_watermark(timestamp)

    def fire_event_timers(self, deadline: float) -> Results:
        self._owes_timers = False
        waiting = self._waiting
        if waiting.held:
            return
        timers, watermark, waits = self._timers.event_timers, self._timers.watermark, waiting.waits
        # Timers that wait stand between the others, so these fire in one piece. It is rare: see WaitingTimers.
        yield from self._fire(timers, watermark, deadline if waits is None else inf, waits)
        if waits is not None or not self._has_due_timers:
            waiting.end()

    def snapshot_state(self, checkpoint_id: int) -> None:
        super().snapshot_state(checkpoint_id)
        self._waiting.store(due=self._has_due_timers)

    def next_timer(self) -> int | None:
        return self._timers.processing_timers.next_timestamp

    def fire_timers(self, now: int, deadline: float) -> Results:
        return self._fire(self._timers.processing_timers, now, deadline)

    def end_keys(self) -> Results:
        self._at_hand.clear()
        timers = self._timers
        timers.watermark = MAX_TIMESTAMP
        yield from self._fire(timers.event_timers, MAX_TIMESTAMP, inf)
        yield from self._fire(timers.processing_timers, MAX_TIMESTAMP, inf)
        timers.watermark = MIN_TIMESTAMP
