"""StateTable: one table of a savepoint as its metadata describe it: columns, and partitions by key groups.

Owner: the calling thread. It reads nothing but the metadata.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import pyarrow as pa

from yarrow.common.typeinfo import TypeInformation
from yarrow.runtime.snapshot.handles import (
    KeyedStateHandle,
    KeyGroupsSnapshot,
    OperatorState,
    OperatorStateHandle,
    OperatorStateMode,
    SerializerConfig,
    StateKind,
    StateMetaInfo,
)
from yarrow.runtime.snapshot.key_types import key_type_of
from yarrow.runtime.snapshot.opening import OpenedSnapshot
from yarrow.state_processor.errors import StateProcessorError
from yarrow.state_processor.keyed_tables import (
    DOMAIN,
    KEY,
    NAMESPACE,
    TIMESTAMP,
    VALUE,
    KeyedShapes,
    declared_map_key_shape,
)
from yarrow.state_processor.operator_identifier import OperatorIdentifier, find_operator
from yarrow.state_processor.operator_tables import KINDS, described
from yarrow.state_processor.shapes import Shape, declared_shape
from yarrow.state_processor.spark.key_group_ranges import SizedRange, divided
from yarrow.state_processor.stored_state import refuse_pickles

SUBTASK: Final = "subtask"
#: What of a map state its keys are; a part of the column `value`.
MAP_KEY: Final = "map_key"
#: Bytes of state that a partition has at most, about, however few partitions are wanted.
_MOST_BYTES: Final = 128 << 20
#: The shape of each part of a table; None: only its values say.
Parts = dict[str, Shape | None]


class TableKind(StrEnum):
    """The kinds of tables of a savepoint."""

    KEYED = "keyed"
    TIMERS = "timers"
    LIST = "list"
    UNION = "union"
    BROADCAST = "broadcast"


_MODES: Final = {mode: TableKind(name) for mode, name in KINDS.items()}


@dataclass(frozen=True, slots=True)
class TablePartition:
    """A part of a table, which travels to the task that reads it: files, and what of them is wanted."""

    directory: str
    operator: str
    kind: TableKind
    #: The name of the state; "" for timers.
    name: str
    trusted: bool
    #: First and last, both included.
    key_groups: tuple[int, int]
    keyed: tuple[KeyedStateHandle, ...] = ()
    #: With the subtask of each.
    of_operator: tuple[tuple[int, OperatorStateHandle], ...] = ()

    @property
    def what(self) -> str:
        """The table, for errors."""
        state = "timers" if self.kind is TableKind.TIMERS else f"state '{self.name}'"
        return f"operator '{self.operator}', {state}"


@dataclass(frozen=True, slots=True)
class StateTable:
    """A table that can be read."""

    directory: str
    operator: OperatorState
    kind: TableKind
    #: The name of the state; "" for timers.
    name: str
    trusted: bool

    @staticmethod
    def find(
        opened: OpenedSnapshot,
        operator: OperatorIdentifier | str,
        name: str,
        kinds: Collection[TableKind],
        *,
        trusted: bool,
    ) -> StateTable:
        """The first of these kinds that the operator has. Raises StateProcessorError naming those that there are."""
        state = find_operator(opened.metadata.operators, operator, opened.directory)
        there = list(_tables_of(state))
        for kind, known in there:
            if kind in kinds and known == name:
                return StateTable(opened.directory, state, kind, name, trusted)
        if kinds == {TableKind.TIMERS}:
            return StateTable(opened.directory, state, TableKind.TIMERS, "", trusted)
        shown = ", ".join(f"'{known}' ({kind})" for kind, known in there if known)
        raise StateProcessorError(
            f"operator '{state.name}' has no {' or '.join(sorted(kinds))} state '{name}', only {shown or 'none'}"
        )

    @property
    def what(self) -> str:
        """The table, for errors."""
        state = "timers" if self.kind is TableKind.TIMERS else f"state '{self.name}'"
        return f"operator '{self.operator.name}', {state}"

    def refuse_pickles(self) -> None:
        """Raises UntrustedPickleError where the metadata say that values are pickled, unless these are trusted."""
        if self.trusted:
            return
        for meta in self._metas():
            refuse_pickles(meta, self.operator.name)
        for _, handle in self._operator_handles():
            for state in handle.states:
                if state.name == self.name:
                    refuse_pickles(described(state), self.operator.name)

    # ------------------------------------------------------------------ columns

    def parts(self) -> Parts:
        """The parts of the table, each with its shape where the metadata say it."""
        match self.kind:
            case TableKind.TIMERS:
                return {KEY: _shape(self._key_type())}
            case TableKind.KEYED:
                metas = list(self._metas())
                parts: Parts = {KEY: _shape(self._key_type()), VALUE: _shape(_one([m.value for m in metas]))}
                if metas[0].kind is StateKind.MAP:
                    parts[MAP_KEY] = declared_map_key_shape(_one([m.map_key_form for m in metas]))
                return parts
            case TableKind.BROADCAST:
                return {
                    KEY: declared_map_key_shape(_one(self._configs(map_key=True))),
                    VALUE: self._element(),
                }
        return {VALUE: self._element()}

    def schema(self, shapes: Mapping[str, Shape]) -> pa.Schema:
        """The columns of the table, as those of SavepointReader; a namespace of timers is a text."""
        match self.kind:
            case TableKind.TIMERS:
                named: dict[str, pa.DataType] = {
                    KEY: shapes[KEY].type, NAMESPACE: pa.string(), TIMESTAMP: pa.int64(), DOMAIN: pa.string(),
                }  # fmt: skip
            case TableKind.KEYED:
                meta = next(self._metas())
                keyed = KeyedShapes(meta.kind, meta.ttl, shapes[KEY], shapes[VALUE], shapes.get(MAP_KEY))
                return keyed.schema
            case TableKind.BROADCAST:
                named = {KEY: shapes[KEY].type, VALUE: shapes[VALUE].type}
            case _:
                named = {SUBTASK: pa.int32(), VALUE: shapes[VALUE].type}
        return pa.schema(list(named.items()))

    def _key_type(self) -> TypeInformation | None:
        found = [key_type_of(handle.key_type) for handle in self._keyed_handles()]
        return found[0] if found and all(each == found[0] for each in found) else None

    def _element(self) -> Shape | None:
        return _shape(_one(self._configs(map_key=False)))

    def _configs(self, *, map_key: bool) -> list[SerializerConfig | None]:
        return [
            state.map_key if map_key else state.value
            for _, handle in self._operator_handles()
            for state in handle.states
            if state.name == self.name
        ]

    def _metas(self) -> Iterator[StateMetaInfo]:
        return (meta for handle in self._keyed_handles() for meta in handle.states if self.holds(meta))

    def holds(self, meta: StateMetaInfo) -> bool:
        """Whether a keyed state is one of this table."""
        return is_of_table(meta, self.kind, self.name)

    # ------------------------------------------------------------------ partitions

    def partitions(self, wanted: int) -> list[TablePartition]:
        """Parts of about the same size, `wanted` or more where these would be large; at least one."""
        if self.kind in (TableKind.KEYED, TableKind.TIMERS):
            return self._by_key_groups(wanted)
        handles = list(self._operator_handles())
        if self.kind is TableKind.BROADCAST:
            handles = handles[:1]  # all subtasks have the same
        count = max(1, min(wanted, len(handles)))
        borders = [len(handles) * number // count for number in range(count + 1)]
        return [
            self._partition((0, -1), (), tuple(handles[borders[number] : borders[number + 1]]))
            for number in range(count)
        ]

    def _by_key_groups(self, wanted: int) -> list[TablePartition]:
        handles = list(self._keyed_handles())
        pieces = [SizedRange(*handle.key_groups, _size(handle)) for handle in handles]
        total = sum(piece.size for piece in pieces)
        found = divided(pieces, max(1, wanted, -int(-total // _MOST_BYTES)))
        made = [
            self._partition(
                (part.start, part.end),
                tuple(h for h in handles if h.key_groups[0] <= part.end and part.start <= h.key_groups[1]),
                (),
            )
            for part in found
        ]
        return made or [self._partition((0, -1), (), ())]

    def _partition(
        self,
        key_groups: tuple[int, int],
        keyed: tuple[KeyedStateHandle, ...],
        of_operator: tuple[tuple[int, OperatorStateHandle], ...],
    ) -> TablePartition:
        return TablePartition(
            self.directory, self.operator.name, self.kind, self.name, self.trusted, key_groups, keyed, of_operator
        )  # fmt: skip

    def _keyed_handles(self) -> Iterator[KeyedStateHandle]:
        for _, subtask in sorted(self.operator.subtasks.items()):
            for handle in subtask.keyed:
                if any(map(self.holds, handle.states)):
                    yield handle

    def _operator_handles(self) -> Iterator[tuple[int, OperatorStateHandle]]:
        for index, subtask in sorted(self.operator.subtasks.items()):
            for handle in subtask.operator:
                if any(
                    state.name == self.name and _MODES[state.mode] is self.kind for state in handle.states
                ):
                    yield index, handle


def is_of_table(meta: StateMetaInfo, kind: TableKind, name: str) -> bool:
    """Whether a keyed state is one of a table: timers lie in several states."""
    if kind is TableKind.TIMERS:
        return meta.kind is StateKind.TIMERS
    return meta.name == name


def mode_of(kind: TableKind) -> OperatorStateMode:
    """The mode of an operator's state."""
    return next(mode for mode, known in _MODES.items() if known is kind)


def _tables_of(operator: OperatorState) -> Iterator[tuple[TableKind, str]]:
    """All tables of an operator: those of keyed state, of its timers, of its own states."""
    seen: dict[tuple[TableKind, str], None] = {}
    for _, subtask in sorted(operator.subtasks.items()):
        for keyed in subtask.keyed:
            for meta in keyed.states:
                is_timers = meta.kind is StateKind.TIMERS
                seen[(TableKind.TIMERS, "") if is_timers else (TableKind.KEYED, meta.name)] = None
        for handle in subtask.operator:
            for state in handle.states:
                seen[_MODES[state.mode], state.name] = None
    yield from seen


def _size(handle: KeyedStateHandle) -> int:
    if isinstance(handle, KeyGroupsSnapshot):
        return handle.handle.size
    return sum(file.handle.size for file in (*handle.shared, *handle.private))


def _one(configs: list[SerializerConfig] | list[SerializerConfig | None]) -> TypeInformation | None:
    """The declared type of values, where all parts of the state have the same."""
    first = configs[0] if configs else None
    if first is None or first.type_spec is None or any(each != first for each in configs[1:]):
        return None
    return TypeInformation.from_spec(first.type_spec)


def _shape(declared: TypeInformation | None) -> Shape | None:
    return declared_shape(declared)
