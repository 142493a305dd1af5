"""CommitsToMake: what the tasks of a bounded job have prepared, stored before any of it is committed.

Owner: the BatchJobMaster's loop; only records and blobs are written and read in its threads. A driver or a master can
die while the driver commits: the next one finds everything here, and the Committer repeats it. Must not look into
committables.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

from yarrow.am.execution.blob_store import BlobStore
from yarrow.am.execution.commit_records import CommitRecords
from yarrow.runtime.common.ids import JobID, OperatorID
from yarrow.runtime.rpc.batch_gateways import BatchRunError
from yarrow.runtime.rpc.messages import BatchCommittables, StoredCommittables

#: Runs a blocking call with its arguments in a thread.
RunBlocking: TypeAlias = Callable[..., Awaitable[Any]]


class CommitsToMake:
    """The committables of the present run, then the blob that holds them."""

    def __init__(
        self, job_id: JobID, blobs: BlobStore, records: CommitRecords, run_blocking: RunBlocking
    ) -> None:
        self._job_id = job_id
        self._blobs = blobs
        self._records = records
        self._run_blocking = run_blocking
        #: One write at a time: a run may end while a thread still stores what its former run has left.
        self._storing = asyncio.Lock()
        #: The run whose committables are stored; None = nobody's, or those of a former master's run.
        self._stored_run: int | None = None
        self._run = 0
        #: The parts of each subtask of each sink, in order of arrival.
        self._parts: dict[tuple[OperatorID, int], list[BatchCommittables]] = {}
        #: The blob that holds what is to be committed; "" = nothing is certain to be committed.
        self.blob_key = ""

    def add(self, message: BatchCommittables) -> None:
        """Takes a message of the present run, or of the next one, which replaces all of the former run.

        Part 0 begins the subtask anew; a part that comes twice counts once.
        """
        if message.run > self._run:
            self._run = message.run
            self._parts.clear()
        if message.run != self._run:
            return
        parts = self._parts.setdefault((message.operator_id, message.subtask), [])
        if message.sequence == 0:
            parts.clear()
        if message.sequence == len(parts):
            parts.append(message)

    async def recover(self) -> None:
        """Takes what a former master of the job has stored. Raises as CommitRecords."""
        self.blob_key = await self._run_blocking(self._recovered)

    def _recovered(self) -> str:
        stored = self._records.commits(self._job_id)
        return self._blobs.put_here(stored) if stored else ""

    async def store(self, run: int) -> None:
        """Stores what that run has left, for later drivers and masters; a second time has no effect.

        Raises BatchRunError if parts are missing or the committables of another run are stored, and as CommitRecords.
        """
        async with self._storing:
            if not self.blob_key:
                self.blob_key = await self._run_blocking(self._put, self._messages_of(run))
                self._stored_run = run
            elif run != self._stored_run:
                raise BatchRunError(
                    f"results of another run of job {self._job_id} are stored: the next run commits them, and"
                    f" nothing of run {run}"
                )

    def _messages_of(self, run: int) -> tuple[BatchCommittables, ...]:
        if run != self._run:
            raise BatchRunError(
                f"run {run} of job {self._job_id} has sent nothing to commit: nothing of it is committed"
            )
        kept = self._parts.values()
        if any(not parts or parts[-1].continued for parts in kept):
            raise BatchRunError(
                f"run {run} has not sent all that its sinks prepared: nothing of it is committed"
            )
        return tuple(part for parts in kept for part in parts)

    def _put(self, messages: tuple[BatchCommittables, ...]) -> str:
        encoded = msgspec.msgpack.encode(StoredCommittables(job_id=self._job_id, messages=messages))
        self._records.put_commits(self._job_id, encoded)
        return self._blobs.put_here(encoded)

    async def remove(self) -> None:
        """Removes what was stored: the job has ended."""
        async with self._storing:
            if self.blob_key:
                await self._run_blocking(self._blobs.remove_here, self.blob_key)
