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
#: Lengths of fine buckets in memory. A bucket is copied in one piece. Each length divides that of the stored buckets of
#: narrow intervals: a fine bucket lies in one of them.
_FINE_LENGTHS: Final = (2, 4, 5, 8, 10, 20, 25, 40, 50, 100)


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
    def is_one_time(self) -> bool:
        """True if a row meets rows of one time only."""
        return self.lower == self.upper

    @property
    def fine_length(self) -> int | None:
        """The length of buckets in memory, which divides `bucket_length`. None = the interval is too long for them.

        A row looks into three at most. In an interval of one time it looks for one place in one of them.
        """
        if self.is_one_time:
            return _FINE_LENGTHS[-1]
        least = (self.upper - self.lower) // 2 + 1
        return next((length for length in _FINE_LENGTHS if length >= least), None)

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
