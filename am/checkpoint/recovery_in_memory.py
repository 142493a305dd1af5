"""InMemoryCheckpointRecovery: the records of a job's checkpoints for its next master in the same process.

Owner: any thread. For clusters without high availability: the records end with the process. It fulfils the
whole Protocol including its guards, and is the reference for other implementations.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from yarrow.am.checkpoint.recovery_store import CheckpointPointer, RecoveryStoreError
from yarrow.runtime.common.ids import JobID


class _Records:
    """The records of one job."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        #: The highest leadership that has asked for the job's store.
        self.epoch = 0
        self.first_id = self.highest_id = 0
        self.savepoint_id = -1
        self.pointers: dict[int, CheckpointPointer] = {}


class InMemoryCheckpointRecovery:
    """The CheckpointRecovery of a cluster without high availability."""

    def __init__(self, epoch: int = 1) -> None:
        self._epoch = epoch
        self._jobs: dict[JobID, _Records] = {}

    def of_job(self, job_id: JobID) -> InMemoryRecoveryStore:
        """See CheckpointRecovery."""
        return InMemoryRecoveryStore(self._jobs, job_id, self._epoch)

    def next_leadership(self) -> InMemoryCheckpointRecovery:
        """The same records under the next epoch."""
        following = InMemoryCheckpointRecovery(self._epoch + 1)
        following._jobs = self._jobs
        return following


class InMemoryRecoveryStore:
    """The CheckpointRecoveryStore of one job under one leadership."""

    def __init__(self, jobs: dict[JobID, _Records], job_id: JobID, epoch: int) -> None:
        self._jobs = jobs
        self._job_id = job_id
        self._epoch = epoch
        records = jobs.setdefault(job_id, _Records())
        with records.lock:
            records.epoch = max(records.epoch, epoch)

    def next_checkpoint_id(self) -> int:
        """See CheckpointRecoveryStore."""
        return self._records().highest_id + 1

    def use_checkpoint_id(self, checkpoint_id: int) -> None:
        """See CheckpointRecoveryStore."""
        with self._guarded() as records:
            if checkpoint_id <= records.highest_id:
                raise RecoveryStoreError(
                    f"checkpoint id {checkpoint_id} of job {self._job_id} is not above {records.highest_id}, which was"
                    " used already: does another JobMaster of this job run?"
                )
            records.highest_id = checkpoint_id
            records.first_id = records.first_id or checkpoint_id

    def begun_ids(self) -> range:
        """See CheckpointRecoveryStore."""
        records = self._records()
        return range(records.first_id, records.highest_id + 1) if records.first_id else range(0)

    def completed(self) -> tuple[CheckpointPointer, ...]:
        """See CheckpointRecoveryStore."""
        records = self._records()
        with records.lock:
            return tuple(records.pointers[number] for number in sorted(records.pointers))

    def add(
        self, checkpoint_id: int, path: str, *, owned: bool = True, claimed: bool = False
    ) -> CheckpointPointer:
        """See CheckpointRecoveryStore."""
        pointer = CheckpointPointer(
            checkpoint_id=checkpoint_id, path=path, epoch=self._epoch, owned=owned, claimed=claimed
        )
        with self._guarded() as records:
            former = records.pointers.setdefault(checkpoint_id, pointer)
            if former.path != path:
                raise RecoveryStoreError(
                    f"checkpoint {checkpoint_id} of job {self._job_id} is at {former.path} already, not at {path}"
                )
        return pointer

    def discard(self, checkpoint_id: int) -> None:
        """See CheckpointRecoveryStore."""
        with self._guarded() as records:
            records.pointers.pop(checkpoint_id, None)

    @property
    def latest_savepoint_id(self) -> int:
        """See CheckpointRecoveryStore."""
        return self._records().savepoint_id

    def note_savepoint(self, checkpoint_id: int) -> None:
        """See CheckpointRecoveryStore."""
        with self._guarded() as records:
            records.savepoint_id = max(records.savepoint_id, checkpoint_id)

    def close(self, terminal: bool) -> None:
        """See CheckpointRecoveryStore."""
        if terminal and self._job_id in self._jobs:
            with self._guarded():
                self._jobs.pop(self._job_id, None)

    def _records(self) -> _Records:
        return self._jobs.setdefault(self._job_id, _Records())

    @contextmanager
    def _guarded(self) -> Iterator[_Records]:
        """Guards a write of this leadership. Raises RecoveryStoreError once a later leadership has begun."""
        records = self._records()
        with records.lock:
            if records.epoch > self._epoch:
                raise RecoveryStoreError(
                    f"job {self._job_id} has a leader of epoch {records.epoch}: this master, of epoch "
                    f"{self._epoch}, may not write checkpoints of the job any more"
                )
            yield records
