"""WaitingRecords: what a source has given and the chain has not run, handed out chunk by chunk.

Owner: the task thread. Must not know readers, watermarks or checkpoints, nor when a chunk is run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import pyarrow as pa

from yarrow.datastream.connectors.base import SourceRecords

_SLICED = (list, tuple, range)


class WaitingRecords:
    """Records in the order in which the source gave them."""

    def __init__(self) -> None:
        self._records: deque[SourceRecords] = deque()
        #: Rows of the first records that have been taken.
        self._position = 0

    def __bool__(self) -> bool:
        return bool(self._records)

    @property
    def rows(self) -> int:
        """How many rows wait."""
        return sum(len(records.rows) for records in self._records) - self._position

    def put(self, records: SourceRecords) -> None:
        """Behind all others."""
        if isinstance(records.rows, Sequence) and not isinstance(records.rows, _SLICED):
            # Only lists and their like are sure to give a part of themselves.
            records = replace(records, rows=list(records.rows))
        self._records.append(records)

    def take(self, max_rows: int) -> SourceRecords:
        """Up to `max_rows` rows of the first records; what goes with them comes with their first rows.

        A record batch is cut into parts of one size: a small rest would cost as much as a whole part.
        """
        records, start = self._records[0], self._position
        left = len(records.rows) - start
        if left <= max_rows:
            self._records.popleft()
            self._position = 0
            return part_of(records, start)
        if isinstance(records.rows, pa.RecordBatch):
            max_rows = ceil(left / ceil(left / max_rows))
        self._position = end = start + max_rows
        return part_of(records, start, end)

    def rest(self) -> list[SourceRecords]:
        """All that waits, in order; it stays here."""
        if not self._records:
            return []
        first, *others = self._records
        return [part_of(first, self._position), *others]


def part_of(records: SourceRecords, start: int, end: int | None = None) -> SourceRecords:
    """Rows `start` to `end`; from the first row on with everything else that the records hold, else rows alone."""
    if not start and end is None:
        return records
    stop = len(records.rows) if end is None else end
    stamps = None if records.timestamps is None else records.timestamps[start:stop]
    rows = _rows_of(records.rows, start, stop)
    if start:
        return SourceRecords(rows, stamps, records.split_id)
    return replace(records, rows=rows, timestamps=stamps)


def _rows_of(rows: Sequence[Any] | pa.RecordBatch, start: int, stop: int) -> Sequence[Any] | pa.RecordBatch:
    if isinstance(rows, pa.RecordBatch):
        return rows.slice(start, stop - start)
    found: Sequence[Any] = rows[start:stop]
    return found
