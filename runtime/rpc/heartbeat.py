"""HeartbeatMonitor: says which targets to ask now, and which have been silent too long. Pure.

Owner: the loop of the endpoint that asks it at its interval. Must not send, wait or look at a clock of its
own.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from yarrow.runtime.common.clock import Clock

K = TypeVar("K")


class HeartbeatSettings(msgspec.Struct, frozen=True):
    """heartbeat.interval and heartbeat.timeout, in seconds."""

    interval: float = 10.0
    timeout: float = 50.0
    #: heartbeat.rpc-failure-threshold: consecutive unreachable heartbeats after which a TaskExecutor counts
    #: as dead; below 1 = only the timeout counts.
    failure_threshold: int = 2

    def __post_init__(self) -> None:
        if not 0 < self.interval < self.timeout:
            raise ValueError(
                f"heartbeat.interval ({self.interval} s) must be positive and below heartbeat.timeout"
                f" ({self.timeout} s)"
            )


class HeartbeatRound(msgspec.Struct, Generic[K], frozen=True):
    """The result of a tick: ask these, give up those (they are not monitored any more)."""

    ask: tuple[K, ...]
    silent: tuple[K, ...]


class HeartbeatMonitor(Generic[K]):
    """Targets by key, with the times of their last heartbeats."""

    def __init__(self, settings: HeartbeatSettings, clock: Clock) -> None:
        self.settings = settings
        self._clock = clock
        self._heard: dict[K, float] = {}

    def __contains__(self, target: K) -> bool:
        return target in self._heard

    def monitor(self, target: K) -> None:
        """Begins to expect heartbeats of `target`; begins anew if it is monitored."""
        self._heard[target] = self._clock.monotonic()

    def unmonitor(self, target: K) -> None:
        """Stops expecting heartbeats; no effect for an unmonitored target."""
        self._heard.pop(target, None)

    def heard(self, target: K) -> None:
        """Notes a sign of life; ignored for an unmonitored target."""
        if target in self._heard:
            self._heard[target] = self._clock.monotonic()

    def seconds_since(self, target: K) -> float:
        """Seconds since the last sign of life. Raises KeyError for an unmonitored target."""
        return self._clock.monotonic() - self._heard[target]

    def tick(self) -> HeartbeatRound[K]:
        """Runs one round; call it every `interval` seconds."""
        now = self._clock.monotonic()
        silent = tuple(key for key, heard in self._heard.items() if now - heard >= self.settings.timeout)
        for key in silent:
            del self._heard[key]
        return HeartbeatRound(tuple(self._heard), silent)
