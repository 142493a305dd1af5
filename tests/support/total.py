"""Total: an aggregate that adds integers, whose parts merge."""

from __future__ import annotations

from yarrow.datastream.functions import AggregateFunction


class Total(AggregateFunction[int, int, int]):
    """Adds integers."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b
