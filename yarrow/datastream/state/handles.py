"""The handles on a state, by which a function reads and writes it.

Interfaces alone; the backends implement them. The thread that owns the task uses them while it calls a function. A
handle means the current key. It does not know names, types or where values are kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
OUT = TypeVar("OUT")


class State(ABC):
    """A handle on a state."""

    @abstractmethod
    def clear(self) -> None:
        """Remove the value of the current key."""


class ValueState(State, Generic[T]):
    """The handle of one value."""

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
        """Return the result of all added values, or None when none was added."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add a value; None is refused."""


class MergingState(AppendingState[IN, OUT]):
    """An AppendingState that can be merged with another, as windows need."""


class ReducingState(MergingState[T, T]):
    """The handle of one value, into which all added values are reduced."""


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


class _ReadableMap(State, Generic[K, V]):
    """The reading methods of a map."""

    @abstractmethod
    def get(self, key: K) -> V | None:
        """Return the value of a key, or None."""

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

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class _WritableMap(_ReadableMap[K, V]):
    """The reading and writing methods of a map."""

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set the value of a key."""

    @abstractmethod
    def put_all(self, dict_value: Mapping[K, V]) -> None:
        """Set the values of many keys."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove a key; an absent key is no error."""

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)


class MapState(_WritableMap[K, V]):
    """A map from keys of the user to values, for each key of the stream."""


class ReadOnlyBroadcastState(_ReadableMap[K, V]):
    """A map that is the same in every subtask, for reading."""


class BroadcastState(ReadOnlyBroadcastState[K, V], _WritableMap[K, V]):
    """A map that is the same in every subtask, for reading and writing."""
