"""DeltaFunction: the distance of two records, for DeltaTrigger and DeltaEvictor.

An interface alone; called by the thread that owns the task. It does not decide which records are compared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class DeltaFunction(ABC, Generic[T]):
    """The distance of two records."""

    @abstractmethod
    def get_delta(self, old_data_point: T, new_data_point: T) -> float:
        """Return how far the new record is from the old one."""


def delta_of(function: Callable[[T, T], float] | DeltaFunction[T], used_by: str) -> Callable[[T, T], float]:
    """Return the call that gives a distance. Raises TypeError, naming `used_by`, for what is no such function."""
    if isinstance(function, DeltaFunction):
        return function.get_delta
    if callable(function) and not isinstance(function, type):
        return function
    raise TypeError(
        f"{used_by} takes a DeltaFunction, or a callable of the older and the newer record, not {function!r}"
    )


def checked_threshold(threshold: Any, used_by: str) -> float:
    """Return a threshold. Raises ValueError, naming `used_by`, for anything else than a number."""
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or threshold != threshold:
        raise ValueError(f"the threshold of {used_by} must be a number, not {threshold!r}")
    return threshold
