"""ValueStore: one value a key, for handles of value, reducing and aggregating states and for generated aggregates.

Owner: the task thread. Both keep decoded values by canonical key. The handle keeps read and changed values
apart. The table keeps only changed ones, because generated code writes each value that it reads. One
multi-get reads the values for the keys of a chunk.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final, Protocol

from yarrow.container.state.rocksdb.database import BATCH_ENTRIES, ColumnFamily
from yarrow.container.state.rocksdb.keys import decode
from yarrow.container.state.rocksdb.store import HOLD_FACTOR, ChangeStore, StoreContext
from yarrow.container.state.rocksdb.values import StateValues
from yarrow.container.state.ttl import TimeToLive
from yarrow.container.state.value_table import MISSING, ValueTable
from yarrow.datastream.state import ValueState
from yarrow.runtime.data.errors import UnsupportedKeyError
from yarrow.runtime.data.keys import canonicalize

#: Read values that a handle keeps, as a multiple of the changes that it may keep.
_READS: Final = 2
#: Types whose values are canonical keys as they are.
_CANONICAL: Final = frozenset((int, str, bytes))


class CurrentKey(Protocol):
    """Holds the key of the present record."""

    current_key: Any

    def require_key(self, name: str) -> Any:
        """The current key; raises if there is none."""
        ...


def canonical_keys(keys: Iterable[Any]) -> list[Any]:
    """The distinct canonical keys of raw ones, without invalid keys: their records fail by themselves."""
    try:
        distinct = set(keys)
        if set(map(type, distinct)) <= _CANONICAL:
            return list(distinct)
    except TypeError:  # one of the raw keys cannot be hashed
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


class ValueStore(ChangeStore):
    """Values by key, for handles."""

    def __init__(
        self, context: StoreContext, family: ColumnFamily, values: StateValues, ttl: TimeToLive | None
    ) -> None:
        super().__init__(context, family, values, ttl)
        #: Unwritten values; MISSING for removed ones.
        self._changed: dict[Any, Any] = {}
        #: Values as in RocksDB; MISSING for absent ones.
        self._read: dict[Any, Any] = {}
        #: Whether the program has read since the last prefetch: a program that only writes is spared the
        #: reads.
        self._asked = True

    def get(self, key: Any) -> Any:
        """The value of a canonical key or MISSING."""
        self._asked = True
        found = self._changed.get(key)
        if found is not None:
            return found
        found = self._read.get(key)
        if found is None:
            data = self.family.get(self.context.keys.encode(key))
            self.note_read(data)
            found = self._read[key] = MISSING if data is None else self.values.load(data)
        return found

    def put(self, key: Any, value: Any) -> None:
        """Sets the value of a canonical key; MISSING removes it."""
        self._changed[key] = value

    def prefetch(self, keys: Sequence[Any]) -> None:
        """Reads values of canonical keys that are not cached, unless the program read none in the last chunk."""
        if not self._asked:
            return
        self._asked = False
        changed, read = self._changed, self._read
        wanted = [key for key in keys if key not in changed and key not in read]
        if wanted:
            if len(read) + len(wanted) > _READS * self.most_changes:
                # Now, and not in the middle of the rows that these are read for.
                read.clear()
                wanted = [key for key in keys if key not in changed]
            database_keys, order = self.context.keys.encode_sorted(wanted)
            data = self.family.get_all(database_keys)
            self.note_all_read(data)
            values = self.values.load_all(data, MISSING)
            read.update(zip([wanted[position] for position in order], values, strict=True))

    @property
    def changes(self) -> int:
        return len(self._changed)

    def write_out(self, count: int) -> None:
        changed = self._changed
        oldest = list(changed.items()) if count >= len(changed) else list(islice(changed.items(), count))
        kept = [entry for entry in oldest if entry[1] is not MISSING]
        removed = [key for key, value in oldest if value is MISSING] if len(kept) < len(oldest) else []
        if kept:
            self._put(kept)
        if removed:
            self.family.delete_all(self.context.keys.encode_all(removed))
        if len(oldest) == len(changed):
            changed.clear()
        else:
            for key, _ in oldest:
                del changed[key]
        self._read.update(oldest)

    def _put(self, entries: list[tuple[Any, Any]]) -> None:
        keys, order = self.context.keys.encode_sorted([key for key, _ in entries])
        data = self.values.dump_all([entries[position][1] for position in order])
        self.context.database.put_all(self.family, keys, self.all_checked(keys, data))

    def forget_reads(self) -> None:
        # Written values have joined the read ones; and a program that only writes never reads in advance.
        if len(self._read) > 2 * _READS * self.most_changes:
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
    """The table of an operator with generated aggregation."""

    wants_keys = True

    def __init__(self, store: TableStore) -> None:
        super().__init__()
        self._store = store
        self.live = store.live

    def miss(self, key: Any) -> tuple[Any, dict[Any, Any], Any]:
        rows = self.live[0]
        kind = key.__class__
        if kind is int or kind is str:
            # It is canonical, and the code has not found it among these rows.
            return key, rows, self._store.read(key)
        key = canonicalize(key)
        found = rows.get(key)
        return key, rows, self._store.read(key) if found is None else found

    def remove(self, key: Any) -> None:
        self._store.remove(canonicalize(key))

    def prefetch(self, keys: Sequence[Any]) -> None:
        self._store.prefetch(keys)

    def put_all(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        # What RocksDB and the old generation hold of a key is hidden by the young one.
        self.live[0].update(zip(keys, values, strict=True))


class TableStore(ChangeStore):
    """Values that generated code has written, or is about to write, in two generations.

    Generated code works on the dict of the young generation. Before that dict would hold more than half of
    the changes that may be kept back, it becomes the old generation. The old one is written a batch a chunk,
    and serves reads until the next one takes its place. So no chunk pays for many, and no dict is taken
    apart. A generation is written, and keys are read, in the order of the database. RocksDB searches from the
    entry before, and its caches serve neighbours. The more keys are sorted together, the nearer are
    neighbours.

    Removed keys wait until they are deleted in RocksDB. None of them is in the unwritten part of the old
    generation, so deletions and writes may come in any order.
    """

    def __init__(
        self, context: StoreContext, family: ColumnFamily, values: StateValues, ttl: TimeToLive | None
    ) -> None:
        super().__init__(context, family, values, ttl)
        #: The young generation, in the list where generated code finds it.
        self.live: list[dict[Any, Any]] = [{}]
        self._old: dict[Any, Any] = {}
        #: Database keys of the unwritten part of the old generation, in their order, and the values.
        self._unwritten: list[bytes] = []
        self._unwritten_values: list[Any] = []
        #: Keys that were read in advance and have no value in RocksDB.
        self._absent: set[Any] = set()
        #: Removed keys that RocksDB may hold. One of the young generation may be among them.
        self._removed: set[Any] = set()
        #: Keys are passed to `prefetch`.
        self._told = False

    def put(self, key: Any, value: Any) -> None:
        """Sets the value of a canonical key."""
        self.live[0][key] = value

    def remove(self, key: Any) -> None:
        """Removes a canonical key."""
        self.live[0].pop(key, None)
        if self._old.pop(key, None) is not None and self._unwritten:
            database_key = self.context.keys.encode(key)
            at = bisect_left(self._unwritten, database_key)
            if at < len(self._unwritten) and self._unwritten[at] == database_key:
                del self._unwritten[at], self._unwritten_values[at]
        if key not in self._absent and self._may_be_stored:
            self._removed.add(key)
            if len(self._removed) > self.generation and self._may_write:
                self._delete(len(self._removed))

    @property
    def _may_be_stored(self) -> bool:
        """False if RocksDB holds no key at all."""
        return True

    def read(self, key: Any) -> Any:
        """The value of a canonical key that is not in the young generation, or MISSING."""
        found = self._old.get(key)
        if found is not None:
            return found
        if key in self._absent or key in self._removed:
            return MISSING
        data = self.family.get(self.context.keys.encode(key))
        return MISSING if data is None else self.values.load(data)

    def prefetch(self, keys: Sequence[Any]) -> None:
        """Loads the values for the keys of a chunk into the young generation."""
        self._told = True
        self._absent.clear()
        young = self.live[0]
        try:
            # If all keys are there already, as with few hot ones, no call for each is needed. `difference`
            # looks up the wanted keys; `difference_update` would walk the whole generation.
            wanted = set(keys).difference(young)
        except TypeError:  # one of the raw keys cannot be hashed
            wanted = set(canonical_keys(keys))
        if not set(map(type, wanted)) <= _CANONICAL:
            wanted = set(canonical_keys(wanted)).difference(young)
        if young and len(young) + len(wanted) > self.generation and self._may_write:
            # Here, and not at the end of a chunk: values that were read for the next rows are never put aside
            # before them.
            wanted.update(young.keys() & canonical_keys(keys))
            self.write_out(len(self._unwritten))
            self._turn()
            young = self.live[0]
        old = self._old
        absent = wanted.difference(old)
        if len(absent) < len(wanted):
            young.update([(key, old[key]) for key in wanted - absent])
        if self._removed:
            absent -= self._removed
        if absent:
            self._read(list(absent), young)

    def _read(self, wanted: list[Any], young: dict[Any, Any]) -> None:
        database_keys, order = self.context.keys.encode_sorted(wanted)
        keys = [wanted[position] for position in order]
        data = self.family.get_all(database_keys)
        found = zip(keys, self.values.load_all(data, MISSING), strict=True)
        if None in data:
            for key, value in found:
                if value is MISSING:
                    self._absent.add(key)
                else:
                    young[key] = value
        else:
            young.update(found)

    @property
    def changes(self) -> int:
        return len(self.live[0]) + len(self._unwritten) + len(self._removed)

    @property
    def _may_write(self) -> bool:
        """False while a checkpoint holds writes, unless far too much is kept back."""
        return not self.context.database.held or self.changes >= HOLD_FACTOR * self.most_changes

    def bound(self) -> None:
        if not self.changes or not self._may_write:
            return
        if len(self._removed) > self.generation:
            self._delete(BATCH_ENTRIES)
        if self._unwritten:
            self.write_out(BATCH_ENTRIES)
        if len(self.live[0]) > self._most_young:
            self.write_out(len(self._unwritten))
            self._turn()

    @property
    def _most_young(self) -> int:
        """Changes above which the young generation ends although no keys were passed to `prefetch`."""
        return self.most_changes if self._told else self.generation

    def _turn(self) -> None:
        """Makes the young generation the old one."""
        self._absent.clear()
        self._old = self.live[0]
        keys, values = list(self._old), list(self._old.values())
        if not set(map(type, keys)) <= _CANONICAL:
            # A row may have a raw key that equals the one in generated code: only canonical keys are encoded.
            keys = list(map(canonicalize, keys))
        self._unwritten, order = self.context.keys.encode_sorted(keys)
        self._unwritten_values = [values[position] for position in order]
        # What is written is not to be deleted.
        self._removed.difference_update(keys)
        self.live[0] = {}

    def write_out(self, count: int) -> None:
        if count and self._unwritten:
            # From the end, which costs nothing.
            keys = self._unwritten[-count:]
            data = self.all_checked(keys, self.values.dump_all(self._unwritten_values[-count:]))
            self.context.database.put_all(self.family, keys, data)
            del self._unwritten[-count:], self._unwritten_values[-count:]

    def _delete(self, count: int) -> None:
        """Deletes so many of the removed keys in RocksDB."""
        keys = [self._removed.pop() for _ in range(min(count, len(self._removed)))]
        self.family.delete_all(self.context.keys.encode_sorted(keys)[0])

    def write_all(self) -> None:
        self.write_out(len(self._unwritten))
        if self.live[0]:
            self._turn()
            self.write_out(len(self._unwritten))
        if self._removed:
            self._delete(len(self._removed))
