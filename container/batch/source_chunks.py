"""SourceChunks: cuts what the polls of a source give into chunks that depend on its rows alone.

Owner: the task thread. Tables and buffers behind a source are looked at where a chunk ends. Each attempt and each
run takes the same decisions there, however many rows a poll gives. Must not run rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from yarrow.container.network.element_codec import estimated_bytes, estimated_bytes_of_each
from yarrow.datastream.connectors.base import SourceRecords
from yarrow.runtime.data.immutability import freeze_or_copy

#: Estimated bytes at which a chunk ends before it has all its rows.
CHUNK_BYTES: Final = 8 << 20
#: The size of every so many rows of a chunk is looked at, and stands for those of the next ones.
SAMPLED: Final = 16

Stamps = Sequence[int | None] | None
Copy = Callable[[Any], Any]


class SourceChunks:
    """Records that a bounded source has given, which wait until their chunk is complete.

    Rows of one split make chunks of `most_rows` rows; the last chunk of a split has fewer, and so have chunks of very
    large rows. Values for side outputs make chunks of their own by the same rule. Record batches stay as they are.
    """

    def __init__(self, most_rows: int, copy: Copy | None) -> None:
        """`copy` fixes a row that waits while the source is polled again; None = no row can change."""
        self._split_id: str | None = None
        self._rows = _Waiting(most_rows, copy)
        self._side = _Waiting(most_rows, freeze_or_copy)
        #: What no chunk has told yet: ids of splits that have ended, and skipped records.
        self._finished: tuple[str, ...] = ()
        self._errors = 0

    def put(self, found: SourceRecords) -> Iterator[SourceRecords]:
        """Takes the result of a poll, and yields the chunks that it completes.

        The reader may use the result's lists and rows again.
        """
        rows, stamps = found.rows, found.timestamps
        if self._split_id in found.finished_before or (
            found.split_id != self._split_id and (len(rows) or found.side)
        ):
            yield from self.end()
            self._split_id = found.split_id
        self._finished += tuple(found.finished_before)
        self._errors += found.num_errors
        for values, _ in self._side.put(found.side or (), None):
            yield self._records((), None, list(values))
        if not isinstance(rows, Sequence):
            yield from self.end()
            yield self._records(rows, stamps)
        else:
            for chunk, times in self._rows.put(rows, stamps):
                yield self._records(chunk, times)

    def end(self) -> Iterator[SourceRecords]:
        """Yields what waits: the split has ended, or no poll follows."""
        for values, _ in self._side.end():
            yield self._records((), None, list(values))
        for chunk, times in self._rows.end():
            yield self._records(chunk, times)

    def _records(self, rows: Any, stamps: Stamps, side: list[tuple[str, Any]] | None = None) -> SourceRecords:
        finished, self._finished = self._finished, ()
        errors, self._errors = self._errors, 0
        return SourceRecords(rows, stamps, self._split_id, side, errors, finished)


class _Waiting:
    """Values of a chunk that is not complete yet, and their timestamps."""

    def __init__(self, most: int, copy: Copy | None) -> None:
        self._most = most
        self._copy = copy
        self._values: list[Any] = []
        #: None = no value has a timestamp so far.
        self._stamps: list[int | None] | None = None
        self._bytes = 0

    def put(self, values: Sequence[Any], stamps: Stamps) -> Iterator[tuple[Sequence[Any], Stamps]]:
        """Adds values, and yields complete chunks."""
        if not isinstance(values, (list, tuple, range)):
            # Only lists and the like can surely be sliced.
            values = list(values)
        start = 0
        while start < len(values):
            end, is_complete = self._end_of_chunk(values, start)
            part = values[start:end]
            times = None if stamps is None else stamps[start:end]
            if times is not None and all(stamp is None for stamp in times):
                # Another poll may give these rows without a list, or with rows that have a timestamp.
                times = None
            start = end
            if is_complete and not self._values:
                # Most polls give whole chunks.
                self._bytes = 0
                yield part, times
                continue
            self._add(part, times)
            if is_complete:
                yield from self.end()

    def end(self) -> Iterator[tuple[Sequence[Any], Stamps]]:
        """Yields the chunk that waits, if there is one."""
        values, stamps = self._values, self._stamps
        self._values, self._stamps, self._bytes = [], None, 0
        if values:
            yield values, stamps

    def _end_of_chunk(self, values: Sequence[Any], start: int) -> tuple[int, bool]:
        """How far the values from `start` on belong to the present chunk, and whether it is complete then."""
        waiting = len(self._values)
        end = min(len(values), start + self._most - waiting)
        first = start + -waiting % SAMPLED
        size = SAMPLED * estimated_bytes_of_each(values[first:end:SAMPLED])
        if self._bytes + size >= CHUNK_BYTES:
            for position in range(first, end, SAMPLED):
                self._bytes += SAMPLED * estimated_bytes([values[position]])
                if self._bytes >= CHUNK_BYTES:
                    return position + 1, True
        else:
            self._bytes += size
        return end, end - start + waiting == self._most

    def _add(self, values: Sequence[Any], stamps: Stamps) -> None:
        if stamps is not None and self._stamps is None:
            self._stamps = [None] * len(self._values)
        self._values.extend(values if self._copy is None else map(self._copy, values))
        if self._stamps is not None:
            self._stamps.extend([None] * len(values) if stamps is None else stamps)
