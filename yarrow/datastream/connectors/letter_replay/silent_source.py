"""SilentSource: a source without splits, in the place of a program's source while only dead letters are replayed.

Owner: the engine for the enumerator, the task's thread for the reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from yarrow.datastream.connectors.base import (
    Boundedness,
    NothingAvailable,
    Source,
    SourceReader,
    SourceReaderContext,
    SourceRecords,
    SourceSplit,
    SplitEnumeratorContext,
)
from yarrow.datastream.connectors.split_reading import OnRequestEnumerator, unassigned_or


class SilentSource(Source[Any, SourceSplit]):
    """A bounded source that has nothing to read."""

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_enumerator(
        self, context: SplitEnumeratorContext[SourceSplit], checkpoint: Any = None
    ) -> OnRequestEnumerator[SourceSplit]:
        """Return an enumerator that has no split."""
        return OnRequestEnumerator(context, unassigned_or(checkpoint, []))

    def create_reader(self, context: SourceReaderContext) -> SilentReader:
        """Return a reader that ends when it hears that there is no split."""
        return SilentReader(context)


class SilentReader(SourceReader[Any, SourceSplit]):
    """Asks for a split, and ends."""

    def __init__(self, context: SourceReaderContext) -> None:
        self._context = context
        self._has_ended = False

    def start(self) -> None:
        self._context.request_split()

    def notify_no_more_splits(self) -> None:
        self._has_ended = True

    def poll(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        """Return the end, once the enumerator has answered."""
        return None if self._has_ended else NothingAvailable()

    def add_splits(self, splits: Sequence[SourceSplit]) -> None:
        """There are none."""

    def snapshot_state(self, checkpoint_id: int) -> list[SourceSplit]:
        """Return no split."""
        return []
