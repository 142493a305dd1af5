"""MapStore: maps with one entry of RocksDB for each entry of a map. The encoded map key follows the key.

Owner: the task thread. Map keys are written in their canonical form if they have one, so that equal keys
share one entry. Values are encoded when they are put. Iteration is in the order of these bytes, not of
insertion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.state.rocksdb.database import ColumnFamily
from yarrow.container.state.rocksdb.store import ChangeStore, StoreContext
from yarrow.container.state.rocksdb.value_store import CurrentKey
from yarrow.container.state.rocksdb.values import StateValues
from yarrow.container.state.ttl import TimeToLive
from yarrow.datastream.state import MapState
from yarrow.runtime.data.errors import UnsupportedKeyError
from yarrow.runtime.data.keys import canonicalize, user_key
from yarrow.runtime.data.map_keys import declared_map_key
from yarrow.runtime.snapshot.value_serializers import ValueSerializer

#: Most cached single entries, and most bytes of their values.
_READS: Final = 8192
_READ_BYTES: Final = 4 << 20


class MapKeys:
    """Encodes the keys of one map state by their declared type."""

    def __init__(self, serializer: ValueSerializer, type_info: TypeInformation | None) -> None:
        self.serializer = serializer
        self.load: Callable[[bytes], Any] = serializer.load_value
        self._declared = declared_map_key(type_info)

    def dump(self, key: Any) -> bytes:
        """Encodes a map key; equal keys give equal bytes."""
        kind = key.__class__
        if kind is not int and kind is not str:
            # A type that cannot be a stream key may still be a map key, by its own bytes.
            with suppress(UnsupportedKeyError):
                key = user_key(canonicalize(key))
        if self._declared is not None:
            key = self._declared(key)
        return self.serializer.dump_value(key)


class _Changes:
    """Unwritten changes to the map of one key."""

    __slots__ = ("entries", "replaced")

    def __init__(self, replaced: bool) -> None:
        #: True if the content of RocksDB does not count any more.
        self.replaced = replaced
        #: None for a removed entry.
        self.entries: dict[bytes, bytes | None] = {}


class MapStore(ChangeStore):
    """Maps by key."""

    def __init__(
        self,
        context: StoreContext,
        family: ColumnFamily,
        values: StateValues,
        ttl: TimeToLive | None,
        map_keys: MapKeys,
    ) -> None:
        super().__init__(context, family, values, ttl)
        self.map_keys = map_keys
        self._changed: dict[Any, _Changes] = {}
        self._entries = 0
        self._read: dict[bytes, bytes | None] = {}
        #: Bytes that were added since it was empty.
        self._read_bytes = 0

    def get(self, key: Any, map_key: bytes) -> bytes | None:
        """The bytes of an entry's value."""
        changes = self._changed.get(key)
        if changes is not None:
            if map_key in changes.entries:
                return changes.entries[map_key]
            if changes.replaced:
                return None
        database_key = self.context.keys.encode(key) + map_key
        read = self._read
        if database_key in read:
            return read[database_key]
        data = read[database_key] = self.family.get(database_key)
        if data is not None:
            self._read_bytes += len(data)
        return data

    def put_all(self, key: Any, entries: Mapping[bytes, bytes | None]) -> None:
        """Sets entries; None removes one."""
        changes = self._changed.get(key)
        if changes is None:
            changes = self._changed[key] = _Changes(False)
        before = len(changes.entries)
        changes.entries.update(entries)
        self._entries += len(changes.entries) - before

    def clear(self, key: Any) -> None:
        """Removes all entries."""
        before = self._changed.get(key)
        if before is not None:
            self._entries -= len(before.entries)
        self._changed[key] = _Changes(True)

    def items(self, key: Any) -> Iterator[tuple[bytes, bytes]]:
        """The entries of a canonical key."""
        changes = self._changed.get(key)
        changed = dict(changes.entries) if changes is not None else {}
        if changes is None or not changes.replaced:
            prefix = self.context.keys.encode(key)
            start = len(prefix)
            for database_key, data in self.family.scan_prefix(prefix):
                map_key = database_key[start:]
                if map_key not in changed:
                    yield map_key, data
        for map_key, value in changed.items():
            if value is not None:
                yield map_key, value

    @property
    def changes(self) -> int:
        return self._entries + len(self._changed)

    def write_out(self, count: int) -> None:
        taken: list[Any] = []
        weight = 0
        for key, changes in self._changed.items():
            if weight >= count:
                break
            weight += len(changes.entries) + 1
            taken.append(key)
        removed: list[bytes] = []
        puts: list[tuple[bytes, bytes]] = []
        for key, prefix in zip(taken, self.context.keys.encode_all(taken), strict=True):
            changes = self._changed[key]
            if changes.replaced:
                removed += [
                    database_key
                    for database_key, _ in self.family.scan_prefix(prefix)
                    if database_key[len(prefix) :] not in changes.entries
                ]
            for map_key, value in changes.entries.items():
                if value is None:
                    removed.append(prefix + map_key)
                else:
                    puts.append((prefix + map_key, value))
        self.context.database.write(self.family, puts, removed)
        for key in taken:
            self._entries -= len(self._changed.pop(key).entries)
        for database_key in removed:
            self._read.pop(database_key, None)
        for database_key, _ in puts:
            self._read.pop(database_key, None)

    def forget_reads(self) -> None:
        if len(self._read) > _READS or self._read_bytes > _READ_BYTES:
            self._read.clear()
            self._read_bytes = 0

    def _forget(self, database_key: bytes) -> None:
        self._read.pop(database_key, None)


class RocksDBMapState(MapState[Any, Any]):
    """The handle of a map state."""

    def __init__(self, store: MapStore, name: str, current: CurrentKey) -> None:
        self._store = store
        self._name = name
        self._current = current
        self._dump_key, self._load_key = store.map_keys.dump, store.map_keys.load
        self._dump, self._load = store.values.dump, store.values.load

    def get(self, key: Any) -> Any:
        data = self._store.get(self._key(), self._dump_key(key))
        return None if data is None else self._load(data)

    def contains(self, key: Any) -> bool:
        return self._store.get(self._key(), self._dump_key(key)) is not None

    def put(self, key: Any, value: Any) -> None:
        current = self._key()
        self._store.put_all(current, {self._dump_key(key): self._store.checked(current, self._dump(value))})

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        current, store = self._key(), self._store
        entries = {
            self._dump_key(key): store.checked(current, self._dump(value))
            for key, value in dict_value.items()
        }
        if entries:
            store.put_all(current, entries)

    def remove(self, key: Any) -> None:
        self._store.put_all(self._key(), {self._dump_key(key): None})

    def items(self) -> Iterable[tuple[Any, Any]]:
        return [(self._load_key(key), self._load(data)) for key, data in self._store.items(self._key())]

    def keys(self) -> Iterable[Any]:
        return [self._load_key(key) for key, _ in self._store.items(self._key())]

    def values(self) -> Iterable[Any]:
        return [self._load(data) for _, data in self._store.items(self._key())]

    def is_empty(self) -> bool:
        return next(iter(self._store.items(self._key())), None) is None

    def clear(self) -> None:
        self._store.clear(self._key())

    def _key(self) -> Any:
        key = self._current.current_key
        kind = key.__class__
        return key if kind is int or kind is str else canonicalize(self._current.require_key(self._name))
