"""DataGeneratorSource: records made by a function of their index, as fast as asked for.

Owner: the task's thread. A rate is kept by saying when to poll again, never by sleeping; the readers share
it evenly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from yarrow.common.typeinfo import TypeInformation
from yarrow.datastream.connectors.base import (
    Boundedness,
    NothingAvailable,
    Source,
    SourceReaderContext,
    SourceRecords,
    SplitEnumeratorContext,
)
from yarrow.datastream.connectors.number_seq import NumberRange, even_ranges, pending_numbers
from yarrow.datastream.connectors.split_reading import OneByOneReader, OnRequestEnumerator, ShareEnumerator
from yarrow.runtime.common.clock import Clock, SystemClock

T = TypeVar("T")

#: Seconds between polls at the least, so that a high rate comes in batches and not row by row.
_SHORTEST_WAIT = 0.001
#: Seconds after which one poll stops to call the function.
_POLL_SECONDS = 0.002
#: Seconds' worth of records that a reader which was held up may make up for.
_LARGEST_BURST = 1.0


@dataclass(frozen=True, slots=True)
class RateLimiterStrategy:
    """The pace of a generator; made by `per_second` or `no_op`."""

    records_per_second: float | None = None

    @staticmethod
    def per_second(records_per_second: float) -> RateLimiterStrategy:
        """So many records a second, all readers together. Raises ValueError unless it is above 0."""
        if not records_per_second > 0:
            raise ValueError(f"the rate must be above 0 records a second, not {records_per_second!r}")
        return RateLimiterStrategy(records_per_second)

    @staticmethod
    def no_op() -> RateLimiterStrategy:
        """No limit."""
        return RateLimiterStrategy()


#: Bytes of an ordinary record.
_RECORD_BYTES: Final = 100


class DataGeneratorSource(Source[T, NumberRange], Generic[T]):
    """`generator_function(index)` for each index from 0 to `count` - 1.

    Parallel readers take ranges of indexes.

    The function must give the same record for the same index each time: after a failure indexes are read
    again. Raises ValueError for a negative count.
    """

    def __init__(
        self,
        generator_function: Callable[[int], T],
        count: int,
        rate_limiter_strategy: RateLimiterStrategy | None = None,
        type_info: TypeInformation | None = None,
    ) -> None:
        if count < 0:
            raise ValueError(f"DataGeneratorSource: count must not be negative: {count}")
        if not callable(generator_function):
            raise TypeError(
                f"DataGeneratorSource: generator_function must be callable with an index, not "
                f"{generator_function!r}"
            )
        self._function = generator_function
        self._count = count
        self._rate = rate_limiter_strategy or RateLimiterStrategy.no_op()
        self._type_info = type_info

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_enumerator(
        self, context: SplitEnumeratorContext[NumberRange], checkpoint: Any = None
    ) -> OnRequestEnumerator[NumberRange]:
        """Return an enumerator with one range of indexes for each reader."""
        fresh = even_ranges(0, self._count, context.parallelism)
        return ShareEnumerator(context, fresh, checkpoint)

    def create_reader(self, context: SourceReaderContext) -> DataGeneratorReader[T]:
        """A reader with its share of the rate."""
        rate = self._rate.records_per_second
        share = None if rate is None else rate / context.parallelism
        return DataGeneratorReader(context, self._function, share, SystemClock())

    def estimated_bytes(self) -> int:
        """Bytes of records of an ordinary size: nobody knows the records before they are made."""
        return _RECORD_BYTES * self._count

    def produced_type(self) -> TypeInformation | None:
        """The type declared."""
        return self._type_info


class DataGeneratorReader(OneByOneReader[T, NumberRange], Generic[T]):
    """Calls the function for slices of its ranges, no faster than its share of the rate."""

    _id: str
    _rest: range

    def __init__(
        self,
        context: SourceReaderContext,
        function: Callable[[int], T],
        records_per_second: float | None,
        clock: Clock,
    ) -> None:
        super().__init__(context)
        self._function = function
        self._rate = records_per_second
        self._clock = clock
        #: Records that may be made now; grows with time up to `_LARGEST_BURST`.
        self._allowed = 1.0
        self._counted_at = clock.monotonic()

    def open_split(self, split: NumberRange) -> None:
        self._id = split.id
        self._rest = range(split.next, split.stop)

    def read_split(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        if not self._rest:
            return None
        if self._rate is not None:
            now = self._clock.monotonic()
            earned = (now - self._counted_at) * self._rate
            self._allowed = min(self._allowed + earned, max(1.0, self._rate * _LARGEST_BURST))
            self._counted_at = now
            # A poll has a cost of its own: at a high rate, each brings the rows of the shortest wait.
            worth = min(max(1.0, self._rate * _SHORTEST_WAIT), len(self._rest))
            if self._allowed < worth:
                return NothingAvailable(max((worth - self._allowed) / self._rate, _SHORTEST_WAIT))
            max_rows = min(max_rows, int(self._allowed))
        function = self._function
        indexes = self._rest[:max_rows]
        rows: list[T] = []
        # The function may be slow, and nothing else runs on the task's thread until the poll is over.
        end = self._clock.monotonic() + _POLL_SECONDS
        while len(rows) < len(indexes):
            rows += [function(index) for index in indexes[len(rows) : 4 * len(rows) + 1]]
            if self._clock.monotonic() > end:
                break
        self._rest = self._rest[len(rows) :]
        self._allowed -= len(rows)
        return SourceRecords(rows, split_id=self._id)

    def current_split(self) -> NumberRange:
        return NumberRange(self._id, self._rest.start, self._rest.stop)

    def pending_records(self) -> int:
        return pending_numbers(self.splits_held())
