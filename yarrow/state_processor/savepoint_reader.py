"""SavepointReader: the states of a savepoint or checkpoint as Arrow tables.

Owner: the calling thread; calls block. No cluster runs, and no state of a job is touched. Files are read,
verified, and copied into a temporary folder where they are mapped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import pyarrow as pa

from yarrow.common.typeinfo import TypeInformation
from yarrow.common.types import Row
from yarrow.runtime.snapshot.handles import (
    CheckpointMetadata,
    OperatorState,
    OperatorStateMode,
    SerializerConfig,
    StateKind,
)
from yarrow.runtime.snapshot.key_types import key_type_of
from yarrow.runtime.snapshot.value_serializers import holds_pickles
from yarrow.state_processor.errors import StateProcessorError
from yarrow.state_processor.functions import KeyedStateReaderFunction
from yarrow.state_processor.key_reader import read_keys
from yarrow.state_processor.keyed_tables import KeyedStateTable, TimersTable
from yarrow.state_processor.observed_types import ObservedTypes
from yarrow.state_processor.operator_identifier import OperatorIdentifier, find_operator
from yarrow.state_processor.operator_tables import KINDS, OperatorStates
from yarrow.state_processor.pickle_trust import PickleTrust
from yarrow.state_processor.stored_state import StoredState

#: Rows of a batch.
BATCH_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class OperatorInfo:
    """An operator of a savepoint, as the reader lists it."""

    name: str
    #: None if the program gave none: then `operator_id` identifies the operator.
    uid: str | None
    operator_id: str
    parallelism: int
    max_parallelism: int
    #: Bytes of all its state.
    size: int
    #: Names of the operator's states, keyed ones first.
    states: tuple[str, ...]
    #: The type of the operator's keys; None = not declared, of an older release, or not one type.
    key_type: TypeInformation | None = None


@dataclass(frozen=True, slots=True)
class StateInfo:
    """A state of an operator, as the reader lists it."""

    name: str
    #: value, list, map, reducing, aggregating, timers; of operator state: list, union, broadcast.
    kind: str
    keyed: bool
    #: The declared type of values or elements; None = undeclared.
    type: TypeInformation | None
    #: The type of the keys of a map or broadcast state.
    map_key_type: TypeInformation | None
    #: Whether values have the time of their last access.
    ttl: bool
    #: Keys with content; elements of operator state.
    entries: int
    #: Bytes as stored.
    size: int
    #: Whether reading needs trust_pickle.
    pickled: bool


class SavepointReader:
    """Reads one savepoint or checkpoint; use it as a context manager, or call `close`."""

    def __init__(self, stored: StoredState) -> None:
        self._stored = stored

    @staticmethod
    def read(
        path: str,
        *,
        trust_pickle: bool = False,
        working_directory: str | None = None,
        configuration: Mapping[str, str] | None = None,
    ) -> SavepointReader:
        """Opens a savepoint, a retained checkpoint or its `_metadata`, whatever backend wrote it.

        Pickled values are read only with `trust_pickle`, for unpickling runs code that is in the file; or where
        `configuration` names the `security.snapshot.secret-file` that sealed them. Copies of state files go to
        `working_directory` until `close`. Raises SnapshotError naming the path; UntrustedPickleError where there is a
        secret and pickles that it did not seal.
        """
        opened, trusted = PickleTrust.of(configuration).open(path, trust_pickle)
        return SavepointReader(StoredState(opened, working_directory, trusted=trusted))

    @property
    def metadata(self) -> CheckpointMetadata:
        """All metadata of the savepoint."""
        return self._stored.opened.metadata

    @property
    def path(self) -> str:
        """The savepoint's folder."""
        return self._stored.opened.directory

    # ------------------------------------------------------------------ contents

    def operators(self) -> list[OperatorInfo]:
        """The operators, in the order of the job."""
        return [_operator_info(state) for state in self.metadata.operators]

    def states(self, operator: OperatorIdentifier | str) -> list[StateInfo]:
        """The states of an operator; reads all of its keyed state to count entries."""
        state = self._operator(operator)
        return [*self._keyed_infos(state), *_operator_state_infos(state)]

    def _operator(self, identifier: OperatorIdentifier | str) -> OperatorState:
        return find_operator(self.metadata.operators, identifier, self.path)

    def _keyed_infos(self, operator: OperatorState) -> Iterator[StateInfo]:
        parts = self._stored.keyed_parts(operator)
        counted: dict[str, list[int]] = {}
        for part in parts:
            for meta in part.states:
                counted.setdefault(meta.name, [0, 0])
            for run in part.runs():
                of_state = counted[part.states[run.state].name]
                of_state[0] += run.entries
                of_state[1] += len(run.keys) + len(run.values)
        for name, (entries, size) in counted.items():
            metas = [meta for part in parts for meta in part.states if meta.name == name]
            meta = metas[0]
            yield StateInfo(
                name=name,
                kind=meta.kind.value,
                keyed=True,
                type=_type_of(meta.value),
                map_key_type=_type_of(meta.map_key),
                ttl=meta.ttl,
                entries=entries,
                size=size,
                pickled=any(_pickled(each.value) or _pickled(each.map_key) for each in metas),
            )

    # ------------------------------------------------------------------ keyed state

    def read_keyed_state(
        self,
        operator: OperatorIdentifier | str,
        state: str | KeyedStateReaderFunction[Any, Any],
    ) -> pa.Table:
        """A keyed state as a table, or the rows that a function makes of all states of each key.

        By name: columns `key` and `value` and, with time to live, `access_time`. The value is a list for list
        state, a map for map state, and the accumulator for aggregating state. Tables by window are maps of windows;
        a key has a row for each of its windows, or for some together. Rows of a function that are dicts, Rows with
        names, NamedTuples or instances of dataclasses become columns; others one column `value`.
        Raises StateProcessorError, UntrustedPickleError, CorruptSnapshotError, StateMigrationError.
        """
        if isinstance(state, str):
            schema, batches = self._batches(operator, state, BATCH_ROWS)
            return pa.Table.from_batches(batches, schema)
        return table_of_rows(list(self.read_keys(operator, state)))

    def iterate_keyed_state(
        self, operator: OperatorIdentifier | str, state: str, batch_rows: int = BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """The same table in batches, with no more than some of them in memory."""
        _, batches = self._batches(operator, state, batch_rows)
        return batches

    def _batches(
        self, identifier: OperatorIdentifier | str, name: str, rows: int
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        table = self.keyed_table(identifier, name)
        if table.meta.kind is StateKind.TIMERS:
            raise StateProcessorError(f"state '{name}' holds timers; read them with read_timers")
        return table.batches(rows)

    def keyed_table(self, identifier: OperatorIdentifier | str, name: str) -> KeyedStateTable:
        """A keyed state that can be read several times, by values or by batches."""
        operator = self._operator(identifier)
        parts = self._stored.keyed_parts(operator)
        return KeyedStateTable(operator.name, name, parts, trusted=self._stored.trusted)

    def read_keys(
        self, operator: OperatorIdentifier | str, function: KeyedStateReaderFunction[Any, Any]
    ) -> Iterator[Any]:
        """The results of a reader function, one after another."""
        state = self._operator(operator)
        return read_keys(
            state,
            self.metadata.job_id,
            self._stored.keyed_parts(state),
            function,
            trusted=self._stored.trusted,
        )

    def read_timers(self, operator: OperatorIdentifier | str) -> pa.Table:
        """All timers: `key`, `namespace` (null outside of windows), `timestamp` (ms), `domain`."""
        state = self._operator(operator)
        parts = self._stored.keyed_parts(state)
        return TimersTable(state.name, parts, trusted=self._stored.trusted).table()

    # ------------------------------------------------------------------ operator state

    def read_list_state(self, operator: OperatorIdentifier | str, name: str) -> pa.Table:
        """A list whose elements are dealt out among subtasks: `subtask` that held it, `value`."""
        return self._states_of(operator).list_table(name, OperatorStateMode.SPLIT)

    def read_union_state(self, operator: OperatorIdentifier | str, name: str) -> pa.Table:
        """A list of which every subtask gets all at restore: `subtask` that wrote it, `value`."""
        return self._states_of(operator).list_table(name, OperatorStateMode.UNION)

    def read_broadcast_state(self, operator: OperatorIdentifier | str, name: str) -> pa.Table:
        """A broadcast map: `key`, `value`."""
        return self._states_of(operator).broadcast_table(name)

    def _states_of(self, identifier: OperatorIdentifier | str) -> OperatorStates:
        operator = self._operator(identifier)
        return OperatorStates(
            operator.name,
            self._stored.operator_parts(operator),
            self._stored.reader_of(operator),
            self._stored.trusted,
        )

    # ------------------------------------------------------------------ end

    def close(self) -> None:
        """Removes the temporary copies; tables that were read stay."""
        self._stored.close()

    def __enter__(self) -> SavepointReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def table_of_rows(rows: list[Any]) -> pa.Table:
    """A table of rows of any one shape."""
    rows = [row.as_dict() if isinstance(row, Row) and row.get_field_names() else row for row in rows]
    if rows and all(isinstance(row, Mapping) for row in rows):
        names = list(dict.fromkeys(name for row in rows for name in row))
        columns = {str(name): _array([row.get(name) for row in rows]) for name in names}
        return pa.table(columns)
    array = _array(rows)
    if pa.types.is_struct(array.type):
        return pa.Table.from_struct_array(array)
    return pa.table({"value": array})


def _array(values: list[Any]) -> pa.Array:
    observed = ObservedTypes()
    observed.observe_all(values)
    return observed.shape().array(values)


def _operator_info(state: OperatorState) -> OperatorInfo:
    names: dict[str, None] = {}
    for _, subtask in sorted(state.subtasks.items()):
        for keyed in subtask.keyed:
            names.update(dict.fromkeys(meta.name for meta in keyed.states))
    for _, subtask in sorted(state.subtasks.items()):
        for handle in subtask.operator:
            names.update(dict.fromkeys(named.name for named in handle.states))
    size = sum(subtask.state_size for subtask in state.subtasks.values())
    return OperatorInfo(
        name=state.name,
        uid=state.uid,
        operator_id=state.operator_id,
        parallelism=state.parallelism,
        max_parallelism=state.max_parallelism,
        size=size + (0 if state.coordinator is None else state.coordinator.size),
        states=tuple(names),
        key_type=_key_type(state),
    )


def _key_type(state: OperatorState) -> TypeInformation | None:
    keyed = (handle for subtask in state.subtasks.values() for handle in subtask.keyed)
    found = {key_type_of(handle.key_type) for handle in keyed}
    return found.pop() if len(found) == 1 else None


def _operator_state_infos(operator: OperatorState) -> Iterator[StateInfo]:
    found: dict[str, StateInfo] = {}
    for _, subtask in sorted(operator.subtasks.items()):
        for handle in subtask.operator:
            for named in handle.states:
                before = found.get(named.name)
                found[named.name] = StateInfo(
                    name=named.name,
                    kind=KINDS[named.mode],
                    keyed=False,
                    type=_type_of(named.value),
                    map_key_type=_type_of(named.map_key),
                    ttl=False,
                    entries=len(named.elements) + (0 if before is None else before.entries),
                    size=sum(length for _, length in named.elements) + (0 if before is None else before.size),
                    pickled=_pickled(named.value)
                    or _pickled(named.map_key)
                    or (before is not None and before.pickled),
                )
    yield from found.values()


def _type_of(config: SerializerConfig | None) -> TypeInformation | None:
    if config is None or config.type_spec is None:
        return None
    return TypeInformation.from_spec(config.type_spec)


def _pickled(config: SerializerConfig | None) -> bool:
    return config is not None and holds_pickles(config)
