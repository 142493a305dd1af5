"""Schedules: submits the jobs of schedules at their times, and keeps what each schedule has done.

Owner: the Dispatcher's loop. schedule_progress.py decides. A run is recorded with its job's id before the job is
submitted. Its end is recorded before the job's data are removed. So the next leader knows whether to submit it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from yarrow.am.dispatcher.jobs import Jobs, blobs_of
from yarrow.am.dispatcher.records_retry import RecordsRetry, records_backoff
from yarrow.am.dispatcher.recovering_job import passes_by_itself
from yarrow.am.dispatcher.schedule_progress import ScheduleProgress
from yarrow.am.dispatcher.schedule_store import ScheduleStore, StoredSchedule, StoredScheduleError
from yarrow.am.dispatcher.validation import decode_and_validate
from yarrow.am.jobmaster.services import JobMasterServices
from yarrow.common.job_status import JobStatus
from yarrow.common.values.schedule import Schedule
from yarrow.runtime.common.errors import (
    DuplicateJobError,
    JobSubmissionError,
    ScheduleNotFoundError,
    YarrowError,
)
from yarrow.runtime.common.ids import JobID, ScheduleID
from yarrow.runtime.graph.job_graph import JobGraph, decode_job_graph, encode_job_graph
from yarrow.runtime.graph.states import JobType
from yarrow.runtime.ha.records import LeadershipLostError, RecordsError
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.messages import ScheduledRun, ScheduleOverview

_log = logging.getLogger(__name__)

#: Longest wait in seconds before another look at the clock, which may be set meanwhile.
LONGEST_WAIT = 60.0


class _Entry:
    """One schedule under this leadership."""

    def __init__(self, schedule_id: ScheduleID, stored: StoredSchedule) -> None:
        self.schedule_id = schedule_id
        self.stored = stored
        #: Set when the present run has ended, and that is recorded.
        self.run_ended = asyncio.Event()
        self.cancelled = asyncio.Event()

    def overview(self) -> ScheduleOverview:
        """The schedule, as clients see it."""
        stored, progress = self.stored, self.stored.progress
        return ScheduleOverview(
            schedule_id=self.schedule_id,
            name=stored.name,
            schedule=stored.schedule,
            start_time=progress.start_time,
            next_time=progress.next_time,
            runs=progress.runs,
            missed=progress.missed,
            running=progress.running,
            ended=progress.ended,
        )


class Schedules:
    """The schedules of one leadership."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        services: JobMasterServices,
        store: ScheduleStore,
        jobs: Jobs,
        submit: Callable[[bytes], Awaitable[JobID]],
        end_of: Callable[[JobID], tuple[JobStatus, str] | None],
    ) -> None:
        """`submit` takes an encoded JobGraph. `end_of` returns a job's recorded end with the cause; it blocks."""
        self._endpoint = endpoint
        self._services = services
        self._store = store
        self._jobs = jobs
        self._submit = submit
        self._end_of = end_of
        self._retry = RecordsRetry(endpoint, services.timers)
        self._entries: dict[ScheduleID, _Entry] = {}
        #: Stored schedules that this master cannot read: they run no more, and may be cancelled.
        self._unreadable: set[ScheduleID] = set()
        #: Ids of schedules that are being created.
        self._creating: set[ScheduleID] = set()

    async def load(self) -> None:
        """Returns when all stored schedules are known. Comes before jobs are recovered, whose files they may need."""
        now = self._services.clock.epoch_ms()
        for schedule_id, stored in await self._retry.persistently(self._stored, "the stored schedules"):
            progress = stored.progress.under_new_master(now)
            self._enter(schedule_id, msgspec.structs.replace(stored, progress=progress))

    def _stored(self) -> list[tuple[ScheduleID, StoredSchedule]]:
        found = []
        for schedule_id in self._store.ids():
            try:
                found.append((schedule_id, self._store.get(schedule_id)))
            except StoredScheduleError as error:
                _log.error("%s", error)
                self._unreadable.add(schedule_id)
            except KeyError:
                continue
        return found

    def _enter(self, schedule_id: ScheduleID, stored: StoredSchedule) -> _Entry:
        entry = self._entries[schedule_id] = _Entry(schedule_id, stored)
        self._jobs.scheduled[schedule_id] = (stored.job_graph, *stored.blobs)
        return entry

    def begin(self) -> None:
        """Begins to run all known schedules. Comes when stored jobs are known."""
        for entry in self._entries.values():
            self._follow(entry)

    def _follow(self, entry: _Entry) -> None:
        self._endpoint.spawn(self._run_at_its_times(entry), f"schedule {entry.schedule_id}")

    # Requests of clients.

    async def create(self, blob_key: str, schedule: Schedule) -> ScheduleOverview:
        """Takes a schedule whose jobs have the encoded JobGraph of that blob; see DispatcherGateway."""
        run = self._endpoint.run_blocking
        graph = decode_and_validate(await run(self._services.blobs.get, blob_key))
        _check(graph)
        schedule_id = ScheduleID(graph.job_id)
        if schedule_id in self._creating:
            raise DuplicateJobError(f"a schedule of the id {schedule_id} is being created already")
        self._jobs.check_new(graph.job_id)
        blobs = (blob_key, *blobs_of(graph))
        self._creating.add(schedule_id)
        try:
            await run(self._services.blobs.require, blobs)
            now = self._services.clock.epoch_ms()
            stored = StoredSchedule(
                name=graph.name,
                schedule=schedule,
                job_graph=blob_key,
                blobs=blobs[1:],
                progress=ScheduleProgress.begun(schedule, now),
            )
            try:
                await run(self._store.put, schedule_id, stored)
            except LeadershipLostError:
                raise
            except RecordsError:
                # The record may be there nevertheless.
                self._endpoint.spawn(self._until_removed(schedule_id), f"take back {schedule_id}")
                raise
            entry = self._enter(schedule_id, stored)
        finally:
            self._creating.discard(schedule_id)
            self._services.blobs.expect_no_more(blobs)
        _log.info("schedule %s (%s) begins: %s", stored.name, schedule_id, schedule)
        self._follow(entry)
        return entry.overview()

    async def _until_removed(self, schedule_id: ScheduleID) -> None:
        await self._retry.persistently(
            lambda: self._store.remove(schedule_id), f"the removal of schedule {schedule_id}"
        )

    def all(self) -> tuple[ScheduleOverview, ...]:
        """All schedules."""
        return tuple(entry.overview() for entry in self._entries.values())

    @property
    def has_some(self) -> bool:
        """Whether there are schedules, readable or not."""
        return bool(self._entries or self._unreadable)

    def get(self, schedule_id: ScheduleID) -> ScheduleOverview:
        """One schedule. Raises ScheduleNotFoundError."""
        return self._entry(schedule_id).overview()

    def _entry(self, schedule_id: ScheduleID) -> _Entry:
        entry = self._entries.get(schedule_id)
        if entry is None:
            raise ScheduleNotFoundError(
                f"no schedule {schedule_id} on this cluster: `yarrow list` shows them"
            )
        return entry

    async def cancel(self, schedule_id: ScheduleID) -> JobID | None:
        """Forgets a schedule; see DispatcherGateway. Raises RecordsError, if the schedule goes on."""
        if schedule_id in self._unreadable:
            await self._endpoint.run_blocking(self._store.remove, schedule_id)
            self._unreadable.discard(schedule_id)
            return None
        entry = self._entry(schedule_id)
        await self._endpoint.run_blocking(self._store.remove, schedule_id)
        self._forget(entry)
        _log.info("schedule %s (%s) is cancelled", entry.stored.name, schedule_id)
        run = entry.stored.progress.running
        return run.job_id if run is not None else None

    def _forget(self, entry: _Entry) -> None:
        if self._entries.pop(entry.schedule_id, None) is None:
            return
        entry.cancelled.set()
        blobs = self._jobs.scheduled.pop(entry.schedule_id)
        self._endpoint.spawn(self._remove_blobs(entry, blobs), f"clean up {entry.schedule_id}")

    async def _remove_blobs(self, entry: _Entry, blobs: tuple[str, ...]) -> None:
        """Removes the job of a cancelled schedule; files that its last run needs are removed with that."""
        try:
            for key in self._jobs.unneeded(blobs, JobID(entry.schedule_id)):
                await self._endpoint.run_blocking(self._services.blobs.remove, key)
        except (OSError, YarrowError) as error:
            _log.warning("files of the cancelled schedule %s are left: %s", entry.schedule_id, error)

    # The course of one schedule.

    async def _run_at_its_times(self, entry: _Entry) -> None:
        try:
            if entry.stored.progress.running is not None:
                # Begun under a former master. A run that is nowhere was never submitted.
                await self._submit_run(entry)
            while not entry.cancelled.is_set():
                if entry.stored.progress.running is not None:
                    await _first_of(entry.run_ended, entry.cancelled)
                elif await self._has_begun_run(entry):
                    await self._submit_run(entry)
                else:
                    await self._retry.pause(self._seconds_to_wait(entry), entry.cancelled)
        except LeadershipLostError as error:
            _log.info("schedule %s is left to the next leader: %s", entry.schedule_id, error)

    def _seconds_to_wait(self, entry: _Entry) -> float:
        left = entry.stored.progress.next_time - self._services.clock.epoch_ms()
        return min(max(left, 1) / 1000, LONGEST_WAIT)

    async def _has_begun_run(self, entry: _Entry) -> bool:
        job_id = JobID(self._services.ids.hex_id())
        stored, now = entry.stored, self._services.clock.epoch_ms()
        progress = stored.progress.with_run(stored.schedule, job_id, now)
        if progress is None:
            return False
        entry.run_ended.clear()
        await self._keep(entry, progress)
        run = progress.running
        assert run is not None
        if run.makes_up_for:
            _log.warning(
                "schedule %s (%s): %d times were missed, because another run ran or no master was there. The run %s"
                " makes up for them",
                stored.name,
                entry.schedule_id,
                run.makes_up_for,
                job_id,
            )
        return not entry.cancelled.is_set()

    async def _keep(self, entry: _Entry, progress: ScheduleProgress) -> None:
        """Stores the progress, then shows it. Raises LeadershipLostError."""
        stored = msgspec.structs.replace(entry.stored, progress=progress)
        what = f"the progress of schedule {entry.schedule_id}"

        def put() -> None:
            if not entry.cancelled.is_set():
                self._store.put(entry.schedule_id, stored)

        await self._retry.persistently(put, what)
        entry.stored = stored
        if entry.cancelled.is_set():
            # A cancellation came while the record was written, which may have come after its removal.
            await self._until_removed(entry.schedule_id)

    async def _submit_run(self, entry: _Entry) -> None:
        """Submits the present run, unless its job is known; retries while the obstacle may go away."""
        backoff = records_backoff()
        run = entry.stored.progress.running
        while run is not None and not entry.cancelled.is_set():
            if self._is_known(run.job_id):
                return
            try:
                # Asked at each try: a try that failed may have taken effect.
                if await self._endpoint.run_blocking(self._end_of, run.job_id) is not None:
                    await self.run_ended(run.job_id)
                    return
                await self._submit(await self._job_graph(entry, run))
                return
            except LeadershipLostError:
                raise
            except DuplicateJobError:
                return
            except Exception as error:
                if not passes_by_itself(error):
                    await self._end_run(entry, JobStatus.FAILED, f"it could not be submitted: {error}")
                    return
                _log.warning(
                    "the run %s of schedule %s cannot be submitted yet: %s; the Dispatcher tries again in %.1f s",
                    run.job_id,
                    entry.stored.name,
                    error,
                    backoff.seconds,
                )
            await self._retry.pause(backoff.next_seconds(), entry.cancelled)
            run = entry.stored.progress.running

    def _is_known(self, job_id: JobID) -> bool:
        jobs = self._jobs
        return any(job_id in known for known in (jobs.running, jobs.recovering, jobs.kept, jobs.starting))

    async def _job_graph(self, entry: _Entry, run: ScheduledRun) -> bytes:
        # Few masters have schedules.
        from yarrow.runtime.graph.batch.due_times import with_due_time

        encoded = await self._endpoint.run_blocking(self._services.blobs.get, entry.stored.job_graph)
        due = entry.stored.schedule.due_parameters(run.due_time)
        graph = with_due_time(decode_job_graph(encoded), due)
        return encode_job_graph(msgspec.structs.replace(graph, job_id=run.job_id))

    async def run_ended(self, job_id: JobID) -> None:
        """Records the end of a run; no effect for other jobs. Returns when the record of the job may be removed."""
        for entry in list(self._entries.values()):
            run = entry.stored.progress.running
            if run is None or run.job_id != job_id:
                continue
            what = f"the end of job {job_id}"
            try:
                ended = await self._retry.persistently(lambda: self._end_of(job_id), what)
                if ended is not None:
                    await self._end_run(entry, *ended)
            except LeadershipLostError as error:
                _log.info("schedule %s is left to the next leader: %s", entry.schedule_id, error)

    async def _end_run(self, entry: _Entry, status: JobStatus, failure: str) -> None:
        run = entry.stored.progress.running
        assert run is not None
        progress = entry.stored.progress.with_end(status, self._services.clock.epoch_ms(), failure)
        if status is JobStatus.FAILED:
            _log.warning(
                "the run %s of schedule %s (%s) has failed, the next one is due in its time: %s",
                run.job_id,
                entry.stored.name,
                entry.schedule_id,
                failure,
            )
        await self._keep(entry, progress)
        entry.run_ended.set()


async def _first_of(*events: asyncio.Event) -> None:
    """Returns when one of the events is set."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _check(graph: JobGraph) -> None:
    """Raises JobSubmissionError for a job that cannot be run on a schedule."""
    if graph.job_type is not JobType.BATCH:
        raise JobSubmissionError(
            f"job {graph.name!r} is no bounded job, so its first run might never end: set execution.runtime-mode to"
            " BATCH, or run it without a schedule"
        )
    if graph.collect_ids:
        raise JobSubmissionError(
            f"job {graph.name!r} hands rows to its client by execute_and_collect, and no client waits for a scheduled"
            " job: write the rows to a sink"
        )
