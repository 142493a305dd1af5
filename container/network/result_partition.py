"""ResultPartition: a task's row output for one edge: buffers per channel, flushed by size and by time.

Owner: the task thread. The chain compiler appends rows straight to `buffers` (and `timestamps`), and this
class turns them into batches. Must not choose channels: the generated code does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.network.element_codec import estimated_bytes
from yarrow.container.network.output_channel import OutputChannel
from yarrow.container.network.partition import Partition
from yarrow.runtime.data.elements import RowBatch
from yarrow.runtime.graph.job_graph import JobEdge
from yarrow.runtime.graph.operator_spec import PartitionerKind


class ResultPartition(Partition):
    """The rows for the subtasks of one consumer vertex.

    BROADCAST has one buffer whose batches go to every channel; other partitioners have one buffer for each
    channel.
    """

    def __init__(
        self, edge: JobEdge, channels: Sequence[OutputChannel], max_rows: int = 2048, max_bytes: int = 1 << 20
    ) -> None:
        super().__init__(edge, channels)
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        #: Rows at which a buffer becomes a batch: `max_rows`, or fewer if the last rows were large.
        self._batch_rows = max_rows
        self._is_broadcast = edge.partitioner.kind is PartitionerKind.BROADCAST
        number = 1 if self._is_broadcast else len(self.channels)
        #: The generated loops append here; the lists stay the same objects for the life of the task.
        self.buffers: list[list[Any]] = [[] for _ in range(number)]
        self.timestamps: list[list[int | None]] = [[] for _ in range(number)]
        self._records_sent = 0

    @property
    def has_buffered(self) -> bool:
        return any(self.buffers)

    @property
    def records_taken(self) -> int:
        return self._records_sent + sum(map(len, self.buffers))

    def fill_timestamps(self) -> None:
        """Begins with timestamps: rows that wait get None."""
        for rows, stamps in zip(self.buffers, self.timestamps, strict=True):
            stamps += [None] * (len(rows) - len(stamps))

    def generate_row(
        self, code: CodeWriter, value: str, timestamp: str | None, route: Callable[[str], None]
    ) -> None:
        """Writes the code that takes a row; `route` writes that which appends a variable to the right buffer."""
        route(value)

    def flush_full(self) -> None:
        limit = self._batch_rows
        for index, buffer in enumerate(self.buffers):
            if len(buffer) >= limit:
                self._flush(index, buffer)

    def flush_all(self) -> None:
        for index, buffer in enumerate(self.buffers):
            if buffer:
                self._flush(index, buffer)

    def _flush(self, index: int, buffer: list[Any]) -> None:
        stamps = self.timestamps[index]
        batch = RowBatch(buffer.copy(), stamps.copy() if stamps else None)
        buffer.clear()
        stamps.clear()
        self._records_sent += len(batch)
        self.batches_out += 1
        row_bytes = max(1, estimated_bytes(batch.rows) // len(batch))
        self._batch_rows = max(1, min(self._max_rows, self._max_bytes // row_bytes))
        if self._is_broadcast:
            for channel in self.channels:
                channel.send_batch(batch)
        else:
            self.channels[index].send_batch(batch)
