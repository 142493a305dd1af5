"""WaitingRecords: records that a source has given and the chain has not run, returned chunk by chunk.

Owner: the task thread. Must not know readers, watermarks or checkpoints, nor when a chunk runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Any

from yarrow.container.sizing.slice_sizer import MIN_POLL_ROWS
from yarrow.datastream.connectors.base import SourceRecords
from yarrow.runtime.data.elements import is_record_batch

if TYPE_CHECKING:
    import pyarrow as pa

_SLICED = (list, tuple, range)


class WaitingRecords:
    """Records in the order of the source."""

    def __init__(self) -> None:
        self._records: deque[SourceRecords] = deque()
        #: Number of taken rows of the first records.
        self._position = 0

    def __bool__(self) -> bool:
        return bool(self._records)

    @property
    def rows(self) -> int:
        """Number of waiting rows."""
        return sum(len(records.rows) for records in self._records) - self._position

    def put(self, records: SourceRecords) -> None:
        """Adds records behind all others. A reader may use its lists again."""
        if isinstance(records.rows, Sequence) and not isinstance(records.rows, _SLICED):
            # Only lists and the like can surely be sliced.
            records = replace(records, rows=list(records.rows))
        elif type(records.rows) is list and len(records.rows) < MIN_POLL_ROWS:
            # Another poll may come before these few rows run.
            records = _kept(records)
        if self._records and (joined := _joined(self._records[-1], records)) is not None:
            self._records[-1] = joined
        else:
            self._records.append(records)

    def take(self, max_rows: int) -> SourceRecords:
        """Up to `max_rows` rows of the first records, with the records' other content beside their first rows.

        A record batch is cut into equal parts: a small rest would cost as much as a whole part.
        """
        records, start = self._records[0], self._position
        left = len(records.rows) - start
        if left <= max_rows:
            self._records.popleft()
            self._position = 0
            return part_of(records, start)
        if is_record_batch(records.rows):
            max_rows = ceil(left / ceil(left / max_rows))
        self._position = end = start + max_rows
        return part_of(records, start, end)

    def rest(self) -> list[SourceRecords]:
        """All waiting records in order; they stay here."""
        if not self._records:
            return []
        first, *others = self._records
        return [part_of(first, self._position), *others]


def _kept(records: SourceRecords) -> SourceRecords:
    """The same in lists that nobody else has."""
    return SourceRecords(
        list(records.rows),
        None if records.timestamps is None else list(records.timestamps),
        records.split_id,
        None if records.side is None else list(records.side),
        records.num_errors,
        records.finished_before,
        records.has_checked_timestamps,
    )


def _joined(records: SourceRecords, behind: SourceRecords) -> SourceRecords | None:
    """Both as one, if nothing but rows of the same split comes between them; None = they stay apart."""
    if (
        type(records.rows) is not list
        or type(behind.rows) is not list
        or records.split_id != behind.split_id
        or behind.side
        or behind.finished_before
        or (records.timestamps is None) is not (behind.timestamps is None)
    ):
        return None
    stamps = records.timestamps
    if stamps is not None and behind.timestamps is not None:
        stamps = [*stamps, *behind.timestamps]
    # `replace` would take three times as long, for each poll of few rows.
    return SourceRecords(
        records.rows + behind.rows,
        stamps,
        records.split_id,
        records.side,
        records.num_errors + behind.num_errors,
        records.finished_before,
        records.has_checked_timestamps and behind.has_checked_timestamps,
    )


def part_of(records: SourceRecords, start: int, end: int | None = None) -> SourceRecords:
    """Rows `start` to `end`. A part that begins with the first row has the records' other content too."""
    if not start and end is None:
        return records
    stop = len(records.rows) if end is None else end
    stamps = None if records.timestamps is None else records.timestamps[start:stop]
    rows = _rows_of(records.rows, start, stop)
    is_checked = records.has_checked_timestamps
    if start:
        return SourceRecords(rows, stamps, records.split_id, has_checked_timestamps=is_checked)
    return copy_with(records, rows, stamps)


def copy_with(
    records: SourceRecords, rows: Sequence[Any] | pa.RecordBatch, timestamps: Sequence[int | None] | None
) -> SourceRecords:
    """The records with other rows; `replace` would take three times as long."""
    return SourceRecords(
        rows,
        timestamps,
        records.split_id,
        records.side,
        records.num_errors,
        records.finished_before,
        records.has_checked_timestamps,
    )


def _rows_of(rows: Sequence[Any] | pa.RecordBatch, start: int, stop: int) -> Sequence[Any] | pa.RecordBatch:
    if is_record_batch(rows):
        return rows.slice(start, stop - start)
    found: Sequence[Any] = rows[start:stop]
    return found
