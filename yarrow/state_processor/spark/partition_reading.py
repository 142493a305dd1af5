"""The task that reads a partition of a table: its files and key groups, and of its columns those that are wanted.

Owner: a task's thread. Files are copied into a temporary folder, verified on the way, and mapped. Knows nothing of
Spark.
"""

from __future__ import annotations

import contextlib
import shutil
import struct
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from yarrow.common.typeinfo import TypeInformation
from yarrow.runtime.data.key_groups import KeyGroupRange
from yarrow.runtime.data.keys import user_key
from yarrow.runtime.data.map_keys import declared_map_key, shown_as, shown_map_keys
from yarrow.runtime.data.serializers.arrow_columns import has_columns, load_column
from yarrow.runtime.snapshot.errors import SnapshotFormatError
from yarrow.runtime.snapshot.handles import KeyGroupsSnapshot, OperatorStateHandle, StateKind
from yarrow.runtime.snapshot.key_columns import INT64, load_keys
from yarrow.runtime.snapshot.key_group_form import (
    KINDS_OF_ONE_VALUE,
    EncodedRun,
    Run,
    StateForm,
    encoded_runs,
    load_contents,
    parts_of_contents,
)
from yarrow.runtime.snapshot.value_serializers import declared_type
from yarrow.state_processor.errors import StateProcessorError
from yarrow.state_processor.keyed_tables import (
    ACCESS_TIME,
    DOMAIN,
    KEY,
    NAMESPACE,
    TIMESTAMP,
    VALUE,
    domain_of,
    part_of,
)
from yarrow.state_processor.observed_types import ObservedTypes
from yarrow.state_processor.operator_tables import OperatorStates
from yarrow.state_processor.spark.cells_by_type import cells
from yarrow.state_processor.spark.state_tables import (
    MAP_KEY,
    SUBTASK,
    TableKind,
    TablePartition,
    is_of_table,
    mode_of,
)
from yarrow.state_processor.stored_state import LocalCopies, form_of, runs_of_database

T = TypeVar("T")
#: Rows of a batch, at least, but for the last one and for batches of large values.
_ROWS: Final = 10_000
#: Bytes above which runs are not put together.
_BYTES: Final = 32 << 20
#: Of a key of 64 bits.
_KEY_BYTES: Final = 8


def read_partition(partition: TablePartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a partition, of the columns of `schema` and of no others.

    Raises StateProcessorError for values that are no cells of their column, and the errors of SavepointReader.
    """
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for piece in _pieces(partition):
        arrays = [piece.array(field.name, field.type, partition.what) for field in schema]
        # A batch needs its rows even where none of its columns is wanted.
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema) if arrays else _bare(piece.rows)
        if waiting and size + batch.nbytes > _BYTES:
            yield _joined(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows, size = rows + piece.rows, size + batch.nbytes
        if rows >= _ROWS:
            yield _joined(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _joined(waiting)


def _bare(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def observe_partition(partition: TablePartition, parts: Collection[str]) -> dict[str, ObservedTypes]:
    """What the values of these parts of a table are: all are looked at."""
    found = {part: ObservedTypes() for part in parts}
    for piece in _pieces(partition):
        for part, seen in found.items():
            seen.observe_all(piece.observed(part))
    return found


class _Piece:
    """Some rows; values of a column are made when they are asked for."""

    def __init__(self, rows: int, columns: dict[str, Callable[[], list[Any]]]) -> None:
        self.rows = rows
        self._columns = columns

    def values(self, column: str, what: str) -> list[Any]:
        """The values of a column. Raises StateProcessorError where the table has no such column."""
        found = self._columns.get(column)
        if found is None:
            raise StateProcessorError(f"{what}: has no column '{column}', only {list(self._columns)}")
        return found()

    def array(self, column: str, kind: pa.DataType, what: str) -> pa.Array:
        """A column of that type."""
        return cells(self.values(column, what), kind, f"{what}, column '{column}'")

    def observed(self, part: str) -> list[Any]:
        """The values of a part of the table."""
        return self._columns[part]()


def _pieces(partition: TablePartition) -> Iterator[_Piece]:
    with contextlib.closing(LocalCopies(partition.directory)) as copies:
        if partition.kind in (TableKind.KEYED, TableKind.TIMERS):
            yield from _keyed_pieces(partition, copies)
        else:
            for subtask, handle in partition.of_operator:
                yield _operator_piece(partition, copies, subtask, handle)


# ---------------------------------------------------------------------- keyed state


def _keyed_pieces(partition: TablePartition, copies: LocalCopies) -> Iterator[_Piece]:
    owner = f"operator '{partition.operator}'"
    groups = KeyGroupRange(*partition.key_groups)
    for handle in partition.keyed:
        forms = {
            number: form_of(meta, partition.operator, trusted=partition.trusted)
            for number, meta in enumerate(handle.states)
            if is_of_table(meta, partition.kind, partition.name)
        }
        ours = groups.intersection(KeyGroupRange(*handle.key_groups))
        if isinstance(handle, KeyGroupsSnapshot):
            for run in encoded_runs(copies.data(handle.handle, owner), ours):
                if run.state in forms:
                    yield _of_encoded(forms[run.state], run, owner)
            continue
        folder = copies.database(handle, owner)
        for decoded in runs_of_database(handle, folder, forms, ours):
            yield _KeyedPiece(forms[decoded.state], _Decoded(decoded))
        shutil.rmtree(folder, ignore_errors=True)


class _Decoded:
    """The keys and contents of a run of a database."""

    def __init__(self, run: Run) -> None:
        self.rows = len(run.keys)
        self._run = run

    def stored_keys(self) -> list[Any]:
        return list(self._run.keys)

    def contents(self) -> list[Any]:
        return list(self._run.values)

    def column(self, name: str) -> pa.Array | None:
        """The keys or values as a column, where they need no Python value."""
        return None


@dataclass(slots=True)
class _Encoded:
    """Those of a run of the canonical form, decoded when they are asked for."""

    form: StateForm
    run: EncodedRun
    owner: str

    @property
    def rows(self) -> int:
        return self.run.entries

    def stored_keys(self) -> list[Any]:
        run = self.run
        return self._read(lambda: load_keys(run.key_form, memoryview(run.keys), run.entries))

    def contents(self) -> list[Any]:
        run = self.run
        return self._read(lambda: load_contents(self.form, memoryview(run.values), run.entries))

    def column(self, name: str) -> pa.Array | None:
        if name == KEY:
            return self._key_column()
        return self._read(self._value_column) if name == VALUE else None

    def _key_column(self) -> pa.Array | None:
        """None too for keys of another number, which the look at them refuses."""
        run = self.run
        if run.key_form != INT64 or len(run.keys) != _KEY_BYTES * run.entries:
            return None
        return pa.array(np.frombuffer(run.keys, dtype="<i8"))

    def _value_column(self) -> pa.Array | None:
        """None too where a part of the values must be looked at one by one."""
        declared = declared_type(self.form.value.config())
        if not has_columns(declared) or self.form.ttl or self.form.kind not in KINDS_OF_ONE_VALUE:
            return None
        columns: list[pa.Array] = []
        for part in parts_of_contents(memoryview(self.run.values)):
            column = load_column(declared, part)
            if column is None:
                return None
            columns.append(column)
        found = columns[0] if len(columns) == 1 else pa.concat_arrays(columns)
        return found if len(found) == self.run.entries else None

    def _read(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except (ValueError, struct.error) as error:
            raise SnapshotFormatError(
                f"{self.owner}: a run of state '{self.form.name}' cannot be read: {error}"
            ) from error


def _of_encoded(form: StateForm, run: EncodedRun, owner: str) -> _Piece:
    return _KeyedPiece(form, _Encoded(form, run, owner))


class _KeyedPiece(_Piece):
    """A run of a keyed state or of timers."""

    def __init__(self, form: StateForm, run: _Encoded | _Decoded) -> None:
        self._form = form
        self._run = run
        self._contents: list[Any] | None = None
        columns: dict[str, Callable[[], list[Any]]] = {KEY: self._keys}
        if form.kind is StateKind.TIMERS:
            columns |= {
                NAMESPACE: lambda: [namespace for _, namespace in self._decoded()],
                TIMESTAMP: lambda: [timestamp for timestamp, _ in self._decoded()],
                DOMAIN: lambda: [domain_of(form.name)] * run.rows,
            }
        else:
            columns[VALUE] = self._values
            if form.ttl:
                columns[ACCESS_TIME] = self._access_times
        super().__init__(run.rows, columns)

    def array(self, column: str, kind: pa.DataType, what: str) -> pa.Array:
        """See _Piece."""
        if column == ACCESS_TIME:
            return super().array(column, _in_milliseconds(kind), what).cast(kind)
        found = self._run.column(column)
        fitting = None if found is None else _fitting(found, kind)
        return super().array(column, kind, what) if fitting is None else fitting

    def observed(self, part: str) -> list[Any]:
        """See _Piece: of lists their elements, of maps their values or keys."""
        kind = self._form.kind
        if part == KEY or kind not in (StateKind.LIST, StateKind.MAP):
            return self._columns[part]()
        bare = self._bare()
        if kind is StateKind.LIST:
            return [element for each in bare for element in each]
        return [found for each in bare for found in (each if part == MAP_KEY else each.values())]

    def _decoded(self) -> list[Any]:
        if self._contents is None:
            self._contents = self._run.contents()
        return self._contents

    def _keys(self) -> list[Any]:
        return [user_key(key) for key in self._run.stored_keys()]

    def _bare(self) -> list[Any]:
        form = self._form
        return [part_of(form.kind, each, 1) for each in self._decoded()] if form.ttl else self._decoded()

    def _values(self) -> list[Any]:
        return self._shown(self._bare())

    def _access_times(self) -> list[Any]:
        return self._shown([part_of(self._form.kind, each, 0) for each in self._decoded()])

    def _shown(self, contents: list[Any]) -> list[Any]:
        """Maps with keys as the user has them."""
        map_key = self._form.map_key
        declared = None if map_key is None else declared_type(map_key.config())
        if declared is None or declared_map_key(declared) is None:
            return contents
        shown = shown_as(declared)
        return [{shown(key): value for key, value in each.items()} for each in contents]


def _fitting(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The column as one of that type; None where its values must be looked at one by one."""
    if column.type == kind:
        return column
    if not (pa.types.is_integer(column.type) and pa.types.is_integer(kind)):
        return None
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        return None  # beyond the type, which the look at its values names


def _in_milliseconds(kind: pa.DataType) -> pa.DataType:
    """The type of times as states have them."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ms", kind.tz)
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_in_milliseconds(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_milliseconds(kind.value_type)))
    return kind


# ---------------------------------------------------------------------- operator state


def _operator_piece(
    partition: TablePartition, copies: LocalCopies, subtask: int, handle: OperatorStateHandle
) -> _Piece:
    """The elements of a state in one subtask."""
    states = OperatorStates(
        partition.operator,
        [(subtask, handle)],
        copies.reader.of(f"operator '{partition.operator}'"),
        partition.trusted,
    )
    if partition.kind is TableKind.BROADCAST:
        entries = states.entries(partition.name)
        keys = shown_map_keys(list(entries), _map_key_type(partition.name, handle))
        return _Piece(len(entries), {KEY: lambda: keys, VALUE: lambda: list(entries.values())})
    values = states.elements(partition.name, mode_of(partition.kind))
    return _Piece(len(values), {SUBTASK: lambda: [subtask] * len(values), VALUE: lambda: values})


def _map_key_type(name: str, handle: OperatorStateHandle) -> TypeInformation | None:
    for state in handle.states:
        if state.name == name and state.map_key is not None:
            return declared_type(state.map_key)
    return None
