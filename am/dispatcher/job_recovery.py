"""JobRecovery: takes over the jobs that an earlier leadership has stored.

Owner: the Dispatcher's loop. A job is known as soon as the Dispatcher serves, and runs again when storage and
ZooKeeper allow. A job that cannot run is reported as failed, and kept for the next leader.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from yarrow.am.checkpoint.completed import FinalOutcome
from yarrow.am.dispatcher.finished_jobs import FinishedJob
from yarrow.am.dispatcher.job_ends import JobEnds
from yarrow.am.dispatcher.job_graph_store import JobGraphStore, StoredJobError, StoredResult
from yarrow.am.dispatcher.jobs import Jobs, blobs_of
from yarrow.am.dispatcher.records_retry import RecordsRetry, records_backoff
from yarrow.am.dispatcher.recovering_job import RecoveringJob, passes_by_itself
from yarrow.am.dispatcher.validation import decode_and_validate
from yarrow.am.jobmaster.services import JobMasterServices
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.errors import JobNotFoundError, YarrowError
from yarrow.runtime.common.ids import JobID, is_hex_id
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import JobType
from yarrow.runtime.ha.records import LeadershipLostError, RecordsError
from yarrow.runtime.rpc.endpoint import RpcEndpoint

_log = logging.getLogger(__name__)


class JobRecovery:
    """The recovery of one leadership."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        services: JobMasterServices,
        store: JobGraphStore,
        jobs: Jobs,
        ends: JobEnds,
        run: Callable[[JobGraph], Awaitable[None]],
    ) -> None:
        """`run` starts the JobMaster of a job from its last checkpoint, in the threads of the `endpoint`."""
        self._endpoint = endpoint
        self._services = services
        self._store = store
        self._jobs = jobs
        self._ends = ends
        self._run = run
        self._retry = RecordsRetry(endpoint, services.timers)

    async def begin(self) -> None:
        """Returns when all stored jobs are known; slow work comes after."""
        for job_id, name in await self._retry.persistently(self._stored_jobs, "the stored jobs"):
            job = RecoveringJob(job_id, name, self._services.clock, self._services.ids)
            self._jobs.recovering[job_id] = job
            self._endpoint.spawn(self._recover(job), f"recover {job_id}")

    def _stored_jobs(self) -> list[tuple[JobID, str]]:
        """Names of all jobs that run or must be cleaned up. Blocking."""
        found: dict[JobID, str] = {}
        for job_id in self._store.job_ids():
            if self._store.remove_mark_of_nothing(job_id):
                continue
            try:
                found[job_id] = self._store.stored(job_id).name
            except (KeyError, StoredJobError):
                found[job_id] = ""
        for job_id in self._store.ended():
            found.setdefault(job_id, "")
        return list(found.items())

    async def _recover(self, job: RecoveringJob) -> None:
        """Returns when the job runs again or has ended; retries while the obstacle may go away."""
        backoff = records_backoff()
        while True:
            try:
                await self._try_to_recover(job)
                break
            except LeadershipLostError as error:
                _log.info("job %s is left to the next leader: %s", job.job_id, error)
                return
            except Exception as error:
                if not passes_by_itself(error):
                    try:
                        await self._cannot_recover(job, error)
                        break
                    except RecordsError as unreachable:
                        # The next try asks again whether the job is cancelled.
                        error = unreachable
                job.problem = f"cannot be started again yet: {error}"
                _log.warning(
                    "job %s %s; the Dispatcher tries again in %.1f s",
                    job.job_id,
                    job.problem,
                    backoff.seconds,
                )
            await self._retry.pause(backoff.next_seconds(), None if job.cancelled.is_set() else job.cancelled)
        self._jobs.recovering.pop(job.job_id, None)
        job.done.set()

    async def _try_to_recover(self, job: RecoveringJob) -> None:
        job_id = job.job_id
        result = await self._endpoint.run_blocking(self._store.result, job_id)
        if result is not None:
            _log.info(
                "job %s has the final status %s: its stored data is removed", job_id, result.status.value
            )
            # Archived, in case the former master had no time for it.
            self._ends.remember(job.ended_before(result))
            outcome = FinalOutcome.of(result.status, result.cause)
            await self._ends.remove(job_id, result.blobs, outcome)
            return
        if job.job is None:
            graph = decode_and_validate(await self._endpoint.run_blocking(self._store.get, job_id))
            limits = await self._endpoint.run_blocking(self._store.rate_limits, job_id)
            if limits:
                # Imported late: few jobs have had their limits changed.
                from yarrow.am.jobmaster.rate_limits import limited_job

                graph = limited_job(graph, limits)
            job.is_of(graph)
        assert job.job is not None
        if job.cancelled.is_set() or await self._endpoint.run_blocking(self._store.is_cancelled, job_id):
            job.cancelled.set()
            await self._cancel(job, job.job)
            return
        await self._run(job.job)
        if job.cancelled.is_set():
            self._jobs.running[job_id].cancel()

    async def _cancel(self, job: RecoveringJob, graph: JobGraph) -> None:
        """Ends a job that was cancelled before it ran again.

        It is restored if possible, so that its checkpoints are removed. A bounded job may have begun to commit: it is
        restored for certain, and brings its commit to its end. Raises what its restoration raises, if a later try may
        succeed.
        """
        try:
            await self._run(graph)
        except LeadershipLostError:
            raise
        except Exception as error:
            if graph.job_type is JobType.BATCH and passes_by_itself(error):
                raise
            _log.warning(
                "job %s is cancelled before it was restored, and its checkpoints are kept: %s",
                job.job_id,
                error,
            )
            now = self._services.clock.epoch_ms()
            result = StoredResult(
                name=graph.name, status=JobStatus.CANCELED, end_time=now, blobs=blobs_of(graph)
            )
            await self._endpoint.run_blocking(self._store.mark_ended, job.job_id, result)
            self._ends.remember(job.ends(JobStatus.CANCELED))
            await self._ends.remove(job.job_id, result.blobs)
        else:
            self._jobs.running[job.job_id].cancel()

    async def _cannot_recover(self, job: RecoveringJob, error: Exception) -> None:
        if await self._endpoint.run_blocking(self._store.is_cancelled, job.job_id):
            await self.give_up(job)
            return
        text = (
            f"the job {job.job_id} cannot be taken over from its former master: {error}. The stored data "
            "of the job is kept, and the next leader tries again; cancel the job to give it up"
        )
        _log.error("job %s: %s", job.job_id, text, exc_info=not isinstance(error, YarrowError))
        self._jobs.kept[job.job_id] = job
        # Not archived: it has not ended for good.
        self._jobs.finished.add(job.ends(JobStatus.FAILED, text))

    async def give_up(self, job: RecoveringJob) -> None:
        """Ends a job that cannot be taken over as CANCELED, and forgets it; its checkpoints stay.

        Raises RecordsError.
        """
        blobs = blobs_of(job.job) if job.job is not None else ()
        now = self._services.clock.epoch_ms()
        result = StoredResult(name=job.overview().name, status=JobStatus.CANCELED, end_time=now, blobs=blobs)
        await self._endpoint.run_blocking(self._store.mark_ended, job.job_id, result)
        self._jobs.kept.pop(job.job_id, None)
        former = RecoveringJob(job.job_id, result.name, self._services.clock, self._services.ids)
        self._ends.remember(former.ended_before(result))
        await self._ends.remove(job.job_id, blobs)

    async def ended_before(self, job_id: JobID) -> FinishedJob:
        """An ended job; after a former master, only its record's facts. Raises JobNotFoundError for any other."""
        try:
            return self._jobs.ended(job_id)
        except JobNotFoundError:
            result = (
                await self._endpoint.run_blocking(self._store.result, job_id) if is_hex_id(job_id) else None
            )
            if result is None:
                raise
        former = RecoveringJob(job_id, result.name, self._services.clock, self._services.ids)
        ended = former.ended_before(result)
        self._jobs.finished.add(ended)
        return ended
