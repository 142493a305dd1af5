"""ChunkChannel: a channel without credit whose batches become chunks; and the codec between batches and chunks.

Owner: the task thread. Control elements have no place in a batch job and end here. Must not know partitioners.
"""

from __future__ import annotations

from collections.abc import Iterator

from yarrow.container.batch.chunk import Chunk
from yarrow.container.network.element_codec import HAS_TIMESTAMPS, ElementCodec
from yarrow.container.network.frames import FrameType, WireProtocolError
from yarrow.container.network.output_channel import BatchTooLargeError, EncodedBatch, OutputChannel
from yarrow.runtime.data.elements import ArrowBatch, Batch, ControlElement, RowBatch

#: Bytes before the encoded batch: frame type and flags.
_HEAD = 2


class Outbox:
    """The chunks that a task has made and nobody has taken yet, numbered in their order."""

    def __init__(self, producer: int) -> None:
        self._producer = producer
        self._sequence = 0
        self._waiting: list[Chunk] = []
        #: Encoded bytes on all edges so far.
        self.bytes_out = 0

    def put(self, edge: int, target: int, rows: int, payload: bytes) -> None:
        """Adds a chunk behind the others."""
        self._waiting.append(Chunk(edge, target, self._producer, self._sequence, rows, payload))
        self._sequence += 1
        if edge >= 0:
            self.bytes_out += len(payload)

    @property
    def is_full(self) -> bool:
        """Whether some chunk waits."""
        return bool(self._waiting)

    def take(self) -> Iterator[Chunk]:
        """The waiting chunks; they are out of the box before the first one is processed."""
        waiting, self._waiting = self._waiting, []
        return iter(waiting)


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
