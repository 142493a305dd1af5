"""JobLeftovers: removes stored data of jobs that have ended for good, with retries while this master leads.

Owner: the Dispatcher's loop. Each step may be repeated, also by the next leader. The record of the job's end
goes last, because it names the leftovers. Paths that are left at the end of the leadership are logged.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from yarrow.am.checkpoint.completed import FinalOutcome
from yarrow.am.checkpoint.recovery_records import RecordedCheckpointRecovery
from yarrow.am.checkpoint.restore import remove_checkpoints
from yarrow.am.dispatcher.job_graph_store import JobGraphStore, StoredJobError
from yarrow.am.dispatcher.jobs import Jobs, NotKnownYetError
from yarrow.am.dispatcher.records_retry import RecordsRetry, records_backoff
from yarrow.am.dispatcher.settings import DispatcherSettings
from yarrow.am.dispatcher.validation import decode_and_validate
from yarrow.am.jobmaster.services import JobMasterServices
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.ha.records import LeadershipLostError
from yarrow.runtime.rpc.endpoint import RpcEndpoint

_log = logging.getLogger(__name__)


class _Leftover(msgspec.Struct):
    """The leftovers of one job."""

    job_id: JobID
    #: Keys of the job's shipped files.
    blobs: tuple[str, ...]
    #: How the job ended, if the JobMaster failed to delete its checkpoints; None = nothing is left to delete.
    checkpoints_by: FinalOutcome | None
    #: The graph, its files and its pointers still have to be removed.
    graph: bool = True
    attempts: int = 0
    #: Why the latest attempt failed; "" = none has.
    failure: str = ""


class JobLeftovers:
    """The leftovers of one leadership's ended jobs."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        services: JobMasterServices,
        store: JobGraphStore,
        recovery: RecordedCheckpointRecovery,
        jobs: Jobs,
        settings: DispatcherSettings,
    ) -> None:
        """Uses the threads and tasks of the `endpoint`."""
        self._endpoint = endpoint
        self._services = services
        self._store = store
        self._recovery = recovery
        self._jobs = jobs
        self._settings = settings
        self._retry = RecordsRetry(endpoint, services.timers)
        self._left: dict[JobID, _Leftover] = {}
        #: Held during a retry.
        self._turn = asyncio.Lock()

    async def remove(
        self, job_id: JobID, blobs: tuple[str, ...], checkpoints_by: FinalOutcome | None = None
    ) -> None:
        """Removes the data of a job whose end is recorded.

        Returns after the first attempt; retries follow if it failed.

        `checkpoints_by` is the outcome of a job whose master left checkpoints; these go first.
        """
        leftover = self._left[job_id] = _Leftover(job_id, blobs, checkpoints_by)
        if not await self._has_removed(leftover):
            self._endpoint.spawn(self._until_removed(leftover), f"remove {job_id}")

    def say_what_is_left(self) -> None:
        """Logs the leftovers at the end of the leadership. A running first attempt has not failed."""
        for leftover in self._left.values():
            if leftover.failure:
                _log.warning(
                    "the stored data of the ended job %s was not removed: %s (%s). The next leader of "
                    "this cluster id tries again; deleting the data of the cluster removes it as well",
                    leftover.job_id,
                    ", ".join(self._places(leftover)),
                    leftover.failure,
                )

    async def _until_removed(self, leftover: _Leftover) -> None:
        backoff = records_backoff()
        while True:
            await self._retry.pause(backoff.next_seconds())
            # One job at a time: while storage hangs, all of them would occupy threads that others need.
            async with self._turn:
                if await self._has_removed(leftover):
                    return

    async def _has_removed(self, leftover: _Leftover) -> bool:
        """Whether nothing is left to remove."""
        job_id = leftover.job_id
        leftover.attempts += 1
        try:
            await self._remove(leftover)
        except LeadershipLostError as error:
            _log.info("the stored data of job %s is left to the next leader: %s", job_id, error)
            return True
        except (OSError, YarrowError) as error:
            leftover.failure = str(error)
            # Of the first, second, fourth, ... attempt.
            if not leftover.attempts & (leftover.attempts - 1):
                level = logging.INFO if isinstance(error, NotKnownYetError) else logging.WARNING
                _log.log(
                    level,
                    "the stored data of job %s is not removed yet, the Dispatcher tries again (%d "
                    "attempts so far): %s",
                    job_id,
                    leftover.attempts,
                    error,
                )
            return False
        if leftover.attempts > 1:
            _log.info("the stored data of job %s is removed", job_id)
        self._left.pop(job_id, None)  # Two with one id both end.
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
        # Checked as late as possible: a new job may ship the same file.
        await run(self._remove_blobs, job_id, self._jobs.unneeded(leftover.blobs, job_id))

    def _remove_checkpoints(self, job_id: JobID, outcome: FinalOutcome) -> None:
        try:
            graph = decode_and_validate(self._store.get(job_id))
        except (KeyError, StoredJobError):
            return  # The graph goes after them.
        remove_checkpoints(graph, self._settings.job_master(graph).checkpoints, outcome, self._recovery)

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
        return places or ["the record of its end"]
