"""TransformedOperatorState: a list, union list or broadcast map of an existing savepoint, changed as a table.

Owner: the calling thread. Such states are small: they are in memory several times. It must not know the operator's
other states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.state.operator_state import OperatorStateBackend
from yarrow.datastream.state import ListStateDescriptor, MapStateDescriptor, StateDescriptor
from yarrow.runtime.snapshot.handles import (
    NamedOperatorState,
    OperatorState,
    OperatorStateHandle,
    OperatorStateMode,
    SerializerConfig,
)
from yarrow.runtime.snapshot.output import SnapshotOutput
from yarrow.state_processor.errors import StateProcessorError
from yarrow.state_processor.operator_tables import OperatorStates, shape_of
from yarrow.state_processor.shapes import Shape, declared_shape
from yarrow.state_processor.table_cells import column_of, values_of
from yarrow.state_processor.transformed_state import changed_table, type_of, unchanged_values

_SUBTASK, _KEY, _VALUE = "subtask", "key", "value"


@dataclass(frozen=True, slots=True)
class TransformedOperatorState:
    """A change of one operator state."""

    name: str
    function: Callable[[pa.Table], pa.Table]
    descriptor: StateDescriptor | None

    def write(
        self, operator: OperatorState, states: OperatorStates, output: SnapshotOutput
    ) -> Iterator[tuple[int, OperatorStateHandle]]:
        """Reads, changes and writes the state: handles and the subtasks that hold them.

        Raises StateProcessorError, SnapshotError.
        """
        pieces = [state for _, handle in states.handles for state in handle.states if state.name == self.name]
        what = f"operator '{operator.name}', state '{self.name}'"
        for subtask, state in self._changed(pieces, operator, states, what).items():
            for handle in state.snapshot(1).write(output):
                yield subtask, handle

    def _changed(
        self, pieces: list[NamedOperatorState], operator: OperatorState, states: OperatorStates, what: str
    ) -> Mapping[int, OperatorStateBackend]:
        if pieces[0].mode is OperatorStateMode.BROADCAST:
            return {0: self._changed_map(pieces[0], operator.name, states, what)}
        return self._changed_list(pieces, operator, states, what)

    def _changed_map(
        self, piece: NamedOperatorState, operator: str, states: OperatorStates, what: str
    ) -> OperatorStateBackend:
        assert piece.map_key is not None
        descriptor = self.descriptor or MapStateDescriptor(
            self.name, type_of(piece.map_key), type_of(piece.value)
        )
        if not isinstance(descriptor, MapStateDescriptor):
            raise StateProcessorError(f"{what}: a broadcast state takes a MapStateDescriptor")
        entries = states.entries(self.name)
        table = changed_table(self.function, states.broadcast_table(self.name), what)
        keys = self._column(table, _KEY, piece.map_key, list(entries), descriptor.key_type_info, what)
        values = self._column(
            table, _VALUE, piece.value, list(entries.values()), descriptor.value_type_info, what
        )
        made = OperatorStateBackend(operator)
        made.broadcast_state(descriptor).put_all(dict(zip(keys, values, strict=True)))
        return made

    def _changed_list(
        self, pieces: list[NamedOperatorState], operator: OperatorState, states: OperatorStates, what: str
    ) -> Mapping[int, OperatorStateBackend]:
        descriptor = self.descriptor or ListStateDescriptor(self.name, type_of(pieces[0].value))
        if not isinstance(descriptor, ListStateDescriptor):
            raise StateProcessorError(f"{what}: a list of an operator takes a ListStateDescriptor")
        mode = pieces[0].mode
        elements = states.elements(self.name, mode)
        table = changed_table(self.function, states.list_table(self.name, mode), what)
        values = self._column(table, _VALUE, pieces[0].value, elements, descriptor.elem_type_info, what)
        made: dict[int, OperatorStateBackend] = {}
        for subtask, value in zip(_subtasks(table, operator.parallelism, what), values, strict=True):
            backend = made.setdefault(subtask, OperatorStateBackend(operator.name))
            is_union = mode is OperatorStateMode.UNION
            (backend.union_list_state if is_union else backend.list_state)(descriptor).add(value)
        return made

    def _column(
        self,
        table: pa.Table,
        name: str,
        config: SerializerConfig,
        found: list[Any],
        declared: TypeInformation,
        what: str,
    ) -> list[Any]:
        column = column_of(table, name, what)
        if self.descriptor is not None:
            return values_of(column, declared_shape(declared), declared, what)
        shape: Shape = shape_of([config], found)
        return unchanged_values(column, shape, what)


def _subtasks(table: pa.Table, parallelism: int, what: str) -> list[int]:
    """The subtask of each element: as the table says, else in equal runs."""
    if _SUBTASK not in table.column_names:
        return [number * parallelism // table.num_rows for number in range(table.num_rows)]
    subtasks: list[int] = table.column(_SUBTASK).to_pylist()
    wrong = [each for each in subtasks if each is None or not 0 <= each < parallelism]
    if wrong:
        raise StateProcessorError(
            f"{what}: the operator has the subtasks 0 to {parallelism - 1}, the table names {wrong[0]}"
        )
    return subtasks
