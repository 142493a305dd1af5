"""InputDrift: which input streams of a task are not read, because they are ahead of the slowest one.

Owner: the task thread. The bound keeps state small that holds the rows of one stream until the other has come so far.
Streams that are idle or have ended do not count. Must not know barriers, nor decide when a channel is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol


class ReadChannel(Protocol):
    """A channel that has ended or goes on."""

    @property
    def ended(self) -> bool: ...


class TimedChannel(Protocol):
    """A channel of a gate with its event time."""

    stream: int
    watermark: int
    idle: bool
    held: bool

    @property
    def channel(self) -> ReadChannel: ...


class InputDrift:
    """The bound on the drift between the input streams of one task."""

    def __init__(self, max_drift_ms: int) -> None:
        self._max_drift_ms = max_drift_ms
        #: True while a stream is held.
        self.holds = False

    def update(self, channels: Sequence[TimedChannel]) -> None:
        """Sets `held` of each channel by the watermarks of the streams."""
        reached: dict[int, int] = {}
        for channel in _counting(channels):
            reached[channel.stream] = min(channel.watermark, reached.get(channel.stream, channel.watermark))
        least = min(reached.values(), default=0)
        self.holds = False
        for channel in channels:
            time = reached.get(channel.stream)
            channel.held = time is not None and time - least > self._max_drift_ms
            self.holds = self.holds or channel.held


def _counting(channels: Iterable[TimedChannel]) -> Iterable[TimedChannel]:
    return (channel for channel in channels if not (channel.idle or channel.channel.ended))
