"""Operator states (lists, union lists, broadcast maps) as Arrow tables.

Owner: the calling thread. Such states are small: they are read at once. It must not know where they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.state.heap_operator_states import load_entries
from yarrow.runtime.data.map_keys import shown_map_keys
from yarrow.runtime.snapshot.handles import (
    NamedOperatorState,
    OperatorStateHandle,
    OperatorStateMode,
    SerializerConfig,
    StateHandle,
    StateKind,
    StateMetaInfo,
)
from yarrow.runtime.snapshot.value_serializers import declared_type, stored_serializer
from yarrow.state_processor.errors import StateProcessorError
from yarrow.state_processor.observed_types import ObservedTypes
from yarrow.state_processor.shapes import Shape, declared_shape
from yarrow.state_processor.stored_state import refuse_pickles

#: The name of a state of each mode, in messages and in the result of `states`.
KINDS = {
    OperatorStateMode.SPLIT: "list",
    OperatorStateMode.UNION: "union",
    OperatorStateMode.BROADCAST: "broadcast",
}


@dataclass(frozen=True, slots=True)
class OperatorStates:
    """The operator states of one operator."""

    operator: str
    #: With the subtask of each.
    handles: Sequence[tuple[int, OperatorStateHandle]]
    read: Callable[[StateHandle], bytes]
    trusted: bool

    def list_table(self, name: str, mode: OperatorStateMode) -> pa.Table:
        """Elements of a list or union list: subtask that held it, value."""
        subtasks: list[int] = []
        values: list[Any] = []
        configs: list[SerializerConfig] = []
        for subtask, handle, state in self._pieces(name, mode):
            self._check(state)
            serializer = stored_serializer(state.value, self.operator, name, trusted=self.trusted)
            data = self.read(handle.handle)
            found = [serializer.load_value(data[at : at + length]) for at, length in state.elements]
            configs.append(state.value)
            subtasks += [subtask] * len(found)
            values += found
        return pa.table(
            {"subtask": pa.array(subtasks, pa.int32()), "value": shape_of(configs, values).array(values)}
        )

    def elements(self, name: str, mode: OperatorStateMode) -> list[Any]:
        """The elements of a list as values."""
        values: list[Any] = []
        for _, handle, state in self._pieces(name, mode):
            self._check(state)
            serializer = stored_serializer(state.value, self.operator, name, trusted=self.trusted)
            data = self.read(handle.handle)
            values += [serializer.load_value(data[at : at + length]) for at, length in state.elements]
        return values

    def broadcast_table(self, name: str) -> pa.Table:
        """Entries of a broadcast map, which is alike in all subtasks: key, value."""
        entries = self.entries(name)
        _, _, state = self._pieces(name, OperatorStateMode.BROADCAST)[0]
        assert state.map_key is not None
        keys = shown_map_keys(list(entries), declared_type(state.map_key))
        return pa.table(
            {
                "key": shape_of([state.map_key], keys).array(keys),
                "value": shape_of([state.value], list(entries.values())).array(list(entries.values())),
            }
        )

    def entries(self, name: str) -> dict[Any, Any]:
        """The entries of a broadcast map as values; Rows among the keys in their form for dicts."""
        entries: dict[Any, Any] = {}
        _, handle, state = self._pieces(name, OperatorStateMode.BROADCAST)[0]
        assert state.map_key is not None
        self._check(state)
        keys = stored_serializer(state.map_key, self.operator, name, trusted=self.trusted)
        values = stored_serializer(state.value, self.operator, name, trusted=self.trusted)
        data = self.read(handle.handle)
        for at, length in state.elements:
            entries = load_entries(data[at : at + length], keys, values)
        return entries

    def _check(self, state: NamedOperatorState) -> None:
        if not self.trusted:
            refuse_pickles(described(state), self.operator)

    def _pieces(
        self, name: str, mode: OperatorStateMode
    ) -> list[tuple[int, OperatorStateHandle, NamedOperatorState]]:
        """The parts of a state. Raises StateProcessorError where it is not there, or of another mode."""
        found = [
            (subtask, handle, state)
            for subtask, handle in self.handles
            for state in handle.states
            if state.name == name
        ]
        for _, _, state in found:
            if state.mode is not mode:
                raise StateProcessorError(
                    f"operator '{self.operator}': operator state '{name}' is a {KINDS[state.mode]} state; read it with "
                    f"read_{KINDS[state.mode]}_state"
                )
        if not found:
            there = sorted({state.name for _, handle in self.handles for state in handle.states})
            raise StateProcessorError(
                f"operator '{self.operator}' has no operator state '{name}', only "
                f"{', '.join(map(repr, there)) or 'none'}"
            )
        return found


def described(state: NamedOperatorState) -> StateMetaInfo:
    """A state of an operator as keyed states are described."""
    return StateMetaInfo(name=state.name, kind=StateKind.LIST, value=state.value, map_key=state.map_key)


def shape_of(configs: Sequence[SerializerConfig], values: list[Any]) -> Shape:
    """The shape of values written with these configurations."""
    specs = {repr(config.type_spec): config.type_spec for config in configs}
    if len(specs) == 1:
        (spec,) = specs.values()
        found = None if spec is None else declared_shape(TypeInformation.from_spec(spec))
        if found is not None:
            return found
    observed = ObservedTypes()
    observed.observe_all(values)
    return observed.shape()
