"""ProcessFunction, KeyedProcessFunction and their two-input forms, with timers, keyed state and side outputs.

Owner: the task thread. One Context object serves all records of a subtask, as in PyFlink: it must not be kept. What a
function yields as `(OutputTag, value)` goes to that side output, everything else to the main output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from yarrow.container.operators.base import Emit, OperatorContext
from yarrow.container.operators.row_functions import FunctionOperator
from yarrow.container.operators.user_functions import load_function, method_of
from yarrow.container.state.heap_keyed_state import NO_KEY
from yarrow.container.task.code_writer import CodeWriter
from yarrow.container.task.timers import OperatorTimerService, ProcessingTimeTimers
from yarrow.datastream.functions import (
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
)
from yarrow.datastream.time_domain import TimeDomain
from yarrow.datastream.timerservice import TimerService
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.data.keys import user_key
from yarrow.runtime.graph.operator_spec import CoProcessOperator, ProcessOperator


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
        return TimeDomain.PROCESSING_TIME


class ProcessingOperator(FunctionOperator):
    """Any process function; `selectors` holds one key selector an input, or nothing where not keyed."""

    def __init__(self, name: str, blob: bytes, selector_blobs: tuple[bytes, ...]) -> None:
        super().__init__(name, blob, keyed=bool(selector_blobs))
        self._selector_blobs = selector_blobs
        self._timers = ProcessingTimeTimers()

    @staticmethod
    def one_input(name: str, spec: ProcessOperator) -> ProcessingOperator:
        """For ProcessFunction and KeyedProcessFunction."""
        return ProcessingOperator(
            name, spec.function, () if spec.key_selector is None else (spec.key_selector,)
        )

    @staticmethod
    def two_inputs(name: str, spec: CoProcessOperator) -> ProcessingOperator:
        """For CoProcessFunction and KeyedCoProcessFunction."""
        return ProcessingOperator(name, spec.function, spec.key_selectors or ())

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self._selectors = [
            method_of(load_function(blob, self.name), "get_key", self.name) for blob in self._selector_blobs
        ]
        state, clock = context.state, context.environment.clock
        if self._selectors:
            self._timer_service = OperatorTimerService(
                clock, self.name, self._timers, lambda: state.current_key
            )
            self._context: Any = KeyedElementContext(self._timer_service, lambda: state.current_key)
        else:
            self._timer_service = OperatorTimerService(clock, self.name, self._timers, None)
            self._context = ElementContext(self._timer_service)

    def generate(self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit) -> None:
        self._generate(
            code, method_of(self.function, "process_element", self.name), 0, value, timestamp, emit
        )

    def generate_input(
        self, code: CodeWriter, index: int, value: str, timestamp: str | None, emit: Emit
    ) -> None:
        two_inputs = hasattr(self.function, "process_element1")
        method = f"process_element{index + 1}" if two_inputs else "process_element"
        self._generate(code, method_of(self.function, method, self.name), index, value, timestamp, emit)

    def _generate(
        self, code: CodeWriter, method: Any, index: int, value: str, timestamp: str | None, emit: Emit
    ) -> None:
        context = code.bind("ctx", self._context)
        if self._selectors:
            state = code.bind("state", self.context.state)
            code.line(f"{state}.current_key = {code.bind('key', self._selectors[index])}({value})")
        if timestamp is not None:
            code.line(f"{context}.element_timestamp = {timestamp}")
        results, result = code.fresh("r"), code.fresh("v")
        code.line(f"{results} = {code.bind('process', method)}({value}, {context})")
        with code.block(f"if {results} is not None:"), code.block(f"for {result} in {results}:"):
            emit(result, timestamp)

    def finish(self) -> None:
        self.context.state.current_key = NO_KEY

    def on_watermark(self, timestamp: int) -> Iterable[tuple[Any, int | None]]:
        self._timer_service.watermark = timestamp
        return ()

    def next_timer(self) -> int | None:
        return self._timers.next_timestamp

    def fire_timers(self, now: int, deadline: float) -> Iterable[tuple[Any, int | None]]:
        state = self.context.state
        for timestamp, key in self._timers.due(now):
            state.current_key = user_key(key)
            self._context.element_timestamp = timestamp
            results = self.function.on_timer(timestamp, self._context)
            if results is not None:
                for result in results:
                    yield result, None
            if perf_counter() >= deadline:
                break
        state.current_key = NO_KEY
        self._context.element_timestamp = None
