"""State of a key and window, for triggers and window functions: handles over tables by window.

Owner: the task thread. A handle belongs to the window that its place names at the call, and to the current key. Lists
and maps are one value each. Must not know what triggers and functions keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, cast

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.container.operators.window.window_contents import merged_accumulator
from yarrow.container.operators.window.window_values import (
    ELEMENTS,
    ENTRIES,
    Elements,
    ExpiringCell,
    Merged,
    StampedCell,
    WindowCell,
    WindowPlace,
    WindowValues,
    move_elements,
)
from yarrow.container.state.backend import KeyedStateBackend
from yarrow.container.state.errors import StateConflictError
from yarrow.container.state.ttl import TtlListState, TtlMapState
from yarrow.container.state.value_table import MISSING
from yarrow.container.state.window_tables import WindowTables
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
    StateTtlConfig,
    ValueState,
    ValueStateDescriptor,
)
from yarrow.datastream.state.folding import Aggregation
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.immutability import freeze_or_copy
from yarrow.runtime.data.map_keys import map_key, shown_as
from yarrow.runtime.data.window_forms import WindowForm


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
        value, found = freeze_or_copy(value), self.cell.living()
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
        found = self.cell.living()
        accumulator = self._function.create_accumulator() if found is MISSING else found
        self.cell.put(self._function.add(freeze_or_copy(value), accumulator))


H = TypeVar("H", bound=State)

#: Ends the name of a state whose elements or entries bear times of their own.
STAMPED: Final = "/stamped"


class _Kept(NamedTuple):
    """A state that was asked for."""

    kind: type[StateDescriptor]
    ttl_config: StateTtlConfig | None
    handle: State
    cell: WindowCell


class WindowStates(KeyedStateStore):
    """The states of windows that a trigger or a window function has asked for, by name."""

    def __init__(
        self,
        backend: KeyedStateBackend,
        form: WindowForm[Any],
        prefix: str,
        place: WindowPlace,
        restored: Set[str],
        on_first_use: Callable[[WindowValues[Any]], None] | None = None,
    ) -> None:
        """`prefix` keeps the names apart from those of other states of the operator.

        `restored`: names of the keyed states with which the operator begins. `on_first_use` hears of the values of a
        state that is asked for first, before they are read.
        """
        self._backend = backend
        self._form = form
        self._prefix = prefix
        self._place = place
        self._restored = restored
        self._kept: dict[str, _Kept] = {}
        self._on_first_use = on_first_use

    @property
    def values(self) -> list[WindowValues[Any]]:
        """The values of all states so far."""
        return [kept.cell.values for kept in self._kept.values()]

    def remove_all(self, window: Any) -> None:
        """Removes all states of a window for the current key."""
        for values in self.values:
            values.remove(window, self._backend.current_key)

    def get_state(self, state_descriptor: ValueStateDescriptor[Any]) -> ValueState[Any]:
        def opened() -> tuple[ValueOfWindow, WindowCell]:
            cell = self._cell(state_descriptor, state_descriptor.type_info)
            return ValueOfWindow(cell), cell

        return self._handle(state_descriptor, opened)

    def get_list_state(self, state_descriptor: ListStateDescriptor[Any]) -> ListState[Any]:
        def opened() -> tuple[ListState[Any], WindowCell]:
            cell = self._cell_of_elements(
                state_descriptor, state_descriptor.elem_type_info, Types.LIST, ELEMENTS, _joined
            )
            handle, ttl = ListOfWindow(cell), cell.values.tables.ttl
            return handle if ttl is None else TtlListState(handle, ttl), cell

        return self._handle(state_descriptor, opened)

    def get_map_state(self, state_descriptor: MapStateDescriptor[Any, Any]) -> MapState[Any, Any]:
        keys = state_descriptor.key_type_info

        def opened() -> tuple[MapState[Any, Any], WindowCell]:
            cell = self._cell_of_elements(
                state_descriptor, state_descriptor.value_type_info, partial(Types.MAP, keys), ENTRIES
            )
            handle, ttl = MapOfWindow(cell, shown_as(keys)), cell.values.tables.ttl
            return handle if ttl is None else TtlMapState(handle, ttl), cell

        return self._handle(state_descriptor, opened)

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor[Any]) -> ReducingState[Any]:
        reduce = state_descriptor.get_reduce_function().reduce

        def opened() -> tuple[ReducedOfWindow, WindowCell]:
            cell = self._cell(state_descriptor, state_descriptor.type_info, reduce)
            return ReducedOfWindow(cell, reduce), cell

        return self._handle(state_descriptor, opened)

    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor[Any, Any, Any]
    ) -> AggregatingState[Any, Any]:
        function = state_descriptor.get_agg_function()

        def opened() -> tuple[AggregateOfWindow, WindowCell]:
            merged = partial(merged_accumulator, function)
            cell = self._cell(state_descriptor, state_descriptor.type_info, merged)
            return AggregateOfWindow(cell, function), cell

        return self._handle(state_descriptor, opened)

    def merge(self, descriptor: StateDescriptor, windows: Iterable[Any]) -> None:
        """Moves a state of merged windows into that of the place's window.

        Raises InvalidProgramError for a kind of state that cannot merge.
        """
        self.of_descriptor(descriptor)
        name = descriptor.get_name()
        self._kept[name].cell.merge_from(windows, name)

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

    def _tables(self, descriptor: StateDescriptor, suffix: str, stored: TypeInformation) -> WindowTables[Any]:
        name, config = self._prefix + descriptor.get_name() + suffix, descriptor.ttl_config
        if config is None:
            tables: WindowTables[Any] = self._backend.window_tables(name, stored, self._form)
        else:
            tables = self._backend.window_tables(name, stored, self._form, config)
        return tables

    def _cell(
        self, descriptor: StateDescriptor, stored: TypeInformation, merged: Merged | None = None
    ) -> WindowCell:
        """The cell of one value, which expires as a whole."""
        tables = self._tables(descriptor, "", stored)
        values = WindowValues(tables)
        if tables.ttl is None:
            return WindowCell(values, self._backend, self._place, merged)
        return ExpiringCell(values, self._backend, self._place, merged, tables.ttl)

    def _cell_of_elements(
        self,
        descriptor: StateDescriptor,
        element: TypeInformation,
        of_elements: Callable[[TypeInformation], TypeInformation],
        elements: Elements,
        merged: Merged | None = None,
    ) -> WindowCell:
        """The cell of a list or a map, whose elements or entries expire one by one.

        `of_elements` makes the type of the whole. A restored state that had no time to live, or has one no more, moves
        to the name and form that it now has.
        """
        plain, stamped = of_elements(element), of_elements(Types.TUPLE([Types.LONG(), element]))
        expires = descriptor.ttl_config is not None and self._backend.keeps_access_times
        tables = self._tables(descriptor, STAMPED, stamped) if expires else None
        name = self._prefix + descriptor.get_name()
        if tables is None:
            tables = self._backend.window_tables(name, plain, self._form)
            cell = WindowCell(WindowValues(tables), self._backend, self._place, merged)
            other, other_type = name + STAMPED, stamped
        else:
            assert tables.ttl is not None
            cell = StampedCell(WindowValues(tables), self._backend, self._place, merged, elements)
            other, other_type = name, plain
        if other in self._restored:
            former = self._backend.window_tables(other, other_type, self._form)
            move_elements(former, cell.values, elements)
        return cell

    def _handle(self, descriptor: StateDescriptor, opened: Callable[[], tuple[H, WindowCell]]) -> H:
        name, kind, config = descriptor.get_name(), type(descriptor), descriptor.ttl_config
        known = self._kept.get(name)
        if known is None:
            known = self._kept[name] = _Kept(kind, config, *opened())
            if self._on_first_use is not None:
                self._on_first_use(known.cell.values)
        if known.kind is not kind:
            raise StateConflictError(
                f"the state '{name}' of windows was asked for with a {known.kind.__name__}, and now with a"
                f" {kind.__name__}; give each state a name of its own"
            )
        if known.ttl_config != config:
            raise StateConflictError(
                f"the state '{name}' of windows was asked for before with another time to live; give each state a"
                " name of its own"
            )
        return cast(H, known.handle)


def _joined(content: list[Any], other: list[Any]) -> list[Any]:
    return [*content, *other]
