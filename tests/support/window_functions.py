"""Functions and triggers of windows under tests, which several of them use."""

from __future__ import annotations

from typing import Any

from yarrow.common.typeinfo import Types
from yarrow.datastream.functions import AggregateFunction, ReduceFunction
from yarrow.datastream.state import ValueStateDescriptor
from yarrow.datastream.window import EventTimeTrigger


class OwnTrigger(EventTimeTrigger):
    """Means what the default trigger means, and takes the general way."""


class Numbers(AggregateFunction[Any, Any, Any]):
    """All numbers of a window; the accumulator is a list that `add` changes in place."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Any, accumulator: list[int]) -> list[int]:
        accumulator.append(value[1])
        return accumulator

    def get_result(self, accumulator: list[int]) -> tuple[int, ...]:
        return tuple(sorted(accumulator))

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return acc_a + acc_b


class NumbersInPlace(Numbers):
    """The same, and `merge` changes the first accumulator."""

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        acc_a.extend(acc_b)
        return acc_a


class ShownInPlace(NumbersInPlace):
    """The same, and the result changes the accumulator."""

    def get_result(self, accumulator: list[int]) -> tuple[int, ...]:
        accumulator.append(-1)
        return tuple(sorted(accumulator))


def second_in_place(first: Any, second: Any) -> Any:
    """A reduce of lists of a key and a list of numbers, which changes its second argument and returns it."""
    second[1].extend(first[1])
    return second


class CountedCalls(ReduceFunction[Any]):
    """The key, and how often the function was called for it, which is state of the key."""

    def open(self, runtime_context: Any) -> None:
        self.calls = runtime_context.get_state(ValueStateDescriptor("calls", Types.LONG()))

    def reduce(self, value1: Any, value2: Any) -> Any:
        self.calls.update((self.calls.value() or 0) + 1)
        return value1[0], self.calls.value()
