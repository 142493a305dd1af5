"""Buckets of time, and the times that the two sides of an interval join look for in each other.

Owner: any thread; pure. All times are milliseconds since the epoch, all bounds belong to the interval. A bucket has its
start and not its end. Must not know state, keys or operators.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from yarrow.datastream.window_types import TimeWindow
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP

#: Least length of a bucket: each has a table of its own.
LEAST_LENGTH: Final = 1000
#: Most length of a fine bucket in memory, which is copied in one piece.
MOST_FINE_LENGTH: Final = 100


class SideBounds(NamedTuple):
    """A row at t meets rows of the other side from t + lower to t + upper."""

    lower: int
    upper: int

    @property
    def mirrored(self) -> SideBounds:
        """The bounds of the other side."""
        return SideBounds(-self.upper, -self.lower)

    @property
    def bucket_length(self) -> int:
        """The length of buckets: a row looks into three at most, and stays half an interval too long at most."""
        return max(LEAST_LENGTH, (self.upper - self.lower) // 2 + 1)

    @property
    def fine_length(self) -> int | None:
        """The length of buckets in memory: a row looks into three at most. None = the interval is too long for them."""
        length = (self.upper - self.lower) // 2 + 1
        return length if length <= MOST_FINE_LENGTH else None

    @property
    def delay(self) -> int:
        """How long an unmatched row may leave behind the watermark: event time behind the join waits as long."""
        return max(0, self.bucket_length + self.upper)

    def last_position(self, watermark: int) -> int | None:
        """The last time of buckets whose rows meet no row any more; None = there are none.

        No row below the watermark comes. So a row at t waits until t + upper is below the watermark.
        """
        position = min(watermark - self.upper - 1, MAX_TIMESTAMP)
        if watermark == MAX_TIMESTAMP:
            # The input has ended.
            return MAX_TIMESTAMP
        return position if position >= MIN_TIMESTAMP else None


def bucket_starts(first: int, last: int, length: int) -> Iterable[int]:
    """The starts of all buckets that hold times from `first` to `last`."""
    return range(first - first % length, last + 1, length)


def bucket_at(start: int, length: int) -> TimeWindow:
    """The bucket of a start, cut to times of 64 bits."""
    return TimeWindow(max(start, MIN_TIMESTAMP), min(start + length, MAX_TIMESTAMP))
