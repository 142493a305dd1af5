"""CommitsToMake: what the tasks of a bounded job have prepared, stored before any of it is committed.

Owner: the BatchJobMaster's loop; `recover`, `store` and `remove` block and run in its threads. A driver or a master can
die while the driver commits: the next one finds everything here, and the Committer repeats it. Must not look into
committables.
"""

from __future__ import annotations

import msgspec

from yarrow.am.execution.blob_store import BlobStore
from yarrow.am.execution.commit_records import CommitRecords
from yarrow.runtime.common.ids import JobID, OperatorID
from yarrow.runtime.rpc.batch_gateways import BatchRunError
from yarrow.runtime.rpc.messages import BatchCommittables, StoredCommittables


class CommitsToMake:
    """The committables of the present run, then the blob that holds them."""

    def __init__(self, job_id: JobID, blobs: BlobStore, records: CommitRecords) -> None:
        self._job_id = job_id
        self._blobs = blobs
        self._records = records
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

    def recover(self) -> None:
        """Takes what a former master of the job has stored. Raises as CommitRecords."""
        stored = self._records.commits(self._job_id)
        if stored:
            self.blob_key = self._blobs.put_here(stored)

    def store(self, run: int) -> None:
        """Stores what that run has left, for later drivers and masters.

        Raises BatchRunError if parts are missing, and as CommitRecords.
        """
        if self.blob_key:
            return
        kept = list(self._parts.values()) if run == self._run else []
        for parts in kept:
            if not parts or parts[-1].continued:
                raise BatchRunError(
                    f"run {run} has not sent all that its sinks prepared: nothing of it is committed"
                )
        messages = tuple(part for parts in kept for part in parts)
        encoded = msgspec.msgpack.encode(StoredCommittables(job_id=self._job_id, messages=messages))
        self._records.put_commits(self._job_id, encoded)
        self.blob_key = self._blobs.put_here(encoded)

    def remove(self) -> None:
        """Removes what was stored: the job has ended."""
        if self.blob_key:
            self._blobs.remove_here(self.blob_key)
