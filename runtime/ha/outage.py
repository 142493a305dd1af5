"""Outage: what is said while ZooKeeper cannot be reached: once when it begins, at growing intervals, once at its end.

Owner: the client's own thread. `Outage` is pure; `OutageFilter` stands before the log of the library, which says the
same at each attempt, that is every second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from yarrow.runtime.common.backoff import Backoff

#: Seconds from the first sentence to the second; each further interval is twice as long, up to the longest.
FIRST_INTERVAL: Final = 10.0
LONGEST_INTERVAL: Final = 600.0
#: How the library begins what it says of an attempt that failed, and what it says besides at each.
_FAILURES: Final = ("Connection dropped", "Connection time-out", "Cannot resolve")
_BESIDES: Final = ("Transition to CONNECTING", "Connecting to", "Zookeeper connection lost")


class Outage:
    """Those of one client, one after the other. Times are seconds of one monotonic clock."""

    def __init__(self, quorum: str) -> None:
        self._quorum = quorum
        self._began: float | None = None
        self._next = 0.0
        self._backoff = Backoff(FIRST_INTERVAL, LONGEST_INTERVAL)

    @property
    def lasts(self) -> bool:
        """Whether an attempt has failed since ZooKeeper was reached last."""
        return self._began is not None

    def failed(self, cause: str, now: float) -> str:
        """An attempt failed: what is to be said of it, "" for nothing."""
        if self._began is None:
            self._began = now
            self._backoff.reset()
            self._next = now + self._backoff.next_seconds()
            return f"ZooKeeper at {self._quorum} cannot be reached, this process tries on: {cause}"
        if now < self._next:
            return ""
        self._next = now + self._backoff.next_seconds()
        return f"ZooKeeper at {self._quorum} has not been reached for {now - self._began:.0f} s: {cause}"

    def reached(self, now: float) -> str:
        """It answers: what is to be said of it, "" where it did all the time."""
        if self._began is None:
            return ""
        began, self._began = self._began, None
        return f"ZooKeeper at {self._quorum} is reached again, after {now - began:.1f} s"


class OutageFilter(logging.Filter):
    """Lets through what is no attempt of a connection, and says of those what is to be said."""

    def __init__(self, outage: Outage, monotonic: Callable[[], float], say: Callable[[str], None]) -> None:
        super().__init__()
        self._outage = outage
        self._monotonic = monotonic
        self._say = say

    def filter(self, record: logging.LogRecord) -> bool:
        """False for what is said otherwise."""
        text = record.getMessage()
        if text.startswith(_FAILURES):
            if sentence := self._outage.failed(text, self._monotonic()):
                self._say(sentence)
            return False
        return not (self._outage.lasts and text.startswith(_BESIDES))


def filtered_logger(name: str, condition: OutageFilter) -> logging.Logger:
    """A logger of that name for one client alone: others of the same name keep what they say."""
    logger = logging.Logger(name)
    logger.parent = logging.getLogger(name)
    logger.addFilter(condition)
    return logger
