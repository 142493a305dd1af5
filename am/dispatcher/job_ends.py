"""JobEnds: records, reports and archives the end of a job, and has its leftovers removed.

Owner: the Dispatcher's loop. Nothing of a job is removed before its end is recorded; job_leftovers.py removes
it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from yarrow.am.checkpoint.completed import FinalOutcome
from yarrow.am.checkpoint.recovery_records import RecordedCheckpointRecovery
from yarrow.am.dispatcher.finished_jobs import FinishedJob
from yarrow.am.dispatcher.job_archive import JobArchiver
from yarrow.am.dispatcher.job_graph_store import JobGraphStore, StoredResult
from yarrow.am.dispatcher.job_leftovers import JobLeftovers
from yarrow.am.dispatcher.jobs import Jobs, blobs_of
from yarrow.am.dispatcher.records_retry import RecordsRetry
from yarrow.am.dispatcher.settings import DispatcherSettings
from yarrow.am.jobmaster.collecting.collect_buffer import CollectBuffer
from yarrow.am.jobmaster.running_job import RunningJob
from yarrow.am.jobmaster.services import JobMasterServices
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.rpc.endpoint import RpcEndpoint

_log = logging.getLogger(__name__)


class JobEnds:
    """The ends of one leadership's jobs."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        services: JobMasterServices,
        store: JobGraphStore,
        recovery: RecordedCheckpointRecovery,
        jobs: Jobs,
        settings: DispatcherSettings,
        before_removal: Callable[[JobID], Awaitable[None]],
    ) -> None:
        """Uses the threads and tasks of the `endpoint`.

        `before_removal` hears of each job that has ended, while the record of its end still exists.
        """
        self._endpoint = endpoint
        self._before_removal = before_removal
        self._services = services
        self._store = store
        self._jobs = jobs
        self._retry = RecordsRetry(endpoint, services.timers)
        self._archiver = JobArchiver(settings.archive, services.clock, services.ids)
        self._leftovers = JobLeftovers(endpoint, services, store, recovery, jobs, settings)

    async def close(self) -> None:
        """Waits a while for archives that are being written; logs leftovers of jobs."""
        await self._archiver.close()
        self._leftovers.say_what_is_left()

    async def record(self, master: RunningJob) -> None:
        """Records the end of a job before anything of it is removed: from here on no leader runs the job again."""
        graph = master.graph
        result = StoredResult(
            name=graph.job.name,
            status=graph.status,
            end_time=self._services.clock.epoch_ms(),
            cause=graph.failure,
            blobs=blobs_of(graph.job),
        )

        def mark() -> None:
            self._store.mark_ended(graph.job.job_id, result)

        await self._retry.persistently(mark, f"the end of job {graph.job.job_id}")

    def begin(self, master: RunningJob) -> None:
        """Begins the work after a job's recorded end."""
        self._endpoint.assert_main_thread()
        graph, queries = master.graph, master.queries
        job_id = graph.job.job_id
        collects: dict[str, CollectBuffer] = {
            collect_id: master.collect_buffer(collect_id) for collect_id in graph.job.collect_ids
        }
        self.remember(
            FinishedJob(
                queries.overview(),
                queries.details(),
                queries.result(),
                collects,
                master.checkpoint_api.statistics,
            )
        )
        self._jobs.running.pop(job_id, None)
        self._jobs.ending.add(master)
        _log.info("job %s (%s) is %s", graph.job.name, job_id, graph.status.value)
        for vertex in queries.details().vertices:
            for sentence in (told for report in vertex.late_records for told in report.sentences()):
                _log.warning("job %s: %s", graph.job.name, sentence)
        self._endpoint.spawn(self._clean_up(master), f"clean up {job_id}")

    def remember(self, job: FinishedJob) -> None:
        """Keeps an ended job for later questions, and archives it."""
        self._jobs.finished.add(job)
        self._archiver.begin(job)

    async def _clean_up(self, master: RunningJob) -> None:
        job = master.graph.job
        try:
            outcome = FinalOutcome.of(master.graph.status, master.graph.failure)
            left = outcome if master.checkpoint_api.left_some else None
            await self.remove(job.job_id, blobs_of(job), left)
        finally:
            await master.stop()
            self._jobs.ending.discard(master)

    async def remove(
        self, job_id: JobID, blobs: tuple[str, ...], checkpoints_by: FinalOutcome | None = None
    ) -> None:
        """See JobLeftovers."""
        await self._before_removal(job_id)
        await self._leftovers.remove(job_id, blobs, checkpoints_by)
