"""ListStore: lists with one entry of RocksDB for each element. A growing number follows the key.

Owner: the task thread. An append needs no read: the numbers come from one counter of the state, which each
cut stores beside the elements. Elements are encoded when they are added, so later changes do not reach them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, Final

from yarrow.container.state.folded_states import refuse_none
from yarrow.container.state.rocksdb.database import ColumnFamily
from yarrow.container.state.rocksdb.store import ChangeStore, StoreContext
from yarrow.container.state.rocksdb.value_store import CurrentKey
from yarrow.container.state.rocksdb.values import StateValues
from yarrow.container.state.ttl import TimeToLive
from yarrow.datastream.state import ListState
from yarrow.runtime.data.keys import canonicalize

_NUMBER: Final = struct.Struct(">Q")
NUMBER_BYTES: Final = _NUMBER.size
#: The counter's key: above every key group.
NEXT_NUMBER: Final = b"\xff\xffnext"


class _Changes:
    """Unwritten changes to the list of one key."""

    __slots__ = ("added", "replaced")

    def __init__(self, replaced: bool) -> None:
        #: True if the content of RocksDB does not count any more.
        self.replaced = replaced
        self.added: list[bytes] = []


class ListStore(ChangeStore):
    """Lists by key."""

    def __init__(
        self, context: StoreContext, family: ColumnFamily, values: StateValues, ttl: TimeToLive | None
    ) -> None:
        super().__init__(context, family, values, ttl)
        self._changed: dict[Any, _Changes] = {}
        self._elements = 0
        self._next = self._stored_next = number_of(family.get(NEXT_NUMBER))

    def get(self, key: Any) -> Iterator[Any]:
        """The elements of a canonical key."""
        changes = self._changed.get(key)
        load = self.values.load
        if changes is None or not changes.replaced:
            for _, data in self.family.scan_prefix(self.context.keys.encode(key)):
                yield load(data)
        if changes is not None:
            for data in tuple(changes.added):
                yield load(data)

    def append(self, key: Any, values: Iterable[Any]) -> None:
        """Adds elements at the end."""
        dump = self.values.dump
        # All are encoded before one is added: a value that cannot be encoded leaves the list as it was.
        self._add(key, [self.checked(key, dump(value)) for value in values])

    def replace(self, key: Any, values: Iterable[Any]) -> None:
        """Replaces all elements."""
        dump = self.values.dump
        added = [self.checked(key, dump(value)) for value in values]
        self.clear(key)
        self._add(key, added)

    def _add(self, key: Any, added: list[bytes]) -> None:
        changes = self._changed.get(key)
        if changes is None:
            changes = self._changed[key] = _Changes(False)
        changes.added += added
        self._elements += len(added)

    def clear(self, key: Any) -> None:
        """Removes all elements."""
        before = self._changed.get(key)
        if before is not None:
            self._elements -= len(before.added)
        self._changed[key] = _Changes(True)

    @property
    def changes(self) -> int:
        return self._elements + len(self._changed)

    def write_out(self, count: int) -> None:
        taken: list[Any] = []
        weight = 0
        for key, changes in self._changed.items():
            if weight >= count:
                break
            weight += len(changes.added) + 1
            taken.append(key)
        encoded = self.context.keys.encode_all(taken)
        removed: list[bytes] = []
        puts: list[tuple[bytes, bytes]] = []
        number = self._next
        for key, prefix in zip(taken, encoded, strict=True):
            changes = self._changed[key]
            if changes.replaced:
                removed += [database_key for database_key, _ in self.family.scan_prefix(prefix)]
            for data in changes.added:
                puts.append((numbered(prefix, number), data))
                number += 1
        # The counter goes first: used numbers are not used again, even if the write fails half way.
        self._next = number
        self.context.database.write(self.family, puts, removed)
        for key in taken:
            changes = self._changed.pop(key)
            self._elements -= len(changes.added)

    def write_all(self) -> None:
        super().write_all()
        if self._next != self._stored_next:
            self.family.put_all((counter_entry(self._next),))
            self._stored_next = self._next


def number_of(data: bytes | None) -> int:
    """The stored counter; 0 if there is none."""
    return 0 if data is None else int(_NUMBER.unpack(data)[0])


def numbered(prefix: bytes, number: int) -> bytes:
    """The database key of an element, of the prefix of its key."""
    return prefix + _NUMBER.pack(number)


def counter_entry(number: int) -> tuple[bytes, bytes]:
    """The entry that stores the counter."""
    return NEXT_NUMBER, _NUMBER.pack(number)


class RocksDBListState(ListState[Any]):
    """The handle of a list state."""

    def __init__(self, store: ListStore, name: str, operator_name: str, current: CurrentKey) -> None:
        self._store = store
        self._name = name
        self._operator_name = operator_name
        self._current = current

    def get(self) -> Iterable[Any]:
        return list(self._store.get(self._key()))

    def add(self, value: Any) -> None:
        self.add_all([value])

    def add_all(self, values: list[Any]) -> None:
        self._refuse_none(values)
        if values:
            self._store.append(self._key(), values)

    def update(self, values: list[Any]) -> None:
        self._refuse_none(values)
        self._store.replace(self._key(), values)

    def clear(self) -> None:
        self._store.clear(self._key())

    def _refuse_none(self, values: list[Any]) -> None:
        if any(value is None for value in values):
            raise refuse_none(self._operator_name, self._name)

    def _key(self) -> Any:
        key = self._current.current_key
        kind = key.__class__
        return key if kind is int or kind is str else canonicalize(self._current.require_key(self._name))
