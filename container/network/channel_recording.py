"""ChannelRecording: one channel's records for an unaligned checkpoint, gathered in flight and written as frames.

Owner: the task thread gathers; once it is complete, the snapshot thread takes the frames. Only batches are
kept. Watermarks and statuses are not needed, since after a restore event time begins anew at every channel.
An end of data is sent again by its producer. Must not know gates, tasks or the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from yarrow.container.network.element_codec import Buffer, ElementCodec, barrier_id, estimated_bytes
from yarrow.container.network.frames import FrameHeader, FrameType, encode_header
from yarrow.runtime.data.elements import (
    ArrowBatch,
    Batch,
    CheckpointBarrier,
    EndOfData,
    RowBatch,
    StreamElement,
)
from yarrow.runtime.snapshot.handles import SerializerConfig

#: An entry of a consumer's queue: (element, size) by reference, or (header, payload) as received.
Queued = tuple[StreamElement, int] | tuple[FrameHeader, Buffer]


class ChannelOrigin(NamedTuple):
    """The identity of a channel in checkpoints."""

    #: See runtime.snapshot.channel_edges.
    edge: str
    producer: int
    consumer: int
    codec: ElementCodec
    #: How rows are written; None for columns, which describe themselves.
    rows: SerializerConfig | None
    #: Subtasks and key groups of the consuming vertex.
    consumers: int
    max_parallelism: int
    #: True if receivers may change a row: such rows are encoded when they are recorded, not later.
    changeable: bool


class ChannelRecording:
    """The records before the barrier of one checkpoint in one channel, in order."""

    def __init__(self, origin: ChannelOrigin, checkpoint_id: int, *, at_producer: bool = False) -> None:
        self.origin = origin
        self.checkpoint_id = checkpoint_id
        self.at_producer = at_producer
        #: All records have been gathered.
        self.complete = at_producer
        #: Gathered bytes, sampled if rows are not encoded yet.
        self.size = 0
        self._entries: list[Batch | tuple[FrameHeader, Buffer]] = []

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, batch: Batch) -> None:
        """Adds the next batch."""
        if not len(batch):
            return
        if self.origin.changeable and isinstance(batch, RowBatch):
            frame_type, parts, flags = self.origin.codec.encode_batch(batch)
            payload = b"".join(parts)
            self.add_frame(FrameHeader(frame_type, 0, len(payload), len(batch), flags), payload)
        else:
            self.size += estimated_bytes(batch.rows) if isinstance(batch, RowBatch) else batch.batch.nbytes
            self._entries.append(batch)

    def add_frame(self, header: FrameHeader, payload: Buffer) -> None:
        """Adds the next batch in encoded form."""
        self.size += header.length
        self._entries.append((header, payload))

    def note(self, entry: Queued) -> bool:
        """Notes an entry that the consumer takes; True when the recording is complete with it."""
        if self._is_ended_by(entry):
            self.complete = True
            return True
        head, rest = entry
        if isinstance(head, FrameHeader):
            if head.type in (FrameType.ROWS, FrameType.ARROW):
                assert not isinstance(rest, int)
                self.add_frame(head, rest)
        elif isinstance(head, RowBatch | ArrowBatch):
            self.add(head)
        return False

    def note_until_barrier(self, waiting: Sequence[Queued]) -> bool:
        """Notes the waiting entries before the barrier; True if the barrier is among them.

        If not, use `note` for later ones.
        """
        if not any(map(self._is_ended_by, waiting)):
            return False
        return any(map(self.note, waiting))

    def _is_ended_by(self, entry: Queued) -> bool:
        head, rest = entry
        if isinstance(head, FrameHeader):
            if head.type is FrameType.BARRIER:
                assert not isinstance(rest, int)
                return barrier_id(rest) == self.checkpoint_id
            return head.type is FrameType.END_OF_DATA
        if isinstance(head, CheckpointBarrier):
            return head.checkpoint_id == self.checkpoint_id
        return isinstance(head, EndOfData)

    def frames(self) -> Iterator[bytes]:
        """Header and payload of each batch, as on the wire; releases the batches on the way."""
        entries, self._entries = self._entries[::-1], []
        while entries:
            entry = entries.pop()
            if isinstance(entry, RowBatch | ArrowBatch):
                frame_type, parts, flags = self.origin.codec.encode_batch(entry)
                yield encode_header(frame_type, 0, sum(map(len, parts)), len(entry), flags)
                yield from map(bytes, parts)
            else:
                header, payload = entry
                yield encode_header(header.type, 0, header.length, header.rows, header.flags)
                yield bytes(payload)
