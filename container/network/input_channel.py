"""InputChannel: the receiving end of one channel, a queue of elements with the granted credit.

The I/O thread (or the producer's task thread, by reference) appends, and the consumer's task thread takes.
Only one side writes each counter, so no lock is needed. `take` decodes, on the task thread. A barrier that
may overtake records is announced when it is appended, long before it is taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from yarrow.container.network.channel_recording import ChannelOrigin, ChannelRecording, Queued
from yarrow.container.network.element_codec import Buffer, ElementCodec, barrier_overtakes, decode_control
from yarrow.container.network.frames import FrameHeader, FrameType
from yarrow.container.protocol.errors import ChannelFailedError
from yarrow.runtime.data.elements import BarrierAlignment, CheckpointBarrier, RowBatch, StreamElement

#: Least byte window of a channel; a single larger batch may still be sent alone.
MIN_WINDOW_BYTES = 64 * 1024


class CreditReceiver(Protocol):
    """Grants credit to the producer of a channel."""

    def grant(self, batches: int, size: int) -> None:
        """Totals since the channel was opened."""
        ...


class InputChannel:
    """One channel of an input gate."""

    def __init__(
        self,
        codec: ElementCodec,
        window_batches: int,
        window_bytes: int,
        wake_consumer: Callable[[], None],
        origin: ChannelOrigin | None = None,
    ) -> None:
        self._codec = codec
        self._wake_consumer = wake_consumer
        #: The name of its records in checkpoints; None = barriers never overtake them.
        self.origin = origin
        #: Called by the producing side after it has appended a barrier that may overtake.
        self.on_announced: Callable[[], None] = wake_consumer
        #: Announced barriers; the producing side appends. A barrier may have been taken meanwhile.
        self._announced: deque[CheckpointBarrier | Buffer] = deque()
        self._recording: ChannelRecording | None = None
        self.window_batches = window_batches
        self.window_bytes = max(window_bytes, MIN_WINDOW_BYTES)
        #: (element, size) by reference, or (header, payload) as received.
        self._queue: deque[Queued] = deque()
        #: Totals that the producer may reach; only the consumer's thread writes them.
        self.granted_batches = window_batches
        self.granted_bytes = self.window_bytes
        #: Received totals; only the producing side writes them.
        self.received_bytes = 0
        self.received_buffers = 0
        self._consumed_batches = 0
        self._announced_batches = 0
        self._announce_every = min(2, window_batches)
        self._announced_bytes = 0
        self._credit: CreditReceiver | None = None
        #: Set by a barrier during alignment: nothing is taken meanwhile.
        self.blocked = False
        #: The end of data was taken.
        self.ended = False
        #: The consumer has ended: nothing is taken any more.
        self.closed = False
        self._failure: str | None = None
        #: The attempt whose complete result is read here; "" for a pipelined channel.
        self.reads_result_of = ""

    # ------------------------------------------------------------- producing side

    def connect(self, credit: CreditReceiver) -> None:
        """Sets the producer's side and sends it the present credit."""
        self._credit = credit
        credit.grant(self.granted_batches, self.granted_bytes)

    def append(self, element: StreamElement, size: int) -> None:
        """Appends an element by reference; `size` is 0 for control elements."""
        if self.closed:
            return
        self._queue.append((element, size))
        if size:
            self.received_bytes += size
            self.received_buffers += 1
        elif type(element) is CheckpointBarrier and element.alignment is BarrierAlignment.UNALIGNED:
            self._announce(element)
        self._wake_consumer()

    def append_frame(self, header: FrameHeader, payload: Buffer) -> None:
        """Appends a received frame."""
        if self.closed:
            return
        self._queue.append((header, payload))
        if header.rows:
            self.received_bytes += header.length
            self.received_buffers += 1
        elif header.type is FrameType.BARRIER and barrier_overtakes(payload):
            self._announce(payload)
        self._wake_consumer()

    def _announce(self, barrier: CheckpointBarrier | Buffer) -> None:
        if self.origin is not None:
            self._announced.append(barrier)
            self.on_announced()

    def fail(self, reason: str) -> None:
        """Fails the channel: the producer is gone before the end of data. Any thread."""
        if not self.ended and self._failure is None:
            self._failure = reason
            self._wake_consumer()

    # ------------------------------------------------------------- consuming side

    @property
    def has_data(self) -> bool:
        """True when `take` would return an element or raise."""
        if self.blocked or self.closed:
            return False
        return bool(self._queue) or (self._failure is not None and not self.ended)

    @property
    def rows_follow(self) -> bool:
        """True when `take` would return a batch of rows."""
        if self.blocked or self.closed or not self._queue:
            return False
        head = self._queue[0][0]
        return head.type is FrameType.ROWS if isinstance(head, FrameHeader) else isinstance(head, RowBatch)

    @property
    def queued(self) -> int:
        """Number of waiting elements."""
        return len(self._queue)

    @property
    def waiting_batches(self) -> int:
        """Number of received batches that were not taken."""
        return max(0, self.received_buffers - (self.granted_batches - self.window_batches))

    @property
    def waiting_bytes(self) -> int:
        """Bytes of received batches that were not taken."""
        return max(0, self.received_bytes - (self.granted_bytes - self.window_bytes))

    def take(self) -> StreamElement:
        """The next element. Raises ChannelFailedError if the producer is gone and nothing is left to read."""
        if not self._queue:
            raise ChannelFailedError(
                self._failure or "no element waits on this channel", self.reads_result_of
            )
        entry = self._queue.popleft()
        if self._recording is not None and self._recording.note(entry):
            self._recording = None
        head, rest = entry
        if isinstance(head, FrameHeader):
            assert not isinstance(rest, int)
            if head.type in (FrameType.ROWS, FrameType.ARROW):
                self._consume(head.length)
            return self._codec.decode(head.type, rest, head.rows, head.flags)
        assert isinstance(rest, int)
        if rest:
            self._consume(rest)
        return head

    def _consume(self, size: int) -> None:
        self._consumed_batches += 1
        self.granted_batches += 1
        self.granted_bytes += size
        # A grant is sent for every second batch or half a window of bytes: few messages, and never an
        # exhausted window.
        if self._credit is not None and (
            self.granted_batches - self._announced_batches >= self._announce_every
            or 2 * (self.granted_bytes - self._announced_bytes) >= self.window_bytes
        ):
            self._announced_batches = self.granted_batches
            self._announced_bytes = self.granted_bytes
            self._credit.grant(self.granted_batches, self.granted_bytes)

    # ------------------------------------------------------------- barriers that overtake, consuming side

    def next_announced(self) -> CheckpointBarrier | None:
        """The next announced barrier; it is still in the queue unless it was taken meanwhile."""
        if not self._announced:
            return None
        found = self._announced.popleft()
        if isinstance(found, CheckpointBarrier):
            return found
        barrier = decode_control(FrameType.BARRIER, found)
        assert isinstance(barrier, CheckpointBarrier)
        return barrier

    def record(self, recording: ChannelRecording) -> None:
        """Records waiting and later entries before a barrier for its checkpoint."""
        if self.ended:
            recording.complete = True
            return
        self._recording = recording
        self.look_for_barrier()

    def look_for_barrier(self) -> None:
        """Ends the recording if its barrier, or the end of data, waits in the queue."""
        if self._recording is not None and self._recording.note_until_barrier(list(self._queue)):
            self._recording = None

    def stop_recording(self) -> None:
        """Stops recording."""
        self._recording = None

    def close(self) -> None:
        """Drops waiting elements; later frames are dropped too."""
        self.closed = True
        self._recording = None
        self._announced.clear()
        self._queue.clear()
