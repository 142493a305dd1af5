"""PeerChannels: the channels over one connection to another worker: received frames, and the return of credit.

Owner: the I/O thread, which brings frames. The consumer's task thread calls `IncomingChannel.attach`. Must
not decode payloads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec

from yarrow.container.network.connection import Connection
from yarrow.container.network.element_codec import Buffer, ElementCodec
from yarrow.container.network.frames import CreditGrant, FrameHeader, FrameType, encode_header
from yarrow.container.network.input_channel import InputChannel
from yarrow.container.network.output_channel import RemoteOutputChannel
from yarrow.runtime.common.ids import ExecutionAttemptID

#: (consumer attempt, edge, producer subtask)
ChannelKey = tuple[ExecutionAttemptID, int, int]
#: A flag of CREDIT and CLOSE frames from the consumer's side: the channel number is the receiver's.
FROM_CONSUMER = 1


class RemoteCredit:
    """Returns grants to the producer of a remote channel."""

    def __init__(self, connection: Connection, number: int) -> None:
        self._connection = connection
        self._number = number

    def grant(self, batches: int, size: int) -> None:
        """Totals since the channel was opened."""
        payload = msgspec.msgpack.encode(CreditGrant(batches, size))
        header = encode_header(FrameType.CREDIT, self._number, len(payload), flags=FROM_CONSUMER)
        self._connection.send([header + payload])

    def close(self, reason: str) -> None:
        """Tells the producer that nothing is taken any more."""
        payload = reason.encode()[:65536]
        header = encode_header(FrameType.CLOSE, self._number, len(payload), flags=FROM_CONSUMER)
        self._connection.send([header + payload])


class IncomingChannel:
    """A channel that a peer has opened: its input channel or, before the consumer comes, the frames held for it."""

    def __init__(self, key: ChannelKey, credit: RemoteCredit, *, dropped: bool = False) -> None:
        self.key = key
        #: The consumer has ended: later frames are dropped.
        self._dropped = dropped
        self.credit = credit
        self.target: InputChannel | None = None
        self.held: list[tuple[FrameHeader, Buffer]] = []
        self.failure: str | None = None
        #: The task thread may attach while the I/O thread brings a frame.
        self._lock = threading.Lock()

    def attach(self, target: InputChannel) -> None:
        """Connects the consumer: it gets the held frames, then all others at once."""
        with self._lock:
            for header, payload in self.held:
                target.append_frame(header, payload)
            self.held.clear()
            self.target = target
        if self.failure is not None:
            target.fail(self.failure)
        else:
            target.connect(self.credit)

    def frame(self, header: FrameHeader, payload: Buffer) -> None:
        """Takes a frame of the producer."""
        if self._dropped:
            return
        if self.target is None:
            with self._lock:
                if self.target is None:
                    self.held.append((header, payload))
                    return
        target = self.target
        assert target is not None
        target.append_frame(header, payload)

    def fail(self, reason: str) -> None:
        """Fails the channel, because the producer's side broke off; a later consumer hears of it too."""
        self.failure = reason
        if self.target is not None:
            self.target.fail(reason)


class PeerChannels:
    """The channels over one connection."""

    def __init__(self) -> None:
        self.incoming: dict[int, IncomingChannel] = {}
        self.outgoing: dict[int, RemoteOutputChannel] = {}
        #: Channel numbers in `outgoing`, by producing attempt.
        self.producers: dict[ExecutionAttemptID, list[int]] = {}
        self.next_number = 1


class _Nowhere:
    """A FrameSender that drops the frames of a channel which has failed from the start."""

    max_payload = 0

    def send(self, parts: list[Buffer]) -> None:
        return None


def failed_output(codec: ElementCodec, wake: Callable[[], None], reason: str) -> RemoteOutputChannel:
    """A failed channel, so that its task hears of the failure as usual: the peer's own end is the cause to report."""
    channel = RemoteOutputChannel(0, codec, _Nowhere(), wake)
    channel.fail(reason)
    return channel
