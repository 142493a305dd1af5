"""DebugBackend: finds values that a program got from state and changed without writing them back.

Owner: the task thread. It wraps any backend if `state.backend.debug` is true, at the price of a pickle of
each mutable value that is read. It must not change the program's behaviour, except by the error that it
raises.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar, cast

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.state.backend import (
    KeyedBackendContext,
    KeyedSection,
    KeyedStateBackend,
    PendingKeyedSnapshot,
    TimerSection,
)
from yarrow.container.state.errors import StateMutationError
from yarrow.datastream.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueState,
    ValueStateDescriptor,
)
from yarrow.runtime.data.checkpoint_options import CheckpointOptions
from yarrow.runtime.data.errors import UncopyableValueError
from yarrow.runtime.data.immutability import freeze_or_copy
from yarrow.runtime.data.window_forms import WindowForm

H = TypeVar("H")


class _Watch:
    """The values that the program got for the present key, with their pickled form."""

    def __init__(self, operator_name: str) -> None:
        self._operator_name = operator_name
        #: (state, key of the map or None) -> (value, its bytes at that time).
        self._seen: dict[tuple[str, Any], tuple[Any, bytes]] = {}
        self.key: Any = None

    def got(self, state: str, value: Any, part: Any = None) -> None:
        """Notes a value that the program got."""
        try:
            if value is None or freeze_or_copy(value) is value:
                return
            self._seen.setdefault((state, part), (value, pickle.dumps(value, 5)))
        except (pickle.PicklingError, TypeError, AttributeError, UncopyableValueError):
            return  # a value that cannot be pickled cannot be compared; a snapshot will name it

    def wrote(self, state: str, part: Any = None) -> None:
        """Notes a write of the program: it may have changed the value that it had got."""
        self._seen.pop((state, part), None)

    def wrote_all(self, state: str) -> None:
        """Notes a write of all places of a state."""
        self._seen = {place: seen for place, seen in self._seen.items() if place[0] != state}

    def check(self) -> None:
        """Raises StateMutationError for a changed value."""
        if not self._seen:
            return
        seen, self._seen = self._seen, {}
        for (state, part), (value, before) in seen.items():
            if pickle.dumps(value, 5) != before:
                place = f"state '{state}'" + ("" if part is None else f", entry {part}")
                raise StateMutationError(
                    f"operator '{self._operator_name}', {place}: user code changed the value of key"
                    f" {self.key!r} to {_short(value)} without writing the value back. Call update (or put)"
                    " with the value, or change a copy"
                )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "..."


class DebugBackend(KeyedStateBackend):
    """A backend whose handles watch the values that they return.

    It checks at the next key, and at the end of a chunk or checkpoint.
    """

    def __init__(self, backend: KeyedStateBackend, context: KeyedBackendContext) -> None:
        self._backend = backend
        self._watch = _Watch(context.operator_name)
        self._handles: dict[str, Any] = {}

    @property
    def wants_keys(self) -> bool:  # type: ignore[override]
        """See KeyedStateBackend; may change with each registered state."""
        return self._backend.wants_keys

    @property
    def reads_ahead(self) -> bool:  # type: ignore[override]
        """See KeyedStateBackend."""
        return self._backend.reads_ahead

    @property
    def keeps_access_times(self) -> bool:  # type: ignore[override]
        """True if the backend below lets state expire."""
        return self._backend.keeps_access_times

    @property
    def holds_all_in_memory(self) -> bool:  # type: ignore[override]
        """See KeyedStateBackend."""
        return self._backend.holds_all_in_memory

    @property
    def read_ahead_rows(self) -> int:
        """See KeyedStateBackend."""
        return self._backend.read_ahead_rows

    @property
    def current_key(self) -> Any:
        """See KeyedStateBackend; setting it ends the former record."""
        return self._backend.current_key

    @current_key.setter
    def current_key(self, key: Any) -> None:
        self._watch.check()
        self._backend.current_key = self._watch.key = key

    def value_state(self, descriptor: ValueStateDescriptor[Any]) -> ValueState[Any]:
        handle = self._backend.value_state(descriptor)
        return self._wrapped(descriptor.get_name(), lambda name: _WatchedValue(handle, self._watch, name))

    def list_state(self, descriptor: ListStateDescriptor[Any]) -> ListState[Any]:
        handle = self._backend.list_state(descriptor)
        return self._wrapped(descriptor.get_name(), lambda name: _WatchedList(handle, self._watch, name))

    def map_state(self, descriptor: MapStateDescriptor[Any, Any]) -> MapState[Any, Any]:
        handle = self._backend.map_state(descriptor)
        return self._wrapped(descriptor.get_name(), lambda name: _WatchedMap(handle, self._watch, name))

    def reducing_state(self, descriptor: ReducingStateDescriptor[Any]) -> ReducingState[Any]:
        handle = self._backend.reducing_state(descriptor)
        return self._wrapped(descriptor.get_name(), lambda name: _WatchedReducing(handle, self._watch, name))

    def aggregating_state(
        self, descriptor: AggregatingStateDescriptor[Any, Any, Any]
    ) -> AggregatingState[Any, Any]:
        # The result of get() belongs to the program.
        return self._backend.aggregating_state(descriptor)

    def _wrapped(self, name: str, make: Callable[[str], H]) -> H:
        if name not in self._handles:
            self._handles[name] = make(name)
        return cast(H, self._handles[name])

    def value_table(self, name: str, value_type: TypeInformation | None) -> Any:
        return self._backend.value_table(name, value_type)

    def window_tables(
        self,
        name: str,
        value_type: TypeInformation | None,
        form: WindowForm[Any],
        ttl_config: StateTtlConfig | None = None,
    ) -> Any:
        if ttl_config is None:
            return self._backend.window_tables(name, value_type, form)
        return self._backend.window_tables(name, value_type, form, ttl_config)

    def register_timers(self, name: str, section: TimerSection) -> None:
        self._backend.register_timers(name, section)

    def register_section(self, name: str, section: KeyedSection) -> None:
        self._backend.register_section(name, section)

    def state_keys(self, name: str) -> Iterable[Any]:
        return self._backend.state_keys(name)

    def prefetch(self, keys: Sequence[Any]) -> None:
        self._backend.prefetch(keys)

    def end_of_chunk(self) -> None:
        self._watch.check()
        self._backend.end_of_chunk()

    def announce_checkpoint(self, checkpoint_id: int) -> None:
        self._backend.announce_checkpoint(checkpoint_id)

    def snapshot(self, checkpoint_id: int, options: CheckpointOptions) -> PendingKeyedSnapshot:
        self._watch.check()
        return self._backend.snapshot(checkpoint_id, options)

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        self._backend.checkpoint_completed(checkpoint_id)

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._backend.checkpoint_aborted(checkpoint_id)

    @property
    def entries(self) -> int:
        return self._backend.entries

    def dispose(self) -> None:
        self._backend.dispose()


class _Watched(Generic[H]):
    """A handle, and who watches its values."""

    def __init__(self, handle: H, watch: _Watch, name: str) -> None:
        self._handle = handle
        self._watch = watch
        self._name = name


class _WatchedValue(_Watched[ValueState[Any]], ValueState[Any]):
    def value(self) -> Any:
        value = self._handle.value()
        self._watch.got(self._name, value)
        return value

    def update(self, value: Any) -> None:
        self._watch.wrote(self._name)
        self._handle.update(value)

    def clear(self) -> None:
        self._watch.wrote(self._name)
        self._handle.clear()


class _WatchedReducing(_Watched[ReducingState[Any]], ReducingState[Any]):
    def get(self) -> Any:
        value = self._handle.get()
        self._watch.got(self._name, value)
        return value

    def add(self, value: Any) -> None:
        self._watch.check()  # the function may change the value in place from now on
        self._handle.add(value)

    def clear(self) -> None:
        self._watch.wrote(self._name)
        self._handle.clear()


class _WatchedList(_Watched[ListState[Any]], ListState[Any]):
    """The list of get() is the program's; its elements are the state's."""

    def get(self) -> Iterable[Any]:
        values = list(self._handle.get())
        for position, value in enumerate(values):
            self._watch.got(self._name, value, position)
        return values

    def add(self, value: Any) -> None:
        self._handle.add(value)

    def add_all(self, values: list[Any]) -> None:
        self._handle.add_all(values)

    def update(self, values: list[Any]) -> None:
        self._watch.wrote_all(self._name)
        self._handle.update(values)

    def clear(self) -> None:
        self._watch.wrote_all(self._name)
        self._handle.clear()


class _WatchedMap(_Watched[MapState[Any, Any]], MapState[Any, Any]):
    def get(self, key: Any) -> Any:
        value = self._handle.get(key)
        self._watch.got(self._name, value, _part(key))
        return value

    def put(self, key: Any, value: Any) -> None:
        self._watch.wrote(self._name, _part(key))
        self._handle.put(key, value)

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self._watch.wrote(self._name, _part(key))
        self._handle.remove(key)

    def contains(self, key: Any) -> bool:
        return self._handle.contains(key)

    def items(self) -> Iterable[tuple[Any, Any]]:
        for key, value in self._handle.items():
            self._watch.got(self._name, value, _part(key))
            yield key, value

    def keys(self) -> Iterable[Any]:
        return self._handle.keys()

    def values(self) -> Iterable[Any]:
        return (value for _, value in self.items())

    def is_empty(self) -> bool:
        return self._handle.is_empty()

    def clear(self) -> None:
        self._watch.wrote_all(self._name)
        self._handle.clear()


def _part(key: Any) -> str:
    # As text: None means the whole value, and a Row cannot be hashed.
    return repr(key)
