"""RefusedJobs: what may be stored of jobs whose clients were told that they do not run.

Owner: the Dispatcher's loop. What cannot be removed at once is tried again for as long as the Dispatcher leads: the
next leader would run it. A job that is submitted again is out of here before it is stored anew.
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
    """Those of one leadership."""

    def __init__(
        self, remove: Callable[[JobID], Awaitable[None]], pause: Callable[[float], Awaitable[None]]
    ) -> None:
        """`remove` may be repeated, and raises OSError or YarrowError where it could not."""
        self._remove = remove
        self._pause = pause
        #: By job, held while its removal is under way.
        self._left: dict[JobID, asyncio.Lock] = {}

    async def take_back(self, job_id: JobID) -> bool:
        """Removes what is stored of it; False = not yet, `until_removed` is to be run."""
        lock = self._left[job_id] = asyncio.Lock()
        return await self._try(job_id, lock)

    async def until_removed(self, job_id: JobID) -> None:
        """Returns when that is removed, submitted again, or another's to decide."""
        backoff = records_backoff()
        while (lock := self._left.get(job_id)) is not None:
            await self._pause(backoff.next_seconds())
            if await self._try(job_id, lock):
                return

    async def submitted_again(self, job_id: JobID) -> None:
        """Returns when nothing that will be stored of it is removed any more."""
        if (lock := self._left.pop(job_id, None)) is not None:
            async with lock:
                return

    async def _try(self, job_id: JobID, lock: asyncio.Lock) -> bool:
        """Whether nothing is left to be done."""
        async with lock:
            if self._left.get(job_id) is not lock:
                return True
            try:
                await self._remove(job_id)
            except LeadershipLostError as error:
                _log.warning("job %s was not started here; the next leader may run it: %s", job_id, error)
            except (OSError, YarrowError) as error:
                _log.warning(
                    "job %s was not started, and what is stored of it is not removed yet, tried again: %s",
                    job_id,
                    error,
                )
                return False
            if self._left.get(job_id) is lock:
                del self._left[job_id]
            return True
