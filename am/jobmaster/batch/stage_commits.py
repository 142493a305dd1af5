"""StageCommits: what the stages of a pipeline are certain to leave, stored before any of it is moved into place.

Owner: the BatchJobMaster's loop; only records and temporary folders are touched in its threads. A driver or a master
can die while outputs are moved: the next driver finds the moves here, and repeats them. Must not look into outputs.
"""

from __future__ import annotations

import asyncio
import logging
import posixpath
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

from yarrow.am.execution.commit_records import CommitRecords
from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.common.ids import JobID, JobVertexID
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.rpc.messages import OutputMove, StageCommit, StoredStages

_log = logging.getLogger(__name__)
#: Runs a blocking call with its arguments in a thread.
RunBlocking: TypeAlias = Callable[..., Awaitable[Any]]


class StageCommits:
    """The moves of each stage."""

    def __init__(self, job_id: JobID, records: CommitRecords, run_blocking: RunBlocking) -> None:
        self._job_id = job_id
        self._records = records
        self._run_blocking = run_blocking
        self._commits: dict[JobVertexID, StageCommit] = {}
        #: One write at a time: each holds all stages.
        self._storing = asyncio.Lock()

    async def recover(self) -> tuple[JobVertexID, ...]:
        """The stages whose outputs a former master has stored. Raises as CommitRecords."""
        stored = await self._run_blocking(self._records.commits, self._job_id)
        if stored:
            found = msgspec.msgpack.decode(stored, type=StoredStages).commits
            self._commits = {commit.vertex_id: commit for commit in found}
        return tuple(self._commits)

    async def store(self, commit: StageCommit) -> None:
        """Stores the outputs of a stage, in place of earlier ones. Raises as CommitRecords."""
        async with self._storing:
            commits = {**self._commits, commit.vertex_id: commit}
            stored = StoredStages(job_id=self._job_id, commits=tuple(commits.values()))
            await self._run_blocking(self._records.put_commits, self._job_id, msgspec.msgpack.encode(stored))
            self._commits = commits

    def moves_of(self, vertex_id: JobVertexID) -> tuple[OutputMove, ...]:
        """What is to be moved for a stage that is stored."""
        return self._commits[vertex_id].moves

    async def remove_temporary(self) -> None:
        """Removes temporary outputs, since the pipeline has ended; what cannot be removed is told in the log."""
        folders = {
            posixpath.dirname(move.target)
            for commit in self._commits.values()
            for move in commit.moves
            if move.is_temporary
        }
        # All of them lie in a folder that bears the name of the job.
        await self._run_blocking(_remove, sorted(each for each in folders if self._job_id in each))


def _remove(folders: list[str]) -> None:
    for folder in folders:
        try:
            file_system_for(folder).delete(folder, recursive=True)
        except (OSError, FileSystemError) as error:
            _log.warning("the temporary output %s of a pipeline is left: %s", folder, error)
