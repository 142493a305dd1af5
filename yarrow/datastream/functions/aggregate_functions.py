"""Functions that combine many values: reduce and aggregate.

Interfaces alone; called by the thread that owns the task, for running results, windows and state. They hold no value
between two calls: the runtime keeps what they return.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, TypeVar

from yarrow.datastream.functions.function import Function

IN = TypeVar("IN")
ACC = TypeVar("ACC")
OUT = TypeVar("OUT")
T = TypeVar("T")


class ReduceFunction(Function, Generic[T]):
    """Combines two values into one of the same type; must be associative.

    A ReduceFunction of `KeyedStream.reduce` may use keyed state that it takes in `open`: the state of the current
    key. As the function of a ReducingState it has no runtime context.
    """

    @abstractmethod
    def reduce(self, value1: T, value2: T) -> T:
        """Return the combination of the value so far and a new one."""


class AggregateFunction(Function, Generic[IN, ACC, OUT]):
    """Adds values to an accumulator and makes a result of the accumulator."""

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """Return an accumulator that nothing was added to."""

    @abstractmethod
    def add(self, value: IN, accumulator: ACC) -> ACC:
        """Return the accumulator with a value added; the given one may be changed and returned."""

    @abstractmethod
    def get_result(self, accumulator: ACC) -> OUT:
        """Return the result; the accumulator must stay as it is."""

    @abstractmethod
    def merge(self, acc_a: ACC, acc_b: ACC) -> ACC:
        """Return the accumulator of both; called only where windows merge."""
