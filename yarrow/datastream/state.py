"""State: what user functions remember between records.

Interfaces of the handles, and the descriptors that name a state and declare its type. A handle is used only
while a function of its task is being called, by the thread that owns the task, and speaks of the current key.
The backends that keep the values are part of the runtime.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar

from yarrow.common.time import Duration, Time, milliseconds_of
from yarrow.common.typeinfo import ListTypeInfo, MapTypeInfo, TypeInformation, Types
from yarrow.datastream.functions import AggregateFunction, ReduceFunction

__all__ = [
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AppendingState",
    "BroadcastState",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "MergingState",
    "OperatorStateStore",
    "ReadOnlyBroadcastState",
    "ReducingState",
    "ReducingStateDescriptor",
    "State",
    "StateDescriptor",
    "StateTtlConfig",
    "ValueState",
    "ValueStateDescriptor",
]

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
ACC = TypeVar("ACC")
OUT = TypeVar("OUT")


class State(ABC):
    """A handle on a state."""

    @abstractmethod
    def clear(self) -> None:
        """Remove the value of the current key."""


class ValueState(State, Generic[T]):
    """One value."""

    @abstractmethod
    def value(self) -> T | None:
        """Return the value, or None when there is none."""

    @abstractmethod
    def update(self, value: T) -> None:
        """Set the value; None removes it."""


class AppendingState(State, Generic[IN, OUT]):
    """A state that values are added to."""

    @abstractmethod
    def get(self) -> OUT | None:
        """Return the result of what was added, or None when nothing was."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add a value; None is refused."""


class MergingState(AppendingState[IN, OUT]):
    """An AppendingState that can be merged with another, as windows need."""


class ReducingState(MergingState[T, T]):
    """One value, into which what is added is reduced."""


class AggregatingState(MergingState[IN, OUT]):
    """An accumulator that values are added to, and its result."""


class ListState(MergingState[T, Iterable[T]]):
    """A list; empty, not None, when nothing was added."""

    @abstractmethod
    def get(self) -> Iterable[T]:
        """Iterate over the elements in the order they were added."""

    @abstractmethod
    def update(self, values: list[T]) -> None:
        """Replace all elements; an empty list removes the state."""

    @abstractmethod
    def add_all(self, values: list[T]) -> None:
        """Add elements at the end."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class MapState(State, Generic[K, V]):
    """A map from keys of the user to values, for each key of the stream."""

    @abstractmethod
    def get(self, key: K) -> V | None:
        """Return the value of a key, or None."""

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set the value of a key."""

    @abstractmethod
    def put_all(self, dict_value: Mapping[K, V]) -> None:
        """Set the values of many keys."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove a key; one that is not there is no error."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Whether a key is there."""

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]:
        """Iterate over keys with their values; the map must not be changed meanwhile."""

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """Iterate over the keys; the map must not be changed meanwhile."""

    @abstractmethod
    def values(self) -> Iterable[V]:
        """Iterate over the values; the map must not be changed meanwhile."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Whether there is no key."""

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class ReadOnlyBroadcastState(State, Generic[K, V]):
    """A map that is the same in every subtask, for reading."""

    @abstractmethod
    def get(self, key: K) -> V | None:
        """Return the value of a key, or None."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Whether a key is there."""

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]:
        """Iterate over keys with their values."""

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """Iterate over the keys."""

    @abstractmethod
    def values(self) -> Iterable[V]:
        """Iterate over the values."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Whether there is no key."""

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class BroadcastState(ReadOnlyBroadcastState[K, V]):
    """A map that is the same in every subtask, for reading and writing."""

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set the value of a key."""

    @abstractmethod
    def put_all(self, dict_value: Mapping[K, V]) -> None:
        """Set the values of many keys."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove a key; one that is not there is no error."""

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)


class OperatorStateStore(ABC):
    """Gives access to state that belongs to the operator, not to a key."""

    @abstractmethod
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor[K, V]) -> BroadcastState[K, V]:
        """Return the handle of a broadcast state."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """Return the handle of a list whose elements are dealt out anew when the parallelism changes."""

    @abstractmethod
    def get_union_list_state(self, state_descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """Return the handle of a list of which every subtask is given all elements of all at restore."""


@dataclass(frozen=True)
class StateTtlConfig:
    """How long values of a state live.

    Made by `StateTtlConfig.new_builder(ttl)`; an expired value counts as removed.

    Raises ValueError for a time to live that is not positive.
    """

    class UpdateType(Enum):
        """What makes a value young again."""

        Disabled = 0
        OnCreateAndWrite = 1
        OnReadAndWrite = 2

    class StateVisibility(Enum):
        """Whether an expired value that is still stored may be read."""

        ReturnExpiredIfNotCleanedUp = 0
        NeverReturnExpired = 1

    class TtlTimeCharacteristic(Enum):
        """The clock that values age by."""

        ProcessingTime = 0

    @dataclass(frozen=True)
    class CleanupStrategies:
        """When expired values are removed from storage besides being hidden from readers."""

        #: Whether the backend's own background clean-up runs.
        in_background: bool = True
        #: Whether expired values are left out of full snapshots.
        in_full_snapshot: bool = False
        #: Entries looked at by each access; 0: no incremental clean-up was asked for.
        incremental_cleanup_size: int = 0
        run_cleanup_for_every_record: bool = False
        #: Entries between two looks at the clock during RocksDB's clean-up; 0: none was asked for.
        rocksdb_query_time_after_num_entries: int = 0
        rocksdb_periodic_compaction_time_ms: int | None = None

    class Builder:
        """Collects the settings."""

        def __init__(self, ttl: Time | Duration) -> None:
            self._ttl: Time | Duration = ttl
            self._update_type = StateTtlConfig.UpdateType.OnCreateAndWrite
            self._state_visibility = StateTtlConfig.StateVisibility.NeverReturnExpired
            self._time_characteristic = StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
            self._cleanup: dict[str, Any] = {}

        def set_update_type(self, update_type: StateTtlConfig.UpdateType) -> StateTtlConfig.Builder:
            """Set what makes a value young again."""
            self._update_type = update_type
            return self

        def update_ttl_on_create_and_write(self) -> StateTtlConfig.Builder:
            """Only writing makes a value young again, as is the default."""
            return self.set_update_type(StateTtlConfig.UpdateType.OnCreateAndWrite)

        def update_ttl_on_read_and_write(self) -> StateTtlConfig.Builder:
            """Reading makes a value young again too."""
            return self.set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)

        def set_state_visibility(
            self, state_visibility: StateTtlConfig.StateVisibility
        ) -> StateTtlConfig.Builder:
            """Set whether an expired value that is still stored may be read."""
            self._state_visibility = state_visibility
            return self

        def return_expired_if_not_cleaned_up(self) -> StateTtlConfig.Builder:
            """An expired value is read until it is removed from storage."""
            return self.set_state_visibility(StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp)

        def never_return_expired(self) -> StateTtlConfig.Builder:
            """An expired value is never read, as is the default."""
            return self.set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)

        def set_ttl_time_characteristic(
            self, ttl_time_characteristic: StateTtlConfig.TtlTimeCharacteristic
        ) -> StateTtlConfig.Builder:
            """Set the clock that values age by."""
            self._time_characteristic = ttl_time_characteristic
            return self

        def use_processing_time(self) -> StateTtlConfig.Builder:
            """Values age by the machine's clock, as is the default."""
            return self.set_ttl_time_characteristic(StateTtlConfig.TtlTimeCharacteristic.ProcessingTime)

        def cleanup_full_snapshot(self) -> StateTtlConfig.Builder:
            """Leave expired values out of full snapshots."""
            self._cleanup["in_full_snapshot"] = True
            return self

        def cleanup_incrementally(
            self, cleanup_size: int, run_cleanup_for_every_record: bool = False
        ) -> StateTtlConfig.Builder:
            """Look at this many entries of a heap state at each access, or at each record.

            ValueError below 1.
            """
            if cleanup_size < 1:
                raise ValueError(f"cleanup_size must be at least 1, not {cleanup_size}")
            self._cleanup["incremental_cleanup_size"] = cleanup_size
            self._cleanup["run_cleanup_for_every_record"] = run_cleanup_for_every_record
            return self

        def cleanup_in_rocksdb_compact_filter(
            self,
            query_time_after_num_entries: int,
            periodic_compaction_time: Time | Duration | None = None,
        ) -> StateTtlConfig.Builder:
            """Remove expired values of RocksDB in the background, reading the clock every so many entries."""
            if query_time_after_num_entries < 1:
                raise ValueError(
                    f"query_time_after_num_entries must be at least 1, not {query_time_after_num_entries}"
                )
            self._cleanup["rocksdb_query_time_after_num_entries"] = query_time_after_num_entries
            if periodic_compaction_time is not None:
                self._cleanup["rocksdb_periodic_compaction_time_ms"] = milliseconds_of(
                    periodic_compaction_time
                )
            return self

        def disable_cleanup_in_background(self) -> StateTtlConfig.Builder:
            """Remove expired values only when they are read."""
            self._cleanup["in_background"] = False
            return self

        def set_ttl(self, ttl: Time | Duration) -> StateTtlConfig.Builder:
            """Set the time to live."""
            self._ttl = ttl
            return self

        def build(self) -> StateTtlConfig:
            """Return the settings."""
            return StateTtlConfig(
                self._update_type,
                self._state_visibility,
                self._time_characteristic,
                self._ttl,
                StateTtlConfig.CleanupStrategies(**self._cleanup),
            )

    update_type: UpdateType
    state_visibility: StateVisibility
    ttl_time_characteristic: TtlTimeCharacteristic
    ttl: Time | Duration
    cleanup_strategies: CleanupStrategies = field(default_factory=CleanupStrategies)

    def __post_init__(self) -> None:
        if milliseconds_of(self.ttl) < 1:
            raise ValueError(f"the time to live of a state must be at least 1 ms, not {self.ttl!r}")

    @staticmethod
    def new_builder(ttl: Time | Duration) -> Builder:
        """Begin settings with this time to live."""
        return StateTtlConfig.Builder(ttl)

    def get_update_type(self) -> UpdateType:
        """Return what makes a value young again."""
        return self.update_type

    def get_state_visibility(self) -> StateVisibility:
        """Return whether an expired value that is still stored may be read."""
        return self.state_visibility

    def get_ttl(self) -> Time | Duration:
        """Return the time to live."""
        return self.ttl

    def get_ttl_time_characteristic(self) -> TtlTimeCharacteristic:
        """Return the clock that values age by."""
        return self.ttl_time_characteristic

    def is_enabled(self) -> bool:
        """Whether values expire at all."""
        return self.update_type is not StateTtlConfig.UpdateType.Disabled

    def get_cleanup_strategies(self) -> CleanupStrategies:
        """Return when expired values are removed from storage."""
        return self.cleanup_strategies


class StateDescriptor:
    """The name and type of a state; the name is part of every snapshot.

    Raises ValueError for an empty name and TypeError for what is no type.
    """

    def __init__(self, name: str, type_info: TypeInformation) -> None:
        if not isinstance(name, str) or not name:
            raise ValueError(f"the name of a state must be a non-empty string, not {name!r}")
        self.name = name
        self.type_info = type_info
        self.ttl_config: StateTtlConfig | None = None

    def get_name(self) -> str:
        """Return the name."""
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let values expire."""
        self.ttl_config = ttl_config if ttl_config.is_enabled() else None

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, StateDescriptor)
            and type(self) is type(other)
            and (self.name, self.type_info) == (other.name, other.type_info)
        )

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.name))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.type_info})"


class ValueStateDescriptor(StateDescriptor, Generic[T]):
    """Declares a ValueState. Without a type, values are pickled."""

    def __init__(self, name: str, value_type_info: TypeInformation | None = None) -> None:
        super().__init__(name, _declared(name, value_type_info))


class ListStateDescriptor(StateDescriptor, Generic[T]):
    """Declares a ListState by the type of its elements. Without a type, elements are pickled."""

    def __init__(self, name: str, elem_type_info: TypeInformation | None = None) -> None:
        self.elem_type_info = _declared(name, elem_type_info)
        super().__init__(name, ListTypeInfo(self.elem_type_info))


class MapStateDescriptor(StateDescriptor, Generic[K, V]):
    """Declares a MapState, or a broadcast state. Without types, keys and values are pickled."""

    def __init__(
        self,
        name: str,
        key_type_info: TypeInformation | None = None,
        value_type_info: TypeInformation | None = None,
    ) -> None:
        self.key_type_info = _declared(name, key_type_info)
        self.value_type_info = _declared(name, value_type_info)
        super().__init__(name, MapTypeInfo(self.key_type_info, self.value_type_info))


class ReducingStateDescriptor(StateDescriptor, Generic[T]):
    """Declares a ReducingState with its function, a ReduceFunction or a plain function of two values."""

    def __init__(
        self,
        name: str,
        reduce_function: ReduceFunction[T] | Callable[[T, T], T],
        type_info: TypeInformation | None = None,
    ) -> None:
        super().__init__(name, _declared(name, type_info))
        if not isinstance(reduce_function, ReduceFunction):
            if not callable(reduce_function):
                raise TypeError(
                    f"state {name!r}: expected a ReduceFunction or a function, got {reduce_function!r}"
                )
            reduce_function = _CallableReduceFunction(reduce_function)
        self.reduce_function: ReduceFunction[T] = reduce_function

    def get_reduce_function(self) -> ReduceFunction[T]:
        """Return the function; a plain one comes back as a ReduceFunction."""
        return self.reduce_function


class AggregatingStateDescriptor(StateDescriptor, Generic[IN, ACC, OUT]):
    """Declares an AggregatingState with its function and the type of the accumulator."""

    def __init__(
        self,
        name: str,
        agg_function: AggregateFunction[IN, ACC, OUT],
        state_type_info: TypeInformation | None = None,
    ) -> None:
        super().__init__(name, _declared(name, state_type_info))
        if not isinstance(agg_function, AggregateFunction):
            raise TypeError(f"state {name!r}: expected an AggregateFunction, got {agg_function!r}")
        self.agg_function = agg_function

    def get_agg_function(self) -> AggregateFunction[IN, ACC, OUT]:
        """Return the function."""
        return self.agg_function


class _CallableReduceFunction(ReduceFunction[T]):
    """A plain function of two values as a ReduceFunction."""

    def __init__(self, function: Callable[[T, T], T]) -> None:
        self._function = function

    def reduce(self, value1: T, value2: T) -> T:
        return self._function(value1, value2)


def _declared(name: str, type_info: TypeInformation | None) -> TypeInformation:
    if type_info is None:
        return Types.PICKLED_BYTE_ARRAY()
    if not isinstance(type_info, TypeInformation):
        raise TypeError(
            f"state {name!r}: the type must be a TypeInformation such as Types.LONG(), not {type_info!r}"
        )
    return type_info
