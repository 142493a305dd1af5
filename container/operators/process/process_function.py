"""ProcessFunction, KeyedProcessFunction and their two-input forms, with timers, keyed state and side outputs.

Owner: the task thread. One Context object serves all records of a subtask, as in PyFlink: it must not be
kept. A yielded `(OutputTag, value)` goes to that side output, everything else to the main output. Rows of
event-time timers have the timer's timestamp, those of processing-time timers none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Any

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.user_functions import load_function, method_of, results_of
from yarrow.container.operators.base import Emit, OperatorContext
from yarrow.container.operators.event_time import LATE_RECORDS
from yarrow.container.operators.late_ledger import LateLedger, LateTime
from yarrow.container.operators.registry import runs
from yarrow.container.operators.rows.key_selection import generate_current_key
from yarrow.container.operators.rows.row_functions import FunctionOperator, generate_iteration
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.container.state.heap_keyed_state import NO_KEY
from yarrow.container.state.timers import IGNORED_TIMERS, OperatorTimerService, TimerQueue
from yarrow.datastream.functions import (
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
)
from yarrow.datastream.functions.timers import TimeDomain, TimerService
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.common.late_records import LatePlace, LateRemedy
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.runtime.data.keys import user_key
from yarrow.runtime.graph.operator_spec import BroadcastProcessOperator, CoProcessOperator, ProcessOperator

#: Names of the timers among an operator's keyed states.
EVENT_TIMERS = "_timer_state/event_timers"
PROCESSING_TIMERS = "_timer_state/processing_timers"


class ElementContext(ProcessFunction.Context, CoProcessFunction.Context):
    """Context of a function on a stream that is not keyed."""

    #: Set by generated code before each call.
    element_timestamp: int | None = None

    def __init__(self, timers: OperatorTimerService) -> None:
        self._timers = timers

    def timer_service(self) -> TimerService:
        return self._timers

    def timestamp(self) -> int | None:
        return self.element_timestamp


class KeyedElementContext(KeyedProcessFunction.OnTimerContext, KeyedCoProcessFunction.OnTimerContext):
    """Context of a function on keyed streams, for records and timers."""

    element_timestamp: int | None = None
    #: Set before each timer.
    domain = TimeDomain.EVENT_TIME

    def __init__(self, timers: OperatorTimerService, current_key: Callable[[], Any]) -> None:
        self._timers = timers
        self._current_key = current_key

    def get_current_key(self) -> Any:
        return self._current_key()

    def timer_service(self) -> TimerService:
        return self._timers

    def timestamp(self) -> int | None:
        return self.element_timestamp

    def time_domain(self) -> TimeDomain:
        return self.domain


@runs(ProcessOperator, CoProcessOperator)
class ProcessingOperator(FunctionOperator):
    """The operator of any process function."""

    emits_tagged = True

    def __init__(
        self, name: str, spec: ProcessOperator | CoProcessOperator | BroadcastProcessOperator
    ) -> None:
        self._selector_blobs = spec.selector_of_each_input
        super().__init__(name, spec.function, keyed=any(blob is not None for blob in self._selector_blobs))
        # Broadcast state exists without keys, too.
        self.emits_state = True
        #: Records behind the watermark; they are processed nevertheless.
        self.late_records = 0
        self._ledger = LateLedger(name, LateRemedy.MORE_DISORDER)

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self._selectors = [
            None if blob is None else method_of(load_function(blob, self.name), "get_key", self.name)
            for blob in self._selector_blobs
        ]
        state, clock = context.state, context.environment.clock
        context.metric_group.gauge(LATE_RECORDS, lambda: self.late_records)
        self._ledger.register(context.environment.metrics)
        if self._keyed:
            self._timers = OperatorTimerService(clock, self.name, lambda: state.current_key)
            if context.environment.bounded:
                context.metric_group.gauge(IGNORED_TIMERS, lambda: self._timers.ignored)
            state.register_timers(EVENT_TIMERS, self._timers.event_timers)
            state.register_timers(PROCESSING_TIMERS, self._timers.processing_timers)
        else:
            self._timers = OperatorTimerService(clock, self.name, None)
        self._make_contexts()

    def _make_contexts(self) -> None:
        """Sets `_contexts`, one for each input, and `_timer_context`."""
        context: Any
        if self._keyed:
            state = self.context.state
            context = KeyedElementContext(self._timers, lambda: state.current_key)
        else:
            context = ElementContext(self._timers)
        self._timer_context: Any = context
        self._contexts: Sequence[Any] = [context] * len(self._selectors)

    # ------------------------------------------------------------------ rows

    def method_name(self, index: int) -> str:
        """The function's method for the records of an input."""
        return "process_element" if len(self._selectors) == 1 else f"process_element{index + 1}"

    def generate(self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit) -> None:
        self._generate(code, 0, value, timestamp, emit, is_head=False)

    def generate_input(
        self, code: CodeWriter, index: int, value: str, timestamp: str | None, emit: Emit
    ) -> None:
        self._generate(code, index, value, timestamp, emit, is_head=True)

    def _generate(
        self, code: CodeWriter, index: int, value: str, timestamp: str | None, emit: Emit, is_head: bool
    ) -> None:
        context = code.bind("ctx", self._contexts[index])
        self.generate_key(code, index, value, is_head)
        if timestamp is not None:
            code.line(f"{context}.element_timestamp = {timestamp}")
            note, timers = code.bind("note_late", self._note_late), code.bind("timers", self._timers)
            with code.block(f"if {timestamp} is not None and {timestamp} <= {timers}.watermark:"):
                code.line(f"{note}({value}, {timestamp})")
        process = code.bind("process", method_of(self.function, self.method_name(index), self.name))
        generate_iteration(code, f"{process}({value}, {context})", timestamp, emit)

    def _note_late(self, row: Any, timestamp: int) -> None:
        """Notes a late row, which the function gets all the same."""
        self.late_records += 1
        watermark = self._timers.watermark
        key = self.context.state.current_key if self._keyed else row
        time = LateTime(timestamp, watermark, watermark - timestamp + 1)
        self._ledger.late(LatePlace.FUNCTION, key, time)

    def generate_key(self, code: CodeWriter, index: int, value: str, is_head: bool) -> None:
        """Generates code that makes the key of a record of input `index` the current one."""
        selector = self._selectors[index]
        if selector is not None:
            generate_current_key(code, selector, value, self.context.state, is_head)

    def finish(self) -> None:
        self.context.state.current_key = NO_KEY

    # ------------------------------------------------------------------ timers

    @property
    def timer_service(self) -> OperatorTimerService | None:
        return self._timers if self._keyed else None

    def on_watermark(self, timestamp: int) -> Iterable[tuple[Any, int | None]]:
        self._timers.watermark = timestamp
        return ()

    @property
    def event_timers_due(self) -> bool:
        first = self._timers.event_timers.next_timestamp
        return first is not None and first <= self._timers.watermark

    def fire_event_timers(self, deadline: float) -> Iterator[tuple[Any, int | None]]:
        timers = self._timers
        return self._fire(timers.event_timers, timers.watermark, TimeDomain.EVENT_TIME, deadline)

    def next_timer(self) -> int | None:
        return self._timers.processing_timers.next_timestamp

    def fire_timers(self, now: int, deadline: float) -> Iterator[tuple[Any, int | None]]:
        return self._fire(self._timers.processing_timers, now, TimeDomain.PROCESSING_TIME, deadline)

    def end_keys(self) -> Iterator[tuple[Any, int | None]]:
        timers = self._timers
        if timers.event_timers or timers.processing_timers:
            timers.watermark, timers.key_has_ended = MAX_TIMESTAMP, True
            yield from self._fire(timers.event_timers, MAX_TIMESTAMP, TimeDomain.EVENT_TIME, inf)
            yield from self._fire(timers.processing_timers, MAX_TIMESTAMP, TimeDomain.PROCESSING_TIME, inf)
            timers.watermark, timers.key_has_ended = MIN_TIMESTAMP, False

    def _fire(
        self, timers: TimerQueue, limit: int, domain: TimeDomain, deadline: float
    ) -> Iterator[tuple[Any, int | None]]:
        state, context = self.context.state, self._timer_context
        fired = 0
        while (timer := timers.pop(limit)) is not None:
            fired += 1
            timestamp, key, _ = timer
            stamp = timestamp if domain is TimeDomain.EVENT_TIME else None
            state.current_key = user_key(key)
            context.element_timestamp = timestamp
            context.domain = domain
            try:
                for result in results_of(self.function.on_timer(timestamp, context)):
                    yield result, stamp
            except Exception as error:
                record = f"(timer at {timestamp} of the key {short_record(state.current_key)})"
                raise OperatorFailure(self.name, record, error) from error
            if perf_counter() >= deadline:
                break
        self.fired_timers += fired
        if fired:
            state.current_key = NO_KEY
            context.element_timestamp = None
