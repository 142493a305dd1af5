"""State of a key and window, for triggers and window functions: handles over tables by window.

Owner: the task thread. A handle belongs to the window that its place names at the call, and to the current key. Lists
and maps are one value each. Must not know what triggers and functions keep.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.container.operators.window.window_contents import merged_accumulator
from yarrow.container.operators.window.window_values import WindowValues
from yarrow.container.state.backend import KeyedStateBackend
from yarrow.container.state.errors import StateConflictError
from yarrow.container.state.value_table import MISSING
from yarrow.datastream.functions import KeyedStateStore
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
    ValueState,
    ValueStateDescriptor,
)
from yarrow.datastream.state.folding import Aggregation
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.immutability import freeze_or_copy
from yarrow.runtime.data.map_keys import map_key, shown_as
from yarrow.runtime.data.window_forms import WindowForm


class WindowPlace(Protocol):
    """Names the window whose state is read and written."""

    @property
    def window(self) -> Any:
        """The window of the present call."""


class WindowCell:
    """One stored value a key and window: that of the current key and of the place's window."""

    def __init__(
        self,
        values: WindowValues[Any],
        backend: KeyedStateBackend,
        place: WindowPlace,
        merged: Callable[[Any, Any], Any] | None,
    ) -> None:
        """`merged` makes one value of those of two windows; None = the state cannot merge."""
        self.values = values
        self._backend = backend
        self._place = place
        self._merged = merged

    def get(self) -> Any:
        """The stored value, or MISSING."""
        return self.values.get(self._place.window, self._backend.current_key)

    def put(self, value: Any) -> None:
        """Stores a value; None removes it."""
        if value is None:
            self.clear()
        else:
            self.values.put(self._place.window, self._backend.current_key, value)

    def clear(self) -> None:
        """Removes the value."""
        self.values.remove(self._place.window, self._backend.current_key)

    def merge_from(self, windows: Iterable[Any], name: str) -> None:
        """Moves the values of merged windows into that of the place's window.

        Raises InvalidProgramError for a kind of state that cannot merge.
        """
        if self._merged is None:
            raise InvalidProgramError(
                f"merge_partitioned_state: the state '{name}' of two windows cannot become one; use a reducing,"
                " aggregating or list state"
            )
        for window in windows:
            taken = self.values.take(window, self._backend.current_key)
            if taken is not MISSING:
                own = self.get()
                self.put(taken if own is MISSING else self._merged(own, taken))


class _Handle(State):
    """The handle of a cell."""

    def __init__(self, cell: WindowCell) -> None:
        self.cell = cell

    def clear(self) -> None:
        self.cell.clear()


class ValueOfWindow(_Handle, ValueState[Any]):
    """A value state of a window."""

    def value(self) -> Any:
        found = self.cell.get()
        return None if found is MISSING else found

    def update(self, value: Any) -> None:
        self.cell.put(freeze_or_copy(value))


class ListOfWindow(_Handle, ListState[Any]):
    """A list state of a window."""

    def get(self) -> list[Any]:
        found = self.cell.get()
        return [] if found is MISSING else list(found)

    def add(self, value: Any) -> None:
        self.add_all([value])

    def add_all(self, values: list[Any]) -> None:
        self.update([*self.get(), *values])

    def update(self, values: list[Any]) -> None:
        self.cell.put(list(map(freeze_or_copy, values)) or None)


class MapOfWindow(_Handle, MapState[Any, Any]):
    """A map state of a window."""

    def __init__(self, cell: WindowCell, shown: Callable[[Any], Any]) -> None:
        """`shown` converts a stored key of the map to the program's form."""
        super().__init__(cell)
        self._shown = shown

    def _entries(self) -> Mapping[Any, Any]:
        found = self.cell.get()
        return {} if found is MISSING else found

    def get(self, key: Any) -> Any:
        return self._entries().get(map_key(key))

    def contains(self, key: Any) -> bool:
        return map_key(key) in self._entries()

    def items(self) -> Iterable[tuple[Any, Any]]:
        return [(self._shown(key), value) for key, value in self._entries().items()]

    def keys(self) -> Iterable[Any]:
        return list(map(self._shown, self._entries()))

    def values(self) -> Iterable[Any]:
        return list(self._entries().values())

    def is_empty(self) -> bool:
        return not self._entries()

    def put(self, key: Any, value: Any) -> None:
        self.put_all({key: value})

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        added = {map_key(key): freeze_or_copy(value) for key, value in dict_value.items()}
        self.cell.put({**self._entries(), **added} or None)

    def remove(self, key: Any) -> None:
        removed = map_key(key)
        self.cell.put({each: value for each, value in self._entries().items() if each != removed} or None)


class ReducedOfWindow(_Handle, ReducingState[Any]):
    """A reducing state of a window."""

    def __init__(self, cell: WindowCell, reduce: Callable[[Any, Any], Any]) -> None:
        super().__init__(cell)
        self._reduce = reduce

    def get(self) -> Any:
        found = self.cell.get()
        return None if found is MISSING else found

    def add(self, value: Any) -> None:
        value, found = freeze_or_copy(value), self.cell.get()
        self.cell.put(value if found is MISSING else self._reduce(found, value))


class AggregateOfWindow(_Handle, AggregatingState[Any, Any]):
    """An aggregating state of a window."""

    def __init__(self, cell: WindowCell, function: Aggregation[Any, Any, Any]) -> None:
        super().__init__(cell)
        self._function = function

    def get(self) -> Any:
        found = self.cell.get()
        return None if found is MISSING else self._function.get_result(found)

    def add(self, value: Any) -> None:
        found = self.cell.get()
        accumulator = self._function.create_accumulator() if found is MISSING else found
        self.cell.put(self._function.add(freeze_or_copy(value), accumulator))


H = TypeVar("H", bound=_Handle)

_log = logging.getLogger(__name__)


class WindowStates(KeyedStateStore):
    """The states of windows that a trigger or a window function has asked for, by name."""

    def __init__(
        self, backend: KeyedStateBackend, form: WindowForm[Any], prefix: str, place: WindowPlace
    ) -> None:
        """`prefix` keeps the names apart from those of other states of the operator."""
        self._backend = backend
        self._form = form
        self._prefix = prefix
        self._place = place
        self._handles: dict[str, tuple[type[StateDescriptor], _Handle]] = {}

    @property
    def values(self) -> list[WindowValues[Any]]:
        """The values of all states so far."""
        return [handle.cell.values for _, handle in self._handles.values()]

    def remove_all(self, window: Any) -> None:
        """Removes all states of a window for the current key."""
        for values in self.values:
            values.remove(window, self._backend.current_key)

    def get_state(self, state_descriptor: ValueStateDescriptor[Any]) -> ValueState[Any]:
        return self._handle(
            state_descriptor, lambda: ValueOfWindow(self._cell(state_descriptor, state_descriptor.type_info))
        )

    def get_list_state(self, state_descriptor: ListStateDescriptor[Any]) -> ListState[Any]:
        stored = Types.LIST(state_descriptor.elem_type_info)
        return self._handle(
            state_descriptor, lambda: ListOfWindow(self._cell(state_descriptor, stored, _joined))
        )

    def get_map_state(self, state_descriptor: MapStateDescriptor[Any, Any]) -> MapState[Any, Any]:
        keys = state_descriptor.key_type_info
        stored = Types.MAP(keys, state_descriptor.value_type_info)
        return self._handle(
            state_descriptor, lambda: MapOfWindow(self._cell(state_descriptor, stored), shown_as(keys))
        )

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor[Any]) -> ReducingState[Any]:
        reduce = state_descriptor.get_reduce_function().reduce
        return self._handle(
            state_descriptor,
            lambda: ReducedOfWindow(self._cell(state_descriptor, state_descriptor.type_info, reduce), reduce),
        )

    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor[Any, Any, Any]
    ) -> AggregatingState[Any, Any]:
        function = state_descriptor.get_agg_function()
        return self._handle(
            state_descriptor,
            lambda: AggregateOfWindow(
                self._cell(
                    state_descriptor, state_descriptor.type_info, partial(merged_accumulator, function)
                ),
                function,
            ),
        )

    def of_descriptor(self, descriptor: StateDescriptor) -> Any:
        """The handle of any state. Raises InvalidProgramError for something that describes none."""
        for kind, get in (
            (ValueStateDescriptor, self.get_state),
            (ReducingStateDescriptor, self.get_reducing_state),
            (ListStateDescriptor, self.get_list_state),
            (AggregatingStateDescriptor, self.get_aggregating_state),
            (MapStateDescriptor, self.get_map_state),
        ):
            if isinstance(descriptor, kind):
                getter: Callable[[Any], Any] = get
                return getter(descriptor)
        raise InvalidProgramError(f"get_partitioned_state takes a descriptor of a state, not {descriptor!r}")

    def _cell(
        self,
        descriptor: StateDescriptor,
        stored: TypeInformation,
        merged: Callable[[Any, Any], Any] | None = None,
    ) -> WindowCell:
        tables = self._backend.window_tables(self._prefix + descriptor.get_name(), stored, self._form)
        return WindowCell(WindowValues(tables), self._backend, self._place, merged)

    def _handle(self, descriptor: StateDescriptor, opened: Callable[[], H]) -> H:
        name, kind = descriptor.get_name(), type(descriptor)
        known = self._handles.get(name)
        if known is None:
            if descriptor.ttl_config is not None:
                _log.warning(
                    "the time to live of the state '%s' has no effect: a state of a window ends with the window. Use a"
                    " state of the key (global_state) for values that expire",
                    name,
                )
            known = self._handles[name] = kind, opened()
        if known[0] is not kind:
            raise StateConflictError(
                f"the state '{name}' of windows was asked for with a {known[0].__name__}, and now with a"
                f" {kind.__name__}; give each state a name of its own"
            )
        return cast(H, known[1])


def _joined(content: list[Any], other: list[Any]) -> list[Any]:
    return [*content, *other]
