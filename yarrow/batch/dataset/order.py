"""Order: the direction of a sort. Plain values; any thread."""

from __future__ import annotations

from enum import Enum


class Order(Enum):
    """Whether small values come first; None comes before all other values, or behind them when descending."""

    ASCENDING = "ASCENDING"
    DESCENDING = "DESCENDING"

    def is_ascending(self) -> bool:
        """Whether small values come first."""
        return self is Order.ASCENDING
