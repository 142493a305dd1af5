"""RecordsRetry: repeats calls to storage or ZooKeeper, with pauses, until they are answered.

Owner: the Dispatcher's loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from yarrow.runtime.common.backoff import Backoff
from yarrow.runtime.common.timers import Timers
from yarrow.runtime.ha.records import LeadershipLostError, RecordsError
from yarrow.runtime.rpc.endpoint import RpcEndpoint

#: First and last pause, in seconds, between two attempts at a refused call; each pause doubles.
FIRST_PAUSE, LAST_PAUSE = 0.5, 10.0

T = TypeVar("T")
_log = logging.getLogger(__name__)


def records_backoff() -> Backoff:
    """The pauses between attempts at calls that storage or ZooKeeper has refused."""
    return Backoff(FIRST_PAUSE, LAST_PAUSE)


class RecordsRetry:
    """Repeats calls of the records in the threads of one endpoint."""

    def __init__(self, endpoint: RpcEndpoint, timers: Timers) -> None:
        self._endpoint = endpoint
        self._timers = timers

    async def persistently(self, call: Callable[[], T], what: str) -> T:
        """Makes a blocking call, and repeats it while the records cannot be reached. Raises LeadershipLostError."""
        backoff = records_backoff()
        while True:
            try:
                return await self._endpoint.run_blocking(call)
            except LeadershipLostError:
                raise
            except RecordsError as error:
                _log.warning("%s: %s; the Dispatcher tries again in %.1f s", what, error, backoff.seconds)
            await self.pause(backoff.next_seconds())

    async def pause(self, seconds: float, cut_short: asyncio.Event | None = None) -> None:
        """Returns after so many seconds, or when the event is set."""
        passed = cut_short or asyncio.Event()
        over = asyncio.Event()
        timer = self._timers.call_later(seconds, over.set)
        waits = [asyncio.ensure_future(over.wait()), asyncio.ensure_future(passed.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            for wait in waits:
                wait.cancel()
