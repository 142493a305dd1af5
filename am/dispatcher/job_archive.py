"""JobArchive: a file for each ended job, from which Flink's HistoryServer shows it after the end of the cluster.

Owner: JobArchiver the Dispatcher's loop, JobArchive one thread of its own, so that a hanging storage blocks
nothing else. The file is named by the job id, and holds REST's answers about the job by path. The function
that makes these answers is passed in, so that this module needs no web framework. A failure here must not
reach a job.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import msgspec

from yarrow.am.dispatcher.finished_jobs import FinishedJob
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import IdFactory, JobID
from yarrow.runtime.common.paths import join
from yarrow.runtime.config.options.jobmanager import ARCHIVE_DIR
from yarrow.runtime.fs.file_system import exists
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.fs.whole_files import write_whole
from yarrow.runtime.rpc.checkpoint_statistics import CheckpointRecord, CheckpointStatistics
from yarrow.runtime.rpc.messages import ExecutionGraphDetails, JobOverview

_log = logging.getLogger(__name__)

#: Seconds that an ending master waits for archives that are being written.
_LIMIT = 5.0


class EndedJob(msgspec.Struct, frozen=True):
    """The facts about an ended job, which change no more."""

    overview: JobOverview
    details: ExecutionGraphDetails
    checkpoints: CheckpointStatistics
    #: The records in `checkpoints.history`, with the parts of their subtasks.
    records: tuple[CheckpointRecord, ...]
    #: Epoch milliseconds at which these facts were taken.
    now: int

    @classmethod
    def of(cls, job: FinishedJob, now: int) -> EndedJob:
        """The facts about a job, taken now."""
        statistics = job.checkpoints.statistics()
        records = (job.checkpoints.record(record.id) for record in statistics.history)
        return cls(job.overview, job.details, statistics, tuple(filter(None, records)), now)


#: JSON bodies by REST path.
Answers = Callable[[EndedJob], Mapping[str, str]]


class JobArchive(msgspec.Struct, frozen=True):
    """The folder of archives (jobmanager.archive.fs.dir)."""

    #: A path of runtime/fs; made when needed.
    directory: str
    answers: Answers

    def write(self, job: EndedJob, unique: str) -> bool:
        """Writes the archive of a job; False = an archive exists, which stays.

        Blocking. A reader sees the whole file or none: until it is whole, it has a hidden name made with
        `unique`. Raises OSError or YarrowError if the folder cannot be written to.
        """
        job_id = job.overview.job_id
        target = join(self.directory, job_id)
        if exists(file_system_for(target), target):
            return False
        entries = [{"path": path, "json": body} for path, body in self.answers(job).items()]
        try:
            write_whole(target, msgspec.json.encode({"archive": entries}), unique)
        except FileExistsError:
            return False
        return True


class JobArchiver:
    """Archives the jobs of one Dispatcher, one after the other, in the background."""

    def __init__(self, archive: JobArchive | None, clock: Clock, ids: IdFactory) -> None:
        """`archive` None = jobs are not archived."""
        self._archive = archive
        self._clock = clock
        self._ids = ids
        self._executor: ThreadPoolExecutor | None = None
        self._running: dict[asyncio.Task[None], JobID] = {}

    def begin(self, job: FinishedJob) -> None:
        """Archives a job that has ended for good."""
        if self._archive is None:
            return
        ended = EndedJob.of(job, self._clock.epoch_ms())
        job_id = ended.overview.job_id
        work = asyncio.get_running_loop().create_task(
            self._write(self._archive, ended), name=f"archive {job_id}"
        )
        self._running[work] = job_id
        work.add_done_callback(self._running.pop)

    async def _write(self, archive: JobArchive, job: EndedJob) -> None:
        job_id = job.overview.job_id
        if self._executor is None:
            self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="job-archive")
        loop = asyncio.get_running_loop()
        try:
            if await loop.run_in_executor(self._executor, archive.write, job, self._ids.hex_id()):
                _log.info("job %s is archived in %s", job_id, archive.directory)
        except (OSError, YarrowError) as error:
            _log.warning(
                "job %s was not archived in %s (%s): %s", job_id, archive.directory, ARCHIVE_DIR.key, error
            )
        except Exception:
            _log.exception("job %s was not archived in %s", job_id, archive.directory)

    async def close(self) -> None:
        """Waits a while for the present write, and drops the rest."""
        if self._running:
            await asyncio.wait(tuple(self._running), timeout=_LIMIT)
        for work, job_id in tuple(self._running.items()):
            _log.warning("job %s was not archived within %g s, and this master ends", job_id, _LIMIT)
            work.cancel()
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
