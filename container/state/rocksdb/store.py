"""StateStore: the common part of the stores of all kinds of state: column family, limits of unwritten changes, sweep.

Owner: the task thread. A store keeps changes in memory. It writes the oldest between chunks, and all of them
at a cut. While a checkpoint holds writes it may keep several times as many. It must not know registrations or
snapshots.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from yarrow.container.state.rocksdb.database import ColumnFamily, Database
from yarrow.container.state.rocksdb.errors import StateValueTooLargeError
from yarrow.container.state.rocksdb.keys import DatabaseKeys, group_start
from yarrow.container.state.rocksdb.values import StateValues, access_time
from yarrow.container.state.ttl import TimeToLive
from yarrow.runtime.data.key_groups import KeyGroupRange

#: Most values that a store keeps back. An unannounced cut has to write them, at 1 to 2 us each. Half of them
#: is the number of keys that are read at once.
MOST_CHANGES: Final = 8192
#: Most bytes of these values, by the mean size of those written and read last.
MOST_BYTES: Final = 2 << 20
_LEAST_CHANGES: Final = 4
#: While a checkpoint holds writes, a store keeps this many times as much before its task waits.
HOLD_FACTOR: Final = 16
#: Most bytes of a value in RocksDB.
LARGEST_VALUE: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """Limits of all stores of a backend."""

    most_changes: int = MOST_CHANGES
    #: Most bytes of a value.
    largest_value: int = LARGEST_VALUE


DEFAULT_LIMITS: Final = StoreLimits()


@dataclass(frozen=True, slots=True)
class StoreContext:
    """The common parts of all stores of a backend."""

    operator_name: str
    database: Database
    keys: DatabaseKeys
    key_groups: KeyGroupRange
    limits: StoreLimits


class StateStore(ABC):
    """The values of one state: unwritten changes over the content of RocksDB.

    A store without a time to live sweeps nothing. A store that keeps no value after a read forgets nothing.
    """

    def __init__(
        self, context: StoreContext, family: ColumnFamily, values: StateValues, ttl: TimeToLive | None
    ) -> None:
        self.context = context
        self.family = family
        self.values = values
        self._ttl = ttl
        self._mean_size = 0.0
        self._cursor: bytes | None = None

    @property
    @abstractmethod
    def changes(self) -> int:
        """Number of unwritten changes."""

    @abstractmethod
    def bound(self) -> None:
        """Writes changes above the limit, between two chunks."""

    @abstractmethod
    def write_all(self) -> None:
        """Writes all changes, at a cut."""

    def sweep(self) -> None:
        """Removes some expired entries, going round the key groups."""
        ttl = self._ttl
        if ttl is None or self.context.database.held:
            return
        budget = ttl.take_sweep_budget(on_disk=True)
        if not budget:
            return
        deadline = ttl.deadline()
        seen = 0
        expired = []
        last = None
        for last, data in islice(self._from_cursor(), budget):
            seen += 1
            if access_time(data) <= deadline:
                expired.append(last)
        self._cursor = None if seen < budget or last is None else last + b"\x00"
        if expired:
            # An unwritten change lies over the entry and is written later: nothing of it is lost.
            self.family.delete_all(expired)
            for key in expired:
                self._forget(key)

    def _from_cursor(self) -> Iterator[tuple[bytes, bytes]]:
        groups = self.context.key_groups
        return self.family.scan(self._cursor or group_start(groups.start), group_start(groups.end + 1))

    def _forget(self, database_key: bytes) -> None:
        """Takes note that the sweep has removed an entry from RocksDB."""
        return None

    def forget_reads(self) -> None:
        """Drops values that were read and not changed."""
        return None

    @property
    def most_changes(self) -> int:
        """The limit of `changes` between two chunks."""
        most = self.context.limits.most_changes
        if self._mean_size * most <= MOST_BYTES:
            return most
        return min(most, max(_LEAST_CHANGES, int(MOST_BYTES / self._mean_size)))

    @property
    def generation(self) -> int:
        """Half of the limit: the changes of one of two generations, and the keys that are read in advance."""
        return self.most_changes // 2

    @property
    def entries(self) -> int:
        """RocksDB's estimate, and what is not written yet."""
        return self.family.estimated_entries + self.changes

    def note_read(self, data: bytes | None) -> None:
        """Counts the size of a read value for the limit, like that of a written one."""
        if data is not None:
            # The first value tells most.
            self._mean_size += (len(data) - self._mean_size) / (64 if self._mean_size else 1)

    def note_all_read(self, data: list[bytes | None]) -> None:
        """Counts the sizes of many read values."""
        sizes = [len(item) for item in data if item is not None]
        if sizes:
            mean = sum(sizes) / len(sizes)
            self._mean_size += (mean - self._mean_size) / (4 if self._mean_size else 1)

    def checked(self, key: Any, data: bytes) -> bytes:
        """The bytes of a value. Raises StateValueTooLargeError."""
        size = len(data)
        self._mean_size += (size - self._mean_size) / 64
        largest = self.context.limits.largest_value
        if size > largest:
            raise StateValueTooLargeError(self.context.operator_name, self.family.name, key, size, largest)
        return data

    def all_checked(self, database_keys: list[bytes], data: list[bytes]) -> list[bytes]:
        """The bytes of many values, by the keys of their entries. Raises StateValueTooLargeError."""
        sizes = list(map(len, data))
        self._mean_size += (sum(sizes) / len(sizes) - self._mean_size) / 4
        if max(sizes) > self.context.limits.largest_value:
            for key, item in zip(database_keys, data, strict=True):
                self.checked(self.context.keys.key_of(key), item)
        return data


class ChangeStore(StateStore):
    """A store that writes as many of its changes as are above the limit, the oldest first."""

    @abstractmethod
    def write_out(self, count: int) -> None:
        """Writes the oldest `count` changes."""

    def bound(self) -> None:
        above = self.changes - self.most_changes
        if above <= 0:
            return
        if self.context.database.held and self.changes < HOLD_FACTOR * self.most_changes:
            return
        self.write_out(above)

    def write_all(self) -> None:
        if self.changes:
            self.write_out(self.changes)
