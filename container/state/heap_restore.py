"""RestoredStates: what a snapshot holds for a subtask, handed to each state when the program asks for it.

Owner: the task thread; carried states are read by the snapshot thread. Nothing is decoded before its state is
registered; what nobody asks for is carried into the next snapshot as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from yarrow.container.state.backend import KeyedBackendContext
from yarrow.container.state.heap_table import HeapTable
from yarrow.container.state.registering_backend import StateRegistration


@dataclass(frozen=True, slots=True)
class CarriedState:
    """A restored state that nobody asked for."""

    name: str


class RestoredStates:
    """The restored states of one operator's subtask."""

    def __init__(self, context: KeyedBackendContext) -> None:
        self._context = context

    def take(self, state: StateRegistration) -> Iterator[tuple[Any, Any]]:
        """Canonical keys and contents of a state."""
        return iter(())

    def fill(self, state: StateRegistration, table: HeapTable) -> None:
        """Puts the restored content of a state into its table."""
        for key, content in self.take(state):
            table.shard_of(key)[key] = content
        table.divide_if_large()

    def carried(self) -> Sequence[CarriedState]:
        """States that nobody asked for."""
        return ()
