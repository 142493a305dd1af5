"""Partition: the common part of a task's row and column outputs: channels, credit, control elements, the end.

Owner: the task thread. The subclasses cut and route rows or batches (result_partition, columnar_partition).
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
        #: From what the random choice of channels begins; None = differently in each run. Read when the first rows
        #: come.
        self.seed: int | None = None

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
        """The used part of each channel's credit, 0 to 1; without channels that have none."""
        return [usage for channel in self.channels if (usage := channel.usage) is not None]

    @property
    @abstractmethod
    def records_taken(self) -> int:
        """Rows that this output has received so far; a broadcast row counts once."""

    @property
    def records_saved(self) -> int:
        """Rows among `records_taken` that did not have to be sent, because others stand for them."""
        return 0

    @property
    @abstractmethod
    def has_buffered(self) -> bool:
        """True if rows wait for the batch size or the timeout."""

    @abstractmethod
    def flush_full(self) -> None:
        """Sends buffers that have the size of a batch."""

    @abstractmethod
    def flush_all(self) -> None:
        """Sends all buffers."""

    def broadcast_control(self, element: ControlElement) -> None:
        """Sends buffered rows, then the element, on every channel."""
        self.flush_all()
        for channel in self.channels:
            channel.send_control(element)

    def broadcast_ahead(self, barrier: CheckpointBarrier) -> list[ChannelRecording]:
        """Sends a barrier on every channel, ahead of waiting batches, which belong to its checkpoint.

        On channels whose records no checkpoint can hold, it keeps its place.
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
        """Moves a waiting barrier ahead, as `broadcast_ahead` does."""
        overtaken: list[ChannelRecording] = []
        for channel in self.channels:
            if channel.origin is not None:
                overtaken += recorded_at_producer(channel, checkpoint_id, channel.pull_ahead(checkpoint_id))
        return overtaken

    def holds_barrier(self, checkpoint_id: int) -> bool:
        """Whether that barrier waits on a channel on which it could overtake."""
        return any(
            channel.origin is not None and channel.holds_barrier(checkpoint_id) for channel in self.channels
        )

    def drain_overdraft(self) -> bool:
        """Sends waiting elements as new credit allows; True when none is left."""
        drained = True
        for channel in self.channels:
            if not channel.drain_overdraft():
                drained = False
        return drained

    def close(self, reason: str) -> None:
        """Closes all channels; consumers without an end of data get `reason`."""
        for channel in self.channels:
            channel.close(reason)


def recorded_at_producer(
    channel: OutputChannel, checkpoint_id: int, batches: list[Batch]
) -> list[ChannelRecording]:
    """Recordings of the batches that a barrier has overtaken at an output; empty without any."""
    if not batches:
        return []
    assert channel.origin is not None
    recording = ChannelRecording(channel.origin, checkpoint_id, at_producer=True)
    for batch in batches:
        recording.add(batch)
    return [recording]
