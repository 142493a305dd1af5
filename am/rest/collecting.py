"""CollectReader: rows of execute_and_collect on their way to a client that asks again and again.

Owner: the event loop of the REST server. A request that waited long enough is answered with nothing, but its
question to the cluster stays asked: rows that come meanwhile are the next request's.
"""

from __future__ import annotations

import asyncio

from yarrow.runtime.common.ids import JobID
from yarrow.runtime.rpc.gateways import DispatcherGateway
from yarrow.runtime.rpc.messages import CollectRows


class CollectReader:
    """The open questions of one REST server."""

    def __init__(self, dispatcher: DispatcherGateway) -> None:
        self._dispatcher = dispatcher
        self._asked: dict[tuple[JobID, str], asyncio.Task[tuple[CollectRows, ...]]] = {}

    async def fetch(
        self, job_id: JobID, collect_id: str, max_rows: int, wait_seconds: float
    ) -> tuple[CollectRows, ...]:
        """The next messages; none when none came in time, one with `last` set at the end.

        Raises what the Dispatcher does for a job or collect operator that there is not.
        """
        key = (job_id, collect_id)
        task = self._asked.get(key)
        if task is None:
            question = self._dispatcher.fetch_collected(job_id, collect_id, max_rows)
            task = self._asked[key] = asyncio.ensure_future(question)
        await asyncio.wait({task}, timeout=wait_seconds)
        if not task.done():
            return ()
        if self._asked.get(key) is task:
            del self._asked[key]
            return task.result()
        return ()  # two requests waited for one answer: the other has it

    def close(self) -> None:
        """Forgets all questions."""
        for task in self._asked.values():
            task.cancel()
        self._asked.clear()
