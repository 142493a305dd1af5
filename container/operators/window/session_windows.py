"""SessionWindows: sessions of event time with one gap, the default trigger, and reduce or aggregate.

Owner: the task thread. The state of a key is a short list of its sessions. Generated code handles the row that
prolongs the last session; all other rows are taken out of line. A session has one timer, which is armed again when it
comes too early. See docs/design/0042-sessions-and-counts.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from math import inf
from typing import Any, Final

from yarrow.common.typeinfo import Types
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.operators.base import Emit, OperatorContext, declared_type
from yarrow.container.operators.process.process_function import EVENT_TIMERS
from yarrow.container.operators.registry import runs
from yarrow.container.operators.rows.key_selection import generate_key
from yarrow.container.operators.window.key_folding import ExplainedCalls, generate_look
from yarrow.container.operators.window.session_rules import (
    Session,
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
from yarrow.runtime.graph.window_spec import (
    AllSessionWindowOperator,
    SessionWindowOperator,
)

#: The sessions of a key that has none: one that contains no row.
_NO_SESSION: Final[tuple[Session, ...]] = ((0, -1, 0, None),)
#: Most results that leave in one list.
_RESULTS_AT_ONCE: Final = 256


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
        stored = Types.LIST(Types.TUPLE([number, number, number, kept]))
        self._table: ValueTable = context.state.value_table(SESSIONS, stored)
        #: True if a session that ends only emits its value: there is no window function and no lateness.
        self._ends_alone = spec.window_function is None and not self._lateness
        self._values = SessionValues.of(spec, context, self._combining)
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
        owes, sessions, hot = code.fresh("o"), code.fresh("p"), code.fresh("h")
        code.at_start(f"{owes} = {code.bind('owes', self.owes)}()")
        calls = ExplainedCalls(code, self, key, value)
        no_session = code.bind("no_session", _NO_SESSION)
        entries = generate_look(
            code,
            table,
            key,
            first=lambda: code.line(f"{sessions} = {no_session}"),
            found=lambda found: code.line(f"{sessions} = {found}"),
        ).entries
        start, end, due, kept = (code.fresh(name) for name in ("lo", "hi", "d", "a"))
        code.line(f"{start}, {end}, {due}, {kept} = {sessions}[-1]")
        error = code.fresh("e")
        with code.block("try:"):
            code.line(
                f"{hot} = {start} - {self._gap} <= {time} <= {end} and {due} < {end} and not {owes}"
                f" and ({time} >= {start} or len({sessions}) == 1)"
            )
        with code.block(f"except TypeError as {error}:"):
            refuse = code.bind("refuse_time", self.refuse_time)
            code.line(f"raise {refuse}({value}, {key}, {time}, {error}) from {error}")
        with code.block(f"if {hot}:"):
            self._generate_prolonged(code, calls, (key, value, time), (start, end, kept))
            code.line(f"{sessions}[-1] = {start}, {end}, {due}, {kept}")
            code.line(f"{entries}[{key}] = {sessions}")
        begin = f"{code.bind('begin', self.begin)}({key}, {entries}, {value}, {time})"
        with code.block(f"elif {sessions} is not {no_session} or not {begin}:"):
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

    def owes(self) -> bool:
        """True while a restored operator has not fired what was due."""
        return self._owes

    def begin(self, key: Any, entries: dict[Any, Any], row: Any, timestamp: int) -> bool:
        """Takes a row whose canonical key has no session, in most cases; False = `take` has to take it."""
        end = timestamp + self._gap
        ahead = self._timers.watermark < end - 1 < MAX_TIMESTAMP
        if self._owes or not ahead or timestamp == MIN_TIMESTAMP:
            return False
        self.context.state.current_key = key
        try:
            kept = self._values.together((), row)
        except OperatorFailure:
            raise
        except Exception as error:
            raise self._failure_in(short_record(row), TimeWindow(timestamp, end), error) from error
        entries[key] = [(timestamp, end, end - 1, kept)]
        self._timers.event_timers.register(end - 1, key)
        return True

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
        sessions: list[Session] = [] if found is MISSING else found
        first, behind = touching(sessions, start, end)
        joined = sessions[first:behind]
        if not joined and self._is_late(TimeWindow(start, end)):
            if sessions:
                # Whoever looks at a key of a table writes it.
                entries[canonical] = sessions
            yield from self._late_row(row, timestamp, late=True, windows=(TimeWindow(start, end),))
            return
        if joined:
            start, end = min(start, joined[0][0]), max(end, joined[-1][1])
        window, watermark = TimeWindow(start, end), self._timers.watermark
        if joined and self._is_late(window):
            # A savepoint with a greater lateness kept what it joins.
            entries[canonical] = sessions
            yield from self._late_row(row, timestamp, late=True, windows=(window,))
            return
        due = time_of_timer(joined, end, watermark, self._lateness)
        fires = end - 1 <= watermark
        try:
            kept = self._values.together(joined, row)
            sessions[first:behind] = [(start, end, due, kept)]
            self._set_timer(canonical, due, joined, sessions)
            entries[canonical] = sessions
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

    def explain(self, row: Any, key: Any, error: Exception) -> Exception:
        """See Explains: the row belongs to the last session of its key."""
        self.context.state.current_key = key
        start, end, _, _ = self._table.find(canonicalize(key))[2][-1]
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
        for value in self._call.fire(key, window, [self._values.shown(kept)]) or ():
            yield value, stamp

    def _on_timer(self, timestamp: int, key: Any, entries: dict[Any, Any], found: list[Session]) -> Results:
        """Fires, arms again or removes the sessions of a canonical key whose timers are due by the watermark."""
        timers, watermark = self._timers.event_timers, self._timers.watermark
        shown_key = self.context.state.current_key = user_key(key)
        left: list[Session] = []
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
            entries[key] = found
        else:
            self._table.remove(key)

    def _fire_alone(
        self, timestamp: int, key: Any, entries: dict[Any, Any], found: list[Session]
    ) -> Iterable[tuple[Any, int]] | None:
        """Fires the only session of a key whose timer is due, or sets its timer anew; None = more is to be done.

        Rows may have prolonged the session since its timer was set. Returns the results.
        """
        (start, end, due, kept), last = found[0], found[0][1] - 1
        if len(found) > 1 or due != timestamp or due > last:
            return None
        if last > self._timers.watermark:
            found[0] = self._armed(key, (start, end, last, kept))
            entries[key] = found
            return ()
        if kept is None or not self._ends_alone:
            return None
        self.context.state.current_key = user_key(key)
        try:
            result = self._values.shown(kept)
        except OperatorFailure:
            raise
        except Exception as error:
            raise self._failure_in(f"timer at {timestamp}", TimeWindow(start, end), error) from error
        self._table.remove(key)
        return ((result, last),)

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
        fired = self._fire_due(deadline)
        return _in_lists(fired) if self.emits_lists else fired

    def _fire_due(self, deadline: float) -> Results:
        self._owes = False
        timers, limit, fired = self._timers.event_timers, self._timers.watermark, 0
        # No order among the keys of a time is promised.
        while (time := timers.next_timestamp) is not None and (timer := timers.pop_any(limit)) is not None:
            fired += 1
            key, entries, found = self._table.find(timer[0])
            # Its sessions may have fired together with an earlier one.
            if found is not MISSING:
                results = self._fire_alone(time, key, entries, found)
                yield from self._on_timer(time, key, entries, found) if results is None else results
            if perf_counter() >= deadline:
                break
        self.fired_timers += fired
        self.context.state.current_key = NO_KEY

    def end_keys(self) -> Fired:
        self._timers.watermark = MAX_TIMESTAMP
        yield from self.fire_event_timers(inf)
        self._timers.watermark = MIN_TIMESTAMP


def _in_lists(fired: Results) -> Fired:
    """Results in lists, each with the list of their times."""
    while piece := list(islice(fired, _RESULTS_AT_ONCE)):
        results, times = zip(*piece, strict=True)
        yield list(results), list(times)
