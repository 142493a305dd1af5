"""Functions from a record to its results, without time and side outputs: map, flat map, filter, on one stream or two.

Interfaces alone; called by the thread that owns the task. Nothing here executes anything.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

from yarrow.datastream.functions.function import Function

IN = TypeVar("IN")
IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")


class MapFunction(Function, Generic[IN, OUT]):
    """A function with one result for each record."""

    @abstractmethod
    def map(self, value: IN) -> OUT:
        """Return the result of a record."""


class CoMapFunction(Function, Generic[IN1, IN2, OUT]):
    """A function with one result for each record of two connected streams."""

    @abstractmethod
    def map1(self, value: IN1) -> OUT:
        """Return the result of a record of the first stream."""

    @abstractmethod
    def map2(self, value: IN2) -> OUT:
        """Return the result of a record of the second stream."""


class FlatMapFunction(Function, Generic[IN, OUT]):
    """Any number of results for each record."""

    @abstractmethod
    def flat_map(self, value: IN) -> Iterable[OUT] | None:
        """Return or yield the results of a record; None is no result."""


class CoFlatMapFunction(Function, Generic[IN1, IN2, OUT]):
    """Any number of results for each record of two connected streams."""

    @abstractmethod
    def flat_map1(self, value: IN1) -> Iterable[OUT] | None:
        """Return or yield the results of a record of the first stream; None is no result."""

    @abstractmethod
    def flat_map2(self, value: IN2) -> Iterable[OUT] | None:
        """Return or yield the results of a record of the second stream; None is no result."""


class FilterFunction(Function, Generic[IN]):
    """Keeps some records."""

    @abstractmethod
    def filter(self, value: IN) -> bool:
        """Whether the record is kept."""
