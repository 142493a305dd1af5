"""Process functions: results for each record with time, timers, side outputs and state, on one stream or two.

Interfaces alone; called by the thread that owns the task, a timer like a record. A result for a side output is
yielded as `(tag, value)`. Functions over a broadcast stream are in `broadcast_functions`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from yarrow.datastream.functions.function import Function
from yarrow.datastream.functions.timers import TimeDomain, TimerService

KEY = TypeVar("KEY")
IN = TypeVar("IN")
IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")


class _ElementContext(ABC):
    """The facts that a function can ask for while a record of any stream is processed."""

    @abstractmethod
    def timer_service(self) -> TimerService:
        """Return the clocks and the timers of the key; timers need a keyed stream."""

    @abstractmethod
    def timestamp(self) -> int | None:
        """Return the event time of the record, or None."""


class _KeyedElementContext(_ElementContext):
    """The facts that a function can ask for while a record of a keyed stream is processed."""

    @abstractmethod
    def get_current_key(self) -> Any:
        """Return the key of the record."""


class _TimerContext(ABC):
    """The further facts that a function can ask for while a timer fires."""

    @abstractmethod
    def time_domain(self) -> TimeDomain:
        """Return the clock of the timer."""


class ProcessFunction(Function, Generic[IN, OUT]):
    """Any number of results for each record, with time and side outputs."""

    class Context(_ElementContext):
        """The facts that a function can ask for while a record is processed."""

    @abstractmethod
    def process_element(self, value: IN, ctx: Context) -> Iterable[Any] | None:
        """Return or yield results and `(tag, value)` pairs for side outputs; None is no result."""


class KeyedProcessFunction(Function, Generic[KEY, IN, OUT]):
    """Any number of results for each record of a keyed stream, with state, timers and side outputs."""

    class Context(_KeyedElementContext):
        """The facts that a function can ask for while a record is processed."""

    class OnTimerContext(Context, _TimerContext):
        """The facts that a function can ask for while a timer fires; its timestamp is the timer's."""

    @abstractmethod
    def process_element(self, value: IN, ctx: Context) -> Iterable[Any] | None:
        """Return or yield results and `(tag, value)` pairs for side outputs; None is no result."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        """Return or yield the results of a timer of the key; by default nothing."""
        return None


class CoProcessFunction(Function, Generic[IN1, IN2, OUT]):
    """Any number of results for each record of two connected streams, with time and side outputs."""

    class Context(_ElementContext):
        """The facts that a function can ask for while a record is processed."""

    @abstractmethod
    def process_element1(self, value: IN1, ctx: Context) -> Iterable[Any] | None:
        """Return or yield the results of a record of the first stream; None is no result."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: Context) -> Iterable[Any] | None:
        """Return or yield the results of a record of the second stream; None is no result."""


class KeyedCoProcessFunction(Function, Generic[KEY, IN1, IN2, OUT]):
    """Any number of results for each record of two connected keyed streams, which share state and timers."""

    class Context(_KeyedElementContext):
        """The facts that a function can ask for while a record is processed."""

    class OnTimerContext(Context, _TimerContext):
        """The facts that a function can ask for while a timer fires; its timestamp is the timer's."""

    @abstractmethod
    def process_element1(self, value: IN1, ctx: Context) -> Iterable[Any] | None:
        """Return or yield the results of a record of the first stream; None is no result."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: Context) -> Iterable[Any] | None:
        """Return or yield the results of a record of the second stream; None is no result."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        """Return or yield the results of a timer of the key; by default nothing."""
        return None
