"""Tables by window in RocksDB: in one column family, key group by key group and there window by window.

Owner: the task thread. Each window has the two generations of a TableStore; all windows together keep back as much as
one table may, the windows asked for last. A window that was never written costs no read and no deletion. One that is
dropped while a checkpoint holds writes is deleted right after. It must not know what windows mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from yarrow.container.state.frozen_shard import PIECE
from yarrow.container.state.rocksdb.database import ColumnFamily
from yarrow.container.state.rocksdb.keys import GROUP_BYTES, WindowKeys, end_of, group_start, window_start
from yarrow.container.state.rocksdb.store import HOLD_FACTOR, StateStore, StoreContext
from yarrow.container.state.rocksdb.value_store import RocksDBValueTable, TableStore
from yarrow.container.state.rocksdb.values import StateValues
from yarrow.container.state.ttl import TimeToLive
from yarrow.container.state.value_table import MISSING
from yarrow.container.state.window_tables import ListedTables, Rows
from yarrow.runtime.data.keys import canonicalize
from yarrow.runtime.data.window_forms import WindowForm
from yarrow.runtime.snapshot.errors import StateMigrationError
from yarrow.runtime.snapshot.handles import SerializerConfig

W = TypeVar("W")

#: Values at hand of all windows, in multiples of the changes that one table may keep: its two generations.
_GENERATIONS: Final = 2
#: Windows that may have values at hand: each chunk looks at all of them.
_MOST_WARM: Final = 64


class WindowTableStore(TableStore):
    """The values of one window."""

    def __init__(
        self,
        context: StoreContext,
        family: ColumnFamily,
        values: StateValues,
        ttl: TimeToLive | None,
        place: bytes,
    ) -> None:
        super().__init__(replace(context, keys=WindowKeys(context.keys, place)), family, values, ttl)
        self.place = place
        #: Key groups in which rows of the window were written: what its removal has to cover.
        self.groups: set[bytes] = set()
        self._most_groups = context.key_groups.number_of_key_groups

    @property
    def at_hand(self) -> int:
        """Values and removed keys in memory."""
        return len(self.live[0]) + len(self._old) + len(self._removed)

    @property
    def _may_be_stored(self) -> bool:
        return bool(self.groups)

    @property
    def is_young(self) -> bool:
        """True if all values are in the young generation."""
        return not self.groups and not self._old

    def read(self, key: Any) -> Any:
        if self.groups:
            return super().read(key)
        found = self._old.get(key)
        return MISSING if found is None else found

    def _read(self, wanted: list[Any], young: dict[Any, Any]) -> None:
        if self.groups:
            super()._read(wanted, young)
        else:
            self._absent.update(wanted)

    def _turn(self) -> None:
        ttl = self._ttl
        if ttl is not None and ttl.is_swept(on_disk=True):
            # The sweep looks at what is written. What has expired before that is not written.
            deadline = ttl.deadline()
            for key in [key for key, (accessed, _) in self.live[0].items() if accessed <= deadline]:
                self.remove(canonicalize(key))
        super()._turn()

    def write_out(self, count: int) -> None:
        if count and len(self.groups) < self._most_groups:
            self.groups.update([key[:GROUP_BYTES] for key in self._unwritten[-count:]])
        super().write_out(count)

    def forget(self, database_key: bytes) -> None:
        """Lets go of a value at hand that the sweep has removed from RocksDB, unless it has been written anew."""
        key, ttl = self.context.keys.key_of(database_key), self._ttl
        found = self._old.get(key)
        if found is not None and ttl is not None and found[0] <= ttl.deadline():
            del self._old[key]

    def put_aside(self) -> None:
        """Writes everything, and lets go of it."""
        self.write_all()
        self._old = {}
        self._absent.clear()

    def rows(self) -> Iterator[Rows]:
        """What is at hand, and what is in RocksDB alone."""
        young, old, removed = self.live[0], self._old, self._removed
        # A row may bear a raw key where generated code found its equal.
        yield from _pieces([(canonicalize(key), value) for key, value in ({**old, **young}).items()])
        for group in sorted(self.groups):
            prefix = group + self.place
            entries = self.family.scan_prefix(prefix)
            while piece := list(islice(entries, PIECE)):
                keys = [self.context.keys.key_of(database_key) for database_key, _ in piece]
                left = [
                    at
                    for at, key in enumerate(keys)
                    if key not in young and key not in old and key not in removed
                ]
                if left:
                    data: list[bytes | None] = [piece[at][1] for at in left]
                    yield [keys[at] for at in left], self.values.load_all(data, MISSING)

    def take_all(self) -> Iterator[Rows]:
        """Takes all rows out: what is at hand, then what is in RocksDB alone, where each piece is one deleted range."""
        while young := self._gathered():
            piece = [young.popitem() for _ in range(min(PIECE, len(young)))]
            # A row may bear a raw key where generated code found its equal.
            keys = [canonicalize(key) for key, _ in piece]
            if self.groups:
                self._removed.update(keys)
            yield keys, [value for _, value in piece]
        for group in sorted(self.groups):
            entries = self.family.scan_prefix(group + self.place)
            while stored := list(islice(entries, PIECE)):
                if found := self._taken(stored):
                    yield found

    def _gathered(self) -> dict[Any, Any]:
        """All rows at hand as the young generation, as if none were written."""
        if self._old:
            self.live[0] = {**self._old, **self.live[0]}
            self._old, self._unwritten, self._unwritten_values = {}, [], []
        return self.live[0]

    def _taken(self, stored: list[tuple[bytes, bytes]]) -> Rows | None:
        """Removes neighbouring rows in RocksDB; returns those that are neither at hand nor removed."""
        young, removed = self._gathered(), self._removed
        keys = [self.context.keys.key_of(database_key) for database_key, _ in stored]
        left = [at for at, key in enumerate(keys) if key not in young and key not in removed]
        self.context.database.delete_range(self.family, stored[0][0], stored[-1][0] + b"\0")
        removed.difference_update(keys)
        if not left:
            return None
        data: list[bytes | None] = [stored[at][1] for at in left]
        return [keys[at] for at in left], self.values.load_all(data, MISSING)


class WindowStore(StateStore):
    """The windows of one state by their places."""

    def __init__(
        self,
        context: StoreContext,
        family: ColumnFamily,
        values: StateValues,
        ttl: TimeToLive | None,
        window_config: SerializerConfig,
    ) -> None:
        super().__init__(context, family, values, ttl)
        #: How windows are written in the canonical form.
        self.window_config = window_config
        self._tables: dict[bytes, WindowTableStore] = {}
        #: The tables that may have values at hand; the table asked for last stands at the end.
        self._warm: dict[bytes, WindowTableStore] = {}
        #: Windows whose rows are still to be deleted.
        self._dropped: list[WindowTableStore] = []

    def stored(self) -> Iterator[tuple[bytes, Any, bytes]]:
        """(place, stored window, key group) of all that was restored."""
        groups = self.context.key_groups

        def behind(database_key: bytes) -> bytes:
            return end_of(database_key[: window_start(database_key)[1]])

        start, end = group_start(groups.start), group_start(groups.end + 1)
        for database_key in self.family.skip(start, end, behind):
            window, key_start = window_start(database_key)
            yield database_key[GROUP_BYTES:key_start], window, database_key[:GROUP_BYTES]

    def open(self, place: bytes) -> WindowTableStore:
        """The table of a window that has none."""
        if any(table.place == place for table in self._dropped):
            self._delete_dropped()
        table = WindowTableStore(self.context, self.family, self.values, self._ttl, place)
        self._share_size(table)
        self._tables[place] = table
        return table

    def use(self, table: WindowTableStore) -> None:
        """The table is about to be read or written."""
        warm = self._warm
        warm.pop(table.place, None)
        warm[table.place] = table

    def drop(self, table: WindowTableStore) -> None:
        """Removes a window."""
        del self._tables[table.place]
        self._warm.pop(table.place, None)
        self._share_size(table)
        if table.groups:
            self._dropped.append(table)
            if not self.context.database.held:
                self._delete_dropped()

    def _share_size(self, table: WindowTableStore) -> None:
        """Notes the mean size of a window's values, or gives it to one that has not read or written any.

        Else each new window would keep back as many large values as small ones.
        """
        if table._mean_size:
            self._mean_size = table._mean_size
        else:
            table._mean_size = self._mean_size

    def _delete_dropped(self) -> None:
        """Deletes what is due; waits while a checkpoint holds writes."""
        dropped, self._dropped = self._dropped, []
        prefixes = [group + table.place for table in dropped for group in sorted(table.groups)]
        if prefixes:
            ranges = [(prefix, end_of(prefix)) for prefix in prefixes]
            self.context.database.delete_ranges(self.family, ranges)

    @property
    def entries(self) -> int:
        # RocksDB's estimate counts what a range deletion covers until it is compacted.
        return super().entries if self._tables else 0

    @property
    def changes(self) -> int:
        # A copy, because a report of metrics asks from another thread while windows come and go.
        return sum(table.changes for table in list(self._tables.values()))

    def bound(self) -> None:
        held = self.context.database.held
        if self._dropped and not held:
            self._delete_dropped()
        warm = self._warm
        for table in warm.values():
            self._share_size(table)
            table.bound()
        at_hand = sum(table.at_hand for table in warm.values())
        most = _GENERATIONS * self.most_changes
        if held and at_hand < HOLD_FACTOR * most:
            return
        # The one asked for last stays: its generations bound themselves.
        for table in list(warm.values())[:-1]:
            if at_hand <= most and len(warm) <= _MOST_WARM:
                return
            at_hand -= table.at_hand
            table.put_aside()
            self._share_size(table)
            del warm[table.place]

    @property
    def most_changes(self) -> int:
        return min([super().most_changes, *(table.most_changes for table in self._warm.values())])

    def _forget(self, database_key: bytes) -> None:
        table = self._tables.get(database_key[GROUP_BYTES : window_start(database_key)[1]])
        if table is not None:
            table.forget(database_key)

    def write_all(self) -> None:
        self._delete_dropped()
        for table in self._tables.values():
            table.write_all()


class RocksDBWindowTable(RocksDBValueTable):
    """The table of one window."""

    def __init__(self, store: WindowTableStore) -> None:
        super().__init__(store)
        self.store = store

    @property
    def whole(self) -> dict[Any, Any] | None:
        return self.live[0] if self.store.is_young else None


class RocksDBWindowTables(ListedTables[W, RocksDBWindowTable], Generic[W]):
    """The windows of a state, over their store."""

    def __init__(self, form: WindowForm[W], store: WindowStore) -> None:
        super().__init__(form)
        self._store = store
        for place, stored, group in store.stored():
            table = self._table(form.window(stored)).store
            if table.place != place:
                raise StateMigrationError(
                    store.context.operator_name, store.family.name, "windows", f"{stored!r:.200} at another place",
                    "another order of windows or another serializer",
                    "Declare the windows as they were, or restore from a savepoint in the canonical format.",
                )  # fmt: skip
            table.groups.add(group)

    def table(self, window: W) -> RocksDBWindowTable:
        table = self._table(window)
        self._store.use(table.store)
        return table

    def rows(self, window: W) -> Iterator[Rows]:
        table = self._tables.get(window)
        return iter(()) if table is None else table.store.rows()

    def take(self, window: W) -> Iterator[Rows]:
        return self.table(window).store.take_all() if window in self._tables else iter(())

    def restoring(self) -> Callable[[Any, Mapping[Any, Any]], None]:
        """What puts in a canonical key with its values by stored window; a key may come several times."""
        by_stored: dict[Any, WindowTableStore] = {}

        def put(key: Any, content: Mapping[Any, Any]) -> None:
            for stored, value in content.items():
                table = by_stored.get(stored)
                if table is None:
                    table = by_stored[stored] = self._table(self._form.window(stored)).store
                self._store.use(table)
                table.put(key, value)

        return put

    def _open(self, window: W, place: bytes) -> RocksDBWindowTable:
        return RocksDBWindowTable(self._store.open(place))

    def _close(self, window: W, table: RocksDBWindowTable) -> None:
        self._store.drop(table.store)


def _pieces(entries: Sequence[tuple[Any, Any]]) -> Iterator[Rows]:
    for start in range(0, len(entries), PIECE):
        piece = entries[start : start + PIECE]
        yield [key for key, _ in piece], [value for _, value in piece]
