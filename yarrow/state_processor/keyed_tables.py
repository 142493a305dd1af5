"""Keyed states and timers as Arrow batches: one row a key, bounded in memory, one schema for all batches.

Values of no declared type are read twice: to find their shape, then to make columns of them. Owner: the calling thread.
It must not know where state lies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.operators.process.process_function import EVENT_TIMERS, PROCESSING_TIMERS
from yarrow.datastream.functions.timers import TimeDomain
from yarrow.runtime.data.keys import user_key
from yarrow.runtime.data.map_keys import declared_map_key, shown_as
from yarrow.runtime.snapshot.handles import SerializerConfig, StateKind, StateMetaInfo
from yarrow.runtime.snapshot.key_group_form import StateForm
from yarrow.state_processor.errors import StateProcessorError
from yarrow.state_processor.observed_types import ObservedTypes
from yarrow.state_processor.shapes import Shape, declared_shape, list_shape, map_shape
from yarrow.state_processor.stored_state import CanonicalPart, decoded, form_of, stored_key_type

KEY: Final = "key"
VALUE: Final = "value"
ACCESS_TIME: Final = "access_time"
NAMESPACE: Final = "namespace"
TIMESTAMP: Final = "timestamp"
DOMAIN: Final = "domain"
#: The column with the time of the last access to a value that expires.
ACCESS_TYPE: Final = pa.timestamp("ms", "UTC")
_DOMAINS: Final = {
    EVENT_TIMERS: TimeDomain.EVENT_TIME.name,
    PROCESSING_TIMERS: TimeDomain.PROCESSING_TIME.name,
}

Entries = Iterator[tuple[list[Any], list[Any]]]


@dataclass(frozen=True, slots=True)
class KeyedShapes:
    """The columns of one keyed state."""

    kind: StateKind
    ttl: bool
    key: Shape
    #: The shape of a value, an element, or a map's value.
    value: Shape
    map_key: Shape | None = None

    @property
    def column(self) -> Shape:
        """The column of values."""
        if self.kind is StateKind.LIST:
            return list_shape(self.value)
        if self.kind is StateKind.MAP:
            assert self.map_key is not None
            return map_shape(self.map_key, self.value)
        return self.value

    @property
    def access_column(self) -> Shape:
        """The column of times of last access: formed as the values are."""
        stamp = Shape(ACCESS_TYPE)
        if self.kind is StateKind.LIST:
            return list_shape(stamp)
        if self.kind is StateKind.MAP:
            assert self.map_key is not None
            return map_shape(self.map_key, stamp)
        return stamp

    @property
    def schema(self) -> pa.Schema:
        """The schema of the state's table."""
        fields = [pa.field(KEY, self.key.type), pa.field(VALUE, self.column.type)]
        if self.ttl:
            fields.append(pa.field(ACCESS_TIME, self.access_column.type))
        return pa.schema(fields)

    def batch(self, keys: list[Any], contents: list[Any]) -> pa.RecordBatch:
        """Entries as rows."""
        values = contents if not self.ttl else [part_of(self.kind, each, 1) for each in contents]
        columns = [self.key.array(keys), self.column.array(values)]
        if self.ttl:
            columns.append(self.access_column.array([part_of(self.kind, each, 0) for each in contents]))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def part_of(kind: StateKind, content: Any, part: int) -> Any:
    """The times (0) or the values (1) of a content with time to live."""
    if kind is StateKind.LIST:
        return [pair[part] for pair in content]
    if kind is StateKind.MAP:
        return {key: pair[part] for key, pair in content.items()}
    return content[part]


class KeyedStateTable:
    """One keyed state of an operator, which can be read any number of times."""

    def __init__(self, operator: str, name: str, parts: Sequence[CanonicalPart], *, trusted: bool) -> None:
        """Raises StateProcessorError where no part has the state, UntrustedPickleError, StateMigrationError."""
        self._operator = operator
        self._name = name
        #: (part, number of the state in it, form)
        self._found: list[tuple[CanonicalPart, int, StateForm]] = []
        for part in parts:
            for number, meta in enumerate(part.states):
                if meta.name == name:
                    self._found.append((part, number, form_of(meta, operator, trusted=trusted)))
        if not self._found:
            there = sorted({meta.name for part in parts for meta in part.states})
            raise StateProcessorError(
                f"operator '{operator}' has no keyed state '{name}', only {', '.join(map(repr, there)) or 'none'}"
            )
        part, number, _ = self._found[0]
        self.meta: StateMetaInfo = part.states[number]
        if any(each.states[at].kind is not self.meta.kind for each, at, _ in self._found):
            raise StateProcessorError(
                f"operator '{operator}', state '{name}': parts of it are of different kinds; restore the job and take "
                "another savepoint"
            )

    def entries(self) -> Entries:
        """Canonical keys and contents, run by run."""
        for part, number, form in self._found:
            for run in part.runs():
                if run.state == number:
                    yield decoded(form, run, self._operator)

    def shapes(self) -> KeyedShapes:
        """The columns; reads the state where its types do not say."""
        kind, meta = self.meta.kind, self.meta
        value = declared_shape(self._declared(lambda each: each.value))
        map_key = (
            declared_map_key_shape(self._declared(lambda each: each.map_key))
            if kind is StateKind.MAP
            else None
        )
        seen_keys, seen_values, seen_map_keys = ObservedTypes(), ObservedTypes(), ObservedTypes()
        for keys, contents in self.entries():
            seen_keys.observe_all(map(user_key, keys))
            if value is not None and (kind is not StateKind.MAP or map_key is not None):
                continue
            for content in contents:
                bare = content if not meta.ttl else part_of(kind, content, 1)
                if kind is StateKind.LIST:
                    seen_values.observe_all(bare)
                elif kind is StateKind.MAP:
                    seen_values.observe_all(bare.values())
                    seen_map_keys.observe_all(bare)
                else:
                    seen_values.observe(bare)
        if kind is StateKind.MAP and map_key is None:
            map_key = seen_map_keys.map_key_shape()
        key = key_shape(seen_keys, [part for part, _, _ in self._found], {self._name})
        return KeyedShapes(kind, meta.ttl, key, value or seen_values.shape(), map_key)

    def _declared(
        self, config_of: Callable[[StateMetaInfo], SerializerConfig | None]
    ) -> TypeInformation | None:
        """The declared type, where all parts have the same."""
        specs = [config_of(part.states[number]) for part, number, _ in self._found]
        first = specs[0]
        if first is None or first.type_spec is None or any(each != first for each in specs[1:]):
            return None
        return TypeInformation.from_spec(first.type_spec)

    def batches(self, rows: int) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The schema, and the state in batches of at most so many rows."""
        shapes = self.shapes()

        def made() -> Iterator[pa.RecordBatch]:
            for keys, contents in cut(self.entries(), rows):
                yield shapes.batch([user_key(key) for key in keys], contents)

        return shapes.schema, made()


def key_shape(seen: ObservedTypes, parts: Sequence[CanonicalPart], names: Collection[str]) -> Shape:
    """The shape of the keys of these states, by those seen.

    Keys that are declared as floats are floats. In their canonical form whole ones are integers, of up to 309 digits.
    """
    if seen.has_only_numbers:
        declared = stored_key_type(parts, names)
        if declared is not None and declared.python_type is float:
            return Shape(pa.float64(), float)
    return seen.shape()


def declared_map_key_shape(declared: TypeInformation | None) -> Shape | None:
    """The shape of the keys of maps; those that dicts hold in their canonical form are cells of the declared type."""
    shape = declared_shape(declared)
    if shape is None or declared_map_key(declared) is None:
        return shape
    shown, to_cell = shown_as(declared), shape.to_cell
    return replace(shape, to_cell=shown if to_cell is None else lambda key: to_cell(shown(key)))


def cut(entries: Entries, rows: int) -> Entries:
    """The same entries, gathered and cut into pieces of `rows`; the last piece may be shorter."""
    keys: list[Any] = []
    contents: list[Any] = []
    for more_keys, more_contents in entries:
        keys += more_keys
        contents += more_contents
        while len(keys) >= rows:
            yield keys[:rows], contents[:rows]
            del keys[:rows], contents[:rows]
    if keys:
        yield keys, contents


# ---------------------------------------------------------------------- timers


class TimersTable:
    """All timers of an operator: key, namespace, timestamp in ms, domain."""

    def __init__(self, operator: str, parts: Sequence[CanonicalPart], *, trusted: bool) -> None:
        #: Names of the states that hold timers.
        self.names = sorted({m.name for part in parts for m in part.states if m.kind is StateKind.TIMERS})
        tables = {name: KeyedStateTable(operator, name, parts, trusted=trusted) for name in self.names}
        found = [
            (domain_of(name), timestamp, namespace, user_key(key))
            for name, table in tables.items()
            for keys, contents in table.entries()
            for key, (timestamp, namespace) in zip(keys, contents, strict=True)
        ]
        # In order of domain and time.
        found.sort(key=lambda timer: timer[:2])
        columns = [list(column) for column in zip(*found, strict=True)] or [[], [], [], []]
        self._domains, self._timestamps, self._namespaces, self._keys = columns
        self.key_shape = key_shape(_observed(self._keys), parts, self.names)
        self.namespace_shape = _observed(self._namespaces).shape()

    @property
    def domains(self) -> dict[str, str]:
        """The domain of each state that holds timers, and of those that a process function has."""
        return _DOMAINS | {name: domain_of(name) for name in self.names}

    def table(self) -> pa.Table:
        """The timers in order of domain and time."""
        return pa.table(
            {
                KEY: self.key_shape.array(self._keys),
                NAMESPACE: self.namespace_shape.array(self._namespaces),
                TIMESTAMP: pa.array(self._timestamps, pa.int64()),
                DOMAIN: pa.array(self._domains, pa.string()),
            }
        )


def domain_of(name: str) -> str:
    """The time domain of a state of timers; its name where it is none of a process function."""
    return _DOMAINS.get(name, name)


def _observed(values: list[Any]) -> ObservedTypes:
    observed = ObservedTypes()
    observed.observe_all(values)
    return observed
