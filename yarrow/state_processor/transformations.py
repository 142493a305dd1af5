"""OperatorTransformation: the state of a new operator, made from a table or any rows.

`OperatorTransformation.bootstrap_with(rows)` begins one; `SavepointWriter.with_operator` takes the result of
its methods. Owner: the calling thread; nothing is computed before a savepoint is written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from msgspec import structs

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.codegen.user_functions import close_function, open_function
from yarrow.container.operators.checkpointed import InitializationContext, SnapshotContext
from yarrow.container.operators.process.process_function import PROCESSING_TIMERS
from yarrow.container.operators.runtime_context import OperatorRuntimeContext
from yarrow.container.state.operator_state import OperatorStateBackend
from yarrow.container.state.timers import TimerQueue
from yarrow.datastream.data_stream import DataStream
from yarrow.datastream.functions import KeySelector
from yarrow.datastream.program.arrow_schemas import type_of_values
from yarrow.datastream.program.graph_builder import declared
from yarrow.datastream.state import BroadcastState, ListStateDescriptor, MapStateDescriptor, StateDescriptor
from yarrow.runtime.common.ids import JobID, OperatorID
from yarrow.runtime.snapshot.handles import OperatorStateHandle, OperatorSubtaskState, StateKind
from yarrow.runtime.snapshot.key_types import KeyEvidence
from yarrow.runtime.snapshot.output import SnapshotOutput
from yarrow.runtime.snapshot.writing.savepoint_folder import ForeignFiles
from yarrow.state_processor.bootstrapping import Bootstrapping, note_timers
from yarrow.state_processor.errors import StateProcessorError
from yarrow.state_processor.functions import (
    BroadcastStateBootstrapFunction,
    KeyedStateBootstrapFunction,
    StateBootstrapFunction,
)
from yarrow.state_processor.keyed_writing import KeyedContents, KeyedTarget, write_state, write_timers
from yarrow.state_processor.savepoint_environment import SavepointEnvironment
from yarrow.state_processor.shapes import declared_shape
from yarrow.state_processor.subtasks import operator_context
from yarrow.state_processor.table_cells import (
    access_times_of,
    column_of,
    contents_of,
    field_of,
    keys_of,
    rows_of,
    values_of,
)

#: Rows that are pushed at once.
_BATCH: Final = 1000
#: A column of a table or field of a row, or a function of a row.
Selector = str | Callable[[Any], Any] | KeySelector[Any, Any]


@dataclass(frozen=True, slots=True)
class NewOperator:
    """The operator whose state is made."""

    operator_id: OperatorID
    name: str
    max_parallelism: int
    job_id: JobID
    output: SnapshotOutput
    #: The place of files that other processes write.
    foreign_files: Callable[[], ForeignFiles]
    configuration: Mapping[str, str] = field(default_factory=dict)


class StateBootstrapTransformation(ABC):
    """Some of an operator's state, to be computed."""

    @abstractmethod
    def write(self, operator: NewOperator) -> OperatorSubtaskState:
        """Computes and writes it. Raises StateProcessorError, StateSerializationError, FragmentFailedError."""


class OperatorTransformation:
    """The beginning of transformations."""

    @staticmethod
    def bootstrap_with(rows: pa.Table | Iterable[Any]) -> OneInputStateTransformation:
        """Begin state made of a table, whose rows functions see as Rows, or of any rows (read by `write`)."""
        return OneInputStateTransformation(rows)


@dataclass(frozen=True, slots=True)
class OneInputStateTransformation:
    """Rows, and the ways to make state of them."""

    rows: pa.Table | Iterable[Any]

    def key_by(
        self, key_selector: Selector, key_type: TypeInformation | None = None
    ) -> KeyedStateTransformation:
        """Make keyed state, by a column or field, or a function of rows.

        `key_type` is what the job declares; without it, that of the column counts.
        """
        return KeyedStateTransformation(self.rows, key_selector, key_type)

    def transform(
        self, function: StateBootstrapFunction[Any] | BroadcastStateBootstrapFunction[Any]
    ) -> StateBootstrapTransformation:
        """Operator state, by a function."""
        return _OperatorFunction(self.rows, function)

    def to_list_state(
        self, descriptor: ListStateDescriptor[Any], value: str = "value"
    ) -> StateBootstrapTransformation:
        """A list that is dealt out among subtasks; of a table, the column `value`."""
        return _OperatorValues(self.rows, descriptor, value, union=False)

    def to_union_state(
        self, descriptor: ListStateDescriptor[Any], value: str = "value"
    ) -> StateBootstrapTransformation:
        """A list of which every subtask gets all."""
        return _OperatorValues(self.rows, descriptor, value, union=True)

    def to_broadcast_state(
        self, descriptor: MapStateDescriptor[Any, Any], key: str = "key", value: str = "value"
    ) -> StateBootstrapTransformation:
        """A broadcast map, of two columns or of pairs."""
        return _BroadcastEntries(self.rows, descriptor, key, value)


@dataclass(frozen=True, slots=True)
class KeyedStateTransformation:
    """Rows with keys."""

    rows: pa.Table | Iterable[Any]
    key_selector: Selector
    key_type: TypeInformation | None

    def known_key_type(self) -> TypeInformation | None:
        """The declared type, or the type of the table's column; None if neither is known."""
        known, rows, selector = declared(self.key_type), self.rows, self.key_selector
        if known is not None or not isinstance(rows, pa.Table) or selector not in rows.column_names:
            return known
        return type_of_values(rows.schema.field(selector).type)

    def transform(self, function: KeyedStateBootstrapFunction[Any, Any]) -> StateBootstrapTransformation:
        """Keyed state and timers, by a function that the operator of a job runs."""
        return _KeyedFunction(self, function)

    def to_state(
        self,
        descriptor: StateDescriptor,
        value: str | Callable[[Any], Any] = "value",
        access_time: str | None = None,
    ) -> StateBootstrapTransformation:
        """Make one state by its descriptor, from a column, field or function of rows.

        The value is a list for list state, a dict for map state, the reduced value for reducing state, and
        the accumulator for aggregating state. `access_time` is a column like that of read_keyed_state. With a
        time to live it is the time of the last access; the default is now.
        """
        return _KeyedValues(self, KeyedTarget.of(descriptor), value, access_time)


def as_rows(rows: pa.Table | Iterable[Any]) -> Iterable[Any]:
    """The rows as functions see them."""
    return rows_of(rows) if isinstance(rows, pa.Table) else rows


def selector_of(selector: Selector) -> Callable[[Any], Any]:
    """The selector as a function of rows."""
    if isinstance(selector, str):
        return lambda row: field_of(row, selector)
    if isinstance(selector, KeySelector):
        return selector.get_key
    return selector


# ---------------------------------------------------------------------- keyed state


@dataclass(frozen=True, slots=True)
class _KeyedValues(StateBootstrapTransformation):
    keyed: KeyedStateTransformation
    target: KeyedTarget
    value: str | Callable[[Any], Any]
    access_time: str | None

    def write(self, operator: NewOperator) -> OperatorSubtaskState:
        contents = KeyedContents(self.target, operator.name)
        for key, value, accessed in self._entries(operator):
            contents.add(key, value, accessed)
        handle = write_state(
            self.target,
            operator.name,
            contents.by_key,
            operator.max_parallelism,
            operator.output,
            KeyEvidence(self.keyed.known_key_type()),
        )
        return OperatorSubtaskState(keyed=(handle,))

    def _entries(self, operator: NewOperator) -> Iterator[tuple[Any, Any, Any]]:
        rows, selector = self.keyed.rows, self.keyed.key_selector
        if isinstance(rows, pa.Table) and isinstance(selector, str) and isinstance(self.value, str):
            yield from self._columns(rows, selector, self.value, operator)
            return
        key_of, value_of = selector_of(selector), selector_of(self.value)
        for row in as_rows(rows):
            value = value_of(row)
            if self.target.kind is StateKind.LIST and value is not None:
                value = list(value)
            accessed = None if self.access_time is None else field_of(row, self.access_time)
            yield key_of(row), value, accessed

    def _columns(
        self, table: pa.Table, key: str, value: str, operator: NewOperator
    ) -> Iterator[tuple[Any, Any, Any]]:
        what = f"operator '{operator.name}', state '{self.target.name}'"
        keys = keys_of(column_of(table, key, what), what)
        values = contents_of(column_of(table, value, what), self.target, what)
        accessed: list[Any] = [None] * len(keys)
        if self.access_time is not None:
            map_key = None if self.target.map_key_type is None else declared_shape(self.target.map_key_type)
            accessed = access_times_of(column_of(table, self.access_time, what), self.target.kind, map_key)
        yield from zip(keys, values, accessed, strict=True)


@dataclass(frozen=True, slots=True)
class _KeyedFunction(StateBootstrapTransformation):
    keyed: KeyedStateTransformation
    function: KeyedStateBootstrapFunction[Any, Any]

    def write(self, operator: NewOperator) -> OperatorSubtaskState:
        selector = selector_of(self.keyed.key_selector)
        key_type, function = self.keyed.known_key_type(), Bootstrapping(self.function)

        def fragment(rows: DataStream) -> DataStream:
            processed = rows.key_by(selector, key_type).process(function)
            return processed.name(operator.name).set_uid_hash(operator.operator_id)

        environment = SavepointEnvironment(
            fragment,
            max_parallelism=operator.max_parallelism,
            configuration=operator.configuration,
        )
        rows, timers = iter(as_rows(self.keyed.rows)), TimerQueue()
        with environment:
            while batch := list(islice(rows, _BATCH)):
                environment.push(batch)
                note_timers(environment.take(), timers)
            states = environment.snapshot(operator.output)
        state = states.get(operator.operator_id, OperatorSubtaskState())
        if not timers:
            return state
        written = write_timers(
            PROCESSING_TIMERS,
            timers.snapshot_timers(),
            operator.max_parallelism,
            operator.output,
            KeyEvidence(self.keyed.known_key_type()),
        )
        return structs.replace(state, keyed=(*state.keyed, written))


# ---------------------------------------------------------------------- operator state


def _written(states: OperatorStateBackend, operator: NewOperator) -> OperatorSubtaskState:
    handles: tuple[OperatorStateHandle, ...] = states.snapshot(1).write(operator.output)
    return OperatorSubtaskState(operator=handles)


@dataclass(frozen=True, slots=True)
class _OperatorValues(StateBootstrapTransformation):
    rows: pa.Table | Iterable[Any]
    descriptor: ListStateDescriptor[Any]
    value: str
    union: bool

    def write(self, operator: NewOperator) -> OperatorSubtaskState:
        states = OperatorStateBackend(operator.name)
        state = states.union_list_state(self.descriptor) if self.union else states.list_state(self.descriptor)
        if isinstance(self.rows, pa.Table):
            what = f"operator '{operator.name}', state '{self.descriptor.get_name()}'"
            declared = self.descriptor.elem_type_info
            column = column_of(self.rows, self.value, what)
            state.add_all(values_of(column, declared_shape(declared), declared, what))
        else:
            state.add_all(list(self.rows))
        return _written(states, operator)


@dataclass(frozen=True, slots=True)
class _BroadcastEntries(StateBootstrapTransformation):
    rows: pa.Table | Iterable[Any]
    descriptor: MapStateDescriptor[Any, Any]
    key: str
    value: str

    def write(self, operator: NewOperator) -> OperatorSubtaskState:
        states = OperatorStateBackend(operator.name)
        state = states.broadcast_state(self.descriptor)
        if isinstance(self.rows, pa.Table):
            what = f"operator '{operator.name}', state '{self.descriptor.get_name()}'"
            types = (self.descriptor.key_type_info, self.descriptor.value_type_info)
            columns = [
                values_of(column_of(self.rows, name, what), declared_shape(declared), declared, what)
                for name, declared in zip((self.key, self.value), types, strict=True)
            ]
            state.put_all(dict(zip(*columns, strict=True)))
        else:
            state.put_all(dict(self.rows))
        return _written(states, operator)


class _BroadcastContext(BroadcastStateBootstrapFunction.Context):
    def __init__(self, states: OperatorStateBackend) -> None:
        self._states = states

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor[Any, Any]) -> BroadcastState[Any, Any]:
        return self._states.broadcast_state(state_descriptor)


@dataclass(frozen=True, slots=True)
class _OperatorFunction(StateBootstrapTransformation):
    rows: pa.Table | Iterable[Any]
    function: StateBootstrapFunction[Any] | BroadcastStateBootstrapFunction[Any]

    def write(self, operator: NewOperator) -> OperatorSubtaskState:
        with operator_context(
            operator.operator_id,
            operator.name,
            operator.job_id,
            max_parallelism=operator.max_parallelism,
        ) as context:
            states, function = context.operator_state, self.function
            if isinstance(function, StateBootstrapFunction):
                function.initialize_state(InitializationContext(context, None))
                for row in as_rows(self.rows):
                    function.process_element(row)
                function.snapshot_state(SnapshotContext(1))
            elif isinstance(function, BroadcastStateBootstrapFunction):
                open_function(function, OperatorRuntimeContext(context, keyed=False))
                try:
                    broadcast = _BroadcastContext(states)
                    for row in as_rows(self.rows):
                        function.process_element(row, broadcast)
                finally:
                    close_function(function)
            else:
                raise StateProcessorError(
                    f"operator '{operator.name}': {function!r} makes keyed state; call key_by before transform"
                )
            return _written(states, operator)
