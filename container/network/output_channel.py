"""OutputChannel: the sending end of one channel, with credit and a bounded overdraft, by reference or by connection.

Owner: the producer's task thread, except `grant`. The consumer's side calls `grant` from its own thread,
which only raises two totals and wakes the producer. Must not block.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from yarrow.container.network.channel_recording import ChannelOrigin
from yarrow.container.network.element_codec import Buffer, ElementCodec, encode_control, estimated_bytes
from yarrow.container.network.frames import FrameHeader, FrameType, encode_header
from yarrow.container.network.input_channel import InputChannel
from yarrow.container.protocol.errors import ChannelFailedError
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.data.elements import ArrowBatch, Batch, CheckpointBarrier, ControlElement, RowBatch
from yarrow.runtime.data.immutability import freeze_or_copy

#: Rows of a local edge that are pickled as a test, and about how many bytes at once.
_TRIED_ROWS = 16
_TRIED_BYTES = 1 << 20


class BatchTooLargeError(YarrowError):
    """A batch, possibly of one row, is longer than a frame may be."""


class Credit(NamedTuple):
    """Totals of a channel since it was opened: sent, and allowed by the consumer."""

    sent_batches: int
    granted_batches: int
    sent_bytes: int
    granted_bytes: int

    @property
    def is_left(self) -> bool:
        """Whether one more batch may be sent."""
        return self.sent_batches < self.granted_batches and self.sent_bytes < self.granted_bytes


class EncodedBatch:
    """A batch encoded once for several channels (broadcast)."""

    __slots__ = ("flags", "frame_type", "parts", "rows", "size")

    def __init__(self, codec: ElementCodec, batch: Batch) -> None:
        self.frame_type, self.parts, self.flags = codec.encode_batch(batch)
        self.rows = len(batch)
        self.size = sum(len(part) for part in self.parts)


class FrameSender(Protocol):
    """Takes the frames of a remote channel: a connection, safe from any thread, never blocking."""

    @property
    def max_payload(self) -> int:
        """Most payload bytes of a batch."""
        ...

    def send(self, parts: list[Buffer]) -> None: ...


class OutputChannel(ABC):
    """One channel of a result partition."""

    def __init__(self, wake_producer: Callable[[], None]) -> None:
        self._wake_producer = wake_producer
        #: The name of its records in checkpoints; None = barriers never overtake them.
        self.origin: ChannelOrigin | None = None
        self._overdraft: deque[Batch | ControlElement] = deque()
        self.sent_batches = 0
        self.sent_bytes = 0
        self._granted_batches = 0
        self._granted_bytes = 0
        #: Batches and bytes of the first grant, which is how far the producer may be ahead; 0 = no grant yet.
        self._window = (0, 0)
        self._failure: str | None = None

    def grant(self, batches: int, size: int) -> None:
        """Takes the consumer's allowed totals; ignores smaller ones, which are old messages."""
        if batches > self._granted_batches:
            if not self._granted_batches:
                self._window = (batches, size)
            self._granted_batches = batches
        if size > self._granted_bytes:
            self._granted_bytes = size
        self._wake_producer()

    def fail(self, reason: str) -> None:
        """Fails the channel: the consumer's side is gone. Any thread."""
        self._failure = reason
        self._wake_producer()

    @property
    def is_available(self) -> bool:
        """True if a batch may be sent at once. Raises ChannelFailedError if the consumer is gone."""
        if self._failure is not None:
            raise ChannelFailedError(self._failure)
        return not self._overdraft and self._has_credit()

    def _has_credit(self) -> bool:
        return self.sent_batches < self._granted_batches and self.sent_bytes < self._granted_bytes

    @property
    def credit(self) -> Credit:
        """Sent and granted totals. Any thread."""
        return Credit(self.sent_batches, self._granted_batches, self.sent_bytes, self._granted_bytes)

    @property
    def has_credit(self) -> bool:
        """Whether the consumer takes one more batch."""
        return self._has_credit()

    @property
    def failure(self) -> str | None:
        """Why the consumer takes no data any more; None while it does."""
        return self._failure

    @property
    def usage(self) -> float | None:
        """The used part of the credit, 0 to 1, by batches or by bytes; None if none was ever granted."""
        (batches, size), credit = self._window, self.credit
        if not batches or not size:
            return None
        if self._overdraft:
            return 1.0
        ahead = credit.sent_batches - (credit.granted_batches - batches)
        bytes_ahead = credit.sent_bytes - (credit.granted_bytes - size)
        return min(1.0, max(0.0, ahead / batches, bytes_ahead / size))

    @property
    def overdraft(self) -> int:
        """Number of elements that wait for credit."""
        return len(self._overdraft)

    def send_batch(self, batch: Batch) -> None:
        """Sends a batch, or keeps it in the overdraft without credit."""
        if self._overdraft or not self._has_credit():
            self._overdraft.append(batch)
        else:
            self._transmit(batch)

    def send_control(self, element: ControlElement) -> None:
        """Sends a control element. It needs no credit, but never overtakes a waiting batch."""
        if self._overdraft:
            self._overdraft.append(element)
        else:
            self._transmit_control(element)

    def send_ahead(self, barrier: CheckpointBarrier) -> list[Batch]:
        """Sends a barrier ahead of waiting batches; returns the overtaken batches in order."""
        waiting = list(self._overdraft)
        self._overdraft.clear()
        self.send_control(barrier)
        self._overdraft.extend(waiting)
        return [element for element in waiting if isinstance(element, RowBatch | ArrowBatch)]

    def holds_barrier(self, checkpoint_id: int) -> bool:
        """Whether the barrier of a checkpoint waits behind batches without credit."""
        return self._position_of(checkpoint_id) is not None

    def pull_ahead(self, checkpoint_id: int) -> list[Batch]:
        """Moves a waiting barrier ahead of the batches before it; returns these batches in order."""
        position = self._position_of(checkpoint_id)
        if position is None:
            return []
        waiting = list(self._overdraft)
        barrier = waiting.pop(position)
        assert isinstance(barrier, CheckpointBarrier)
        self._overdraft.clear()
        self.send_control(barrier)
        self._overdraft.extend(waiting)
        return [element for element in waiting[:position] if isinstance(element, RowBatch | ArrowBatch)]

    def _position_of(self, checkpoint_id: int) -> int | None:
        for position, element in enumerate(self._overdraft):
            if isinstance(element, CheckpointBarrier) and element.checkpoint_id == checkpoint_id:
                return position
        return None

    def drain_overdraft(self) -> bool:
        """Sends waiting elements as credit allows; True when none is left."""
        while self._overdraft:
            head = self._overdraft[0]
            if isinstance(head, RowBatch | ArrowBatch):
                if not self._has_credit():
                    return False
                self._overdraft.popleft()
                self._transmit(head)
            else:
                self._overdraft.popleft()
                self._transmit_control(head)
        return True

    @abstractmethod
    def _transmit(self, batch: Batch) -> None: ...

    @abstractmethod
    def _transmit_control(self, element: ControlElement) -> None: ...

    @abstractmethod
    def close(self, reason: str) -> None:
        """Closes the channel from this side; the consumer gets `reason` if no end of data was sent."""


class LocalOutputChannel(OutputChannel):
    """A channel to a task of the same process: elements pass by reference.

    If other workers would get pickled rows, the first rows are pickled as a test. Otherwise a program would
    fail only when it runs in several workers.
    """

    def __init__(
        self, wake_producer: Callable[[], None], copies_rows: bool = False, codec: ElementCodec | None = None
    ) -> None:
        super().__init__(wake_producer)
        self._codec = codec
        #: Number of rows still to be tested.
        self._untried = _TRIED_ROWS if codec is not None and codec.pickles else 0
        self._target: InputChannel | None = None
        self._copies_rows = copies_rows
        self._closed: str | None = None

    def attach(self, target: InputChannel) -> None:
        """Connects the consumer: from now on there is credit."""
        self._target = target
        if self._closed is not None:
            target.fail(self._closed)
        target.connect(self)

    def _transmit(self, batch: Batch) -> None:
        assert self._target is not None
        if isinstance(batch, RowBatch):
            size = max(1, estimated_bytes(batch.rows))
            if self._untried and batch.rows:
                self._try(batch.rows, size // len(batch.rows))
            if self._copies_rows:
                batch = RowBatch([freeze_or_copy(row) for row in batch.rows], batch.timestamps, batch.kinds)
        else:
            size = max(1, batch.batch.nbytes)  # of the slice's rows, not of its parent
        self.sent_batches += 1
        self.sent_bytes += size
        self._target.append(batch, size)

    def _try(self, rows: list[Any], row_bytes: int) -> None:
        assert self._codec is not None
        tried = rows[: max(1, min(self._untried, _TRIED_BYTES // max(1, row_bytes)))]
        self._untried = max(0, self._untried - len(tried))
        self._codec.check_rows(tried)

    def send_control(self, element: ControlElement) -> None:
        if self._target is None:
            self._overdraft.append(element)
        else:
            super().send_control(element)

    def drain_overdraft(self) -> bool:
        return super().drain_overdraft() if self._target is not None else not self._overdraft

    def _transmit_control(self, element: ControlElement) -> None:
        assert self._target is not None
        self._target.append(element, 0)

    def close(self, reason: str) -> None:
        self._closed = reason
        self._overdraft.clear()
        if self._target is not None:
            self._target.fail(reason)


class RemoteOutputChannel(OutputChannel):
    """A channel to a task of another worker, over the connection of the two workers."""

    def __init__(
        self, number: int, codec: ElementCodec, sender: FrameSender, wake_producer: Callable[[], None]
    ) -> None:
        super().__init__(wake_producer)
        self._number = number
        self._codec = codec
        self._sender = sender
        self._closed = False

    def _transmit(self, batch: Batch) -> None:
        self.send_encoded(EncodedBatch(self._codec, batch))

    def send_encoded(self, encoded: EncodedBatch) -> None:
        """Sends an encoded batch; the caller has checked `is_available`."""
        limit = self._sender.max_payload
        if encoded.size > limit:
            raise BatchTooLargeError(
                f"a batch of {encoded.rows} rows takes {encoded.size} bytes on the wire, allowed are {limit} "
                "(taskmanager.network.max-frame-size): raise the limit, or make the records smaller, e.g. by "
                "passing a path instead of the content"
            )
        header = encode_header(encoded.frame_type, self._number, encoded.size, encoded.rows, encoded.flags)
        self.sent_batches += 1
        self.sent_bytes += encoded.size
        self._sender.send([header, *encoded.parts])

    def send_frame(self, header: FrameHeader, payload: Buffer) -> None:
        """Sends a frame that was encoded for another channel; the caller has checked `has_credit` for a batch."""
        if header.type in (FrameType.ROWS, FrameType.ARROW):
            self.sent_batches += 1
            self.sent_bytes += header.length
        head = encode_header(header.type, self._number, header.length, header.rows, header.flags)
        self._sender.send([head, payload])

    def _transmit_control(self, element: ControlElement) -> None:
        frame_type, payload = encode_control(element)
        self._sender.send([encode_header(frame_type, self._number, len(payload)), payload])

    def close(self, reason: str) -> None:
        if self._closed:
            return
        self._closed = True
        self._overdraft.clear()
        payload = reason.encode()[:65536]
        self._sender.send([encode_header(FrameType.CLOSE, self._number, len(payload)), payload])
