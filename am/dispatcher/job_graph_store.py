"""JobGraphStore: the submitted jobs that have not ended, and the results of ended jobs until they are cleaned up.

Owner: blocking; the Dispatcher calls it through `run_blocking`. Graphs are opaque bytes here. They lie in
files of the storage directory, and a record points to each file. Without such a directory they lie in the
records. Every record is written under the leadership for which the store was made. Files without a record
have no meaning.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from yarrow.common.job_status import JobStatus
from yarrow.common.values.rate_limit import RateLimit
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import IdFactory, JobID, OperatorID, is_hex_id
from yarrow.runtime.common.paths import join
from yarrow.runtime.config.options.high_availability import STORAGE_DIR
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.fs.whole_files import TEMPORARY_PREFIX, write_whole
from yarrow.runtime.ha.records import Delete, LeaderRecords, Put
from yarrow.runtime.rpc.messages import FailureCause

#: Version of the records; other versions are refused.
RECORD_VERSION = 1
JOBS, RESULTS, GRAPHS_FOLDER = "jobs", "results", "job-graphs"


class StoredJobError(YarrowError):
    """A stored job cannot be read: it has another version, is damaged, or its file is gone."""


class JobStorageRefusedError(YarrowError):
    """The storage directory does not accept a job from this process."""


class StoredJob(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a job."""

    version: int = RECORD_VERSION
    name: str
    sha256: str
    size: int
    #: File of the encoded graph; "" = it is in `graph`.
    path: str = ""
    graph: bytes = b""


class StoredCommits(msgspec.Struct, frozen=True, kw_only=True):
    """The record of what a bounded job is certain to commit."""

    version: int = RECORD_VERSION
    sha256: str
    #: File of the encoded commits; "" = they are in `commits`.
    path: str = ""
    commits: bytes = b""


class StoredRateLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The record of the rate limits that somebody has set for a running job."""

    version: int = RECORD_VERSION
    limits: Mapping[OperatorID, RateLimit]


class StoredResult(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a job that has ended for good."""

    version: int = RECORD_VERSION
    name: str
    status: JobStatus
    end_time: int
    #: The cause of a FAILED job.
    cause: FailureCause | None = None
    #: Keys of the blobs to delete with the job.
    blobs: tuple[str, ...] = ()


class JobGraphStore:
    """The stored jobs of one cluster id, written under one leadership."""

    def __init__(self, records: LeaderRecords, directory: str, ids: IdFactory) -> None:
        """`directory` is the storage directory of the cluster id; "" = graphs stay inside the records."""
        self._records = records
        self._directory = join(directory, GRAPHS_FOLDER) if directory else ""
        self._ids = ids

    # Unfinished jobs.

    def put(self, job_id: JobID, graph: bytes, name: str = "") -> None:
        """Stores or replaces a job; returns when it is durable.

        Raises OSError, JobStorageRefusedError, FileSystemError and RecordsError.
        """
        if not is_hex_id(job_id):
            raise KeyError(job_id)
        digest = hashlib.sha256(graph).hexdigest()
        path = self._write(job_id, graph)
        stored = StoredJob(name=name, sha256=digest, size=len(graph), path=path, graph=b"" if path else graph)
        self._records.write(Put(_job(job_id), msgspec.msgpack.encode(stored)))

    def _write(self, job_id: JobID, graph: bytes) -> str:
        """Writes the graph to a file under a new name; returns the path."""
        if not self._directory:
            return ""
        name = f"{job_id}-{self._records.epoch}-{self._ids.hex_id()[-8:]}"
        path = join(self._directory, name)
        try:
            write_whole(path, graph, self._ids.hex_id()[-8:])
        except PermissionError as error:
            raise JobStorageRefusedError(
                f"job {job_id} is not stored: this process may not write to {self._directory} ("
                f"{STORAGE_DIR.key}): {error}. Let the user of the process write there, or name another "
                "folder"
            ) from error
        return path

    def get(self, job_id: JobID) -> bytes:
        """The encoded graph.

        Raises KeyError if there is none, and StoredJobError if it can never be read. Raises OSError,
        FileSystemError and RecordsError if it cannot be read now.
        """
        stored = self.stored(job_id)
        graph = stored.graph
        if stored.path:
            try:
                with file_system_for(stored.path).open(stored.path) as stream:
                    graph = stream.read()
            except FileNotFoundError as error:
                raise StoredJobError(
                    f"job {stored.name!r} ({job_id}) cannot be read: its file {stored.path} does not exist"
                ) from error
        if len(graph) != stored.size or hashlib.sha256(graph).hexdigest() != stored.sha256:
            raise StoredJobError(
                f"job {stored.name!r} ({job_id}): {stored.path or 'its record'} holds {len(graph)} bytes, "
                f"which differ from the {stored.size} bytes that were stored"
            )
        return graph

    def stored(self, job_id: JobID) -> StoredJob:
        """The record of a job; raises the errors of `get`."""
        data = self._records.read(_job(job_id))
        if not data:
            raise KeyError(job_id)
        try:
            stored = msgspec.msgpack.decode(data, type=StoredJob)
        except msgspec.DecodeError as error:
            raise StoredJobError(f"the record of job {job_id} cannot be decoded: {error}") from error
        if stored.version != RECORD_VERSION:
            raise StoredJobError(
                f"the record of job {job_id} has version {stored.version}, this master reads {RECORD_VERSION}: run the"
                " version that stored it"
            )
        return stored

    def job_ids(self) -> tuple[JobID, ...]:
        """Ids of all stored jobs, and of removed jobs that were marked later: `is_stored` tells them apart."""
        return tuple(JobID(name) for name in self._records.children(JOBS) if is_hex_id(name))

    def is_stored(self, job_id: JobID) -> bool:
        """Whether there is a record of the job itself, readable or not."""
        return bool(self._records.read(_job(job_id)))

    # Commits of bounded jobs: CommitRecords.

    def put_commits(self, job_id: JobID, commits: bytes) -> None:
        """Stores what a job is to commit; returns when it is durable.

        Raises as `put`, and KeyError if the job was removed meanwhile: then nothing is stored.
        """
        digest = hashlib.sha256(commits).hexdigest()
        path = self._write(job_id, commits)
        stored = StoredCommits(sha256=digest, path=path, commits=b"" if path else commits)
        self._records.write(Put(_commits(job_id), msgspec.msgpack.encode(stored)))
        if not self.is_stored(job_id):
            # The storage was slow, and the job has ended: its removal has seen neither file nor record.
            self.remove(job_id)
            raise KeyError(job_id)

    def commits(self, job_id: JobID) -> bytes:
        """What a former leader has stored for a job to commit; b"" = nothing.

        Raises StoredJobError if it can never be read, OSError, FileSystemError and RecordsError if not now.
        """
        data = self._records.read(_commits(job_id))
        if data is None:
            return b""
        what = f"the commits of job {job_id}"
        try:
            stored = msgspec.msgpack.decode(data, type=StoredCommits)
            commits = stored.commits
            if stored.path:
                with file_system_for(stored.path).open(stored.path) as stream:
                    commits = stream.read()
        except msgspec.DecodeError as error:
            raise StoredJobError(f"the record of {what} cannot be decoded: {error}") from error
        except FileNotFoundError as error:
            raise StoredJobError(f"{what} cannot be read: the file {stored.path} does not exist") from error
        if hashlib.sha256(commits).hexdigest() != stored.sha256:
            raise StoredJobError(f"{what} are damaged: {stored.path or 'the record'} holds other bytes")
        return commits

    # Requests for a job that the next leader must fulfil too.

    def put_rate_limits(self, job_id: JobID, limits: Mapping[OperatorID, RateLimit]) -> None:
        """Stores the rate limits of a running job, in place of those of its graph; returns when they are durable.

        Raises RecordsError, and KeyError if the job was removed meanwhile: then nothing is stored.
        """
        self._records.write(
            Put(_rate_limits(job_id), msgspec.msgpack.encode(StoredRateLimits(limits=limits)))
        )
        if self.remove_mark_of_nothing(job_id):
            raise KeyError(job_id)

    def rate_limits(self, job_id: JobID) -> Mapping[OperatorID, RateLimit]:
        """The limits that were stored for a running job; empty = those of its graph hold.

        Raises StoredJobError if they can never be read, and RecordsError if not now.
        """
        data = self._records.read(_rate_limits(job_id))
        if data is None:
            return {}
        try:
            return msgspec.msgpack.decode(data, type=StoredRateLimits).limits
        except msgspec.DecodeError as error:
            raise StoredJobError(f"the rate limits of job {job_id} cannot be decoded: {error}") from error

    def mark_cancelled(self, job_id: JobID) -> None:
        """Marks the job to end as CANCELED under any leader."""
        self._records.write(Put(f"{_job(job_id)}/cancelled", b""))

    def remove_mark_of_nothing(self, job_id: JobID) -> bool:
        """Removes the mark of a job that had just been removed; False if the job is stored."""
        if self.is_stored(job_id):
            return False
        self._records.write(Delete(_job(job_id)))
        return True

    def is_cancelled(self, job_id: JobID) -> bool:
        """Whether its cancellation was requested."""
        return self._records.read(f"{_job(job_id)}/cancelled") is not None

    # Jobs that have ended for good.

    def mark_ended(self, job_id: JobID, result: StoredResult) -> None:
        """Stores the result: from now on no leader runs the job again. Comes before any removal."""
        self._records.write(Put(_result(job_id), msgspec.msgpack.encode(result)))

    def result(self, job_id: JobID) -> StoredResult | None:
        """The result of the job; None if it has not ended, or is forgotten."""
        data = self._records.read(_result(job_id))
        if data is None:
            return None
        try:
            return msgspec.msgpack.decode(data, type=StoredResult)
        except msgspec.DecodeError:
            # The purpose of the record is to say that the job has ended.
            return StoredResult(name="", status=JobStatus.FAILED, end_time=-1)

    def end_of(self, job_id: JobID) -> tuple[JobStatus, str] | None:
        """Final status and cause of the job; None if it has not ended, or is forgotten."""
        result = self.result(job_id)
        if result is None:
            return None
        cause = result.cause
        return result.status, f"{cause.exception_name}: {cause.message}" if cause is not None else ""

    def ended(self) -> tuple[JobID, ...]:
        """Jobs whose results are stored."""
        return tuple(JobID(name) for name in self._records.children(RESULTS) if is_hex_id(name))

    def remove(self, job_id: JobID) -> None:
        """Removes a job's graph and the requests for it; no effect if there is none."""
        try:
            path = self.stored(job_id).path
        except (KeyError, StoredJobError):
            path = ""
        self._records.write(Delete(_job(job_id)))
        self._remove_files(job_id, path)

    def _remove_files(self, job_id: JobID, path: str) -> None:
        if not self._directory:
            return
        files = file_system_for(self._directory)
        if path:
            files.delete(path)
        try:
            # Files of a submission that failed half-way.
            for entry in files.list(self._directory):
                if entry.name.removeprefix(TEMPORARY_PREFIX).startswith(f"{job_id}-"):
                    files.delete(entry.path)
        except FileNotFoundError:
            return

    def place(self, job_id: JobID) -> str:
        """The place of a job's stored graph, as text for people."""
        return join(self._directory, f"{job_id}-*") if self._directory else f"the record {_job(job_id)}"

    def forget_result(self, job_id: JobID) -> None:
        """Removes the result of a job of which nothing else is left."""
        self._records.write(Delete(_result(job_id)))


def _job(job_id: JobID) -> str:
    return f"{JOBS}/{job_id}"


def _commits(job_id: JobID) -> str:
    return f"{_job(job_id)}/commits"


def _rate_limits(job_id: JobID) -> str:
    return f"{_job(job_id)}/rate-limits"


def _result(job_id: JobID) -> str:
    return f"{RESULTS}/{job_id}"
