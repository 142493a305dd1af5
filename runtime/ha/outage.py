"""Outage: log lines while ZooKeeper cannot be reached: at its begin, at growing intervals, at its end.

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
#: Beginnings of the library's lines about a failed attempt, and of the lines that come with each.
_FAILURES: Final = ("Connection dropped", "Connection time-out", "Cannot resolve")
_BESIDES: Final = ("Transition to CONNECTING", "Connecting to", "Zookeeper connection lost")


class Outage:
    """The outages of one client, one after the other. Times are seconds of one monotonic clock."""

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
        """Hear of a failed attempt; returns the line to log, "" for none."""
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
        """Hear that ZooKeeper answers; returns the line to log, "" if there was no outage."""
        if self._began is None:
            return ""
        began, self._began = self._began, None
        return f"ZooKeeper at {self._quorum} is reached again, after {now - began:.1f} s"


class OutageFilter(logging.Filter):
    """A filter of the library's log: lines of an Outage replace the lines about attempts to connect."""

    def __init__(self, outage: Outage, monotonic: Callable[[], float], say: Callable[[str], None]) -> None:
        super().__init__()
        self._outage = outage
        self._monotonic = monotonic
        self._say = say

    def filter(self, record: logging.LogRecord) -> bool:
        """False for a line that the Outage replaces."""
        text = record.getMessage()
        if text.startswith(_FAILURES):
            if sentence := self._outage.failed(text, self._monotonic()):
                self._say(sentence)
            return False
        return not (self._outage.lasts and text.startswith(_BESIDES))


def filtered_logger(name: str, condition: OutageFilter) -> logging.Logger:
    """A logger of that name for one client alone: other loggers of the same name keep their lines."""
    logger = logging.Logger(name)
    logger.parent = logging.getLogger(name)
    logger.addFilter(condition)
    return logger
