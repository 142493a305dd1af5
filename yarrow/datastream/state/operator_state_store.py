"""OperatorStateStore: the access to state that belongs to an operator, not to a key.

An interface alone, handed to a function that takes part in checkpoints; used by the thread that owns the task. How
the state is dealt out when the parallelism changes is the runtime's work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

from yarrow.datastream.state.descriptors import ListStateDescriptor, MapStateDescriptor
from yarrow.datastream.state.handles import BroadcastState, ListState

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class OperatorStateStore(ABC):
    """Gives access to state that belongs to the operator, not to a key."""

    @abstractmethod
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor[K, V]) -> BroadcastState[K, V]:
        """Return the handle of a broadcast state."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """Return the handle of a list whose elements are redistributed when the parallelism changes."""

    @abstractmethod
    def get_union_list_state(self, state_descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """Return the handle of a list of which every subtask is given all elements of all at restore."""
