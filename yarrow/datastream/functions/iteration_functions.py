"""What functions in the body of an iteration can ask for, and what an iteration aggregates over a superstep.

Interfaces, and the aggregators that Flink brings. The thread that owns the task calls them; the process that decides
about the next superstep merges what the tasks have aggregated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Aggregator(ABC, Generic[T]):
    """Aggregates values of all tasks over one superstep; it must pickle.

    Values of tasks are merged by `aggregate`, so it must take what `get_aggregate` gives.
    """

    @abstractmethod
    def get_aggregate(self) -> T:
        """Return the value of what was aggregated since the last `reset`."""

    @abstractmethod
    def aggregate(self, element: T) -> None:
        """Take in a value."""

    @abstractmethod
    def reset(self) -> None:
        """Forget what was aggregated."""


class LongSumAggregator(Aggregator[int]):
    """The sum of whole numbers."""

    def __init__(self) -> None:
        self._sum = 0

    def get_aggregate(self) -> int:
        return self._sum

    def aggregate(self, element: int) -> None:
        self._sum += element

    def reset(self) -> None:
        self._sum = 0


class DoubleSumAggregator(Aggregator[float]):
    """The sum of floats."""

    def __init__(self) -> None:
        self._sum = 0.0

    def get_aggregate(self) -> float:
        return self._sum

    def aggregate(self, element: float) -> None:
        self._sum += element

    def reset(self) -> None:
        self._sum = 0.0


class ConvergenceCriterion(ABC, Generic[T]):
    """Says by the value of an aggregator whether an iteration has reached its end; it must pickle."""

    @abstractmethod
    def is_converged(self, iteration: int, value: T) -> bool:
        """Return whether the superstep `iteration`, counted from 1, was the last one; `value` is its aggregate."""


class LongZeroConvergence(ConvergenceCriterion[int]):
    """The iteration ends when the aggregate is zero."""

    def is_converged(self, iteration: int, value: int) -> bool:
        return value == 0


class DoubleZeroConvergence(ConvergenceCriterion[float]):
    """The iteration ends when the aggregate is zero."""

    def is_converged(self, iteration: int, value: float) -> bool:
        return value == 0.0


class IterationRuntimeContext(ABC):
    """The facts about a superstep."""

    @abstractmethod
    def get_superstep_number(self) -> int:
        """Return the number of the superstep, from 1."""

    @abstractmethod
    def get_iteration_aggregator(self, name: str) -> Any:
        """Return the task's aggregator of this superstep. Raises KeyError for a name that is not registered."""

    @abstractmethod
    def get_previous_iteration_aggregate(self, name: str) -> Any:
        """Return the value of the last superstep, over all tasks; None in the first one.

        Raises KeyError for a name that is not registered.
        """
