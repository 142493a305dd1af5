"""Accumulators: values that every subtask adds to and whose merged total is a result of the job.

Each subtask owns one instance, touched only by the thread that owns the task; totals are merged from copies.
An accumulator must pickle, and merging must not depend on order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from typing import Generic, TypeVar

__all__ = [
    "Accumulator",
    "AverageAccumulator",
    "DoubleCounter",
    "Histogram",
    "IntCounter",
    "ListAccumulator",
    "LongCounter",
]

V = TypeVar("V")
R = TypeVar("R")
T = TypeVar("T")


class Accumulator(ABC, Generic[V, R]):
    """Takes values of type V and holds a result of type R."""

    @abstractmethod
    def add(self, value: V) -> None:
        """Add a value."""

    @abstractmethod
    def get_local_value(self) -> R:
        """Return the result of the values added here."""

    @abstractmethod
    def reset_local(self) -> None:
        """Forget the values added here."""

    @abstractmethod
    def merge(self, other: Accumulator[V, R]) -> None:
        """Add the result of another accumulator of the same class to this one."""


class IntCounter(Accumulator[int, int]):
    """A sum of whole numbers."""

    def __init__(self, value: int = 0) -> None:
        self._sum = value

    def add(self, value: int) -> None:
        self._sum += value

    def get_local_value(self) -> int:
        return self._sum

    def reset_local(self) -> None:
        self._sum = 0

    def merge(self, other: Accumulator[int, int]) -> None:
        self._sum += other.get_local_value()


class LongCounter(IntCounter):
    """A sum of whole numbers; Python's have no width, so it is an IntCounter by another name."""


class DoubleCounter(Accumulator[float, float]):
    """A sum of numbers."""

    def __init__(self, value: float = 0.0) -> None:
        self._sum = value

    def add(self, value: float) -> None:
        self._sum += value

    def get_local_value(self) -> float:
        return self._sum

    def reset_local(self) -> None:
        self._sum = 0.0

    def merge(self, other: Accumulator[float, float]) -> None:
        self._sum += other.get_local_value()


class AverageAccumulator(Accumulator[float, float]):
    """The mean of numbers; 0.0 when there were none."""

    def __init__(self) -> None:
        self._count = 0
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._count += 1
        self._sum += value

    def get_local_value(self) -> float:
        return self._sum / self._count if self._count else 0.0

    def reset_local(self) -> None:
        self._count, self._sum = 0, 0.0

    def merge(self, other: Accumulator[float, float]) -> None:
        if not isinstance(other, AverageAccumulator):
            raise TypeError(
                f"an AverageAccumulator merges with its own class, not with {type(other).__name__}"
            )
        self._count += other._count
        self._sum += other._sum


class Histogram(Accumulator[int, dict[int, int]]):
    """An accumulator that counts how often each whole number was added."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, value: int) -> None:
        self._counts[value] += 1

    def get_local_value(self) -> dict[int, int]:
        return dict(sorted(self._counts.items()))

    def reset_local(self) -> None:
        self._counts.clear()

    def merge(self, other: Accumulator[int, dict[int, int]]) -> None:
        self._counts.update(other.get_local_value())


class ListAccumulator(Accumulator[T, list[T]]):
    """Every value that was added; the order between subtasks is open."""

    def __init__(self) -> None:
        self._values: list[T] = []

    def add(self, value: T) -> None:
        self._values.append(value)

    def get_local_value(self) -> list[T]:
        return list(self._values)

    def reset_local(self) -> None:
        self._values.clear()

    def merge(self, other: Accumulator[T, list[T]]) -> None:
        self._values.extend(other.get_local_value())
