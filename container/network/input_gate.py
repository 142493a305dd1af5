"""The inputs of a task: channels of all edges that lead to it, taken in turn.

Owner: the task thread. Combines watermarks per logical input (minimum over channels, idle ones left out), aligns
barriers over all channels, and knows when an input has ended. Must not decode or run operators.
"""

from __future__ import annotations

from collections.abc import Sequence

from yarrow.container.network.input_channel import InputChannel
from yarrow.runtime.data.elements import MIN_TIMESTAMP, CheckpointBarrier, StreamElement


class GateChannel:
    """A channel with what the gate knows of it."""

    __slots__ = ("aligned", "channel", "idle", "input_index", "watermark")

    def __init__(self, channel: InputChannel, input_index: int) -> None:
        self.channel = channel
        self.input_index = input_index
        self.watermark = MIN_TIMESTAMP
        self.idle = False
        #: False while a channel that was idle lags behind the watermark of its input.
        self.aligned = True


class WatermarkValve:
    """The watermark of one logical input: the minimum over its active channels, never going back.

    As in Flink: a channel that was idle counts again once it has caught up with the watermark; when all channels are
    idle, the watermark is the largest of theirs.
    """

    def __init__(self, channels: Sequence[GateChannel]) -> None:
        self._channels = channels
        self.watermark = MIN_TIMESTAMP
        #: True when no open channel is active.
        self.idle = False
        #: True when all channels have ended.
        self.ended = False

    def advance(self, channel: GateChannel, timestamp: int) -> None:
        """A channel's watermark came; that of an idle channel is not looked at."""
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
        """A channel has ended: the watermark may rise without it."""
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


class BarrierAligner:
    """Blocks each channel behind its barrier until all open channels have delivered it."""

    def __init__(self, channels: Sequence[GateChannel]) -> None:
        self._channels = channels
        self._pending: CheckpointBarrier | None = None
        self._arrived: set[int] = set()

    def barrier(self, position: int, barrier: CheckpointBarrier) -> CheckpointBarrier | None:
        """A barrier came on channel `position`; returned again when it is aligned on all of them."""
        if self._pending is not None and barrier.checkpoint_id < self._pending.checkpoint_id:
            return None
        if self._pending is None or barrier.checkpoint_id > self._pending.checkpoint_id:
            self._release()
            self._pending = barrier
        self._arrived.add(position)
        self._channels[position].channel.blocked = True
        return self._complete()

    def channel_ended(self) -> CheckpointBarrier | None:
        """A channel has ended, which counts as arrived."""
        return self._complete() if self._pending is not None else None

    def _complete(self) -> CheckpointBarrier | None:
        if any(i not in self._arrived and not c.channel.ended for i, c in enumerate(self._channels)):
            return None
        barrier = self._pending
        self._release()
        return barrier

    def _release(self) -> None:
        for position in self._arrived:
            self._channels[position].channel.blocked = False
        self._arrived.clear()
        self._pending = None


class InputGate:
    """All channels of a task; `input_index` of a channel says which input of the head operator it feeds."""

    def __init__(self, channels: Sequence[GateChannel], inputs: int) -> None:
        self.channels = tuple(channels)
        self.valves = tuple(
            WatermarkValve([c for c in self.channels if c.input_index == index]) for index in range(inputs)
        )
        self.aligner = BarrierAligner(self.channels)
        self._next = 0

    @property
    def combined_watermark(self) -> int:
        """The minimum over the inputs that are neither idle nor ended; where none is, the largest."""
        active = [valve.watermark for valve in self.valves if not valve.idle and not valve.ended]
        return min(active) if active else max(valve.watermark for valve in self.valves)

    @property
    def idle(self) -> bool:
        """True when no open input is active, but one is open."""
        opened = [valve for valve in self.valves if not valve.ended]
        return bool(opened) and all(valve.idle for valve in opened)

    @property
    def has_data(self) -> bool:
        """True when `poll` would return an element."""
        return any(entry.channel.has_data for entry in self.channels)

    def poll(self) -> tuple[int, GateChannel, StreamElement] | None:
        """The next element, channels in turn: (position, channel, element); None when nothing waits."""
        channels = self.channels
        count = len(channels)
        for step in range(count):
            position = (self._next + step) % count
            entry = channels[position]
            if entry.channel.has_data:
                self._next = position + 1
                return position, entry, entry.channel.take()
        return None

    def end_channel(self, entry: GateChannel) -> bool:
        """The end of data came on a channel; True when its logical input has ended with it."""
        entry.channel.ended = True
        return all(c.channel.ended for c in self.channels if c.input_index == entry.input_index)

    @property
    def all_ended(self) -> bool:
        """True when no channel will bring anything more."""
        return all(entry.channel.ended for entry in self.channels)

    @property
    def queued(self) -> int:
        """Elements waiting in all channels."""
        return sum(entry.channel.queued for entry in self.channels)

    def close(self) -> None:
        """Drops what waits."""
        for entry in self.channels:
            entry.channel.close()
