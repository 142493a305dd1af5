"""Base classes of user functions for the state processor: readers of keyed state, and bootstraps of new state.

Interfaces alone, beside those of yarrow.datastream.functions: `open` gets a RuntimeContext, state is registered there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from yarrow.datastream.functions import CheckpointedFunction, Function
from yarrow.datastream.functions.timers import TimerService
from yarrow.datastream.state import BroadcastState, MapStateDescriptor

KEY = TypeVar("KEY")
IN = TypeVar("IN")
OUT = TypeVar("OUT")


class KeyedStateReaderFunction(Function, Generic[KEY, OUT]):
    """Makes rows of all the state of a key.

    `open` registers the states to read; it is called once for each part into which a large state is divided, on
    the same instance. Changes that `read_key` makes to state are forgotten.
    """

    class Context(ABC):
        """The facts that a reader can ask for about the key besides its state."""

        @abstractmethod
        def registered_event_time_timers(self) -> list[int]:
            """Timestamps (ms) of the key's event-time timers, in order."""

        @abstractmethod
        def registered_processing_time_timers(self) -> list[int]:
            """Timestamps (ms) of the key's processing-time timers, in order."""

    @abstractmethod
    def read_key(self, key: KEY, ctx: Context) -> Iterable[OUT] | None:
        """The rows of a key."""


class KeyedStateBootstrapFunction(Function, Generic[KEY, IN]):
    """Writes keyed state and timers for each row; the operator that will restore it may declare the same states."""

    class Context(ABC):
        """The facts that a function can ask for while a row is processed."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """The key of the row."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Registers timers, which fire in the job that restores them."""

    @abstractmethod
    def process_element(self, value: IN, ctx: Context) -> None:
        """Process one row."""


class StateBootstrapFunction(CheckpointedFunction, Generic[IN]):
    """Writes operator state: `initialize_state` registers it, `snapshot_state` is called behind the last row."""

    @abstractmethod
    def process_element(self, value: IN) -> None:
        """Process one row."""


class BroadcastStateBootstrapFunction(Function, Generic[IN]):
    """Writes broadcast state."""

    class Context(ABC):
        """Gives the broadcast states."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor[Any, Any]
        ) -> BroadcastState[Any, Any]:
            """The state of that descriptor."""

    @abstractmethod
    def process_element(self, value: IN, ctx: Context) -> None:
        """Process one row."""
