"""The functions of DataSet programs that read two data sets.

Interfaces alone; called by the thread that owns the task. Functions that may give several results return an iterable
or are generators; None is no result. Nothing here executes anything.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from yarrow.datastream.functions.data_set_functions import RichFunction
from yarrow.datastream.functions.function import Function

IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")


class JoinFunction(Function, Generic[IN1, IN2, OUT]):
    """One result for each pair of records with equal keys."""

    @abstractmethod
    def join(self, first: IN1 | None, second: IN2 | None) -> OUT:
        """Return the result of a pair; an outer join gives None in the place of a record that is missing."""


class FlatJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Any number of results for each pair of records with equal keys."""

    @abstractmethod
    def join(self, first: IN1 | None, second: IN2 | None) -> Iterable[OUT] | None:
        """Return or yield the results of a pair; an outer join gives None in the place of a record that is missing."""


class CoGroupFunction(Function, Generic[IN1, IN2, OUT]):
    """Any number of results for all records of a key, of two data sets."""

    @abstractmethod
    def co_group(self, first: Iterator[IN1], second: Iterator[IN2]) -> Iterable[OUT] | None:
        """Return or yield the results of a key; one of the iterators may be empty, and both can be read once."""


class CrossFunction(Function, Generic[IN1, IN2, OUT]):
    """One result for each pair of records."""

    @abstractmethod
    def cross(self, first: IN1, second: IN2) -> OUT:
        """Return the result of a pair."""


class RichJoinFunction(RichFunction, JoinFunction[IN1, IN2, OUT]):
    """A JoinFunction with a runtime context."""


class RichFlatJoinFunction(RichFunction, FlatJoinFunction[IN1, IN2, OUT]):
    """A FlatJoinFunction with a runtime context."""


class RichCoGroupFunction(RichFunction, CoGroupFunction[IN1, IN2, OUT]):
    """A CoGroupFunction with a runtime context."""


class RichCrossFunction(RichFunction, CrossFunction[IN1, IN2, OUT]):
    """A CrossFunction with a runtime context."""
