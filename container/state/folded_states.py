"""ReducingState and AggregatingState on top of a value state: for any backend, with or without time to live.

Owner: the task thread. Added values must not be None; a function's accumulator is written back after each
change.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from yarrow.container.state.errors import NoneInStateError
from yarrow.datastream.state import AggregatingState, ReducingState, ValueState
from yarrow.datastream.state.folding import Aggregation, Reduction

T = TypeVar("T")
IN = TypeVar("IN")
OUT = TypeVar("OUT")


def refuse_none(operator_name: str, state_name: str) -> NoneInStateError:
    """The error of an attempt to add None."""
    return NoneInStateError(
        f"operator '{operator_name}', state '{state_name}': None cannot be added; add values only, or use"
        " clear() to remove the values"
    )


class FoldedReducingState(ReducingState[T], Generic[T]):
    """A reducing state that keeps the reduced value in a value state."""

    def __init__(self, stored: ValueState[T], function: Reduction[T], operator_name: str, name: str) -> None:
        self._stored = stored
        self._reduce = function.reduce
        self._names = (operator_name, name)

    def get(self) -> T | None:
        return self._stored.value()

    def add(self, value: T) -> None:
        if value is None:
            raise refuse_none(*self._names)
        current = self._stored.value()
        self._stored.update(value if current is None else self._reduce(current, value))

    def clear(self) -> None:
        self._stored.clear()


class FoldedAggregatingState(AggregatingState[IN, OUT], Generic[IN, OUT]):
    """An aggregating state that keeps the accumulator in a value state."""

    def __init__(
        self,
        stored: ValueState[Any],
        function: Aggregation[IN, Any, OUT],
        operator_name: str,
        name: str,
    ) -> None:
        self._stored = stored
        self._function = function
        self._names = (operator_name, name)

    def get(self) -> OUT | None:
        accumulator = self._stored.value()
        return None if accumulator is None else self._function.get_result(accumulator)

    def add(self, value: IN) -> None:
        if value is None:
            raise refuse_none(*self._names)
        accumulator = self._stored.value()
        if accumulator is None:
            accumulator = self._function.create_accumulator()
        self._stored.update(self._function.add(value, accumulator))

    def clear(self) -> None:
        self._stored.clear()
