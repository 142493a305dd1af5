"""SourceReading: takes records from the source at the head of a chain, slice by slice.

Owner: the task thread. A source that has nothing is not asked again before its time has come or the task was woken. It
must not know splits, nor look at credit: the task does before each slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from yarrow.container.task.latency import LatencyTracker
from yarrow.datastream.connectors.base import NothingAvailable, SourceRecords
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.data.elements import ArrowBatch, stamps_column

if TYPE_CHECKING:
    from yarrow.container.task.stream_task import StreamTask


class SourceReading:
    """The way of a source's records into the chain."""

    def __init__(self, task: StreamTask, latency: LatencyTracker) -> None:
        self._task = task
        self._latency = latency
        self._chain = task.chain
        #: When the source is to be asked again (perf_counter), infinity = when woken; None = at once.
        self.poll_at: float | None = None
        #: Rows that the source has put out.
        self.records_in = 0

    def take(self, now: float) -> bool:
        """Reads until the slice that began at `now` is over, a mail waits or nothing is there; True when it worked."""
        task = self._task
        source = self._chain.source
        assert source is not None
        marker = self._latency.due()
        if marker is not None:
            task.outputs.forward_marker(marker)
        if not task.woken and self.poll_at is not None and now < self.poll_at:
            return False
        task.woken = False
        self.poll_at = None
        deadline = now + task.slice_seconds
        chunk_started = now
        while True:
            with self._chain.attributed(0):
                records = source.poll(task.sizer.rows)
            if not isinstance(records, SourceRecords):
                break
            self.emit(records)
            finished = perf_counter()
            task.sizer.measured(len(records.rows), finished - chunk_started)
            chunk_started = finished
            if finished >= deadline or task.mails_waiting:
                task.woken = True
                return True
        if records is None:
            self._chain.time.end()
            task.input_ended()
            return True
        assert isinstance(records, NothingAvailable)
        if records.wait_seconds is not None:
            self.poll_at = perf_counter() + records.wait_seconds
        else:
            self.poll_at = float("inf")
        return chunk_started != now

    def emit(self, records: SourceRecords) -> None:
        """Sends records through the chain, with the watermarks that the source makes of them."""
        source = self._chain.source
        assert source is not None
        parts = iter(source.timed(records))
        while True:
            # Between two parts the source sends a watermark.
            with self._chain.attributed(0):
                part = next(parts, None)
            if part is None:
                return
            rows = part.rows
            self.records_in += len(rows)
            self._chain.run_source_side(part.side)
            if isinstance(rows, Sequence):
                self._chain.run_source_rows(rows, part.timestamps)
            else:
                self._chain.run_source_batch(ArrowBatch(rows, stamps_column(part.timestamps)))

    def seconds_until_due(self, now: float) -> list[float]:
        """When the source has to be asked again, and when it sends the next latency marker, as far as that is known."""
        due: list[float] = []
        if self.poll_at is not None and self.poll_at != float("inf"):
            due.append(self.poll_at - now)
        marker = self._latency.seconds_until_due() if self._chain.source is not None else None
        if marker is not None:
            due.append(marker)
        return due
