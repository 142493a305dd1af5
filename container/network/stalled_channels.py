"""StalledChannels: watches a task's outputs for channels that hold data and get no credit for long.

Owner: the thread that reads the task's metrics, about once a second; it reads counters of the task thread and
changes none. The producer's end cannot tell a slow consumer from a lost grant. So the watch only reports, and
must not fail anything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from yarrow.container.network.output_channel import Credit, OutputChannel

_log = logging.getLogger(__name__)


class Wait(NamedTuple):
    """A channel that has held data without credit since that monotonic time."""

    credit: Credit
    since: float

    def is_stall(self, now: float, bound: float) -> bool:
        """Whether it has waited for `bound` seconds or longer."""
        return now - self.since >= bound


def next_wait(former: Wait | None, credit: Credit, holds_data: bool, now: float) -> Wait | None:
    """The channel's wait after a look at it; None while it does not wait.

    Each batch and each grant begins it anew: a consumer that takes a batch now and then is slow, not stalled.
    """
    if not holds_data or credit.is_left:
        return None
    return former if former is not None and former.credit == credit else Wait(credit, now)


class WatchedChannel:
    """One channel, with readable names of its ends."""

    def __init__(self, channel: OutputChannel, edge: int, consumer: str) -> None:
        self.channel = channel
        self.edge = edge
        self.consumer = consumer
        self.wait: Wait | None = None
        #: The present wait was reported.
        self.is_told = False

    def look(self, task_is_blocked: bool, now: float) -> None:
        """Looks at the channel; `task_is_blocked`: the task has input that it may not process."""
        channel = self.channel
        holds_data = channel.failure is None and (channel.overdraft > 0 or task_is_blocked)
        former, self.wait = self.wait, next_wait(self.wait, channel.credit, holds_data, now)
        self.is_told = self.is_told and self.wait is former


class StalledChannels:
    """The watch of one task; a bound of 0 seconds reports nothing."""

    def __init__(
        self,
        task: str,
        channels: Iterable[WatchedChannel],
        task_is_blocked: Callable[[], bool],
        bound: float,
        monotonic: Callable[[], float],
    ) -> None:
        self._task = task
        self._channels = tuple(channels)
        self._task_is_blocked = task_is_blocked
        self._bound = bound
        self._monotonic = monotonic

    def look(self) -> int:
        """The number of stalled channels; each is logged once a stall."""
        if self._bound <= 0:
            return 0
        now, blocked, stalled = self._monotonic(), self._task_is_blocked(), 0
        for watched in self._channels:
            watched.look(blocked, now)
            wait = watched.wait
            if wait is None or not wait.is_stall(now, self._bound):
                continue
            stalled += 1
            if not watched.is_told:
                watched.is_told = True
                self._tell(watched, wait, now)
        return stalled

    def _tell(self, watched: WatchedChannel, wait: Wait, now: float) -> None:
        credit = wait.credit
        _log.warning(
            "task %s: edge %d to %s holds data and got no credit for %.0f s. It sent %d of %d granted batches"
            " and %d of %d granted bytes, %d elements wait. Check whether the consumer is busy or stuck in"
            " user code. An idle consumer has lost a grant: restart it",
            self._task,
            watched.edge,
            watched.consumer,
            now - wait.since,
            credit.sent_batches,
            credit.granted_batches,
            credit.sent_bytes,
            credit.granted_bytes,
            watched.channel.overdraft,
        )
