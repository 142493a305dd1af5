"""MatchingOperator: what all operators that look for a pattern share: matcher, partial matches, timers and results.

Owner: the task thread. It runs the matcher over the rows of one key, and keeps what that leaves. A timer a key ends
partial matches whose time has passed. Must not know where rows wait. See docs/design/0039-patterns.md.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from yarrow.cep.partial_matches import PartialMatches
from yarrow.cep.pattern import Pattern
from yarrow.cep.pattern_matcher import PatternMatcher, PatternResult
from yarrow.cep.pattern_table import PatternTable, compile_pattern
from yarrow.common.typeinfo import TypeInformation
from yarrow.container.codegen.inlining.functions import is_traced
from yarrow.container.codegen.user_functions import close_function, load_function, open_function
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.cep.match_calls import MatchCallingOperator
from yarrow.container.operators.cep.matching_state import KeptMatches, MatchingState
from yarrow.container.operators.cep.ordered_matching import OrderedMatching
from yarrow.container.operators.late_ledger import LateLedger
from yarrow.container.operators.process.process_function import EVENT_TIMERS, PROCESSING_TIMERS
from yarrow.container.operators.stored_watermark import StoredTimeOperator
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.container.state.heap_keyed_state import NO_KEY
from yarrow.container.state.timers import OperatorTimerService, TimerQueue
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.common.late_records import LateRemedy
from yarrow.runtime.config.options import pipeline
from yarrow.runtime.data.elements import MAX_TIMESTAMP
from yarrow.runtime.data.keys import user_key
from yarrow.runtime.graph.pattern_spec import PatternSpec

#: The metric of partial matches that ended because their key had too many.
PARTIAL_MATCHES_DROPPED = "numPartialMatchesDropped"

#: Results and their timestamps.
Results = Iterable[tuple[Any, int | None]]
#: The rows of a key, each with its time, as far as its partial matches need them. These change between two rows.
RowsFor = Callable[[PartialMatches], Iterable[tuple[int, Any]]]


class MatchingOperator(StoredTimeOperator, MatchCallingOperator):
    """Base of operators that look for a pattern."""

    emits_state = True

    def __init__(self, name: str, spec: PatternSpec) -> None:
        super().__init__(name)
        self._matching = spec
        self._ledger = LateLedger(name, LateRemedy.MORE_DISORDER)
        self._pattern: Pattern
        self._queue: TimerQueue

    # ------------------------------------------------------------------ life

    def _set_up_matching(
        self, context: OperatorContext, row_type: TypeInformation | None, queue: TimerQueue | None = None
    ) -> None:
        """Makes matcher, state and timers; called by `setup`. `row_type` None = not declared.

        `queue`: takes the timers of event time; None = one that knows timers alone.
        """
        spec, state, environment = self._matching, context.state, context.environment
        self._set_up_function(context, spec.function, row_type)
        self._pattern = load_function(spec.pattern, self.name)
        table = compile_pattern(self._pattern)
        self._matcher = self._make_matcher(table, gives_timed_out=self._on_timeout is not None)
        self._matches = MatchingState(context, row_type, table)
        timers = OperatorTimerService(environment.clock, self.name, lambda: state.current_key)
        if queue is not None:
            timers.event_timers = queue
        self.keep_time(context, timers)
        self._queue = timers.event_timers
        #: Milliseconds from a time to the timer that lets it pass.
        self._delay = 0
        state.register_timers(EVENT_TIMERS, timers.event_timers)
        state.register_timers(PROCESSING_TIMERS, timers.processing_timers)
        self._nothing = PartialMatches.none()
        self._ledger.register(environment.metrics, context.metric_group)
        context.metric_group.gauge(PARTIAL_MATCHES_DROPPED, lambda: self._matcher.dropped)

    def _make_matcher(self, table: PatternTable, *, gives_timed_out: bool) -> PatternMatcher:
        """Makes the matcher; `gives_timed_out`: also of partial matches whose time has passed."""
        clock, most = self.context.environment.clock, self._matching.max_partial_matches
        return PatternMatcher(table, clock.epoch_ms, most, gives_timed_out=gives_timed_out)

    def open(self) -> None:
        super().open()
        for condition in self._pattern.conditions():
            open_function(condition, self._runtime_context)

    def close(self) -> None:
        if not self._opened:
            return
        try:
            super().close()
        finally:
            for condition in self._pattern.conditions():
                close_function(condition)

    def snapshot_state(self, checkpoint_id: int) -> None:
        super().snapshot_state(checkpoint_id)
        self._matches.store()

    @property
    def computes_conditions(self) -> bool:
        """True if generated code may compute conditions instead of calling them."""
        # Breakpoints and coverage need calls.
        inlines: bool = self.context.environment.settings.get(pipeline.INLINE_FUNCTIONS)
        return inlines and not is_traced()

    @property
    def late_dropped(self) -> int:
        """Late rows that went nowhere."""
        return self._ledger.dropped

    # ------------------------------------------------------------------ matching

    def _run(self, key: Any, rows_for: RowsFor, until: int, following: int | None) -> list[PatternResult]:
        """Runs the pattern over rows of a raw key in their order, then lets time pass until `until`.

        `following`: when the next row of the key that waits is due; None = no row waits.
        """
        matcher = self._matcher
        place, matches = self._matches.find(key)
        before = None if matches is None else matcher.deadline(matches)
        results: list[PatternResult] = []
        row: Any = None
        try:
            if matches is None:
                matches = self._nothing
            for time, row in rows_for(matches):
                if matches.runs and (found := matcher.advance(matches, time)):
                    results += found
                if found := matcher.take(matches, row, time):
                    results += found
            row = None
            if found := matcher.advance(matches, until):
                results += found
        except Exception as error:
            raise self._failure(short_record(row), key, error) from error
        if matches is self._nothing:
            if matches.is_empty:
                if following is not None:
                    self._queue.register(following, place[0])
                return results
            # Most keys have no partial match: one empty object serves them all until one begins.
            self._nothing = PartialMatches.none()
        self._keep_matches(place, matches)
        self._set_timer(place[0], before, matcher.deadline(matches), following)
        return results

    def _keep_matches(self, place: KeptMatches, matches: PartialMatches) -> None:
        """Keeps the partial matches of a key."""
        self._matches.keep(place, matches)

    def _set_timer(
        self, canonical: Any, before: int | None, after: int | None, following: int | None
    ) -> None:
        """Sets the timer of a canonical key: for its next row, or for the end of its partial matches if that is first.

        The other one needs none before: each run of the key sets the timer anew.
        """
        queue, delay = self._queue, self._delay
        if before is not None and before != after and before + delay <= MAX_TIMESTAMP:
            queue.delete(before + delay, canonical)
        # No time reaches an end behind MAX_TIMESTAMP: a timer there would be due again and again.
        due = None if after is None or after + delay > MAX_TIMESTAMP else after + delay
        if following is not None and (due is None or following < due):
            due = following
        if due is not None:
            queue.register(due, canonical)

    def _failure(self, what: str, key: Any, error: Exception) -> OperatorFailure:
        if self._matching.rescalable:
            # The records of a whole stream have one key, which is none of the user's.
            what += f" (key {short_record(key)})"
        return super()._failure(what, key, error)

    def _run_ordered(
        self, ordered: OrderedMatching, time: int, deadline: float
    ) -> Iterator[tuple[Any, int | None]]:
        """Runs the pattern over the rows that wait in order of time, and lets time pass, up to a time."""
        fired = ordered.fired
        for found in ordered.run_until(time, deadline):
            yield from self._emit_each(found)
        self.fired_timers += ordered.fired - fired

    def _row_failure(self, key: Any, row: Any, error: Exception) -> Exception:
        return self._failure(short_record(row), user_key(key), error)

    # ------------------------------------------------------------------ time

    @abstractmethod
    def _run_due(self, key: Any, time: int) -> list[PatternResult]:
        """Runs the pattern for a raw key whose timer is due; its time is `time` afterwards."""

    def _fire(
        self, timers: TimerQueue, limit: int, time: int, deadline: float
    ) -> Iterator[tuple[Any, int | None]]:
        """Runs keys whose timers are due up to `limit`; their time is `time` afterwards."""
        state = self.context.state
        fired = 0
        while (timer := timers.pop_any(limit)) is not None:
            fired += 1
            state.current_key = key = user_key(timer[0])
            found = self._run_due(key, time)
            if found:
                yield from self._emit(found, key)
            if perf_counter() >= deadline:
                break
        self.fired_timers += fired
        if fired:
            state.current_key = NO_KEY
