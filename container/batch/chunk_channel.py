"""ChunkChannel: a channel without credit whose batches become chunks; and the codec between batches and chunks.

Owner: the task thread. Control elements have no place in a batch job and end here. Must not know partitioners.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from yarrow.container.batch.chunk import Chunk, decode_chunk, encode_chunk
from yarrow.container.batch.spilled_runs import SpilledRuns
from yarrow.container.network.element_codec import HAS_TIMESTAMPS, ElementCodec
from yarrow.container.network.frames import FrameType, WireProtocolError
from yarrow.container.network.output_channel import BatchTooLargeError, EncodedBatch, OutputChannel
from yarrow.runtime.data.elements import ArrowBatch, Batch, ControlElement, RowBatch

#: Bytes before the encoded batch: frame type and flags.
_HEAD = 2
#: Bytes of chunks of a task that wait in memory.
OUTBOX_BYTES: Final = 32 << 20


class Outbox:
    """The chunks that a task has made and nobody has taken yet, numbered in their order.

    One call of a function may give more than fits into memory: chunks beyond the budget wait on disk.
    """

    def __init__(self, producer: int, directory: Path, budget: int = OUTBOX_BYTES) -> None:
        """`budget`: bytes of payloads in memory; more go to a file in `directory`."""
        self._producer = producer
        self._directory = directory
        self._budget = budget
        self._sequence = 0
        self._waiting: list[Chunk] = []
        self._size = 0
        #: Chunks before those in memory.
        self._spilled: SpilledRuns[Chunk] | None = None
        #: Encoded bytes on all edges so far.
        self.bytes_out = 0

    def put(self, edge: int, target: int, rows: int, payload: bytes) -> None:
        """Adds a chunk behind the others. Raises SpillError if the disk does not take it."""
        self._waiting.append(Chunk(edge, target, self._producer, self._sequence, rows, payload))
        self._sequence += 1
        self._size += len(payload)
        if edge >= 0:
            self.bytes_out += len(payload)
        if self._size > self._budget:
            self._spill()

    def _spill(self) -> None:
        if self._spilled is None:
            self._spilled = SpilledRuns(self._directory, encode_chunk, decode_chunk)
        self._spilled.append(self._waiting)
        self._waiting, self._size = [], 0

    @property
    def is_full(self) -> bool:
        """Whether some chunk waits."""
        return bool(self._waiting) or self._spilled is not None

    def take(self) -> Iterator[Chunk]:
        """The waiting chunks; they are out of the box before the first one is processed."""
        if self._spilled is not None:
            self._spill()
        spilled, self._spilled = self._spilled, None
        waiting, self._waiting, self._size = self._waiting, [], 0
        return iter(waiting) if spilled is None else _read(spilled)

    def close(self) -> None:
        """Removes what nobody has taken."""
        self._waiting = []
        if self._spilled is not None:
            self._spilled.close()


def _read(spilled: SpilledRuns[Chunk]) -> Iterator[Chunk]:
    try:
        for run in spilled.readers():
            yield from run
    finally:
        spilled.close()


class ChunkChannel(OutputChannel):
    """A producer's end of an exchange for one target: it accepts everything at once."""

    def __init__(self, outbox: Outbox, edge: int, target: int, codec: ElementCodec, max_payload: int) -> None:
        """`max_payload`: most bytes of a chunk; a batch that is larger fails the task."""
        super().__init__(_nobody_waits)
        self._outbox = outbox
        self._edge = edge
        self._target = target
        self._codec = codec
        self._max_payload = max_payload

    def _has_credit(self) -> bool:
        return True

    def _transmit(self, batch: Batch) -> None:
        encoded = EncodedBatch(self._codec, batch)
        if encoded.size > self._max_payload:
            raise BatchTooLargeError(
                f"a batch of {encoded.rows} rows takes {encoded.size} bytes, allowed are {self._max_payload} "
                "(taskmanager.network.max-frame-size): raise the limit, or make the records smaller"
            )
        head = bytes((encoded.frame_type, encoded.flags))
        self._outbox.put(self._edge, self._target, encoded.rows, b"".join((head, *encoded.parts)))
        self.sent_batches += 1
        self.sent_bytes += encoded.size

    def _transmit_control(self, element: ControlElement) -> None:
        """Watermarks follow from the end of the input, and nothing else is sent between batches."""

    def close(self, reason: str) -> None:
        """Nothing is open."""


def _nobody_waits() -> None:
    return None


def decode_batch(codec: ElementCodec, chunk: Chunk) -> Batch:
    """The batch of a chunk. Raises WireProtocolError for a payload that no task has written."""
    payload = chunk.payload
    try:
        frame_type = FrameType(payload[0])
        flags = payload[1]
    except (IndexError, ValueError) as error:
        raise WireProtocolError(
            f"a chunk of edge {chunk.edge} has no head: run the same Yarrow version in all tasks"
        ) from error
    element = codec.decode(frame_type, memoryview(payload)[_HEAD:], chunk.rows, flags)
    if not isinstance(element, RowBatch | ArrowBatch):
        raise WireProtocolError(
            f"a chunk of edge {chunk.edge} holds {frame_type.name}, which is no batch of rows"
        )
    return element


def has_timestamps(chunk: Chunk) -> bool:
    """Whether some rows of a chunk may have a timestamp."""
    return len(chunk.payload) >= _HEAD and bool(chunk.payload[1] & HAS_TIMESTAMPS)
