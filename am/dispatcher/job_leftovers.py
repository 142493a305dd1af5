"""JobLeftovers: removes what is stored of jobs that have ended for good, tried again for as long as this master leads.

Owner: the Dispatcher's loop. Each step may be repeated, also by the next leader: the record that a job has ended, by
which it is found, goes last. What is not removed when the leadership ends is named by its paths.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from yarrow.am.checkpoint.recovery_records import RecordedCheckpointRecovery
from yarrow.am.checkpoint.restore import remove_checkpoints
from yarrow.am.dispatcher.job_graph_store import JobGraphStore, StoredJobError
from yarrow.am.dispatcher.jobs import Jobs, NotKnownYetError
from yarrow.am.dispatcher.records_retry import RecordsRetry, records_backoff
from yarrow.am.dispatcher.settings import DispatcherSettings
from yarrow.am.dispatcher.validation import decode_and_validate
from yarrow.am.jobmaster.services import JobMasterServices
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.ha.records import LeadershipLostError
from yarrow.runtime.rpc.endpoint import RpcEndpoint

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Leftover:
    """What is left of one job."""

    job_id: JobID
    #: Keys of the files that it shipped.
    blobs: tuple[str, ...]
    #: How it ended where its master could not remove its checkpoints; None = they are gone, or stay.
    checkpoints_by: JobStatus | None
    #: Its graph, its files and its pointers are still to go.
    graph: bool = True
    attempts: int = 0
    #: Why the latest attempt failed; "" = none has.
    failure: str = ""


class JobLeftovers:
    """Those of one leadership."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        services: JobMasterServices,
        store: JobGraphStore,
        recovery: RecordedCheckpointRecovery,
        jobs: Jobs,
        settings: DispatcherSettings,
    ) -> None:
        """In the threads and among the tasks of the `endpoint`."""
        self._endpoint = endpoint
        self._services = services
        self._store = store
        self._recovery = recovery
        self._jobs = jobs
        self._settings = settings
        self._retry = RecordsRetry(endpoint, services.timers)
        self._left: dict[JobID, _Leftover] = {}
        #: Held by who tries again.
        self._turn = asyncio.Lock()

    async def remove(
        self, job_id: JobID, blobs: tuple[str, ...], checkpoints_by: JobStatus | None = None
    ) -> None:
        """Of a job whose end is recorded; returns after the first attempt, others follow where that was in vain.

        With `checkpoints_by`, the status with which it ended, those that its master left go first.
        """
        leftover = self._left[job_id] = _Leftover(job_id, blobs, checkpoints_by)
        if not await self._has_removed(leftover):
            self._endpoint.spawn(self._until_removed(leftover), f"remove {job_id}")

    def say_what_is_left(self) -> None:
        """The leadership ends: nothing is tried again. A first attempt that is under way has not failed."""
        for leftover in self._left.values():
            if leftover.failure:
                _log.warning(
                    "what is stored of job %s, which has ended, was not removed: %s (%s). Removing it is left to the"
                    " next leader of this cluster id, or to the removal of all that is stored of it",
                    leftover.job_id,
                    ", ".join(self._places(leftover)),
                    leftover.failure,
                )

    async def _until_removed(self, leftover: _Leftover) -> None:
        backoff = records_backoff()
        while True:
            await self._retry.pause(backoff.next_seconds())
            # One job at a time: while storage hangs, all of them would take the threads that others wait for.
            async with self._turn:
                if await self._has_removed(leftover):
                    return

    async def _has_removed(self, leftover: _Leftover) -> bool:
        """Whether there is nothing more to be done here."""
        job_id = leftover.job_id
        leftover.attempts += 1
        try:
            await self._remove(leftover)
        except LeadershipLostError as error:
            _log.info("what is stored of job %s is left to the next leader: %s", job_id, error)
            return True
        except (OSError, YarrowError) as error:
            leftover.failure = str(error)
            # Of the first, second, fourth... attempt.
            if not leftover.attempts & (leftover.attempts - 1):
                level = logging.INFO if isinstance(error, NotKnownYetError) else logging.WARNING
                _log.log(
                    level,
                    "what is stored of job %s is not removed yet, tried again (%d times so far): %s",
                    job_id,
                    leftover.attempts,
                    error,
                )
            return False
        if leftover.attempts > 1:
            _log.info("what was stored of job %s is removed now", job_id)
        self._left.pop(job_id, None)  # Two of the same id end both.
        return True

    async def _remove(self, leftover: _Leftover) -> None:
        job_id = leftover.job_id
        run = self._endpoint.run_blocking
        if leftover.checkpoints_by is not None:
            await run(self._remove_checkpoints, job_id, leftover.checkpoints_by)
            leftover.checkpoints_by = None
        if leftover.graph:
            await run(self._remove_graph, job_id)
            leftover.graph = False
        # Looked at as late as can be: another job may have come meanwhile that ships the same file.
        await run(self._remove_blobs, job_id, self._jobs.unneeded(leftover.blobs, job_id))

    def _remove_checkpoints(self, job_id: JobID, status: JobStatus) -> None:
        try:
            graph = decode_and_validate(self._store.get(job_id))
        except (KeyError, StoredJobError):
            return  # The graph goes after them.
        remove_checkpoints(graph, self._settings.job_master(graph).checkpoints, status, self._recovery)

    def _remove_graph(self, job_id: JobID) -> None:
        self._recovery.remove(job_id)
        self._store.remove(job_id)

    def _remove_blobs(self, job_id: JobID, keys: list[str]) -> None:
        for key in keys:
            self._services.blobs.remove(key)
        if not self._settings.keep_results:
            self._store.forget_result(job_id)

    def _places(self, leftover: _Leftover) -> list[str]:
        places = []
        if leftover.checkpoints_by is not None:
            places.append("its checkpoints")
        if leftover.graph:
            places.append(self._store.place(leftover.job_id))
        places += [self._services.blobs.place(key) for key in leftover.blobs]
        return places or ["the record that it has ended"]
