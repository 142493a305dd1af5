"""CommitRecords: what bounded jobs are certain to commit, kept for the next master.

Owner: blocking; BatchJobMasters call it through `run_blocking`. Content is opaque bytes. The store of job graphs
implements it: what is kept of a job goes with the job.
"""

from __future__ import annotations

import threading
from typing import Protocol

from yarrow.runtime.common.ids import JobID


class CommitRecords(Protocol):
    """The commits to make of all bounded jobs, as one leadership may write them."""

    def put_commits(self, job_id: JobID, commits: bytes) -> None:
        """Keeps what a job is to commit; returns when it is durable.

        Raises LeadershipLostError if another master leads: then nothing may be committed. Raises RecordsError, OSError
        and FileSystemError, and KeyError if the job is no more.
        """
        ...

    def commits(self, job_id: JobID) -> bytes:
        """What a former master has kept; b"" = nothing is certain to be committed. Raises as `put_commits`."""
        ...


class CommitRecordsInMemory:
    """Those of a master without a successor."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._commits: dict[JobID, bytes] = {}

    def put_commits(self, job_id: JobID, commits: bytes) -> None:
        with self._lock:
            self._commits[job_id] = commits

    def commits(self, job_id: JobID) -> bytes:
        with self._lock:
            return self._commits.get(job_id, b"")
