"""SessionWindows: sessions of event time with one gap, the default trigger, and reduce or aggregate.

Owner: the task thread. The state of a key is the list of its sessions. Generated code handles the row that
prolongs the last session, or begins one behind it; all other rows are taken out of line. A session has one timer, which
is armed again when it comes too early. See docs/design/0042-sessions-and-counts.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Any, Final

from yarrow.common.typeinfo import Types
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.user_functions import results_of
from yarrow.container.operators.base import Emit, OperatorContext, declared_type
from yarrow.container.operators.process.process_function import EVENT_TIMERS
from yarrow.container.operators.registry import runs
from yarrow.container.operators.rows.key_selection import generate_canonical_key, generate_key
from yarrow.container.operators.window.key_folding import ExplainedCalls, generate_found
from yarrow.container.operators.window.session_rules import (
    END,
    WIDTH,
    Session,
    Sessions,
    begun,
    has_fired,
    time_of_removal,
    time_of_timer,
    touching,
)
from yarrow.container.operators.window.session_values import SessionValues
from yarrow.container.operators.window.stored_forms import SESSIONS
from yarrow.container.operators.window.window_contents import contents_type
from yarrow.container.operators.window.window_folding import Combination
from yarrow.container.operators.window.window_rules import is_window_late
from yarrow.container.operators.window.windowing_base import Fired, Results, WindowingBase
from yarrow.container.protocol.errors import TimestampError
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.container.state.folded_states import refuse_none
from yarrow.container.state.heap_keyed_state import NO_KEY
from yarrow.container.state.value_table import MISSING, ValueTable
from yarrow.datastream.window import TimeWindow
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.runtime.data.keys import canonicalize, user_key
from yarrow.runtime.data.serializers.tuple_lists import (
    TupleListTypeInfo,
    appended,
    list_of,
    tuples_of,
    without_first,
)
from yarrow.runtime.graph.window_spec import (
    AllSessionWindowOperator,
    SessionWindowOperator,
    WindowKind,
)

#: The sessions of a key that has none: one that no row prolongs, and behind which each row begins another.
_NO_SESSION: Final[Sessions] = (0, MIN_TIMESTAMP, 0, None)
#: Most timers whose sessions fire together, between two looks at the clock.
_KEYS_AT_ONCE: Final = 256


@runs(SessionWindowOperator, AllSessionWindowOperator)
class SessionWindows(WindowingBase):
    """Runs sessions of a keyed stream, or of a whole stream whose rows have one key."""

    _spec: SessionWindowOperator

    # ------------------------------------------------------------------ life

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        spec = self._spec
        self._gap = spec.gap_ms
        # A session that has fired without lateness is in the state no more.
        self.emits_state = self._lateness > 0
        kept = contents_type(declared_type(spec.kept_type), rows=False)
        number = Types.LONG()
        stored = TupleListTypeInfo(Types.TUPLE([number, number, number, kept]))
        self._table: ValueTable = context.state.value_table(SESSIONS, stored)
        #: True if a session that ends only emits its value: there is no window function and no lateness.
        self._ends_alone = spec.window_function is None and not self._lateness
        self._values = SessionValues.of(spec, context, self._combining)
        #: Makes the result of what a session keeps; None = they are the same.
        self._shown = None if spec.kind is WindowKind.REDUCED else self._values.shown
        self.emits_lists = self._ends_alone and self._results_stay
        context.state.register_timers(EVENT_TIMERS, self._timers.event_timers)
        #: A restored operator fires what its watermark had made due before it takes a row.
        self._owes = self.event_timers_due

    @property
    def _form_name(self) -> str:
        return SESSIONS

    def open(self) -> None:
        self._open_functions(merging=True)

    # ------------------------------------------------------------------ rows

    def generate_at(
        self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit, is_head: bool
    ) -> None:
        table, time = self._table, str(timestamp)
        key = generate_key(code, self._selector, value, table if is_head else None)
        if self.uses_current_key:
            code.line(f"{code.bind('state', self.context.state)}.current_key = {key}")
        owes, hot = code.fresh("o"), code.fresh("h")
        code.at_start(f"{owes} = {code.bind('owes', self.owes)}()")
        calls = ExplainedCalls(code, self, key, value)
        no_session = code.bind("no_session", _NO_SESSION)
        sessions, entries = generate_found(code, table, key, no_session)
        start, end, due, kept = session = tuple(code.fresh(name) for name in ("lo", "hi", "d", "a"))
        alone, error = code.fresh("n"), code.fresh("e")
        code.line(f"{alone} = len({sessions}) == {WIDTH}")
        code.line(f"{start}, {end}, {due}, {kept} = {sessions} if {alone} else {sessions}[:{WIDTH}]")
        with code.block("try:"):
            code.line(f"{hot} = {start} - {self._gap} <= {time} <= {end} and {due} < {end} and not {owes}")
        # A row before the last session must not touch the session before that one.
        end_before = f"{sessions}[{WIDTH}][{sessions}[{WIDTH + 2}] - 1][{END}]"
        with code.block(f"except TypeError as {error}:"):
            refuse = code.bind("refuse_time", self.refuse_time)
            code.line(f"raise {refuse}({value}, {key}, {time}, {error}) from {error}")
        with code.block(f"if {hot} and {time} < {start} and not {alone}:"):
            code.line(f"{hot} = {time} > {end_before}")
        written = f"{entries}[{key}] ="
        with code.block(f"if {hot}:"):
            self._generate_prolonged(code, calls, (key, value, time), (start, end, kept))
            last = ", ".join(session)
            code.line(f"{written} ({last}) if {alone} else ({last}, *{sessions}[{WIDTH}:])")
        watermark = f"{code.bind('timers', self._timers)}.watermark"
        ahead = f"{watermark} < {time} + {self._gap - 1} < {MAX_TIMESTAMP}"
        with code.block(f"elif {time} > {end} and {ahead} and not {owes}:"):
            kept = self._generate_begun(code, calls, (key, value, time), (due, kept))
            begun = f"({time}, {due} + 1, {due}, {kept})"
            behind = f"{code.bind('appended', appended)}({sessions}, {WIDTH}, {begun})"
            code.line(f"{written} {begun} if {sessions} is {no_session} else {behind}")
            # The table finds a key by a value that is equal to it, such as True for 1. A timer has the canonical key.
            canonical = generate_canonical_key(code, key)
            code.line(f"{code.bind('register', self._timers.event_timers.register)}({due}, {canonical})")
        with code.block("else:"):
            result, stamp = code.fresh("v"), code.fresh("t")
            take = code.bind("take", self.take)
            with code.block(f"for {result}, {stamp} in {take}({key}, {value}, {timestamp}):"):
                emit(result, stamp)

    @property
    def takes_keys_ahead(self) -> bool:
        return self._table.wants_keys

    def _generate_prolonged(
        self,
        code: CodeWriter,
        calls: ExplainedCalls,
        row: tuple[str, str, str],
        session: tuple[str, str, str],
    ) -> None:
        """Generates the fold of a row into the session that contains its time, or begins within a gap behind it."""
        (key, value, time), (start, end, kept) = row, session
        combination = Combination.of(self._spec, self._combining, self.context)
        added = combination.generate_row(code, value)
        with calls.block():
            combination.generate_either(code, kept, added)
        fixed = combination.generate_kept(code, kept)
        if fixed != kept:
            code.line(f"{kept} = {fixed}")
        with code.block(f"if {time} < {start}:"):
            code.line(f"{start} = {time}")
        with code.block(f"elif {time} + {self._gap} > {end}:"):
            code.line(f"{end} = {time} + {self._gap}")
            with code.block(f"if {end} > {MAX_TIMESTAMP}:"):
                code.line(f"raise {code.bind('refuse_end', self.refuse_end)}({value}, {key}, {time})")

    def _generate_begun(
        self, code: CodeWriter, calls: ExplainedCalls, row: tuple[str, str, str], session: tuple[str, str]
    ) -> str:
        """Generates what a row keeps that begins the last session of its key; returns the variable."""
        (_, value, time), (due, kept) = row, session
        combination = Combination.of(self._spec, self._combining, self.context)
        code.line(f"{due} = {time} + {self._gap - 1}")
        added = combination.generate_row(code, value)
        with calls.block(time):
            combination.generate_first(code, kept, added)
        return combination.generate_kept(code, kept)

    def owes(self) -> bool:
        """True while a restored operator has not fired what was due."""
        return self._owes

    def take(self, key: Any, row: Any, timestamp: int) -> Results:
        """Takes a row that begins a session, joins sessions, comes before them, is late, or makes one fire again."""
        if self._owes:
            yield from self._fire_due(inf)
        self.context.state.current_key = key
        if timestamp == MIN_TIMESTAMP:
            raise self.refuse_time(row, key, None, ValueError(f"the time is {timestamp}"))
        start, end = timestamp, timestamp + self._gap
        if end > MAX_TIMESTAMP:
            raise self.refuse_end(row, key, timestamp)
        canonical, entries, found = self._table.find(canonicalize(key))
        sessions: list[Session] = [] if found is MISSING else tuples_of(found, WIDTH)
        first, behind = touching(sessions, start, end)
        joined = sessions[first:behind]
        if not joined and self._is_late(TimeWindow(start, end)):
            if sessions:
                # Whoever looks at a key of a table writes it.
                entries[canonical] = found
            yield from self._late_row(row, timestamp, late=True, windows=(TimeWindow(start, end),))
            return
        if joined:
            start, end = min(start, joined[0][0]), max(end, joined[-1][1])
        window, watermark = TimeWindow(start, end), self._timers.watermark
        if joined and self._is_late(window):
            # A savepoint with a greater lateness kept what it joins.
            entries[canonical] = found
            yield from self._late_row(row, timestamp, late=True, windows=(window,))
            return
        due = time_of_timer(joined, end, watermark, self._lateness)
        fires = end - 1 <= watermark
        try:
            kept = self._values.together(joined, row)
            sessions[first:behind] = [(start, end, due, kept)]
            self._set_timer(canonical, due, joined, sessions)
            entries[canonical] = list_of(sessions)
            if fires:
                yield from self._results(key, window, kept)
        except OperatorFailure:
            raise
        except Exception as error:
            raise self._failure_in(short_record(row), window, error) from error

    def _is_late(self, window: TimeWindow) -> bool:
        return is_window_late(window, self._lateness, self._timers.watermark, event_time=True)

    def _set_timer(self, key: Any, due: int, joined: list[Session], sessions: list[Session]) -> None:
        """Sets the timer of a new or joined session, and deletes those of its parts that no session needs."""
        timers = self._timers.event_timers
        former = {session[2] for session in joined}
        if due not in former:
            timers.register(due, key)
        former.discard(due)
        if former:
            for time in former - {session[2] for session in sessions}:
                timers.delete(time, key)

    def refuse_none(self, row: Any) -> Exception:
        """See Explains."""
        return refuse_none(self.name, SESSIONS)

    def explain(self, row: Any, key: Any, error: Exception, begun: int | None = None) -> Exception:
        """See Explains: the row belongs to the last session of its key, or would have `begun` one at that time."""
        self.context.state.current_key = key
        if begun is not None:
            start, end = begun, begun + self._gap
        else:
            start, end, *_ = self._table.find(canonicalize(key))[2]
        return self._failure_in(short_record(row), TimeWindow(start, end), error)

    def refuse_end(self, row: Any, key: Any, timestamp: int) -> OperatorFailure:
        """The error for a row whose session would end beyond 64 bits."""
        self.context.state.current_key = key
        error = TimestampError(
            f"the time {timestamp} and the gap of {self._gap} ms give an end beyond 64 bits. Assign timestamps in"
            " milliseconds since the epoch"
        )
        window = TimeWindow(timestamp, timestamp + self._gap)
        return self._failure_in(short_record(row), window, error)

    # ------------------------------------------------------------------ sessions that end

    def _results(self, key: Any, window: TimeWindow, kept: Any) -> Results:
        """The results of a session that fires; none if it keeps nothing."""
        if kept is None:
            return
        stamp = window.max_timestamp()
        for value in results_of(self._call.fire(key, window, [self._values.shown(kept)])):
            yield value, stamp

    def _on_timer(self, timestamp: int, key: Any, entries: dict[Any, Any], flat: Sessions) -> Results:
        """Fires, arms again or removes the sessions of a canonical key whose timers are due by the watermark."""
        timers, watermark = self._timers.event_timers, self._timers.watermark
        shown_key = self.context.state.current_key = user_key(key)
        left: list[Session] = []
        found = tuples_of(flat, WIDTH)
        behind = begun(found, watermark)
        for session in found[:behind]:
            start, end, due, kept = session
            if due > watermark:
                left.append(session)
                continue
            if due != timestamp:
                timers.delete(due, key)
            window = TimeWindow(start, end)
            try:
                if not has_fired(session):
                    if end - 1 > watermark:
                        left.append(self._armed(key, (start, end, end - 1, kept)))
                        continue
                    yield from self._results(shown_key, window, kept)
                # A savepoint may have kept a fired session for a shorter lateness than the program now has.
                removal = time_of_removal(end, self._lateness)
                if removal > due and not self._is_late(window):
                    left.append(self._armed(key, (start, end, removal, kept)))
                    continue
                self._call.clear(window)
            except OperatorFailure:
                raise
            except Exception as error:
                raise self._failure_in(f"timer at {timestamp}", window, error) from error
        found[:behind] = left
        if found:
            entries[key] = list_of(found)
        else:
            self._table.remove(key)

    def _goes_on(self, timestamp: int, key: Any, entries: dict[Any, Any], found: Sessions) -> bool:
        """True if rows have prolonged the only session of a key since its timer was set; it is armed again."""
        if len(found) > WIDTH:
            return False
        start, end, due, kept = found
        if due != timestamp or end - 1 <= self._timers.watermark:
            return False
        entries[key] = self._armed(key, (start, end, end - 1, kept))
        return True

    def _end_sessions(
        self, timestamp: int, keys: Sequence[Any], results: list[Any], times: list[Any]
    ) -> None:
        """Fires the sessions of canonical keys whose timers of a time are due, and appends what they give.

        Only for sessions that end alone, and whose results cannot change.
        """
        table, watermark, shown = self._table, self._timers.watermark, self._shown
        register, state, whole = self._timers.event_timers.register, self.context.state, self._table.whole
        for key in keys:
            if whole is None:
                _, entries, found = table.find(key)
            else:
                entries, found = whole, whole.get(key, MISSING)
            if found is MISSING:
                # Its sessions have fired together with an earlier one.
                continue
            alone = len(found) == WIDTH
            start, end, due, kept = found if alone else _first_of_several(found, watermark)
            last = end - 1
            if due != timestamp or due > last or kept is None or (last > watermark and not alone):
                for result, stamp in self._on_timer(timestamp, key, entries, found):
                    results.append(result)
                    times.append(stamp)
            elif last > watermark:
                # Rows have prolonged the session since its timer was set.
                entries[key] = start, end, last, kept
                register(last, key)
            else:
                if shown is not None:
                    state.current_key = user_key(key)
                    try:
                        kept = shown(kept)
                    except Exception as error:
                        window = TimeWindow(start, end)
                        raise self._failure_in(f"timer at {timestamp}", window, error) from error
                results.append(kept)
                times.append(last)
                if not alone:
                    entries[key] = without_first(found, WIDTH)
                elif whole is None:
                    table.remove(key)
                else:
                    del whole[key]

    def _armed(self, key: Any, session: Session) -> Session:
        """Sets the timer of a session."""
        self._timers.event_timers.register(session[2], key)
        return session

    # ------------------------------------------------------------------ time

    @property
    def event_timers_due(self) -> bool:
        first = self._timers.event_timers.next_timestamp
        return first is not None and first <= self._timers.watermark

    def fire_event_timers(self, deadline: float) -> Fired:
        return self._fire_in_lists(deadline) if self.emits_lists else self._fire_due(deadline)

    def _fire_in_lists(self, deadline: float) -> Iterator[tuple[list[Any], list[Any]]]:
        """Results in lists, each with the list of their times."""
        self._owes = False
        timers, limit, fired = self._timers.event_timers, self._timers.watermark, 0
        results: list[Any] = []
        times: list[Any] = []
        # No order among the keys of a time is promised.
        while (time := timers.next_timestamp) is not None and time <= limit:
            keys = timers.take_keys(time, _KEYS_AT_ONCE)
            fired += len(keys)
            self._end_sessions(time, keys, results, times)
            is_over = perf_counter() >= deadline
            if results and (is_over or len(results) >= _KEYS_AT_ONCE):
                yield results, times
                results, times = [], []
            if is_over:
                break
        if results:
            yield results, times
        self.fired_timers += fired
        self.context.state.current_key = NO_KEY

    def _fire_due(self, deadline: float) -> Results:
        """The same results one at a time.

        A window function goes on only when the task has taken its last result.
        """
        if self.emits_lists:
            for results, times in self._fire_in_lists(deadline):
                yield from zip(results, times, strict=True)
            return
        self._owes = False
        timers, limit, fired = self._timers.event_timers, self._timers.watermark, 0
        while (time := timers.next_timestamp) is not None and time <= limit:
            key, entries, found = self._table.find(timers.take_keys(time, 1)[0])
            fired += 1
            # Its sessions may have fired together with an earlier one.
            if found is not MISSING and not self._goes_on(time, key, entries, found):
                yield from self._on_timer(time, key, entries, found)
            if perf_counter() >= deadline:
                break
        self.fired_timers += fired
        self.context.state.current_key = NO_KEY

    def end_keys(self) -> Fired:
        self._timers.watermark = MAX_TIMESTAMP
        yield from self.fire_event_timers(inf)
        self._timers.watermark = MIN_TIMESTAMP


def _first_of_several(sessions: Sessions, watermark: int) -> Session:
    """The first session of a key, or _NO_SESSION if the watermark has reached the start of the second session."""
    before, first, behind = sessions[WIDTH:]
    second = before[first + 1] if first + 1 < behind else sessions
    return before[first] if second[0] > watermark else _NO_SESSION
