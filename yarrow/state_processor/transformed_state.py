"""TransformedState: one keyed state of an existing savepoint, read as a table, changed by a function, written again.

Owner: the calling thread. The table is in memory once. It must not know the other states of the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.datastream.state import StateDescriptor
from yarrow.runtime.data.keys import user_key
from yarrow.runtime.snapshot.handles import (
    KeyGroupsSnapshot,
    OperatorState,
    SerializerConfig,
    StateKind,
    StateMetaInfo,
)
from yarrow.runtime.snapshot.output import SnapshotOutput
from yarrow.state_processor.errors import StateProcessorError
from yarrow.state_processor.keyed_tables import ACCESS_TIME, KEY, VALUE, KeyedShapes, KeyedStateTable
from yarrow.state_processor.keyed_writing import KeyedContents, KeyedTarget, write_state
from yarrow.state_processor.shapes import Shape, declared_shape
from yarrow.state_processor.stored_state import CanonicalPart, kept_evidence
from yarrow.state_processor.table_cells import access_times_of, changed_keys, column_of, contents_of


@dataclass(frozen=True, slots=True)
class TransformedState:
    """A change of one keyed state."""

    name: str
    function: Callable[[pa.Table], pa.Table]
    descriptor: StateDescriptor | None
    #: The type of the keys that the function makes; None = as they were.
    key_type: TypeInformation | None = None

    def write(
        self,
        operator: OperatorState,
        parts: Sequence[CanonicalPart],
        output: SnapshotOutput,
        *,
        trusted: bool,
    ) -> KeyGroupsSnapshot:
        """Reads, changes and writes it. Raises StateProcessorError, SnapshotError."""
        what = f"operator '{operator.name}', state '{self.name}'"
        source = KeyedStateTable(operator.name, self.name, parts, trusted=trusted)
        if source.meta.kind is StateKind.TIMERS:
            raise StateProcessorError(f"{what}: holds timers; change them by transform_timers")
        shapes = source.shapes()
        batches = [shapes.batch(_user_keys(keys), contents) for keys, contents in source.entries()]
        changed = changed_table(self.function, pa.Table.from_batches(batches, shapes.schema), what)
        target = self._target(source.meta)
        contents = KeyedContents(target, operator.name)
        keys = changed_keys(column_of(changed, KEY, what), what, shapes.key, self.key_type)
        values = self._values(changed, shapes, target, what)
        accessed: list[Any] = [None] * len(keys)
        if target.ttl and ACCESS_TIME in changed.column_names:
            map_key = shapes.map_key
            if self.descriptor is not None and target.map_key_type is not None:
                map_key = declared_shape(target.map_key_type)
            accessed = access_times_of(changed.column(ACCESS_TIME), target.kind, map_key)
        for key, value, time in zip(keys, values, accessed, strict=True):
            contents.add(key, value, time)
        evidence = kept_evidence(self.key_type, parts, {self.name})
        return write_state(target, operator.name, contents.by_key, operator.max_parallelism, output, evidence)

    def _target(self, meta: StateMetaInfo) -> KeyedTarget:
        if self.descriptor is not None:
            return KeyedTarget.of(self.descriptor)
        map_key = None if meta.map_key is None else type_of(meta.map_key)
        return KeyedTarget(meta.name, meta.kind, type_of(meta.value), map_key, meta.ttl)

    def _values(self, table: pa.Table, shapes: KeyedShapes, target: KeyedTarget, what: str) -> list[Any]:
        column = column_of(table, VALUE, what)
        if self.descriptor is not None:
            return contents_of(column, target, what)
        return unchanged_values(column, shapes.column, what)


def changed_table(function: Callable[[pa.Table], pa.Table], table: pa.Table, what: str) -> pa.Table:
    """The result of a function on a table. Raises StateProcessorError for a result that is no table."""
    changed = function(table)
    if not isinstance(changed, pa.Table):
        raise StateProcessorError(f"{what}: the function gave {type(changed).__name__}, not a pyarrow Table")
    return changed


def unchanged_values(column: Any, shape: Shape, what: str) -> list[Any]:
    """The values of a column that has kept its type. Raises StateProcessorError where it has not."""
    if not shape.reversible:
        raise StateProcessorError(
            f"{what}: its values are of several kinds and are texts in the table; give a descriptor of the values "
            "that the function makes"
        )
    if column.type != shape.type:
        raise StateProcessorError(
            f"{what}: the function made a column of {column.type} of one of {shape.type}; give a descriptor where the "
            "type changes"
        )
    return shape.values(column)


def _user_keys(keys: list[Any]) -> list[Any]:
    return [user_key(key) for key in keys]


def type_of(config: SerializerConfig) -> TypeInformation:
    """The type that values are written with again."""
    return (
        Types.PICKLED_BYTE_ARRAY()
        if config.type_spec is None
        else TypeInformation.from_spec(config.type_spec)
    )
