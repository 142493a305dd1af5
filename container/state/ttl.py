"""Time to live of state: handles that store the last access time with each value, and hide expired values.

Owner: the task thread, except `TimeToLive.living`, which a snapshot thread may call. A wrapper lies over the
handle of any backend. The backend then stores pairs (access time in epoch ms, value) instead of values. There
is one pair for a value state, one for each element of a list, and one for each entry of a map. It must not
know how a backend stores them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

from yarrow.common.time import milliseconds_of
from yarrow.container.state.value_table import MISSING
from yarrow.datastream.state import ListState, MapState, StateTtlConfig, ValueState
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.snapshot.handles import StateKind

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

#: (epoch ms of the last access, value)
Stamped = tuple[int, Any]

#: Most entries that the incremental sweep checks for each access, as Flink's default.
_SWEPT_AN_ACCESS = 5
#: Limits of the entries that the sweep checks after a chunk, so that it neither stops nor delays the task.
_LEAST_SWEPT = 100
_MOST_SWEPT = 5000


class TimeToLive:
    """The settings of one state, and the clock by which its values age."""

    def __init__(self, config: StateTtlConfig, clock: Clock) -> None:
        self.config = config
        self.lifetime_ms = milliseconds_of(config.ttl)
        self.renewed_by_reads = config.update_type is StateTtlConfig.UpdateType.OnReadAndWrite
        self.shows_expired = (
            config.state_visibility is StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp
        )
        self.now = clock.epoch_ms
        #: Accesses since the last sweep.
        self.accesses = 0

    def deadline(self) -> int:
        """Content that was last accessed at or before this time (epoch ms) has expired."""
        return self.now() - self.lifetime_ms

    def is_swept(self, *, on_disk: bool = False) -> bool:
        """False if background clean-up is off and was not asked for by Flink's name for it in such a backend."""
        cleanup = self.config.cleanup_strategies
        own_name = (
            cleanup.Strategies.ROCKSDB_COMPACTION_FILTER
            if on_disk
            else cleanup.Strategies.INCREMENTAL_CLEANUP
        )
        return cleanup.in_background or own_name in cleanup.strategies

    def take_sweep_budget(self, *, on_disk: bool = False) -> int:
        """The number of entries that the sweep may look at now; 0 where there is none, see `is_swept`."""
        if not self.is_swept(on_disk=on_disk):
            return 0
        incremental = self.config.cleanup_strategies.get_incremental_cleanup_strategy()
        swept = _SWEPT_AN_ACCESS if incremental is None else incremental.get_cleanup_size()
        wanted = self.accesses * swept
        self.accesses = 0
        return min(max(wanted, _LEAST_SWEPT), _MOST_SWEPT)

    @staticmethod
    def living(kind: StateKind, stored: Any, deadline: int) -> Any:
        """The unexpired part of a key's stored content; MISSING if all has expired."""
        if kind is StateKind.LIST:
            kept: Any = [pair for pair in stored if pair[0] > deadline]
        elif kind is StateKind.MAP:
            kept = {key: pair for key, pair in stored.items() if pair[0] > deadline}
        else:
            return stored if stored[0] > deadline else MISSING
        if len(kept) == len(stored):
            return stored
        return kept if kept else MISSING


class TtlValueState(ValueState[T], Generic[T]):
    """A value with the time of its last access."""

    def __init__(self, stored: ValueState[Stamped], ttl: TimeToLive) -> None:
        self._stored = stored
        self._ttl = ttl

    def value(self) -> T | None:
        ttl = self._ttl
        ttl.accesses += 1
        pair = self._stored.value()
        if pair is None:
            return None
        value: T
        accessed, value = pair
        now = ttl.now()
        if accessed + ttl.lifetime_ms <= now:
            self._stored.clear()
            return value if ttl.shows_expired else None
        if ttl.renewed_by_reads and accessed != now:
            self._stored.update((now, value))
        return value

    def update(self, value: T) -> None:
        self._ttl.accesses += 1
        if value is None:
            self._stored.clear()
        else:
            self._stored.update((self._ttl.now(), value))

    def clear(self) -> None:
        self._stored.clear()


class TtlListState(ListState[T], Generic[T]):
    """A list whose elements expire one by one."""

    def __init__(self, stored: ListState[Stamped], ttl: TimeToLive) -> None:
        self._stored = stored
        self._ttl = ttl

    def get(self) -> Iterable[T]:
        ttl = self._ttl
        ttl.accesses += 1
        pairs = list(self._stored.get())
        if not pairs:
            return []
        now = ttl.now()
        deadline = now - ttl.lifetime_ms
        living = [pair for pair in pairs if pair[0] > deadline]
        shown = pairs if ttl.shows_expired else living
        if ttl.renewed_by_reads:
            self._stored.update([(now, value) for _, value in living])
        elif len(living) < len(pairs):
            self._stored.update(living)
        return [value for _, value in shown]

    def add(self, value: T) -> None:
        self._ttl.accesses += 1
        self._stored.add(None if value is None else (self._ttl.now(), value))  # type: ignore[arg-type]

    def add_all(self, values: list[T]) -> None:
        self._ttl.accesses += 1
        self._stored.add_all(self._stamped(values))

    def update(self, values: list[T]) -> None:
        self._ttl.accesses += 1
        self._stored.update(self._stamped(values))

    def _stamped(self, values: list[T]) -> list[Stamped]:
        now = self._ttl.now()
        # The handle below refuses None, by the name of the state.
        return [None if value is None else (now, value) for value in values]  # type: ignore[misc]

    def clear(self) -> None:
        self._stored.clear()


class TtlMapState(MapState[K, V], Generic[K, V]):
    """A map whose entries expire one by one."""

    def __init__(self, stored: MapState[K, Stamped], ttl: TimeToLive) -> None:
        self._stored = stored
        self._ttl = ttl

    def get(self, key: K) -> V | None:
        pair = self._living(key)
        return None if pair is None else pair[1]

    def contains(self, key: K) -> bool:
        return self._living(key) is not None

    def _living(self, key: K) -> Stamped | None:
        ttl = self._ttl
        ttl.accesses += 1
        pair = self._stored.get(key)
        if pair is None:
            return None
        now = ttl.now()
        if pair[0] + ttl.lifetime_ms <= now:
            self._stored.remove(key)
            return pair if ttl.shows_expired else None
        if ttl.renewed_by_reads and pair[0] != now:
            self._stored.put(key, (now, pair[1]))
        return pair

    def put(self, key: K, value: V) -> None:
        self._ttl.accesses += 1
        self._stored.put(key, (self._ttl.now(), value))

    def put_all(self, dict_value: Mapping[K, V]) -> None:
        self._ttl.accesses += 1
        now = self._ttl.now()
        self._stored.put_all({key: (now, value) for key, value in dict_value.items()})

    def remove(self, key: K) -> None:
        self._stored.remove(key)

    def items(self) -> Iterable[tuple[K, V]]:
        return [(key, pair[1]) for key, pair in self._all_living()]

    def keys(self) -> Iterable[K]:
        return [key for key, _ in self._all_living()]

    def values(self) -> Iterable[V]:
        return [pair[1] for _, pair in self._all_living()]

    def is_empty(self) -> bool:
        return not self._all_living()

    def _all_living(self) -> list[tuple[K, Stamped]]:
        ttl = self._ttl
        ttl.accesses += 1
        entries = list(self._stored.items())
        now = ttl.now()
        deadline = now - ttl.lifetime_ms
        shown = []
        for entry in entries:
            key, (accessed, value) = entry
            if accessed <= deadline:
                self._stored.remove(key)
                if ttl.shows_expired:
                    shown.append(entry)
                continue
            if ttl.renewed_by_reads and accessed != now:
                self._stored.put(key, (now, value))
            shown.append(entry)
        return shown

    def clear(self) -> None:
        self._stored.clear()
