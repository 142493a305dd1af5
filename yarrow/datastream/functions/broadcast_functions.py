"""Process functions over a stream and a broadcast stream, which share broadcast state.

Interfaces alone; called by the thread that owns the task. Only the method for broadcast records may write the
state: every subtask sees these records, and so holds the same state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from yarrow.datastream.functions.function import Function
from yarrow.datastream.functions.timers import TimeDomain, TimerService

if TYPE_CHECKING:
    from yarrow.datastream.state import (
        BroadcastState,
        MapStateDescriptor,
        ReadOnlyBroadcastState,
        State,
        StateDescriptor,
    )

KEY = TypeVar("KEY")
IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")
K = TypeVar("K")
V = TypeVar("V")


class BaseBroadcastProcessFunction(Function):
    """The common part of functions over a stream and a broadcast stream."""

    class BaseContext(ABC):
        """The facts that a function can ask for while a record is processed."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Return the event time of the record, or None."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the machine's time."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the event time reached."""

    class Context(BaseContext):
        """The facts that a function can ask for while a broadcast record is processed."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor[K, V]) -> BroadcastState[K, V]:
            """Return broadcast state for reading and writing.

            Each subtask must write the same values: they may depend on broadcast records alone.
            """

    class ReadOnlyContext(BaseContext):
        """The facts that a function can ask for while a record of the other stream is processed."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor[K, V]
        ) -> ReadOnlyBroadcastState[K, V]:
            """Return broadcast state for reading."""


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[IN1, IN2, OUT]):
    """Any number of results for each record of a stream without keys and of a broadcast stream."""

    class Context(BaseBroadcastProcessFunction.Context):
        """The facts that a function can ask for while a broadcast record is processed."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """The facts that a function can ask for while a record of the other stream is processed."""

    @abstractmethod
    def process_element(self, value: IN1, ctx: ReadOnlyContext) -> Iterable[Any] | None:
        """Return or yield the results of a record of the stream that is not broadcast."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: Context) -> Iterable[Any] | None:
        """Return or yield the results of a broadcast record, which every subtask sees."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[KEY, IN1, IN2, OUT]):
    """Any number of results for each record of a keyed stream and of a broadcast stream."""

    class Context(BaseBroadcastProcessFunction.Context):
        """The facts that a function can ask for while a broadcast record is processed."""

        @abstractmethod
        def apply_to_keyed_state(
            self, state_descriptor: StateDescriptor, function: Callable[[Any, State], None]
        ) -> None:
            """Call `function(key, state)` for every key of the subtask that has this state, in any order."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """The facts that a function can ask for while a record of the keyed stream is processed."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return the clocks and the timers of the key."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """Return the key of the record."""

    class OnTimerContext(ReadOnlyContext):
        """The facts that a function can ask for while a timer fires; its timestamp is the timer's."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Return the clock of the timer."""

    @abstractmethod
    def process_element(self, value: IN1, ctx: ReadOnlyContext) -> Iterable[Any] | None:
        """Return or yield the results of a record of the keyed stream."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: Context) -> Iterable[Any] | None:
        """Return or yield the results of a broadcast record, which every subtask sees."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        """Return or yield the results of a timer of the key; by default nothing."""
        return None
