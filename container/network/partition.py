"""What the outputs of a task have in common, be they rows or columns: channels, credit, control elements, the end.

Owner: the task thread. How rows or batches are cut and routed is the business of the subclasses (result_partition,
columnar_partition).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from yarrow.container.network.channel_recording import ChannelRecording
from yarrow.container.network.output_channel import OutputChannel
from yarrow.runtime.data.elements import Batch, CheckpointBarrier, ControlElement
from yarrow.runtime.graph.job_graph import JobEdge


class Partition(ABC):
    """The output of a task for one edge."""

    def __init__(self, edge: JobEdge, channels: Sequence[OutputChannel]) -> None:
        self.edge = edge
        self.channels = tuple(channels)
        self.batches_out = 0

    @property
    def is_available(self) -> bool:
        """True when every channel has credit and nothing waits in an overdraft."""
        return all(channel.is_available for channel in self.channels)

    @property
    def bytes_out(self) -> int:
        """Bytes sent so far (sampled sizes where rows pass by reference)."""
        return sum(channel.sent_bytes for channel in self.channels)

    @property
    def queued(self) -> int:
        """Elements that wait for credit."""
        return sum(channel.overdraft for channel in self.channels)

    @property
    def usages(self) -> list[float]:
        """How much of its credit each channel has used up, 0 to 1; channels without credit are left out."""
        return [usage for channel in self.channels if (usage := channel.usage) is not None]

    @property
    @abstractmethod
    def records_taken(self) -> int:
        """Rows that were handed to this output so far, once for a broadcast."""

    @property
    @abstractmethod
    def has_buffered(self) -> bool:
        """True when something waits for the size or the timeout that sends it."""

    @abstractmethod
    def flush_full(self) -> None:
        """Sends what has reached the size of a batch."""

    @abstractmethod
    def flush_all(self) -> None:
        """Sends everything that waits for its size."""

    def broadcast_control(self, element: ControlElement) -> None:
        """Sends what is buffered, then the element, on every channel."""
        self.flush_all()
        for channel in self.channels:
            channel.send_control(element)

    def broadcast_ahead(self, barrier: CheckpointBarrier) -> list[ChannelRecording]:
        """Sends a barrier on every channel, ahead of what waits for credit there: that belongs to its checkpoint.

        On channels whose records no checkpoint can hold it keeps its place.
        """
        self.flush_all()
        overtaken: list[ChannelRecording] = []
        for channel in self.channels:
            if channel.origin is None:
                channel.send_control(barrier)
            else:
                overtaken += recorded_at_producer(channel, barrier.checkpoint_id, channel.send_ahead(barrier))
        return overtaken

    def pull_ahead(self, checkpoint_id: int) -> list[ChannelRecording]:
        """The same for a barrier that was sent in its place and still waits there."""
        overtaken: list[ChannelRecording] = []
        for channel in self.channels:
            if channel.origin is not None:
                overtaken += recorded_at_producer(channel, checkpoint_id, channel.pull_ahead(checkpoint_id))
        return overtaken

    def holds_barrier(self, checkpoint_id: int) -> bool:
        """Whether that barrier waits on a channel where it could overtake."""
        return any(
            channel.origin is not None and channel.holds_barrier(checkpoint_id) for channel in self.channels
        )

    def drain_overdraft(self) -> bool:
        """Sends what new credit allows; True when nothing waits any more."""
        drained = True
        for channel in self.channels:
            if not channel.drain_overdraft():
                drained = False
        return drained

    def close(self, reason: str) -> None:
        """Ends all channels; `reason` reaches consumers that had no end of data."""
        for channel in self.channels:
            channel.close(reason)


def recorded_at_producer(
    channel: OutputChannel, checkpoint_id: int, batches: list[Batch]
) -> list[ChannelRecording]:
    """The batches that a barrier has overtaken at an output; nothing where there are none."""
    if not batches:
        return []
    assert channel.origin is not None
    recording = ChannelRecording(channel.origin, checkpoint_id, at_producer=True)
    for batch in batches:
        recording.add(batch)
    return [recording]
