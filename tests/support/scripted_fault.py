"""ScriptedFault: a test loses or holds messages of an InProcessNetwork.

Owner: the test's loop, on which the calls wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class ScriptedFault:
    """A scripted MessageFault: drops the next n messages of a method, or holds them until released."""

    def __init__(self) -> None:
        self._lost_requests: dict[str, int] = {}
        self._lost_replies: dict[str, int] = {}
        self._held: dict[str, asyncio.Event] = {}
        #: Every request in the order in which it was sent: (endpoint, method).
        self.seen: list[tuple[str, str]] = []

    def drop_requests(self, method: str, count: int = 1) -> None:
        """Drops the next `count` requests of `method`."""
        self._lost_requests[method] = count

    def drop_replies(self, method: str, count: int = 1) -> None:
        """Drops the next `count` replies of `method`."""
        self._lost_replies[method] = count

    def hold(self, method: str) -> Callable[[], None]:
        """Holds requests of `method` until the returned function is called."""
        gate = self._held[method] = asyncio.Event()

        def release() -> None:
            self._held.pop(method, None)
            gate.set()

        return release

    async def request(self, endpoint: str, method: str) -> bool:
        self.seen.append((endpoint, method))
        if method in self._held:
            await self._held[method].wait()
        return not _take(self._lost_requests, method)

    async def reply(self, endpoint: str, method: str) -> bool:
        return not _take(self._lost_replies, method)

    async def repeats(self, endpoint: str, method: str) -> bool:
        return False


def _take(counts: dict[str, int], method: str) -> bool:
    left = counts.get(method, 0)
    if left:
        counts[method] = left - 1
    return left > 0
