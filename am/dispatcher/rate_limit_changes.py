"""RateLimitChanges: sets rate limits of a running job, and stores them for the next leader.

Owner: the Dispatcher's loop. A change holds and is stored, or neither. Must not know operators and shares.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from yarrow.am.dispatcher.job_graph_store import JobGraphStore
from yarrow.am.jobmaster.running_job import RunningJob
from yarrow.common.values.rate_limit import RateLimit
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import JobID, OperatorID
from yarrow.runtime.ha.records import RecordsError
from yarrow.runtime.rpc.messages import RateLimitDetails

_log = logging.getLogger(__name__)


class RateLimitsNotStoredError(YarrowError):
    """Rate limits could not be stored; the job goes on with its former ones."""


class RateLimitChanges:
    """Changes of all jobs, one after the other: the limits that are stored last are those that hold last."""

    def __init__(self, store: JobGraphStore, run_blocking: Callable[..., Awaitable[None]]) -> None:
        self._store = store
        self._run_blocking = run_blocking
        self._one_at_a_time = asyncio.Lock()

    async def change(
        self, job_id: JobID, live: Callable[[], RunningJob], limits: Mapping[OperatorID, RateLimit]
    ) -> RateLimitDetails:
        """Set limits of the job that `live` returns, and return all of them.

        Raises RateLimitRefusedError, and RateLimitsNotStoredError when the former limits hold again.
        """
        async with self._one_at_a_time:
            master = live()
            former = _limits(master.rate_limits())
            await master.change_rate_limits(limits)
            details = master.rate_limits()
            try:
                await self._run_blocking(self._store.put_rate_limits, job_id, _limits(details))
            except KeyError:
                _log.info("job %s has ended while its rate limits were changed", job_id)
            except RecordsError as error:
                await master.change_rate_limits({operator: former[operator] for operator in limits})
                raise RateLimitsNotStoredError(
                    f"job {job_id} goes on with its former rate limits, because the new ones could not be stored for"
                    f" the next leader: {error}. Set them again when the store answers"
                ) from error
        return details


def _limits(details: RateLimitDetails) -> dict[OperatorID, RateLimit]:
    return {entry.operator_id: entry.limit for entry in details.operators}
