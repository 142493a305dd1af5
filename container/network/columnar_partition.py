"""ColumnarResultPartition: a task's output for one columnar edge.

Record batches are cut by channel, small parts gathered.

Owner: the task thread. It routes whole columns: a batch is partitioned once, with one stable order by
channel, and its parts are slices of it. Must not make a Python object for a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yarrow.container.network.output_channel import OutputChannel
from yarrow.container.network.partition import Partition
from yarrow.runtime.common.errors import InvalidProgramError, YarrowError
from yarrow.runtime.common.randomness import new_generator
from yarrow.runtime.data.batch_key import BatchKey
from yarrow.runtime.data.column_rows import rows_of_batch
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.data.errors import ColumnKeyError
from yarrow.runtime.data.key_groups import check_parallelism, operator_index_for_key_group
from yarrow.runtime.graph.job_graph import JobEdge
from yarrow.runtime.graph.operator_spec import PartitionerKind

#: Rows at which the gathered fragments of a channel are sent; the buffer timeout sends them earlier.
COALESCE_ROWS = 16 * 1024
#: Least rows of a slice when a batch is divided: smaller batches are sent whole, in turn.
MIN_SLICE_ROWS = 1024

#: Bytes of parent batches at which waiting fragments are copied, so that the batches can be freed.
MAX_PINNED_BYTES = 16 * 1024 * 1024
#: A slice that is sent at once is copied if it is smaller than its batch divided by this number.
_LEAST_PART: Final = 8
#: Most channels for which one scan for each is faster than one sort.
_SCANNED_CHANNELS: Final = 6

#: The channel of each row: integers of any width, shape (rows,).
Channels = npt.NDArray[Any]


class ColumnRoutingError(YarrowError):
    """A batch whose rows have no channel: a key column is missing or of a type that no key has."""


class ColumnarResultPartition(Partition):
    """The record batches for the subtasks of one consumer vertex."""

    def __init__(
        self,
        edge: JobEdge,
        channels: Sequence[OutputChannel],
        max_parallelism: int,
        coalesce_rows: int = COALESCE_ROWS,
    ) -> None:
        super().__init__(edge, channels)
        self._records_taken = 0
        self._coalesce_rows = coalesce_rows
        self._fragments: list[list[ArrowBatch]] = [[] for _ in self.channels]
        self._fragment_rows = [0] * len(self.channels)
        #: Bytes of the batches from which waiting fragments were cut, since the last copy.
        self._pinned_bytes = 0
        self._turn = 0
        self._max_parallelism = max_parallelism
        self._kind = edge.partitioner.kind
        self._key: BatchKey
        self._check_partitioner()

    def _check_partitioner(self) -> None:
        count = len(self.channels)
        if self._kind is PartitionerKind.CUSTOM:
            raise InvalidProgramError(
                f"edge {self.edge.index}: a custom partitioner is called with the key of a row, and a columnar"
                " edge has no rows. Convert the stream to rows before partition_custom, or use key_by with a"
                " column"
            )
        if self._kind is not PartitionerKind.KEY_GROUP:
            return
        if self.edge.partitioner.key_column is None:
            raise InvalidProgramError(
                f"edge {self.edge.index}: a columnar edge is keyed by columns, and its partitioner "
                "names none; use key_by with the name of a column"
            )
        self._key = BatchKey(self.edge.partitioner.key_column)
        check_parallelism(count, self._max_parallelism)
        self._channel_of_group = np.array(
            [
                operator_index_for_key_group(self._max_parallelism, count, g)
                for g in range(self._max_parallelism)
            ],
            np.uint8 if count <= 256 else np.uint16,
        )

    @property
    def records_taken(self) -> int:
        return self._records_taken

    @property
    def has_buffered(self) -> bool:
        return any(self._fragment_rows)

    def flush_full(self) -> None:
        """Does nothing: `emit_batch` sends fragments once they are large enough."""

    def flush_all(self) -> None:
        for index, rows in enumerate(self._fragment_rows):
            if rows:
                self._send_fragments(index)

    @cached_property
    def _random(self) -> Any:
        return np.random.default_rng(new_generator(self.seed).getrandbits(128))

    # ------------------------------------------------------------------ batches

    def emit_batch(self, batch: ArrowBatch) -> None:
        """Routes a batch. Raises ColumnRoutingError where a key column cannot be one."""
        if not len(batch):
            return
        # Counted on arrival, as in a row partition, and once for a broadcast.
        self._records_taken += len(batch)
        count = len(self.channels)
        kind = self._kind
        if kind is PartitionerKind.BROADCAST:
            for index in range(count):
                self._put(index, batch)
        elif count == 1 or kind is PartitionerKind.GLOBAL:
            self._put(0, batch)
        elif kind is PartitionerKind.KEY_GROUP:
            self._distribute(batch, self._channels_by_key(batch.batch))
        elif kind is PartitionerKind.SHUFFLE:
            self._distribute(batch, self._random.integers(0, count, len(batch), dtype=np.uint16))
        else:
            self._deal(batch)

    def _channels_by_key(self, records: pa.RecordBatch) -> Channels:
        try:
            hashes = self._key.hashes(records)
        except ColumnKeyError as error:
            raise ColumnRoutingError(f"edge {self.edge.index}: {error}") from error
        most = self._max_parallelism
        # A power of two, which is the default, needs no division.
        groups = hashes & np.uint64(most - 1) if most & (most - 1) == 0 else hashes % np.uint64(most)
        channels: Channels = self._channel_of_group.take(groups.view(np.int64))
        return channels

    def _distribute(self, batch: ArrowBatch, channels: Channels) -> None:
        count = len(self.channels)
        if count <= _SCANNED_CHANNELS:
            parts = [np.flatnonzero(channels == index) for index in range(count)]
            order = np.concatenate(parts)
            ends = list(accumulate(map(len, parts)))
        else:
            # A radix sort, because the numbers are small. `channels` holds one small unsigned integer for
            # each row; `order` is an intp array of row positions.
            order = np.argsort(channels, kind="stable")
            ends = np.searchsorted(channels.take(order), np.arange(count), side="right").tolist()
        ordered = taken(batch, order)
        start = 0
        for index, end in enumerate(ends):
            if end > start:
                part = ordered.sliced(start, end)
                is_lone = self._coalesce_rows <= end - start < len(ordered) // _LEAST_PART
                self._put(index, _owned(part) if is_lone else part)
            start = end
        if self.has_buffered:
            self._bound_pinned(ordered)

    def _deal(self, batch: ArrowBatch) -> None:
        """Sends nearly equal slices to as many channels as the batch is large enough for.

        It begins with the channel after the last one.
        """
        count, rows = len(self.channels), len(batch)
        parts = max(1, min(count, rows // MIN_SLICE_ROWS))
        for part in range(parts):
            self._put(self._turn, batch.sliced(rows * part // parts, rows * (part + 1) // parts))
            self._turn = (self._turn + 1) % count

    def _bound_pinned(self, parent: ArrowBatch) -> None:
        """Copies waiting slices before their parent batches hold too much memory."""
        self._pinned_bytes += parent.batch.nbytes
        if self._pinned_bytes <= MAX_PINNED_BYTES:
            return
        self._pinned_bytes = 0
        for fragments in self._fragments:
            if fragments:
                fragments[:] = [_owned(concatenated(fragments))]

    def _put(self, index: int, batch: ArrowBatch) -> None:
        waiting = self._fragment_rows[index]
        if not waiting and len(batch) >= self._coalesce_rows:
            self._send(index, batch)
            return
        fragments = self._fragments[index]
        if fragments and not fragments[0].batch.schema.equals(batch.batch.schema):
            self._send_fragments(index)
            waiting = 0
        fragments.append(batch)
        self._fragment_rows[index] = waiting + len(batch)
        if self._fragment_rows[index] >= self._coalesce_rows:
            self._send_fragments(index)

    def _send_fragments(self, index: int) -> None:
        fragments = self._fragments[index].copy()
        self._fragments[index].clear()
        self._fragment_rows[index] = 0
        self._send(index, fragments[0] if len(fragments) == 1 else concatenated(fragments))

    def _send(self, index: int, batch: ArrowBatch) -> None:
        self.batches_out += 1
        self.channels[index].send_batch(batch)


def taken(batch: ArrowBatch, order: npt.NDArray[np.int64]) -> ArrowBatch:
    """The rows at the positions in `order` (int64, shape (taken,)), in that order and in their own memory."""
    indices = pa.array(order)
    stamps, kinds = batch.timestamps, batch.kinds
    return ArrowBatch(
        rows_of_batch(batch.batch, indices),
        None if stamps is None else stamps.take(indices),
        None if kinds is None else np.frombuffer(kinds, np.uint8)[order].tobytes(),
    )


def _owned(batch: ArrowBatch) -> ArrowBatch:
    return taken(batch, np.arange(len(batch)))


def concatenated(batches: Sequence[ArrowBatch]) -> ArrowBatch:
    """One batch of several with one schema; missing timestamps become null, missing kinds INSERT."""
    records = pa.concat_batches([item.batch for item in batches])
    stamps: pa.Array | None = None
    if any(item.timestamps is not None for item in batches):
        stamps = pa.concat_arrays(
            [pa.nulls(len(b), pa.int64()) if b.timestamps is None else b.timestamps for b in batches]
        )
    kinds: bytes | None = None
    if any(item.kinds is not None for item in batches):
        kinds = b"".join(bytes(len(item)) if item.kinds is None else item.kinds for item in batches)
    return ArrowBatch(records, stamps, kinds)
