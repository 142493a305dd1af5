"""RegisteringBackend: the common part of state backends: names, kinds, time to live, folded states.

Owner: the task thread. A subclass opens only three handles (value, list, map) for a StateRegistration. With
time to live it stores pairs (access time in epoch ms, value) instead of values. This class must not know how.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar, cast

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.state.backend import (
    KeyedBackendContext,
    KeyedSection,
    KeyedStateBackend,
    TimerSection,
)
from yarrow.container.state.errors import StateConflictError
from yarrow.container.state.folded_states import FoldedAggregatingState, FoldedReducingState
from yarrow.container.state.heap_sections import HeapSections
from yarrow.container.state.state_registration import StateRegistration
from yarrow.container.state.ttl import TimeToLive, TtlListState, TtlMapState, TtlValueState
from yarrow.datastream.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
    StateTtlConfig,
    ValueState,
    ValueStateDescriptor,
)
from yarrow.runtime.common.errors import UnsupportedFeatureError
from yarrow.runtime.data.window_forms import WindowForm
from yarrow.runtime.snapshot.handles import StateKind
from yarrow.runtime.snapshot.restored_state import RestoredKeyedState, RestoredRun

S = TypeVar("S", bound=State)

#: Marks "no current key": outside of a record or timer of a keyed operator.
NO_KEY: Final[Any] = object()


class RegisteringBackend(KeyedStateBackend):
    """Checks registrations, and wraps the handles that a subclass opens."""

    def __init__(
        self, context: KeyedBackendContext, restored: RestoredKeyedState, sections: HeapSections
    ) -> None:
        """`restored`: the restored snapshots in canonical form."""
        self.context = context
        self._restored = restored
        self._sections = sections
        self.current_key: Any = NO_KEY
        #: By name, in the order of the program's requests.
        self.registrations: dict[str, StateRegistration] = {}
        self._handles: dict[str, State] = {}

    # Methods of subclasses, called once for each name.

    @abstractmethod
    def open_value(self, state: StateRegistration) -> ValueState[Any]:
        """Opens one value a key: for value, reducing and aggregating states."""

    @abstractmethod
    def open_list(self, state: StateRegistration) -> ListState[Any]:
        """Opens a list a key; `folded_states.refuse_none` refuses None as an element."""

    @abstractmethod
    def open_map(self, state: StateRegistration) -> MapState[Any, Any]:
        """Opens a map a key."""

    def open_reducing(
        self, state: StateRegistration, descriptor: ReducingStateDescriptor[Any]
    ) -> ReducingState[Any]:
        """Opens a reduced value a key; a subclass may override it with a faster form if `state.ttl` is None."""
        return FoldedReducingState(
            self._value(state), descriptor.get_reduce_function(), self.context.operator_name, state.name
        )

    def open_aggregating(
        self, state: StateRegistration, descriptor: AggregatingStateDescriptor[Any, Any, Any]
    ) -> AggregatingState[Any, Any]:
        """Opens an accumulator a key; may be overridden in the same way."""
        return FoldedAggregatingState(
            self._value(state), descriptor.get_agg_function(), self.context.operator_name, state.name
        )

    # KeyedStateBackend.

    def value_state(self, descriptor: ValueStateDescriptor[Any]) -> ValueState[Any]:
        state = self._declared(descriptor, StateKind.VALUE, descriptor.type_info)
        return cast(ValueState[Any], self._handle(state, lambda: self._value(state)))

    def list_state(self, descriptor: ListStateDescriptor[Any]) -> ListState[Any]:
        state = self._declared(descriptor, StateKind.LIST, descriptor.elem_type_info)

        def opened() -> ListState[Any]:
            handle = self.open_list(state)
            return handle if state.ttl is None else TtlListState(handle, state.ttl)

        return cast(ListState[Any], self._handle(state, opened))

    def map_state(self, descriptor: MapStateDescriptor[Any, Any]) -> MapState[Any, Any]:
        state = self._declared(
            descriptor, StateKind.MAP, descriptor.value_type_info, descriptor.key_type_info
        )

        def opened() -> MapState[Any, Any]:
            handle = self.open_map(state)
            return handle if state.ttl is None else TtlMapState(handle, state.ttl)

        return cast(MapState[Any, Any], self._handle(state, opened))

    def reducing_state(self, descriptor: ReducingStateDescriptor[Any]) -> ReducingState[Any]:
        state = self._declared(descriptor, StateKind.REDUCING, descriptor.type_info)
        return cast(ReducingState[Any], self._handle(state, lambda: self.open_reducing(state, descriptor)))

    def aggregating_state(
        self, descriptor: AggregatingStateDescriptor[Any, Any, Any]
    ) -> AggregatingState[Any, Any]:
        state = self._declared(descriptor, StateKind.AGGREGATING, descriptor.type_info)
        return cast(
            AggregatingState[Any, Any], self._handle(state, lambda: self.open_aggregating(state, descriptor))
        )

    def _value(self, state: StateRegistration) -> ValueState[Any]:
        handle = self.open_value(state)
        return handle if state.ttl is None else TtlValueState(handle, state.ttl)

    def _declared(
        self,
        descriptor: StateDescriptor,
        kind: StateKind,
        value_type: TypeInformation,
        map_key_type: TypeInformation | None = None,
    ) -> StateRegistration:
        config = descriptor.ttl_config
        ttl = None if config is None else TimeToLive(config, self.context.clock)
        return self.register(StateRegistration(descriptor.get_name(), kind, value_type, map_key_type, ttl))

    def _by_window(
        self,
        name: str,
        value_type: TypeInformation | None,
        form: WindowForm[Any],
        ttl_config: StateTtlConfig | None,
    ) -> StateRegistration:
        """The registration of tables by window."""
        ttl = None if ttl_config is None else TimeToLive(ttl_config, self.context.clock)
        state = StateRegistration(name, StateKind.MAP, value_type, form.stored_type, ttl, by_window=True)
        return self.register(state)

    def register(self, state: StateRegistration) -> StateRegistration:
        """The registration of that name. Raises StateConflictError if another state has the name."""
        if not self.registrations:
            self.context.metrics.gauge("keyedStateEntries", lambda: self.entries)
        known = self.registrations.setdefault(state.name, state)
        if known is state:
            return state
        lifetimes = [None if r.ttl is None else r.ttl.config for r in (known, state)]
        if known != state or lifetimes[0] != lifetimes[1]:
            difference = f"{known}, and now {state}"
            if known == state:
                difference += " with another time to live"
            raise StateConflictError(
                f"operator '{self.context.operator_name}': state '{state.name}' was declared before as {difference}; "
                "give each state a name of its own"
            )
        return known

    def _handle(self, state: StateRegistration, opened: Callable[[], State]) -> State:
        handle = self._handles.get(state.name)
        if handle is None:
            handle = self._handles[state.name] = opened()
        return handle

    def restored_runs(self, state: StateRegistration) -> Iterator[RestoredRun]:
        """The content of a state in canonical snapshots, in its present form; readable once."""
        return self._restored.take(
            state.name,
            state.kind,
            state.value_type,
            state.map_key_type,
            ttl=state.ttl is not None,
            access_time_ms=self.context.clock.epoch_ms(),
        )

    def register_timers(self, name: str, section: TimerSection) -> None:
        self._refuse_taken(name)
        self._sections.register_timers(name, section)

    def register_section(self, name: str, section: KeyedSection) -> None:
        self._refuse_taken(name)
        self._sections.register(name, section)

    def _refuse_taken(self, name: str) -> None:
        if name in self.registrations:
            raise StateConflictError(
                f"operator '{self.context.operator_name}': '{name}' is a {self.registrations[name]} already; "
                "give each state a name of its own"
            )

    def require_key(self, name: str) -> Any:
        """The current key; raises if there is none."""
        if self.current_key is NO_KEY:
            raise UnsupportedFeatureError(
                f"operator '{self.context.operator_name}': keyed state '{name}' was used outside of a record"
                " or timer. Read and write it in process_element or on_timer, not in open or close"
            )
        return self.current_key
