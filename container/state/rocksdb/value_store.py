"""One value a key: the handle of value, reducing and aggregating states, and the table of generated aggregates.

Owner: the task thread. Both keep decoded values by canonical key: the handle those read and those changed apart, the
table only those changed, since generated code writes each value that it reads. A key group's values are read by one
multi-get for the keys of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, Protocol

from yarrow.container.state.rocksdb.database import ColumnFamily
from yarrow.container.state.rocksdb.keys import decode
from yarrow.container.state.rocksdb.store import StateStore, StoreContext
from yarrow.container.state.rocksdb.values import StateValues
from yarrow.container.state.ttl import TimeToLive
from yarrow.container.state.value_table import MISSING, ValueTable
from yarrow.datastream.state import ValueState
from yarrow.runtime.data.errors import UnsupportedKeyError
from yarrow.runtime.data.keys import canonicalize

#: Values read that a handle keeps, in multiples of the changes it may keep.
_READS: Final = 2
#: Types whose values are canonical keys as they are.
_CANONICAL: Final = frozenset((int, str, bytes))


class CurrentKey(Protocol):
    """Where the key of the record at hand is found."""

    current_key: Any

    def require_key(self, name: str) -> Any:
        """The same; raises where there is none."""
        ...


def canonical_keys(keys: Iterable[Any]) -> list[Any]:
    """The distinct canonical keys of raw ones, without those that cannot be keys: their records fail by themselves."""
    try:
        distinct = set(keys)
        if set(map(type, distinct)) <= _CANONICAL:
            return list(distinct)
    except TypeError:  # one of them cannot be hashed as it is
        pass
    found: dict[Any, None] = {}
    for key in keys:
        kind = key.__class__
        if kind is not int and kind is not str:
            try:
                key = canonicalize(key)
            except UnsupportedKeyError:
                continue
        found[key] = None
    return list(found)


class ValueStore(StateStore):
    """Values by key, for handles."""

    def __init__(
        self, context: StoreContext, family: ColumnFamily, values: StateValues, ttl: TimeToLive | None
    ) -> None:
        super().__init__(context, family, values, ttl)
        #: Values that are not written yet; MISSING for those removed.
        self._changed: dict[Any, Any] = {}
        #: Values as they are in RocksDB; MISSING for those that are not there.
        self._read: dict[Any, Any] = {}

    def get(self, key: Any) -> Any:
        """The value of a canonical key or MISSING."""
        found = self._changed.get(key)
        if found is not None:
            return found
        found = self._read.get(key)
        if found is None:
            data = self.family.get(self.context.keys.encode(key))
            found = self._read[key] = MISSING if data is None else self.values.load(data)
        return found

    def put(self, key: Any, value: Any) -> None:
        """Sets the value of a canonical key, MISSING to remove it."""
        self._changed[key] = value

    def prefetch(self, keys: Sequence[Any]) -> None:
        """Reads the values of canonical keys that are not at hand."""
        changed, read = self._changed, self._read
        wanted = [key for key in keys if key not in changed and key not in read]
        if wanted:
            data = self.family.get_all(self.context.keys.encode_all(wanted))
            read.update(zip(wanted, self.values.load_all(data, MISSING), strict=True))

    @property
    def changes(self) -> int:
        return len(self._changed)

    def write_out(self, count: int) -> None:
        changed = self._changed
        oldest = list(changed.items()) if count >= len(changed) else list(islice(changed.items(), count))
        encoded = self.context.keys.encode_all([key for key, _ in oldest])
        dump = self.values.dump
        puts = [
            (database_key, self.checked(key, dump(value)))
            for database_key, (key, value) in zip(encoded, oldest, strict=True)
            if value is not MISSING
        ]
        removed = [
            database_key for database_key, (_, value) in zip(encoded, oldest, strict=True) if value is MISSING
        ]
        self.context.database.write(self.family, puts, removed)
        if len(oldest) == len(changed):
            changed.clear()
        else:
            for key, _ in oldest:
                del changed[key]
        self._read.update(oldest)

    def forget_reads(self) -> None:
        if len(self._read) > _READS * self.most_changes:
            self._read.clear()

    def _forget(self, database_key: bytes) -> None:
        self._read.pop(decode(database_key)[0], None)


class RocksDBValueState(ValueState[Any]):
    """The handle of a value state."""

    def __init__(
        self, store: ValueStore, name: str, current: CurrentKey, fix: Callable[[Any], Any] | None
    ) -> None:
        self._store = store
        self._name = name
        self._current = current
        self._fix = fix

    def value(self) -> Any:
        found = self._store.get(self._key())
        return None if found is MISSING else found

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
        else:
            self._store.put(self._key(), value if self._fix is None else self._fix(value))

    def clear(self) -> None:
        self._store.put(self._key(), MISSING)

    def _key(self) -> Any:
        key = self._current.current_key
        kind = key.__class__
        return key if kind is int or kind is str else canonicalize(self._current.require_key(self._name))


class RocksDBValueTable(ValueTable):
    """The table of an operator whose generated code aggregates."""

    wants_keys = True

    def __init__(self, store: TableStore) -> None:
        super().__init__()
        self._store = store
        self.live[0] = store.rows

    def miss(self, key: Any) -> tuple[Any, dict[Any, Any], Any]:
        rows = self._store.rows
        key = canonicalize(key)
        found = rows.get(key)
        return key, rows, self._store.read(key) if found is None else found

    def prefetch(self, keys: Sequence[Any]) -> None:
        self._store.prefetch(keys)


class TableStore(StateStore):
    """Values that generated code has written, or is about to write."""

    def __init__(
        self, context: StoreContext, family: ColumnFamily, values: StateValues, ttl: TimeToLive | None
    ) -> None:
        super().__init__(context, family, values, ttl)
        #: The dict that generated code works on.
        self.rows: dict[Any, Any] = {}
        #: Keys of the chunk that have no value in RocksDB.
        self._absent: set[Any] = set()

    def read(self, key: Any) -> Any:
        """The value in RocksDB of a canonical key that is not among the rows, or MISSING."""
        if key in self._absent:
            return MISSING
        data = self.family.get(self.context.keys.encode(key))
        return MISSING if data is None else self.values.load(data)

    def prefetch(self, keys: Sequence[Any]) -> None:
        """Reads the values of the keys of a chunk that are not among the rows."""
        rows = self.rows
        with suppress(TypeError):  # one of them cannot be hashed as it is
            # Keys that all are rows already, as with few hot ones, are found without a call for each.
            keys = list(set(keys).difference(rows))
        canonical = [key for key in canonical_keys(keys) if key not in rows]
        if not canonical:
            return
        data = self.family.get_all(self.context.keys.encode_all(canonical))
        found = self.values.load_all(data, MISSING)
        absent = self._absent
        for key, value in zip(canonical, found, strict=True):
            if value is MISSING:
                absent.add(key)
            else:
                rows[key] = value

    @property
    def changes(self) -> int:
        return len(self.rows)

    def bound(self) -> None:
        self._absent.clear()
        super().bound()

    def write_out(self, count: int) -> None:
        oldest = list(islice(self.rows.items(), count))
        self._write(oldest)
        for key, _ in oldest:
            del self.rows[key]

    def write_all(self) -> None:
        # The rows of a cut stay at hand: hot keys need not be read again. They are written again some time.
        self._write(list(self.rows.items()))

    def _write(self, rows: list[tuple[Any, Any]]) -> None:
        # A row may bear a raw key where generated code found its equal: only canonical keys are encoded.
        canonical = [key if key.__class__ in _CANONICAL else canonicalize(key) for key, _ in rows]
        encoded = self.context.keys.encode_all(canonical)
        dump, checked = self.values.dump, self.checked
        puts = [
            (database_key, checked(key, dump(value)))
            for database_key, (key, value) in zip(encoded, rows, strict=True)
        ]
        if puts:
            self.context.database.write(self.family, puts, ())

    def forget_reads(self) -> None:
        return None

    def _forget(self, database_key: bytes) -> None:
        self.rows.pop(decode(database_key)[0], None)
