"""NumberSequenceSource: the integers from start to end, in as many ranges as there are readers.

Owner: the task's thread. Rows are handed over as `range` slices, so that reading costs nothing for a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.datastream.connectors.base import (
    Boundedness,
    Source,
    SourceReaderContext,
    SourceRecords,
    SourceSplit,
    SplitEnumeratorContext,
)
from yarrow.datastream.connectors.split_reading import OneByOneReader, OnRequestEnumerator, ShareEnumerator


@dataclass(frozen=True, slots=True)
class NumberRange(SourceSplit):
    """The integers from `next` up to but not including `stop`."""

    id: str
    next: int
    stop: int

    @property
    def split_id(self) -> str:
        return self.id


def even_ranges(start: int, stop: int, parts: int) -> Iterator[NumberRange]:
    """Divide `start` to `stop` (exclusive) into `parts` ranges, none empty, whose lengths differ by at most 1."""
    size, longer = divmod(stop - start, parts)
    for part in range(parts):
        following = start + size + (part < longer)
        if following > start:
            yield NumberRange(str(part), start, following)
        start = following


class NumberSequenceSource(Source[int, NumberRange]):
    """A source of the integers from `start` to `end`, both included; within one reader in rising order.

    Raises ValueError when `start` is above `end` or one of them does not fit 64 bits.
    """

    def __init__(self, start: int, end: int) -> None:
        for name, value in (("start", start), ("end", end)):
            if not Types.LONG().accepts(value):
                raise ValueError(f"NumberSequenceSource: {name} must be an integer of 64 bits, not {value!r}")
        if start > end:
            raise ValueError(f"NumberSequenceSource: start {start} is above end {end}")
        self._start = start
        self._end = end

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_enumerator(
        self, context: SplitEnumeratorContext[NumberRange], checkpoint: Any = None
    ) -> OnRequestEnumerator[NumberRange]:
        """Return an enumerator with one range for each reader."""
        fresh = even_ranges(self._start, self._end + 1, context.parallelism)
        return ShareEnumerator(context, fresh, checkpoint)

    def create_reader(self, context: SourceReaderContext) -> NumberSequenceReader:
        """A reader of ranges."""
        return NumberSequenceReader(context)

    def estimated_bytes(self) -> int:
        """Bytes of the numbers, eight for each."""
        return 8 * max(0, self._end + 1 - self._start)

    def produced_type(self) -> TypeInformation:
        """Types.LONG()."""
        return Types.LONG()


class NumberSequenceReader(OneByOneReader[int, NumberRange]):
    """Hands out slices of its ranges."""

    _id: str
    _rest: range

    def open_split(self, split: NumberRange) -> None:
        self._id = split.id
        self._rest = range(split.next, split.stop)

    def read_split(self, max_rows: int) -> SourceRecords | None:
        if not self._rest:
            return None
        rows, self._rest = self._rest[:max_rows], self._rest[max_rows:]
        return SourceRecords(rows, split_id=self._id)

    def current_split(self) -> NumberRange:
        return NumberRange(self._id, self._rest.start, self._rest.stop)

    def pending_records(self) -> int:
        return pending_numbers(self.splits_held())


def pending_numbers(splits: Iterable[NumberRange]) -> int:
    """Numbers that are left of the ranges."""
    return sum(split.stop - split.next for split in splits)
