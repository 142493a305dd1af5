"""WindowsOfSlices: windows of time that overlap, made of slices, with the default trigger and reduce or aggregate.

Owner: the task thread. A row is added to one slice. When a window ends, each of its keys merges the slices that have
come, and gives its result. Then its stacks move to the next window. So the keys that stand at a window are those that
have not fired it. With lateness its value stays until no late row can come. No key has a timer. See
docs/design/0041-windows-of-slices.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from heapq import heappush
from typing import Any, NamedTuple

from yarrow.common.typeinfo import Types
from yarrow.container.operators.base import OperatorContext, declared_type
from yarrow.container.operators.registry import runs
from yarrow.container.operators.sliced_window.key_blocks import KeyBlocks
from yarrow.container.operators.sliced_window.slice_stacks import SliceStacks, Stacks
from yarrow.container.operators.sliced_window.slice_tables import SliceTables
from yarrow.container.operators.sliced_window.stored_layout import StoredLayout
from yarrow.container.operators.sliced_window.whole_windows import WholeWindows
from yarrow.container.operators.time_slices import TimeSlices
from yarrow.container.operators.window.folding_windows import (
    KEYS_AT_ONCE,
    FiringWindow,
    FoldingWindows,
    closed_entry,
)
from yarrow.container.operators.window.stored_forms import FIRED_SLICES, SLICES, STACKS
from yarrow.container.operators.window.window_contents import CONTENTS, contents_of, contents_type
from yarrow.container.operators.window.window_folding import Entry
from yarrow.container.operators.window.window_rules import is_row_late, is_window_late
from yarrow.container.operators.window.window_values import WindowValues
from yarrow.container.operators.window.windowing_base import Fired, Results
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.container.state.value_table import MISSING
from yarrow.container.state.window_tables import TIME_WINDOWS, WindowTables
from yarrow.datastream.window import TimeWindow
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.data.elements import MIN_TIMESTAMP
from yarrow.runtime.data.immutability import copier_for
from yarrow.runtime.data.keys import canonicalize, user_key
from yarrow.runtime.graph.window_spec import AllSlicedWindowOperator, SlicedWindowOperator, WindowKind

#: Keys of a slice that get their stacks between two looks at the clock.
_NEW_KEYS_AT_ONCE = 4000
#: Calls of a window function between two looks at the clock.
_CALLS_AT_ONCE = 16


class _Place(NamedTuple):
    """How far a key has come."""

    #: The window where it stands, and its stacks there; None = it stands nowhere.
    window: TimeWindow | None
    stacks: Any
    #: Windows that end then or before have fired for the key.
    passed: int


@runs(SlicedWindowOperator, AllSlicedWindowOperator)
class WindowsOfSlices(FoldingWindows):
    """Runs sliding and cumulative windows whose trigger fires them at their end."""

    _spec: SlicedWindowOperator
    #: Most keys that stand at a window, where many can fire at once; None = all lie in the tables.
    _blocks: KeyBlocks | None = None

    # ------------------------------------------------------------------ life

    @property
    def _read_forms(self) -> Collection[str]:
        return (STACKS, FIRED_SLICES, CONTENTS)

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        spec, state = self._spec, context.state
        self._layout = TimeSlices(spec.size_ms, spec.slide_ms, spec.offset_ms, cumulative=spec.cumulative)
        self._length, self._offset = self._layout.step, spec.offset_ms
        self._stored_layout = StoredLayout(context, self._layout)
        kept = contents_type(declared_type(spec.kept_type), rows=False)
        tables: WindowTables[TimeWindow] = state.window_tables(SLICES, kept, TIME_WINDOWS)
        self._contents, self._tables = contents_of(spec, context, tables, self._combining), tables
        self._slices = SliceTables(self._layout, self._contents.values)
        #: Copies a value that a function could change; None = no value can change.
        self._own = copier_for(declared_type(spec.kept_type))
        self._stacks = SliceStacks(self._slices, self._contents, self._own, inlines=self._inlines)
        #: The stacks of each key, at the next window that it fires.
        stacks = Types.TUPLE([Types.LONG(), Types.LONG(), kept])
        self._standing: WindowValues[TimeWindow] = WindowValues(
            state.window_tables(STACKS, stacks, TIME_WINDOWS)
        )
        self._whole = WholeWindows.restored(spec, context, self._layout, self._combining)
        whole = None if self._whole is None else self._whole.tables
        self._open_fired(context, FIRED_SLICES)
        self._take_restored(context, whole)
        self._firing = FiringWindow(self._standing)
        #: Gives stacks to keys of the window that fires which have none there, a piece at a time.
        self._new_keys: Iterator[None] = iter(())
        #: The last time of the last window that the machine's clock has passed: it and those before have fired.
        self._clock_reached = MIN_TIMESTAMP
        self._latest = None
        self._schedule_restored()
        if not self._event_time and self._ahead > MIN_TIMESTAMP:
            # The clock may be behind that of the machine before, and a row of processing time is never late.
            self._clock_reached = self._ahead - 1
        self._owes = self.event_timers_due

    def open(self) -> None:
        super().open()
        tables = self._standing.tables
        at_once = self._spec.window_function is None and not self.uses_current_key and self._whole is None
        if at_once and self._stacks.has_columns and tables.stores_at_cut:
            self._blocks = KeyBlocks(tables, self._stacks, self._layout.size // self._layout.step)

    def close(self) -> None:
        self._stacks.close()
        super().close()

    def _schedule_restored(self) -> None:
        standing = self._standing.tables.windows()
        #: Before that time some key may have fired windows that the watermark has not reached: subtasks with different
        #: watermarks have become one.
        ahead = [window.end - self._layout.slide for window in standing]
        ahead += [] if self._fired is None else [window.end for window in self._fired.ahead]
        self._ahead = max(ahead, default=MIN_TIMESTAMP)
        whole = [] if self._whole is None else self._whole.tables.windows()
        self._ends: list[int] = []
        self._ending: set[int] = set()
        for end in [window.end for window in [*standing, *whole]]:
            self._schedule(end)
        for first in [self._layout.ends_of(start)[0] for start in self._slices]:
            if first >= self._stored_layout.next_end:
                self._schedule(first)

    def snapshot_state(self, checkpoint_id: int) -> None:
        super().snapshot_state(checkpoint_id)
        self._stored_layout.store(self._ends[0] + 1 if self._ends else None)

    def _schedule(self, end: int) -> None:
        """The window with this end has to fire."""
        if end not in self._ending:
            self._ending.add(end)
            heappush(self._ends, end - 1)

    @property
    def _form_name(self) -> str:
        return SLICES

    # ------------------------------------------------------------------ rows

    @property
    def _reached(self) -> int:
        """Windows whose last time is this or before have fired."""
        return self._timers.watermark if self._event_time else self._clock_reached

    def _now(self) -> int:
        # A row whose window has fired belongs to the next one: the clock has gone back.
        return max(super()._now(), self._clock_reached + 1)

    def _shown_window(self, start: int) -> TimeWindow:
        reached = self._reached
        ends = self._layout.ends_of(start)
        end = next((end for end in ends if end - 1 > reached), ends[-1])
        return self._window_of(end - 1)

    def enter(self, start: int, known: dict[int, Entry]) -> Entry:
        """See WindowEntries: a slice that windows may have read is closed."""
        ends = self._layout.ends_of(start)
        if self._owes or not ends or ends[0] - 1 <= self._reached or start < self._ahead:
            return closed_entry(start)
        self._open_slice(start)
        return self._entry(self._stretch(start), known)

    def _open_slice(self, start: int) -> None:
        if self._slices.open(start):
            self._schedule(self._layout.ends_of(start)[0])

    def take_closed(self, key: Any, row: Any, timestamp: int | None, start: int) -> Results:
        """See WindowEntries: fires what is owed, and takes a row that is late, or comes behind windows of its slice."""
        yield from self.fire_what_is_owed()
        self.context.state.current_key = key
        ends, watermark = self._layout.ends_of(start), self._timers.watermark
        stamp = MIN_TIMESTAMP if timestamp is None else timestamp
        if ends:
            window = self._shown_window(start)
            canonical = canonicalize(key)
            place = self._place_of(canonical)
            again, opens = self._fired_of(start, place.passed), ends[-1] > place.passed
            try:
                if opens:
                    self._take_open(canonical, row, stamp, start, place)
                for window in again:
                    yield from self._fire_again(window, key, row, stamp)
            except OperatorFailure:
                raise
            except Exception as error:
                raise self._failure_in(short_record(self._row_of(row)), window, error) from error
            if again or opens:
                return
        late = bool(ends) or is_row_late(stamp, self._lateness, watermark, event_time=self._event_time)
        windows = [self._window_of(ends[-1] - 1)] if ends else ()
        yield from self._late_row(row, timestamp, late=late, windows=windows)

    def _take_open(self, key: Any, row: Any, stamp: int, start: int, place: _Place) -> None:
        """Adds a row of a canonical key to a slice that has still a window to fire for it."""
        window, stacks, passed = place
        ends = self._layout.ends_of(start)
        if ends[0] > passed:
            self._open_slice(start)
            self._contents.add(self._stretch(start), key, row, stamp)
            return
        if window is None:
            window = self._window_of(next(end for end in ends if end > passed) - 1)
            stacks = self._stacks.of_new_key(window)
        if self._blocks is not None:
            self._blocks.remove(key)
        self._standing.put(window, key, self._stacks.add(key, stacks, start, row, stamp))
        self._schedule(window.end)

    def _fired_of(self, start: int, passed: int) -> list[TimeWindow]:
        """The windows of a slice that have fired for a key and wait for late rows; `passed` is that of the key."""
        if self._fired is None:
            return []
        watermark = self._timers.watermark
        windows = [self._window_of(end - 1) for end in self._layout.ends_of(start) if end <= passed]
        return [
            window
            for window in windows
            if not is_window_late(window, self._lateness, watermark, event_time=True)
        ]

    def _place_of(self, key: Any) -> _Place:
        """How far a canonical key has come."""
        window, stacks = self._stacks_of(key)
        passed = self._reached + 1
        if window is not None:
            passed = max(passed, window.end - self._layout.slide)
        if self._fired is not None:
            values = self._fired.contents.values
            ends = [window.end for window in self._fired.ahead if values.get(window, key) is not MISSING]
            passed = max([passed, *ends])
        return _Place(window, stacks, passed)

    def _stacks_of(self, key: Any) -> tuple[TimeWindow | None, Any]:
        """The window where a canonical key stands, and its stacks; None = it stands nowhere."""
        found = None if self._blocks is None else self._blocks.stacks_of(key)
        if found is not None:
            return found
        for window in reversed(self._standing.tables.windows()):
            stacks = self._standing.get(window, key)
            if stacks is not MISSING:
                return window, stacks
        return None, None

    # ------------------------------------------------------------------ windows that end

    def _window_of(self, last_time: int) -> TimeWindow:
        return TimeWindow(self._layout.start_of(last_time + 1), last_time + 1)

    def _fire_window(self, window: TimeWindow, deadline: float) -> Fired:
        firing = self._firing
        if firing.window is None:
            firing.begin(window)
            self._new_keys = self._place_new_keys(window)
        for _ in self._new_keys:
            if perf_counter() >= deadline:
                return
        if self._blocks is not None and self._blocks.stand_at(window):
            yield from self._fire_blocks(self._blocks, window, deadline)
            if perf_counter() >= deadline:
                return
        while firing.has_rows():
            yield from self._fire_piece(window, deadline)
            if perf_counter() >= deadline:
                return
        firing.end()
        self._ending.discard(window.end)
        self._standing.drop(window)
        self._slices.drop_until(window.end)
        if self._whole is not None:
            self._whole.drop(window)
        if self._latest is not None and self._latest.start not in self._slices:
            self._latest = None
        self._drop_unless_waiting(window)

    def _place_new_keys(self, window: TimeWindow) -> Iterator[None]:
        """Gives stacks to the keys that have rows in the window and stand nowhere; yields where work may be cut."""
        placed, stacks, blocks = self._standing, self._stacks.of_new_key(window), self._blocks
        for keys in self._keys_of(window):
            for at in range(0, len(keys), _NEW_KEYS_AT_ONCE):
                piece = keys[at : at + _NEW_KEYS_AT_ONCE]
                if blocks is not None:
                    piece = blocks.others(piece)
                live = placed.tables.table(window).live
                single, is_single = live[0], len(live) == 1
                for key in [key for key in piece if key not in single] if is_single else piece:
                    _, entries, found = placed.find(window, key)
                    if found is MISSING and not self._is_ahead(key, window):
                        entries[key] = stacks
                if at + _NEW_KEYS_AT_ONCE < len(keys):
                    yield

    def _fire_blocks(self, blocks: KeyBlocks, window: TimeWindow, deadline: float) -> Fired:
        """Fires the keys of blocks, which then stand at the following window."""
        following = self._following(window)
        self._stacks.begin(window)
        keeps = self._keeps_fired(window)
        while (block := blocks.next_of(window)) is not None:
            try:
                fired = blocks.fire(block, following)
            except Exception as error:
                raise self._failure_of_end(window, self._stacks.failed, error) from error
            if fired.left or blocks.stand_at(following):
                self._schedule(following.end)
            if fired.left:
                self._standing.tables.table(following).put_all(fired.left, fired.stacks)
            yield from self._plain_results(window, fired.keys, fired.values)
            if keeps and self._fired is not None:
                self._fired.put(window, fired.keys, fired.values)
            self.fired_timers += len(fired.keys)
            if perf_counter() >= deadline:
                return

    def _following(self, window: TimeWindow) -> TimeWindow:
        return self._window_of(window.max_timestamp() + self._layout.slide)

    def _keys_of(self, window: TimeWindow) -> Iterator[Sequence[Any]]:
        """The keys of the slices that the window reads first, and those of its content that was not sliced."""
        for start in self._stacks.fresh_slices(window):
            if self._blocks is not None:
                whole = self._tables.table(self._stretch(start)).whole
                if whole is not None:
                    yield self._blocks.others(whole)
                    continue
            # All at once: a snapshot may come and go while they get their stacks.
            yield [key for keys, _ in self._tables.rows(self._stretch(start)) for key in keys]
        if self._whole is not None:
            yield [key for keys, _ in self._whole.tables.rows(window) for key in keys]

    def _is_ahead(self, key: Any, window: TimeWindow) -> bool:
        """Whether a canonical key has fired the window: it stands at a later one."""
        if window.end - self._layout.slide >= self._ahead:
            return False
        return any(
            later.end > window.end and self._standing.get(later, key) is not MISSING
            for later in self._standing.tables.windows()
        )

    def _fire_piece(self, window: TimeWindow, deadline: float) -> Fired:
        firing = self._firing
        following = self._following(window)
        self._stacks.begin(window)
        alone, keeps = self._spec.window_function is None, self._keeps_fired(window)
        own = None if alone and not keeps and self._spec.kind is WindowKind.REDUCED else self._own
        # A merge may read the state of its key.
        step = 1 if self.uses_current_key else KEYS_AT_ONCE if alone else _CALLS_AT_ONCE
        while firing.at < len(firing.keys):
            start, end = firing.at, min(firing.at + step, len(firing.keys))
            keys, values = self._merged(window, following, firing.keys[start:end], firing.values[start:end])
            if own is not None:
                # Slices go on with values that a function, or a late row, must not change.
                values = [own(value) for value in values]
            if alone:
                yield from self._plain_results(window, keys, values)
            else:
                for key, value in zip(keys, values, strict=True):
                    yield from self._fire_key(window, key, value, ends=not keeps)
            if keeps and self._fired is not None:
                self._fired.put(window, keys, values)
            firing.at = end
            self.fired_timers += len(keys)
            if perf_counter() >= deadline:
                return

    def _merged(
        self, window: TimeWindow, following: TimeWindow, keys: Sequence[Any], stacks: Sequence[Stacks]
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        """The keys that fire with what the window is for them; their stacks move to the following window."""
        if self.uses_current_key:
            self.context.state.current_key = user_key(keys[0])
        if self._blocks is not None:
            # A row behind a watermark whose windows have still to fire gives its key stacks at the window behind them.
            # Those of a block, which has fired them, are right.
            keys, stacks = self._blocks.without_own(keys, stacks)
        try:
            fired = self._stacks.fire(keys, stacks)
        except Exception as error:
            raise self._failure_of_end(window, self._stacks.failed, error) from error
        if fired.left:
            self._schedule(following.end)
            left, stands = fired.left, fired.stacks
            if self._blocks is not None:
                left, stands = self._blocks.add(following, left, stands)
            if left:
                self._standing.tables.table(following).put_all(left, stands)
        if self._whole is None:
            return fired.keys, fired.values
        sliced = dict(zip(fired.keys, fired.values, strict=True))
        found = {key: self._with_whole(window, key, sliced.get(key)) for key in keys}
        both = {key: value for key, value in found.items() if value is not None}
        return list(both), list(both.values())

    def _with_whole(self, window: TimeWindow, key: Any, value: Any) -> Any:
        """What a window is for a canonical key with the content that was not sliced; None = nothing."""
        assert self._whole is not None
        try:
            return self._whole.with_content(window, key, value)
        except Exception as error:
            raise self._failure_of_end(window, key, error) from error

    # ------------------------------------------------------------------ time

    def fire_timers(self, now: int, deadline: float) -> Fired:
        if not self._event_time:
            # Rows behind this end come in their own slice: a later one would have windows that do not contain them.
            self._clock_reached = max(self._clock_reached, self._layout.last_end(now + 1) - 1)
        return super().fire_timers(now, deadline)
