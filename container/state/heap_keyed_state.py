"""HeapKeyedStateBackend: keyed state in plain dicts of the worker process (`state.backend.type: hashmap`).

Owner: the task thread. Each state has one HeapTable; handles and generated code work on its dicts. A snapshot
is a cut of each table. The snapshot thread writes it shard by shard (heap_snapshot), and returns each shard
by a mail to the task thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from yarrow.common.typeinfo import ListTypeInfo, TupleTypeInfo, TypeInformation, Types
from yarrow.container.state.backend import KeyedBackendContext
from yarrow.container.state.errors import StateBackendError
from yarrow.container.state.heap_sections import HeapSections
from yarrow.container.state.heap_snapshot import (
    FrozenState,
    FrozenStateByWindow,
    FrozenTable,
    HeapPendingSnapshot,
)
from yarrow.container.state.heap_states import (
    HeapAggregatingState,
    HeapListState,
    HeapMapState,
    HeapReducingState,
    HeapValueState,
)
from yarrow.container.state.heap_table import SWEPT_FLAT_LIMIT, HeapTable
from yarrow.container.state.registering_backend import NO_KEY, RegisteringBackend
from yarrow.container.state.state_registration import StateRegistration
from yarrow.container.state.ttl_sweep import TtlSweep, WindowTtlSweep
from yarrow.container.state.value_table import MISSING, ValueTable
from yarrow.container.state.window_tables import HeapWindowTables
from yarrow.datastream.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    MapState,
    ReducingState,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueState,
)
from yarrow.runtime.data.checkpoint_options import CheckpointOptions
from yarrow.runtime.data.immutability import copier_for, freeze_or_copy
from yarrow.runtime.data.key_groups import KeyGroupRange
from yarrow.runtime.data.map_keys import map_key, shown_as
from yarrow.runtime.data.window_forms import WindowForm
from yarrow.runtime.snapshot.handles import RocksDBSnapshot, StateKind
from yarrow.runtime.snapshot.restored_state import RestoredKeyedState

__all__ = ["NO_KEY", "HeapKeyedStateBackend"]

Copier = Callable[[Any], Any]


class HeapKeyedStateBackend(RegisteringBackend):
    """The keyed state of one operator's subtask on the heap."""

    holds_all_in_memory = True

    def __init__(self, context: KeyedBackendContext) -> None:
        restored = restored_state(context)
        super().__init__(context, restored, HeapSections(context, restored))
        self._tables: dict[str, HeapTable] = {}
        self._windows: dict[str, HeapWindowTables[Any]] = {}
        self._sweeps: list[TtlSweep | WindowTtlSweep] = []
        self._cuts = count(1)

    # ------------------------------------------------------------------ states

    def open_value(self, state: StateRegistration) -> ValueState[Any]:
        return HeapValueState(self, self._table(state), state.name, self._fix(state))

    def open_list(self, state: StateRegistration) -> ListState[Any]:
        return HeapListState(self, self._table(state), state.name, self._fix(state))

    def open_map(self, state: StateRegistration) -> MapState[Any, Any]:
        shown = shown_as(state.map_key_type)
        return HeapMapState(self, self._table(state), state.name, self._fix(state), shown)

    def open_reducing(
        self, state: StateRegistration, descriptor: ReducingStateDescriptor[Any]
    ) -> ReducingState[Any]:
        if state.ttl is not None:
            return super().open_reducing(state, descriptor)
        function = descriptor.get_reduce_function()
        return HeapReducingState(self, self._table(state), state.name, self._fix(state), function)

    def open_aggregating(
        self, state: StateRegistration, descriptor: AggregatingStateDescriptor[Any, Any, Any]
    ) -> AggregatingState[Any, Any]:
        if state.ttl is not None:
            return super().open_aggregating(state, descriptor)
        # Added values have another type than the accumulator, whose type says nothing about them.
        fix = None if self.context.object_reuse else freeze_or_copy
        return HeapAggregatingState(self, self._table(state), state.name, fix, descriptor.get_agg_function())

    def value_table(self, name: str, value_type: TypeInformation | None) -> ValueTable:
        return self._table(self.register(StateRegistration(name, StateKind.VALUE, value_type)))

    def window_tables(
        self,
        name: str,
        value_type: TypeInformation | None,
        form: WindowForm[Any],
        ttl_config: StateTtlConfig | None = None,
    ) -> HeapWindowTables[Any]:
        state = self._by_window(name, value_type, form, ttl_config)
        tables = self._windows.get(name)
        if tables is None:
            self._sections.refuse_name(name)
            stored = value_type
            if state.ttl is not None and value_type is not None:
                stored = Types.TUPLE([Types.LONG(), value_type])
            tables = self._windows[name] = HeapWindowTables(form, self._empty_table(stored, True))
            tables.restore((run.keys, run.values) for run in self.restored_runs(state))
            tables.ttl = state.ttl
            if state.ttl is not None and state.ttl.is_swept():
                self._sweeps.append(WindowTtlSweep(tables, state.ttl))
        return tables

    def _empty_table(
        self, value_type: TypeInformation | None, is_value: bool, flat_limit: int | None = None
    ) -> HeapTable:
        protect = protector_for(value_type)
        return HeapTable(protect, protect is None and is_value, flat_limit)

    def _table(self, state: StateRegistration) -> HeapTable:
        table = self._tables.get(state.name)
        if table is None:
            self._sections.refuse_name(state.name)
            is_value = state.kind not in (StateKind.LIST, StateKind.MAP)
            is_swept = state.ttl is not None and state.ttl.is_swept()
            flat_limit = SWEPT_FLAT_LIMIT if is_swept else None
            table = self._tables[state.name] = self._empty_table(state.value_type, is_value, flat_limit)
            self._fill(state, table)
            if state.ttl is not None and is_swept:
                self._sweeps.append(TtlSweep(table, state.kind, state.ttl))
        return table

    def _fill(self, state: StateRegistration, table: HeapTable) -> None:
        """Puts the restored content of a state into its table."""
        for run in self.restored_runs(state):
            if state.kind is StateKind.MAP:
                for key, content in zip(run.keys, run.values, strict=True):
                    # What was kept by window comes as several maps of a key.
                    key, shard, found = table.peek(key)
                    entries = shard[key] = {} if found is MISSING else found
                    entries.update((map_key(key), value) for key, value in content.items())
            else:
                for key, content in zip(run.keys, run.values, strict=True):
                    table.shard_of(key)[key] = content
            table.divide_if_large()

    def _fix(self, state: StateRegistration) -> Copier | None:
        return None if self.context.object_reuse else copier_for(state.value_type)

    def state_keys(self, name: str) -> Iterable[Any]:
        if name in self._windows:
            return set().union(*(table.keys() for _, table in self._windows[name].tables()))
        table = self._tables.get(name)
        return () if table is None else table.keys()

    # ------------------------------------------------------------------ life

    def end_of_chunk(self) -> None:
        for table in self._tables.values():
            table.end_of_chunk()
        for tables in self._windows.values():
            tables.end_of_chunk()
        for sweep in self._sweeps:
            sweep.advance()

    def snapshot(self, checkpoint_id: int, options: CheckpointOptions) -> HeapPendingSnapshot:
        cut = next(self._cuts)
        states = [
            FrozenState(self.registrations[name], [FrozenTable(table, table.cut(cut))])
            for name, table in self._tables.items()
        ]
        for name, tables in self._windows.items():
            windows = FrozenStateByWindow(tables.cut(cut), tables.stored)
            states.append(FrozenState(self.registrations[name], (), windows))
        sections = self._sections.freeze()
        carried = self._restored.carried(len(states) + len(sections))
        return HeapPendingSnapshot(self.context, cut, states, sections, carried)

    @property
    def entries(self) -> int:
        by_window = sum(tables.entries for tables in self._windows.values())
        return sum(table.entries for table in self._tables.values()) + by_window + self._sections.entries

    def dispose(self) -> None:
        self._tables.clear()
        self._windows.clear()
        self._sweeps.clear()


def protector_for(type_info: TypeInformation | None) -> Copier | None:
    """Copies content that a snapshot holds; None if the declared type proves that it cannot change.

    A list of immutable declared elements is copied without a look at each, and so are tuples of such lists.
    """
    if _is_list_of_immutable(type_info):
        return _copy_of_list
    if isinstance(type_info, TupleTypeInfo) and all(map(_is_list_of_immutable, type_info.get_field_types())):
        return _copy_of_lists
    return copier_for(type_info)


def _is_list_of_immutable(type_info: TypeInformation | None) -> bool:
    return isinstance(type_info, ListTypeInfo) and type_info.element_type.is_immutable


def _copy_of_lists(content: Any) -> Any:
    if type(content) is tuple:
        return tuple([_copy_of_list(each) for each in content])
    return freeze_or_copy(content)


def _copy_of_list(content: Any) -> Any:
    return content.copy() if type(content) is list else freeze_or_copy(content)


def restored_state(context: KeyedBackendContext) -> RestoredKeyedState:
    """The restored state. Raises StateBackendError for files of RocksDB."""
    for handle in context.restored:
        if (
            isinstance(handle, RocksDBSnapshot)
            and context.key_groups.intersection(KeyGroupRange(*handle.key_groups)).number_of_key_groups
        ):
            raise StateBackendError(
                f"operator '{context.operator_name}': the checkpoint to restore holds files of RocksDB, which"
                " the state backend 'hashmap' cannot read. Set state.backend.type: rocksdb as it was, or take"
                " a savepoint with it, which every backend restores"
            )
    return RestoredKeyedState(
        context.restored, context.key_groups, context.read, context.operator_name, trusted=context.trusted
    )
