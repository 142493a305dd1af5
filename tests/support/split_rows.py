"""SplitRows: a bounded source of rows that stand in given splits, and its unbounded form that waits for more.

Rows are (row, time). Splits are assigned in order; a reader gives a few rows a poll.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from yarrow.datastream.connectors import (
    Boundedness,
    OneByOneReader,
    Source,
    SourceReaderContext,
    SourceRecords,
    SourceSplit,
    SplitEnumeratorContext,
)
from yarrow.datastream.connectors.base import NothingAvailable
from yarrow.datastream.connectors.split_reading import OnRequestEnumerator, unassigned_or


@dataclass(frozen=True)
class RowsSplit(SourceSplit):
    """The split of that number, `read` rows of it done."""

    number: int
    read: int = 0

    @property
    def split_id(self) -> str:
        return str(self.number)


class SplitRows(Source[Any, RowsSplit]):
    """The rows of `splits`. `waits`: readers wait for more at the end of a split; what is there is its history."""

    def __init__(
        self, splits: Sequence[Sequence[tuple[Any, int | None]]], poll_rows: int = 3, waits: bool = False
    ) -> None:
        self.splits = [list(split) for split in splits]
        self.poll_rows = poll_rows
        self.waits = waits

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED if self.waits else Boundedness.BOUNDED

    def history(self) -> Source[Any, RowsSplit]:
        return _PresentRows(self.splits, self.poll_rows) if self.waits else self

    def create_enumerator(
        self, context: SplitEnumeratorContext[RowsSplit], checkpoint: Any = None
    ) -> OnRequestEnumerator[RowsSplit]:
        fresh = [RowsSplit(number) for number in range(len(self.splits))]
        return OnRequestEnumerator(context, unassigned_or(checkpoint, fresh))

    def create_reader(self, context: SourceReaderContext) -> RowsReader:
        return RowsReader(context, self)


class _PresentRows(SplitRows):
    """What an unbounded source has now: its readers keep the splits that they have read."""

    def create_reader(self, context: SourceReaderContext) -> RowsReader:
        return _KeepingReader(context, self)


class RowsReader(OneByOneReader[Any, RowsSplit]):
    """Reads splits."""

    split: RowsSplit

    def __init__(self, context: SourceReaderContext, source: SplitRows) -> None:
        super().__init__(context)
        self.source = source

    def open_split(self, split: RowsSplit) -> None:
        self.split = split

    def read_split(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        start = self.split.read
        found = self.source.splits[self.split.number][start : start + self.source.poll_rows]
        self.split = replace(self.split, read=start + len(found))
        if not found:
            return NothingAvailable() if self.source.waits else None
        return SourceRecords(
            [row for row, _ in found], [time for _, time in found], split_id=self.split.split_id
        )

    def current_split(self) -> RowsSplit:
        return self.split


class _KeepingReader(RowsReader):
    """Ends with what is there, and says where the next row of a split will stand."""

    ended: tuple[RowsSplit, ...] = ()

    def close_split(self) -> None:
        self.ended += (self.split,)

    def snapshot_state(self, checkpoint_id: int) -> list[RowsSplit]:
        return [*self.ended, *super().snapshot_state(checkpoint_id)]
