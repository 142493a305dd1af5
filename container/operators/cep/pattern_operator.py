"""PatternMatchingOperator: looks for a pattern among the rows of each key, in order of time.

Owner: the task thread. Rows wait until the watermark has passed them. In event time on the heap they go through the
matcher in order of time, else key by key. The rules are in `yarrow.cep`, which knows neither state nor clocks. See
docs/design/0039-patterns.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Any

from yarrow.cep.pattern_matcher import PatternResult
from yarrow.container.codegen.code_writer import CodeWriter, CompiledCode
from yarrow.container.codegen.freezing import generate_fixed
from yarrow.container.codegen.user_functions import load_function, method_of
from yarrow.container.operators.base import Emit, KeyReadingOperator, OperatorContext, declared_type
from yarrow.container.operators.cep.condition_code import generate_result
from yarrow.container.operators.cep.matching_code import RowsInTurn
from yarrow.container.operators.cep.matching_operator import MatchingOperator, Results
from yarrow.container.operators.cep.ordered_matching import OrderedMatching
from yarrow.container.operators.cep.pending_rows import PendingRows, RowOrder, by_comparator
from yarrow.container.operators.cep.time_ordered_rows import RowTimers, TimeOrderedRows
from yarrow.container.operators.event_time import refuse_untimed
from yarrow.container.operators.event_time_order.row_addition import generate_added
from yarrow.container.operators.late_ledger import LateTime
from yarrow.container.operators.registry import runs
from yarrow.container.operators.rows.key_selection import generate_current_key, generate_key
from yarrow.datastream.output_tag import OutputTag
from yarrow.runtime.common.late_records import LatePlace
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.runtime.data.keys import canonicalize
from yarrow.runtime.graph.pattern_spec import AllPatternOperator, PatternOperator


@runs(PatternOperator, AllPatternOperator)
class PatternMatchingOperator(MatchingOperator, KeyReadingOperator):
    """Runs a pattern over a keyed stream, or over a whole stream whose rows have one key."""

    def __init__(self, name: str, spec: PatternOperator) -> None:
        super().__init__(name, spec)
        self._spec = spec
        self._event_time = spec.event_time
        self.stamps_rows = spec.event_time
        self._late_tag = None if spec.late_tag is None else OutputTag(spec.late_tag)
        #: None = rows wait by key.
        self._ordered: OrderedMatching | None = None

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        spec = self._spec
        self._selector = method_of(load_function(spec.key_selector, self.name), "get_key", self.name)
        comparator = None
        if spec.comparator is not None:
            comparator = method_of(load_function(spec.comparator, self.name), "compare", self.name)
        #: True if rows wait for later ones: for the watermark, or for the end of their millisecond.
        self._waits = spec.event_time or comparator is not None
        self._row_type = row_type = declared_type(spec.row_type)
        if spec.event_time and comparator is None and context.state.holds_all_in_memory:
            rows = TimeOrderedRows(context.state, row_type)
            timers = RowTimers(rows)
            self._set_up_matching(context, row_type, timers)
            self._rows = rows
            self._ordered = OrderedMatching(self._matcher, self._matches, rows, timers, self._row_failure)
            return
        order = None if comparator is None else self._order_by(comparator)
        self._waiting = PendingRows(context.state, row_type, order)
        self._set_up_matching(context, row_type)
        if not spec.event_time:
            self._queue = self._timers.processing_timers
            # A millisecond has passed when the next one has come: rows wait for others of theirs.
            self._delay = int(self._waits)

    def _order_by(self, comparator: Callable[[Any, Any], int]) -> RowOrder:
        """What puts rows of one time in the order of the program's comparator."""
        return by_comparator(comparator)

    def open(self) -> None:
        super().open()
        self.compile_own_loop()

    def compile_own_loop(self) -> CompiledCode | None:
        if self._ordered is None:
            return None
        return self._ordered.compile(RowsInTurn(), inlines=self.computes_conditions)

    def close(self) -> None:
        if self._ordered is not None:
            self._ordered.close()
        super().close()

    # ------------------------------------------------------------------ rows

    def generate_at(
        self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit, is_head: bool
    ) -> None:
        if self._ordered is not None and timestamp is not None:
            self._generate_ordered(code, value, timestamp, emit)
            return
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
        if not self._event_time or timestamp is None:
            on_row = self.on_row if self._event_time else self.on_row_now
            self._generate_results(code, f"{code.bind('on_row', on_row)}({value}, {timestamp})", emit)
            return
        in_time = f"{timestamp} is not None and {timestamp} > {code.bind('timers', self._timers)}.watermark"
        with code.block(f"if {in_time}:"):
            code.line(f"{code.bind('keep', self.keep)}({value}, {timestamp}, {timestamp})")
        with code.block("else:"):
            self._generate_results(code, f"{code.bind('on_row', self.on_row)}({value}, {timestamp})", emit)

    def _generate_ordered(self, code: CodeWriter, value: str, timestamp: str, emit: Emit) -> None:
        """Generates code that lets a row wait by its time, or takes a late one."""
        late = f"{timestamp} is None or {timestamp} <= {code.bind('timers', self._timers)}.watermark"
        with code.block(f"if {late}:"):
            generate_current_key(code, self._selector, value, self.context.state, is_head=False)
            self._generate_results(code, f"{code.bind('on_row', self.on_row)}({value}, {timestamp})", emit)
        with code.block("else:"):
            cares = self._generate_tests(code, value)
            with code.block(f"if {cares}:"):
                key = generate_key(code, self._selector, value, None)
                fixed = generate_fixed(code, value, self._row_type, self.context.environment.object_reuse)
                generate_added(code, self._rows, key, timestamp, fixed)

    @staticmethod
    def _generate_results(code: CodeWriter, results: str, emit: Emit) -> None:
        result, stamp = code.fresh("v"), code.fresh("t")
        with code.block(f"for {result}, {stamp} in {results}:"):
            emit(result, stamp)

    def _generate_care(self, code: CodeWriter, value: str, timestamp: str | None) -> str:
        """An expression that is true for rows which a partial match may take, and for those that are late."""
        if not self._event_time or timestamp is None or self._matcher.table.caring is None:
            return "True"
        cares, timers = code.fresh("cares"), code.bind("timers", self._timers)
        code.line(f"{cares} = {timestamp} is None or {timestamp} <= {timers}.watermark")
        with code.block(f"if not {cares}:"):
            code.line(f"{cares} = {self._generate_tests(code, value)}")
        return cares

    def _generate_tests(self, code: CodeWriter, value: str) -> str:
        """An expression that is true for rows which a partial match may take.

        No partial match has asked for the row yet. If a condition fails, the row is kept: the failure counts only if
        the matcher meets it, too.
        """
        table = self._matcher.table
        if table.caring is None:
            return "True"
        cares = code.fresh("cares")
        with code.block("try:"):
            for at, number in enumerate(table.caring):
                parts = table.tests[number].parts
                if not at:
                    generate_result(code, parts, value, cares)
                    continue
                with code.block(f"if not {cares}:"):
                    generate_result(code, parts, value, cares)
        with code.block("except Exception:"):
            code.line(f"{cares} = True")
        return cares

    def on_row(self, row: Any, timestamp: int | None) -> Results:
        """Counts a late row of the current key, and gives it back. Refuses a row without a time."""
        if timestamp is None:
            refuse_untimed(row, self.name, self.context.state.current_key)
        watermark, tag = self._timers.watermark, self._late_tag
        place = LatePlace.DROPPED if tag is None else LatePlace.SIDE_OUTPUT
        time = LateTime(timestamp, watermark, watermark - timestamp + 1)
        self._ledger.late(place, self.context.state.current_key, time)
        return () if tag is None else (((tag, row), timestamp),)

    def on_row_now(self, row: Any, timestamp: int | None) -> Results:
        """Runs the pattern over a row of the current key, at the time of the machine."""
        now = self._timers.current_processing_time()
        if self._waits:
            self.keep(row, now, now + self._delay)
            return ()
        key = self.context.state.current_key
        rows = [(now, row if self._fix is None else self._fix(row))]
        found = self._run(key, lambda _: rows, now, None)
        return self._emit(found, key)

    def keep(self, row: Any, time: int, leaves_at: int) -> None:
        """Lets a row of the current key wait; it leaves once `leaves_at` has passed."""
        key = self.context.state.current_key
        if self._waiting.add(key, time, row if self._fix is None else self._fix(row)):
            self._queue.register(leaves_at, canonicalize(key))

    # ------------------------------------------------------------------ matching

    def _run_due(self, key: Any, time: int) -> list[PatternResult]:
        """Runs the pattern over the rows of a key that wait, up to a time."""
        rows, following = self._waiting.take_until(key, time)
        if following is None:
            return self._run(key, lambda _: rows, time, None)
        leaves_at = following + self._delay
        # Beyond so many rows the others follow in the next slice: no time has passed for them.
        return self._run(key, lambda _: rows, rows[-1][0] if following <= time else time, leaves_at)

    # ------------------------------------------------------------------ time

    @property
    def event_timers_due(self) -> bool:
        first = self._timers.event_timers.next_timestamp
        return first is not None and first <= self._timers.watermark

    def fire_event_timers(self, deadline: float) -> Iterator[tuple[Any, int | None]]:
        watermark = self._timers.watermark
        if self._ordered is not None:
            return self._run_ordered(self._ordered, watermark, deadline)
        return self._fire(self._timers.event_timers, watermark, watermark, deadline)

    def next_timer(self) -> int | None:
        return self._timers.processing_timers.next_timestamp

    def fire_timers(self, now: int, deadline: float) -> Iterator[tuple[Any, int | None]]:
        return self._fire(self._timers.processing_timers, now, now - self._delay, deadline)

    def end_keys(self) -> Iterator[tuple[Any, int | None]]:
        timers = self._timers
        timers.watermark = MAX_TIMESTAMP
        if self._ordered is not None:
            yield from self._run_ordered(self._ordered, MAX_TIMESTAMP, inf)
            # The caller empties the state.
            self._ordered.clear()
        else:
            yield from self._fire(timers.event_timers, MAX_TIMESTAMP, MAX_TIMESTAMP, inf)
            yield from self._fire(timers.processing_timers, MAX_TIMESTAMP, MAX_TIMESTAMP, inf)
        timers.watermark = MIN_TIMESTAMP
