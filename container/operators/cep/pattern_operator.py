"""PatternMatchingOperator: looks for a pattern among the rows of each key, in order of time.

Owner: the task thread. Rows wait until the watermark has passed them, and go through the matcher key by key. A
timer a key ends partial matches whose time has passed. The rules are in `yarrow.cep`, which knows neither state nor
clocks. See docs/design/0039-patterns.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Any

from yarrow.cep.conditions import SimpleCondition, call_of
from yarrow.cep.partial_matches import PartialMatches
from yarrow.cep.pattern import Pattern
from yarrow.cep.pattern_functions import PatternProcessFunction, TimedOutPartialMatchHandler
from yarrow.cep.pattern_matcher import PatternMatcher, PatternResult
from yarrow.cep.pattern_table import compile_pattern
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.user_functions import (
    close_function,
    load_function,
    method_of,
    open_function,
)
from yarrow.container.operators.base import Emit, KeyReadingOperator, OperatorContext, declared_type
from yarrow.container.operators.cep.cep_runtime_context import CepRuntimeContext
from yarrow.container.operators.cep.matching_state import MatchingState
from yarrow.container.operators.cep.pending_rows import PendingRows
from yarrow.container.operators.event_time import refuse_missing
from yarrow.container.operators.late_ledger import LateLedger, LateTime
from yarrow.container.operators.process.process_function import EVENT_TIMERS, PROCESSING_TIMERS
from yarrow.container.operators.registry import runs
from yarrow.container.operators.rows.key_selection import generate_current_key
from yarrow.container.operators.rows.row_functions import FunctionOperator
from yarrow.container.operators.stored_watermark import StoredTimeOperator
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.container.state.heap_keyed_state import NO_KEY
from yarrow.container.state.timers import OperatorTimerService, TimerQueue
from yarrow.datastream.output_tag import OutputTag
from yarrow.runtime.common.clock import Clock, perf_counter
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.common.late_records import LatePlace, LateRemedy
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.runtime.data.immutability import copier_for
from yarrow.runtime.data.keys import canonicalize, user_key
from yarrow.runtime.graph.window_spec import AllPatternOperator, PatternOperator

#: The metric of partial matches that ended because their key had too many.
PARTIAL_MATCHES_DROPPED = "numPartialMatchesDropped"

_Results = Iterable[tuple[Any, int | None]]


class MatchContext(PatternProcessFunction.Context):
    """The times of the match at hand."""

    time: int = MIN_TIMESTAMP

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def timestamp(self) -> int:
        return self.time

    def current_processing_time(self) -> int:
        return self._clock.epoch_ms()


@runs(PatternOperator, AllPatternOperator)
class PatternMatchingOperator(StoredTimeOperator, FunctionOperator, KeyReadingOperator):
    """Runs a pattern over a keyed stream, or over a whole stream whose rows have one key."""

    emits_tagged = True
    emits_state = True

    def __init__(self, name: str, spec: PatternOperator) -> None:
        super().__init__(name, spec.function, keyed=True)
        self._spec = spec
        self._event_time = spec.event_time
        self.stamps_rows = spec.event_time
        self._ledger = LateLedger(name, LateRemedy.MORE_DISORDER)
        self._late_tag = None if spec.late_tag is None else OutputTag(spec.late_tag)

    # ------------------------------------------------------------------ life

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        spec, state, environment = self._spec, context.state, context.environment
        self._selector = method_of(load_function(spec.key_selector, self.name), "get_key", self.name)
        self._pattern: Pattern = load_function(spec.pattern, self.name)
        table = compile_pattern(self._pattern)
        handles = isinstance(self.function, TimedOutPartialMatchHandler)
        self._matcher = PatternMatcher(
            table, environment.clock.epoch_ms, spec.max_partial_matches, gives_timed_out=handles
        )
        row_type = declared_type(spec.row_type)
        self._fix = None if environment.object_reuse else copier_for(row_type)
        comparator = None
        if spec.comparator is not None:
            comparator = method_of(load_function(spec.comparator, self.name), "compare", self.name)
        #: True if rows wait for later ones: for the watermark, or for the end of their millisecond.
        self._waits = spec.event_time or comparator is not None
        self._waiting = PendingRows(state, row_type, comparator)
        self._matches = MatchingState(context, row_type, table)
        timers = OperatorTimerService(environment.clock, self.name, lambda: state.current_key)
        self.keep_time(context, timers)
        self._queue = self._timers.event_timers if spec.event_time else self._timers.processing_timers
        state.register_timers(EVENT_TIMERS, self._timers.event_timers)
        state.register_timers(PROCESSING_TIMERS, self._timers.processing_timers)
        self._nothing = PartialMatches.none()
        self._match_context = MatchContext(environment.clock)
        self._on_timeout: Any = self.function.process_timed_out_match if handles else None
        self._ledger.register(context.environment.metrics, context.metric_group)
        context.metric_group.gauge(PARTIAL_MATCHES_DROPPED, lambda: self._matcher.dropped)

    def open(self) -> None:
        self._opened = True
        self._runtime_context = CepRuntimeContext(self.context, keyed=False)
        open_function(self.function, self._runtime_context)
        for condition in self._pattern.conditions():
            open_function(condition, self._runtime_context)

    def close(self) -> None:
        opened = self._opened
        try:
            super().close()
        finally:
            if opened:
                for condition in self._pattern.conditions():
                    close_function(condition)

    def snapshot_state(self, checkpoint_id: int) -> None:
        super().snapshot_state(checkpoint_id)
        self._matches.store()

    # ------------------------------------------------------------------ rows

    def generate_at(
        self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit, is_head: bool
    ) -> None:
        cares = self._generate_care(code, value, timestamp)
        if is_head and self.context.state.wants_keys:
            # The state has got the keys of all rows.
            generate_current_key(code, self._selector, value, self.context.state, is_head)
            with code.block(f"if {cares}:"):
                self._generate_row(code, value, timestamp, emit)
        else:
            with code.block(f"if {cares}:"):
                generate_current_key(code, self._selector, value, self.context.state, is_head)
                self._generate_row(code, value, timestamp, emit)

    def _generate_row(self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit) -> None:
        result, stamp = code.fresh("v"), code.fresh("t")
        on_row = code.bind("on_row", self.on_row if self._event_time else self.on_row_now)
        with code.block(f"for {result}, {stamp} in {on_row}({value}, {timestamp}):"):
            emit(result, stamp)

    def _generate_care(self, code: CodeWriter, value: str, timestamp: str | None) -> str:
        """An expression that is true for rows which a partial match may take, and for those that are late.

        No partial match has asked for the row yet. If a condition fails, the row is kept: the failure counts only if
        the matcher meets it, too.
        """
        table = self._matcher.table
        if table.caring is None or not self._event_time or timestamp is None:
            return "True"
        timers = code.bind("timers", self._timers)
        parts = [f"{timestamp} is None", f"{timestamp} <= {timers}.watermark"]
        for number in table.caring:
            test = ""
            for part in table.tests[number].parts:
                assert isinstance(part.condition, SimpleCondition)
                call = f"{code.bind('condition', call_of(part.condition))}({value})"
                test = f"({test} {'or' if part.joined_by_or else 'and'} {call})" if test else call
            parts.append(test)
        cares = code.fresh("cares")
        with code.block("try:"):
            code.line(f"{cares} = {' or '.join(parts)}")
        with code.block("except Exception:"):
            code.line(f"{cares} = True")
        return cares

    def on_row(self, row: Any, timestamp: int | None) -> _Results:
        """Keeps a row of the current key until the watermark has passed it; gives a late row back."""
        if timestamp is None:
            refuse_missing(row, self.name)
        watermark, tag = self._timers.watermark, self._late_tag
        if timestamp <= watermark:
            place = LatePlace.DROPPED if tag is None else LatePlace.SIDE_OUTPUT
            time = LateTime(timestamp, watermark, watermark - timestamp + 1)
            self._ledger.late(place, self.context.state.current_key, time)
            return () if tag is None else (((tag, row), timestamp),)
        self._keep(row, timestamp, timestamp)
        return ()

    @property
    def late_dropped(self) -> int:
        """Late rows that went nowhere."""
        return self._ledger.dropped

    def on_row_now(self, row: Any, timestamp: int | None) -> _Results:
        """Runs the pattern over a row of the current key, at the time of the machine."""
        now = self._timers.current_processing_time()
        if self._waits:
            self._keep(row, now, now + 1)
            return ()
        key = self.context.state.current_key
        found = self._run(key, [(now, row if self._fix is None else self._fix(row))], now, None)
        return self._emit(found, key)

    def _keep(self, row: Any, time: int, leaves_at: int) -> None:
        key = self.context.state.current_key
        if self._waiting.add(key, time, row if self._fix is None else self._fix(row)):
            self._queue.register(leaves_at, canonicalize(key))

    # ------------------------------------------------------------------ matching

    def _run_waiting(self, key: Any, time: int) -> list[PatternResult]:
        """Runs the pattern over the rows of a key that wait, up to a time."""
        rows, following = self._waiting.take_until(key, time)
        if following is not None:
            self._queue.register(following if self._event_time else following + 1, canonicalize(key))
            if following <= time:
                # The others follow in the next slice: no time has passed for them.
                return self._run(key, rows, rows[-1][0], following)
        return self._run(key, rows, time, following)

    def _run(
        self, key: Any, rows: Sequence[tuple[int, Any]], until: int, following: int | None
    ) -> list[PatternResult]:
        """Runs the pattern over rows of a key in their order, then lets time pass until `until`.

        `following`: the time of the next row that waits.
        """
        matcher = self._matcher
        place, matches = self._matches.find(key)
        before = None if matches is None else matcher.deadline(matches)
        results: list[PatternResult] = []
        row: Any = None
        try:
            if matches is None:
                matches = self._nothing
            for time, row in rows:
                if matches.runs:
                    results += matcher.advance(matches, time)
                results += matcher.take(matches, row, time)
            row = None
            results += matcher.advance(matches, until)
        except Exception as error:
            raise self._failure(short_record(row), key, error) from error
        if matches is self._nothing:
            if matches.is_empty:
                return results
            # Most keys have no partial match: one empty object serves them all until one begins.
            self._nothing = PartialMatches.none()
        self._matches.keep(place, matches)
        self._set_timer(place.key, before, matcher.deadline(matches), following)
        return results

    def _set_timer(
        self, canonical: Any, before: int | None, after: int | None, following: int | None
    ) -> None:
        """Moves the timer that ends partial matches of a canonical key."""
        if before == after:
            return
        queue = self._queue
        leaves_at = following if following is None or self._event_time else following + 1
        if before is not None and before != leaves_at:
            queue.delete(min(before, MAX_TIMESTAMP), canonical)
        if after is not None:
            queue.register(min(after, MAX_TIMESTAMP), canonical)

    def _emit(self, found: Sequence[PatternResult], key: Any) -> Iterator[tuple[Any, int | None]]:
        """What the user's function makes of matches and partial matches."""
        context, event_time, fix = self._match_context, self._event_time, self._fix
        for match, time, timed_out in found:
            call = self._on_timeout if timed_out else self.function.process_match
            if call is None:
                continue
            if fix is not None:
                # The records of a match may belong to others that are still to come.
                match = {name: [fix(record) for record in records] for name, records in match.items()}
            context.time = time
            try:
                results = call(match, context)
                if results is not None:
                    for result in results:
                        if timed_out and not _is_tagged(result):
                            raise InvalidProgramError(
                                f"process_timed_out_match gave {short_record(result)}: it has no main output. Yield"
                                " (OutputTag, value)"
                            )
                        yield result, time if event_time else None
            except OperatorFailure:
                raise
            except Exception as error:
                raise self._failure(f"match {short_record(match)}", key, error) from error

    def _failure(self, what: str, key: Any, error: Exception) -> OperatorFailure:
        return OperatorFailure(self.name, f"{what} (key {short_record(key)})", error)

    # ------------------------------------------------------------------ time

    @property
    def event_timers_due(self) -> bool:
        first = self._timers.event_timers.next_timestamp
        return first is not None and first <= self._timers.watermark

    def fire_event_timers(self, deadline: float) -> Iterator[tuple[Any, int | None]]:
        watermark = self._timers.watermark
        return self._fire(self._timers.event_timers, watermark, watermark, deadline)

    def next_timer(self) -> int | None:
        return self._timers.processing_timers.next_timestamp

    def fire_timers(self, now: int, deadline: float) -> Iterator[tuple[Any, int | None]]:
        # Rows of the present millisecond wait for others of it.
        return self._fire(self._timers.processing_timers, now, now if not self._waits else now - 1, deadline)

    def end_keys(self) -> Iterator[tuple[Any, int | None]]:
        timers = self._timers
        timers.watermark = MAX_TIMESTAMP
        yield from self._fire(timers.event_timers, MAX_TIMESTAMP, MAX_TIMESTAMP, inf)
        yield from self._fire(timers.processing_timers, MAX_TIMESTAMP, MAX_TIMESTAMP, inf)
        timers.watermark = MIN_TIMESTAMP

    def _fire(
        self, timers: TimerQueue, limit: int, time: int, deadline: float
    ) -> Iterator[tuple[Any, int | None]]:
        """Runs keys whose timers are due up to `limit`; their time is `time` afterwards."""
        state = self.context.state
        fired = 0
        while (timer := timers.pop_any(limit)) is not None:
            fired += 1
            state.current_key = key = user_key(timer[0])
            found = self._run_waiting(key, time)
            if found:
                yield from self._emit(found, key)
            if perf_counter() >= deadline:
                break
        self.fired_timers += fired
        if fired:
            state.current_key = NO_KEY


def _is_tagged(result: Any) -> bool:
    return isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], OutputTag)
