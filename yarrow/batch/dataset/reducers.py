"""Functions that stand for operations of groupings: the extreme row, one row of equals, a reduce as a reduce_group.

Owner: the task's thread calls them; the program makes and pickles them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from itertools import islice
from typing import Any

from yarrow.datastream.functions import Function, RuntimeContext
from yarrow.datastream.functions.data_set_functions import (
    GroupCombineFunction,
    GroupReduceFunction,
    RichFunction,
)
from yarrow.runtime.common.errors import InvalidProgramError


def first_of(one: Any, other: Any) -> Any:
    """The first of two rows."""
    return one


class ExtremeRow:
    """The row with the least or the greatest value; the first of equal ones."""

    def __init__(self, value_of: Callable[[Any], Any], *, smallest: bool) -> None:
        self._value_of = value_of
        self._smallest = smallest

    def __call__(self, one: Any, other: Any) -> Any:
        """One of two rows."""
        value, other_value = self._value_of(one), self._value_of(other)
        is_better = other_value < value if self._smallest else other_value > value
        return other if is_better else one


class PairwiseReduce(RichFunction, GroupReduceFunction[Any, Any], GroupCombineFunction[Any, Any]):
    """Reduces the rows of a group by a reduce function, which it opens and closes."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def open(self, runtime_context: RuntimeContext) -> None:
        """Opens the function."""
        if isinstance(self._function, RichFunction):
            self._function.set_runtime_context(runtime_context)
        if isinstance(self._function, Function):
            self._function.open(runtime_context)

    def close(self) -> None:
        """Closes the function."""
        if isinstance(self._function, Function):
            self._function.close()

    def reduce(self, values: Iterator[Any]) -> Iterator[Any]:
        """The one row of a group."""
        yield reduce(getattr(self._function, "reduce", self._function), values)

    def combine(self, values: Iterator[Any]) -> Iterator[Any]:
        """The one row of some rows of a group."""
        return self.reduce(values)


class FirstRowsOfGroup:
    """The first rows of a group."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __call__(self, rows: Iterator[Any]) -> Iterator[Any]:
        return islice(rows, self._count)


def check_count(count: int) -> None:
    """Raises InvalidProgramError for a number of rows below 1, or above the largest one of 64 bits."""
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count < 1 << 63:
        raise InvalidProgramError(f"first takes the number of rows, from 1 on and below 2**63, not {count!r}")
