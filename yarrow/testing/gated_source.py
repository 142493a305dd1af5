"""A replayable source for fault tests: splits of numbered records, read slowly; it waits for a checkpoint and a fault.

Owner: readers on their task's thread. A split stops at 40 % of its rows until a checkpoint is complete, and
at 85 % until the file `fired` exists. So a fault always falls between a completed checkpoint and the end.
After `patience` seconds at a gate it continues: a plan that cannot fire ends like one that did not. A source without
a folder has no gates: bounded jobs read it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from yarrow.datastream.connectors.base import (
    Boundedness,
    NothingAvailable,
    Source,
    SourceReader,
    SourceReaderContext,
    SourceRecords,
    SourceSplit,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from yarrow.datastream.connectors.split_reading import OnRequestEnumerator, unassigned_or
from yarrow.runtime.common.clock import perf_counter

#: (key, timestamp in ms, identity, value), see `row_of`.
Input = tuple[str, int, str, int]
#: About what a row takes.
_ROW_BYTES = 40


@dataclass(frozen=True)
class GatedSplit(SourceSplit):
    """Rows `position` to `end` of one numbered sequence."""

    number: int
    position: int
    end: int

    @property
    def split_id(self) -> str:
        return f"split-{self.number}"


def row_of(tag: str, split: int, index: int, keys: int) -> Input:
    """A row; a pure function of its place."""
    return (
        f"k{(split * 7 + index * 3) % keys}",
        index * 10,
        f"{tag}{split}:{index}",
        (index * 31 + split) % 97,
    )


def key_of(row: Any) -> str:
    """The key of inputs and outputs."""
    key: str = row[0]
    return key


class GatedSource(Source[Any, GatedSplit]):
    """A source for fault tests, as the module says; rows are those of `row_of`, with their timestamps."""

    def __init__(
        self,
        tag: str,
        folder: str,
        *,
        splits: int = 4,
        rows: int = 200,
        keys: int = 12,
        patience: float = 120.0,
    ) -> None:
        self.tag = tag
        self.folder = folder
        self.splits = splits
        self.rows = rows
        self.keys = keys
        self.patience = patience

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def estimated_bytes(self) -> int:
        return self.splits * self.rows * _ROW_BYTES

    def create_enumerator(
        self, context: SplitEnumeratorContext[GatedSplit], checkpoint: Any = None
    ) -> SplitEnumerator[GatedSplit]:
        fresh = [GatedSplit(number, 0, self.rows) for number in range(self.splits)]
        return OnRequestEnumerator(context, unassigned_or(checkpoint, fresh))

    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, GatedSplit]:
        return _Reader(self, context)

    def all_rows(self) -> list[Input]:
        """Every row that it brings."""
        return [row_of(self.tag, s, i, self.keys) for s in range(self.splits) for i in range(self.rows)]


class _Reader(SourceReader[Any, GatedSplit]):
    """Reads its splits in turn, a few rows a poll."""

    ROWS_A_POLL = 6
    PAUSE = 0.001
    #: Reads nothing before it has all its splits: a split that came behind the others would bring late rows.
    WAITS_FOR_SPLITS = True

    def __init__(self, source: GatedSource, context: SourceReaderContext) -> None:
        self._source = source
        self._context = context
        self._splits: list[GatedSplit] = []
        self._no_more = False
        self._checkpointed = False
        self._gate_since: float | None = None
        self._paused = False

    def start(self) -> None:
        self._context.request_split()

    def add_splits(self, splits: Sequence[GatedSplit]) -> None:
        self._splits.extend(splits)
        self._context.request_split()

    def notify_no_more_splits(self) -> None:
        self._no_more = True

    def poll(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        self._paused = not self._paused
        if self._paused or (self.WAITS_FOR_SPLITS and not self._no_more):
            return NothingAvailable(self.PAUSE)
        live = [split for split in self._splits if split.position < split.end]
        if not live:
            return None if self._no_more else NothingAvailable()
        ready = [split for split in live if not self._gated(split)]
        if not ready:
            return self._at_gate()
        self._gate_since = None
        return self._read(min(ready, key=lambda split: split.position))

    def _read(self, split: GatedSplit) -> SourceRecords:
        end = min(split.position + self.ROWS_A_POLL, split.end)
        rows = [
            row_of(self._source.tag, split.number, i, self._source.keys) for i in range(split.position, end)
        ]
        self._splits[self._splits.index(split)] = replace(split, position=end)
        return SourceRecords(rows, [row[1] for row in rows], split.split_id)

    def _gated(self, split: GatedSplit) -> bool:
        if not self._source.folder:
            return False
        if split.position >= 0.4 * split.end and not self._checkpointed:
            return True
        return split.position >= 0.85 * split.end and not os.path.exists(
            os.path.join(self._source.folder, "fired")
        )

    def _at_gate(self) -> NothingAvailable:
        now = perf_counter()
        if self._gate_since is None:
            self._gate_since = now
        elif now - self._gate_since > self._source.patience:
            self._checkpointed = True
            open(os.path.join(self._source.folder, "impatient"), "w").close()
            open(os.path.join(self._source.folder, "fired"), "a").close()
        return NothingAvailable(0.005)

    def snapshot_state(self, checkpoint_id: int) -> list[GatedSplit]:
        return list(self._splits)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._checkpointed = True
        self._context.wake_up()
