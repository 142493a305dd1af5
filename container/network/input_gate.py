"""InputGate: the inputs of a task: the channels of all its incoming edges, taken in turn.

Owner: the task thread. For each logical input it combines watermarks (minimum over channels, without idle
ones). A BarrierHandler gathers its barriers. It knows when an input has ended. Must not decode or run
operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from yarrow.container.network.barrier_handler import AligningBarrierHandler, BarrierHandler
from yarrow.container.network.input_channel import InputChannel
from yarrow.runtime.common.clock import Clock, SystemClock
from yarrow.runtime.data.elements import MIN_TIMESTAMP, StreamElement

if TYPE_CHECKING:
    from yarrow.container.network.input_drift import InputDrift


class GateChannel:
    """A channel with the gate's knowledge of it."""

    __slots__ = (
        "aligned",
        "channel",
        "held",
        "idle",
        "input_index",
        "is_local",
        "producer",
        "stream",
        "subtask",
        "watermark",
    )

    def __init__(
        self,
        channel: InputChannel,
        input_index: int,
        *,
        is_local: bool = False,
        producer: str = "",
        stream: int = 0,
        subtask: int = 0,
    ) -> None:
        """`stream` numbers the edges of the job: an input that reads a union has several."""
        self.channel = channel
        self.input_index = input_index
        #: The name of the producing task, for messages.
        self.producer = producer
        #: Its producer runs in the same TaskExecutor.
        self.is_local = is_local
        self.watermark = MIN_TIMESTAMP
        self.idle = False
        #: False while a channel that was idle lags behind the watermark of its input.
        self.aligned = True
        self.stream = stream
        #: The producing subtask.
        self.subtask = subtask
        #: Its stream is ahead of another by more than the task's drift: it is not read.
        self.held = False


class WatermarkValve:
    """The watermark of one logical input: the minimum over its active channels, never going back.

    As in Flink: a channel that was idle counts again once it has caught up with the watermark. When all
    channels are idle, the watermark is their largest.
    """

    def __init__(self, channels: Sequence[GateChannel]) -> None:
        self._channels = channels
        self.watermark = MIN_TIMESTAMP
        #: True when no open channel is active.
        self.idle = False
        #: True when all channels have ended.
        self.ended = False

    def advance(self, channel: GateChannel, timestamp: int) -> None:
        """Takes a channel's watermark; ignores that of an idle channel."""
        if channel.idle or timestamp <= channel.watermark:
            return
        channel.watermark = timestamp
        if timestamp >= self.watermark:
            channel.aligned = True
        self._recompute()

    def set_idle(self, channel: GateChannel, idle: bool) -> None:
        """A channel became idle, or active again."""
        channel.idle = idle
        channel.aligned = not idle and channel.watermark >= self.watermark
        self._recompute()

    def channel_ended(self) -> None:
        """Takes the end of a channel: the watermark may rise without it."""
        self._recompute()

    def _recompute(self) -> None:
        opened = [c for c in self._channels if not c.channel.ended]
        active = [c for c in opened if not c.idle]
        self.ended = not opened
        self.idle = bool(opened) and not active
        if active:
            candidates = [c.watermark for c in active if c.aligned]
            reached = min(candidates, default=MIN_TIMESTAMP)
        else:
            reached = max((c.watermark for c in opened), default=MIN_TIMESTAMP)
        self.watermark = max(self.watermark, reached)


class InputGate:
    """All channels of a task; `input_index` of a channel says which input of the head operator it feeds."""

    def __init__(
        self,
        channels: Sequence[GateChannel],
        inputs: int,
        clock: Clock | None = None,
        drift: InputDrift | None = None,
    ) -> None:
        """`drift`: None = no stream waits for another."""
        self.channels = tuple(channels)
        self._drift = drift
        self.valves = tuple(
            WatermarkValve([c for c in self.channels if c.input_index == index]) for index in range(inputs)
        )
        self.barriers: BarrierHandler = AligningBarrierHandler(self.channels, clock or SystemClock())
        self._next = 0

    @property
    def combined_watermark(self) -> int:
        """The minimum over the inputs that are neither idle nor ended.

        If there is none, it is the largest watermark of the inputs that have not ended. So the end of one
        input does not make the later records of an idle one late.
        """
        opened = [valve for valve in self.valves if not valve.ended]
        active = [valve.watermark for valve in opened if not valve.idle]
        return min(active) if active else max(valve.watermark for valve in opened or self.valves)

    @property
    def slowest(self) -> GateChannel | None:
        """The open channel whose watermark is the least, of those that count; None if there is none. Any thread."""
        active = [
            entry for entry in self.channels if not entry.channel.ended and not entry.idle and entry.aligned
        ]
        return min(active, key=lambda entry: entry.watermark, default=None)

    @property
    def idle(self) -> bool:
        """True if some inputs are open and none of them is active."""
        opened = [valve for valve in self.valves if not valve.ended]
        return bool(opened) and all(valve.idle for valve in opened)

    def time_changed(self) -> None:
        """Takes note that the watermark, the idleness or the end of a channel may have changed."""
        if self._drift is not None:
            self._drift.update(self.channels)

    @property
    def _holds(self) -> bool:
        """Whether streams that are ahead wait now: the barriers of a checkpoint are waited for on all of them."""
        return self._drift is not None and self._drift.holds and not self.barriers.is_aligning

    @property
    def has_data(self) -> bool:
        """True when `poll` would return an element."""
        if self._holds:
            return any(entry.channel.has_data and not entry.held for entry in self.channels)
        return any(entry.channel.has_data for entry in self.channels)

    def poll(self) -> tuple[int, GateChannel, StreamElement] | None:
        """The next element, with channels in turn: (position, channel, element); None when nothing waits."""
        channels, holds = self.channels, self._holds
        count = len(channels)
        for step in range(count):
            position = (self._next + step) % count
            entry = channels[position]
            if entry.channel.has_data and not (holds and entry.held):
                self._next = position + 1
                return position, entry, entry.channel.take()
        return None

    def poll_ended(self) -> tuple[int, GateChannel, StreamElement] | None:
        """The next element after the ends of data of all channels; a broken peer is no failure there."""
        for position, entry in enumerate(self.channels):
            if entry.channel.queued and not entry.channel.blocked:
                return position, entry, entry.channel.take()
        return None

    def end_channel(self, entry: GateChannel) -> bool:
        """Takes the end of data of a channel; True if its logical input has ended with it."""
        entry.channel.ended = True
        return all(c.channel.ended for c in self.channels if c.input_index == entry.input_index)

    @property
    def all_ended(self) -> bool:
        """True when no channel will deliver anything more."""
        return all(entry.channel.ended for entry in self.channels)

    @property
    def queued(self) -> int:
        """Number of waiting elements in all channels."""
        return sum(entry.channel.queued for entry in self.channels)

    @property
    def usage(self) -> float:
        """The waiting part of the credit granted to producers, 0 to 1, by batches or by bytes."""
        channels = [entry.channel for entry in self.channels]
        batches, size = sum(c.waiting_batches for c in channels), sum(c.waiting_bytes for c in channels)
        windows = sum(c.window_batches for c in channels), sum(c.window_bytes for c in channels)
        return min(1.0, max(batches / windows[0], size / windows[1])) if channels else 0.0

    def close(self) -> None:
        """Drops waiting elements."""
        for entry in self.channels:
            entry.channel.close()
