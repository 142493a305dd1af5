"""TimedCalls: measures the attempts of an AsyncBatchFunction where they run.

Owner: the event loop or a calling thread adds, and the task thread takes. The time of an attempt begins when the loop
or a thread takes it. Waits for a free thread and for the task do not count. Must not know the size of calls.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sized
from typing import Any

from yarrow.runtime.common.clock import Clock


class TimedCalls:
    """The rows and seconds of attempts that have ended."""

    def __init__(self, clock: Clock) -> None:
        self._now = clock.monotonic
        #: Any thread may append.
        self._ended: deque[tuple[int, float]] = deque()

    def coroutine(self, invoke: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        """A function that awaits `invoke` and measures it."""

        async def timed(argument: Sized) -> Any:
            # The function may change the list.
            rows, began = len(argument), self._now()
            try:
                returned = await invoke(argument)
            except asyncio.CancelledError:
                # Its time was over: it took at least as long as this.
                self._add(rows, began)
                raise
            self._add(rows, began)
            return returned

        return timed

    def blocking(self, invoke: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A function that calls `invoke` in the caller's thread and measures it."""

        def timed(argument: Sized) -> Any:
            rows, began = len(argument), self._now()
            returned = invoke(argument)
            self._add(rows, began)
            return returned

        return timed

    def _add(self, rows: int, began: float) -> None:
        self._ended.append((rows, self._now() - began))

    def taken(self) -> Iterator[tuple[int, float]]:
        """Takes out the rows and seconds of each attempt that has returned, or was cancelled, since the last time."""
        while self._ended:
            yield self._ended.popleft()
