"""BroadcastProcessingOperator: runs functions that process a stream with the state of a broadcast stream.

Owner: the task thread. Input 0 is the main stream, which reads the broadcast state. Input 1 is the broadcast
stream, which writes it and has no key. Each subtask has its own copy of the state, in its operator state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.user_functions import load_function
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.process.process_function import ProcessingOperator
from yarrow.container.operators.registry import runs
from yarrow.container.state.backend import KeyedStateBackend
from yarrow.container.state.operator_state import OperatorStateBackend
from yarrow.container.state.registering_backend import NO_KEY
from yarrow.container.state.timers import OperatorTimerService
from yarrow.datastream.functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from yarrow.datastream.functions.timers import TimeDomain, TimerService
from yarrow.datastream.state import (
    AggregatingStateDescriptor,
    BroadcastState,
    ListStateDescriptor,
    MapStateDescriptor,
    ReadOnlyBroadcastState,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
    ValueStateDescriptor,
)
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.keys import user_key
from yarrow.runtime.graph.operator_spec import BroadcastProcessOperator


class DeclaredStates:
    """The broadcast states of one operator; states that were not given to `broadcast` are refused by name."""

    def __init__(
        self, operator: str, store: OperatorStateBackend, descriptors: Sequence[MapStateDescriptor[Any, Any]]
    ) -> None:
        self._operator = operator
        # All are requested now, so that all are restored and snapshotted, even if the function does not read
        # them.
        self._writable = {each.get_name(): store.broadcast_state(each) for each in descriptors}
        self._read_only = {each.get_name(): store.read_only_broadcast_state(each) for each in descriptors}

    def writable(self, descriptor: MapStateDescriptor[Any, Any]) -> BroadcastState[Any, Any]:
        """The state for the broadcast side."""
        self._check(descriptor)
        return self._writable[descriptor.get_name()]

    def read_only(self, descriptor: MapStateDescriptor[Any, Any]) -> ReadOnlyBroadcastState[Any, Any]:
        """The state for the other side and for timers."""
        self._check(descriptor)
        return self._read_only[descriptor.get_name()]

    def _check(self, descriptor: MapStateDescriptor[Any, Any]) -> None:
        if descriptor.get_name() not in self._writable:
            raise InvalidProgramError(
                f"operator '{self._operator}': there is no broadcast state '{descriptor.get_name()}', only "
                f"{sorted(self._writable)}; pass its descriptor to broadcast()"
            )


class _BaseContext:
    """The times of a context, for both sides."""

    #: Set by generated code before each call.
    element_timestamp: int | None = None

    def __init__(self, timers: OperatorTimerService, states: DeclaredStates) -> None:
        self._timers = timers
        self._states = states

    def timestamp(self) -> int | None:
        """Event time of the record, or None."""
        return self.element_timestamp

    def current_processing_time(self) -> int:
        """Present processing time, epoch ms."""
        return self._timers.current_processing_time()

    def current_watermark(self) -> int:
        """The present event time."""
        return self._timers.current_watermark()


class ReadingContext(_BaseContext, BroadcastProcessFunction.ReadOnlyContext):
    """The context of the main stream, without keys."""

    def get_broadcast_state(
        self, state_descriptor: MapStateDescriptor[Any, Any]
    ) -> ReadOnlyBroadcastState[Any, Any]:
        return self._states.read_only(state_descriptor)


class WritingContext(_BaseContext, BroadcastProcessFunction.Context):
    """The context of the broadcast stream, if the main stream has no keys."""

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor[Any, Any]) -> BroadcastState[Any, Any]:
        return self._states.writable(state_descriptor)


class KeyedReadingContext(_BaseContext, KeyedBroadcastProcessFunction.OnTimerContext):
    """The context of the keyed main stream and of timers."""

    #: Set before each timer.
    domain = TimeDomain.EVENT_TIME

    def __init__(
        self, timers: OperatorTimerService, states: DeclaredStates, current_key: Callable[[], Any]
    ) -> None:
        super().__init__(timers, states)
        self._current_key = current_key

    def get_broadcast_state(
        self, state_descriptor: MapStateDescriptor[Any, Any]
    ) -> ReadOnlyBroadcastState[Any, Any]:
        return self._states.read_only(state_descriptor)

    def timer_service(self) -> TimerService:
        return self._timers

    def get_current_key(self) -> Any:
        return self._current_key()

    def time_domain(self) -> TimeDomain:
        return self.domain


class KeyedWritingContext(_BaseContext, KeyedBroadcastProcessFunction.Context):
    """The context of the broadcast stream, if the main stream is keyed."""

    def __init__(
        self, timers: OperatorTimerService, states: DeclaredStates, keyed_state: KeyedStateBackend
    ) -> None:
        super().__init__(timers, states)
        self._keyed_state = keyed_state

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor[Any, Any]) -> BroadcastState[Any, Any]:
        return self._states.writable(state_descriptor)

    def apply_to_keyed_state(
        self, state_descriptor: StateDescriptor, function: Callable[[Any, State], None]
    ) -> None:
        backend = self._keyed_state
        handle = _keyed_handle(backend, state_descriptor)
        # A copy: the function may clear the state of the present key.
        for key in list(backend.state_keys(state_descriptor.get_name())):
            backend.current_key = user_key(key)
            function(backend.current_key, handle)
        backend.current_key = NO_KEY


def _keyed_handle(backend: KeyedStateBackend, descriptor: StateDescriptor) -> State:
    match descriptor:
        case ValueStateDescriptor():
            return backend.value_state(descriptor)
        case ListStateDescriptor():
            return backend.list_state(descriptor)
        case MapStateDescriptor():
            return backend.map_state(descriptor)
        case ReducingStateDescriptor():
            return backend.reducing_state(descriptor)
        case AggregatingStateDescriptor():
            return backend.aggregating_state(descriptor)
    raise TypeError(f"apply_to_keyed_state takes the descriptor of a keyed state, not {descriptor!r}")


@runs(BroadcastProcessOperator)
class BroadcastProcessingOperator(ProcessingOperator):
    """The operator of both kinds of broadcast process functions."""

    def __init__(self, name: str, spec: BroadcastProcessOperator) -> None:
        super().__init__(name, spec)
        self._states_blob = spec.states

    def setup(self, context: OperatorContext) -> None:
        descriptors = load_function(self._states_blob, self.name)
        self._states = DeclaredStates(self.name, context.operator_state, descriptors)
        super().setup(context)

    def _make_contexts(self) -> None:
        timers, states, keyed_state = self._timers, self._states, self.context.state
        reading: Any
        writing: Any
        if self._keyed:
            reading = KeyedReadingContext(timers, states, lambda: keyed_state.current_key)
            writing = KeyedWritingContext(timers, states, keyed_state)
        else:
            reading, writing = ReadingContext(timers, states), WritingContext(timers, states)
        self._timer_context = reading
        self._contexts = (reading, writing)

    def method_name(self, index: int) -> str:
        return "process_broadcast_element" if index else "process_element"

    def generate_key(self, code: CodeWriter, index: int, value: str, is_head: bool) -> None:
        if index and self._keyed:
            # A broadcast record has no key: only apply_to_keyed_state reaches keyed state.
            code.line(f"{code.bind('state', self.context.state)}.current_key = {code.bind('no_key', NO_KEY)}")
        else:
            super().generate_key(code, index, value, is_head)
