"""An accumulator of the kind that programs define: its values neither add up nor follow each other."""

from __future__ import annotations

from yarrow.common.accumulators import Accumulator


class Largest(Accumulator[int, int]):
    """The largest number; 0 without any."""

    def __init__(self) -> None:
        self.largest = 0

    def add(self, value: int) -> None:
        self.largest = max(self.largest, value)

    def get_local_value(self) -> int:
        return self.largest

    def reset_local(self) -> None:
        self.largest = 0

    def merge(self, other: Accumulator[int, int]) -> None:
        self.add(other.get_local_value())
