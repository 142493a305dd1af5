"""RefusedJobs: removes stored data of jobs whose clients were told that they do not run.

Owner: the Dispatcher's loop. A failed removal is retried while the Dispatcher leads, because the next leader
would run the job. A job that is submitted again leaves this list before it is stored anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from yarrow.am.dispatcher.records_retry import records_backoff
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.ha.records import LeadershipLostError

_log = logging.getLogger(__name__)


class RefusedJobs:
    """The refused jobs of one leadership."""

    def __init__(
        self, remove: Callable[[JobID], Awaitable[None]], pause: Callable[[float], Awaitable[None]]
    ) -> None:
        """`remove` may be repeated; it raises OSError or YarrowError if it failed."""
        self._remove = remove
        self._pause = pause
        #: By job; held during its removal.
        self._left: dict[JobID, asyncio.Lock] = {}

    async def take_back(self, job_id: JobID) -> bool:
        """Removes a job's stored data; False = it failed, call `until_removed`."""
        lock = self._left[job_id] = asyncio.Lock()
        return await self._try(job_id, lock)

    async def until_removed(self, job_id: JobID) -> None:
        """Returns when the data are removed, the job is submitted again, or another leader decides."""
        backoff = records_backoff()
        while (lock := self._left.get(job_id)) is not None:
            await self._pause(backoff.next_seconds())
            if await self._try(job_id, lock):
                return

    async def submitted_again(self, job_id: JobID) -> None:
        """Returns when no removal can touch the newly submitted job any more."""
        if (lock := self._left.pop(job_id, None)) is not None:
            async with lock:
                return

    async def _try(self, job_id: JobID, lock: asyncio.Lock) -> bool:
        """Whether nothing is left to remove."""
        async with lock:
            if self._left.get(job_id) is not lock:
                return True
            try:
                await self._remove(job_id)
            except LeadershipLostError as error:
                _log.warning("job %s was not started here; the next leader may run it: %s", job_id, error)
            except (OSError, YarrowError) as error:
                _log.warning(
                    "job %s was not started, and its stored data is not removed yet, the Dispatcher tries "
                    "again: %s",
                    job_id,
                    error,
                )
                return False
            if self._left.get(job_id) is lock:
                del self._left[job_id]
            return True
