"""CollectReader: rows of execute_and_collect for a client that polls.

Owner: the event loop of the REST server. A request that has waited long enough gets an empty answer, but its
question to the cluster stays open. Rows that come meanwhile answer the next request with the same position.
"""

from __future__ import annotations

import asyncio

from yarrow.runtime.common.ids import JobID
from yarrow.runtime.rpc.gateways import DispatcherGateway
from yarrow.runtime.rpc.messages import COLLECT_START, CollectPosition, CollectRows

_Question = asyncio.Task[tuple[CollectRows, ...]]


class CollectReader:
    """The open questions of one REST server."""

    def __init__(self, dispatcher: DispatcherGateway) -> None:
        self._dispatcher = dispatcher
        self._asked: dict[tuple[JobID, str], tuple[CollectPosition, _Question]] = {}

    async def fetch(
        self,
        job_id: JobID,
        collect_id: str,
        max_rows: int,
        wait_seconds: float,
        position: CollectPosition = COLLECT_START,
    ) -> tuple[CollectRows, ...]:
        """The messages behind that position; none if none came in time, one with `last` set at the end.

        Raises the Dispatcher's errors for an unknown job or collect operator.
        """
        key = (job_id, collect_id)
        former, question = self._asked.get(key, (None, None))
        if question is None or former != position:
            if question is not None:
                question.cancel()
            question = asyncio.ensure_future(
                self._dispatcher.fetch_collected(job_id, collect_id, max_rows, position)
            )
            self._asked[key] = (position, question)
        await asyncio.wait({question}, timeout=wait_seconds)
        if not question.done():
            return ()
        if (position, question) == self._asked.get(key):
            del self._asked[key]
        return () if question.cancelled() else question.result()

    def close(self) -> None:
        """Drops all open questions."""
        for _, question in self._asked.values():
            question.cancel()
        self._asked.clear()
