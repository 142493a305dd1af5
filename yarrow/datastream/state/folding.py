"""Reduction and Aggregation: how added values become the one value of a state.

Interfaces alone; called by the thread that owns the task. They know neither tasks nor contexts. The functions that
users write, in `yarrow.datastream.functions`, are functions of a task besides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

IN = TypeVar("IN")
ACC = TypeVar("ACC")
OUT = TypeVar("OUT")
T = TypeVar("T")


class Reduction(ABC, Generic[T]):
    """Combines two values into one of the same type; must be associative."""

    @abstractmethod
    def reduce(self, value1: T, value2: T) -> T:
        """Return the combination of the value so far and a new one."""


class Aggregation(ABC, Generic[IN, ACC, OUT]):
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
