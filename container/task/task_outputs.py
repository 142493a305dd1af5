"""TaskOutputs: the partitions of one task: credit, overdrafts, flushing, and elements for all of them.

Owner: the task thread. The chain's generated loops write rows to the partitions directly. It never waits: a
caller without credit asks again when credit has come.
"""

from __future__ import annotations

from collections.abc import Sequence

from yarrow.container.network.partition import Partition
from yarrow.runtime.data.elements import ControlElement, LatencyMarker


class TaskOutputs:
    """All outputs of one subtask. With `buffer_timeout_ms` below 0, only full buffers are sent."""

    def __init__(self, partitions: Sequence[Partition], buffer_timeout_ms: int) -> None:
        self.partitions = tuple(partitions)
        #: Seconds that rows may wait for others; None = until a buffer is full.
        self.buffer_timeout = None if buffer_timeout_ms < 0 else buffer_timeout_ms / 1000
        #: Time at which buffered rows are sent, by the clock of slices; None = none are buffered.
        self.flush_at: float | None = None
        self._markers_sent = 0

    def have_credit(self) -> bool:
        """Whether all outputs can take another slice, after their overdrafts were sent."""
        available = True
        for partition in self.partitions:
            if not partition.is_available and not (partition.drain_overdraft() and partition.is_available):
                available = False
        return available

    def drain_overdrafts(self) -> bool:
        """Sends overdrafts as far as there is credit; True when none is left."""
        drained = True
        for partition in self.partitions:
            if not partition.drain_overdraft():
                drained = False
        return drained

    def broadcast(self, element: ControlElement) -> None:
        """Sends a control element on all outputs, behind everything that was emitted so far."""
        for partition in self.partitions:
            partition.broadcast_control(element)

    def forward_marker(self, marker: LatencyMarker) -> None:
        """Sends a marker on one channel of each output, in turn."""
        for partition in self.partitions:
            partition.flush_all()
            partition.channels[self._markers_sent % len(partition.channels)].send_control(marker)
        self._markers_sent += 1

    def end_of_slice(self, end: float) -> float:
        """The end of a slice, by its clock: `end`, or earlier if buffered rows must leave before."""
        return end if self.flush_at is None else min(end, self.flush_at)

    def flush_if_due(self, began: float, now: float) -> None:
        """Sends buffered rows whose time has come, at the end of the slice that `began` (both by its clock)."""
        if self.buffer_timeout is None:
            return
        if not any(partition.has_buffered for partition in self.partitions):
            self.flush_at = None
            return
        if self.flush_at is None:
            self.flush_at = began + self.buffer_timeout
        if now >= self.flush_at:
            self.flush_at = None
            for partition in self.partitions:
                partition.flush_all()

    def close(self, reason: str) -> None:
        """Tells consumers why the task ends before its end of data."""
        for partition in self.partitions:
            partition.close(reason)
