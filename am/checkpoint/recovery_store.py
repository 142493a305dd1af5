"""CheckpointRecoveryStore: the checkpoint pointers and the counter of ids, which must outlive a job's master.

Owner: any thread of the master's process; calls block and several may run at once. Holds pointers only, never
state. It must not decide which checkpoints are kept (completed.py), nor touch their files (storage.py).
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import JobID


class RecoveryStoreError(YarrowError):
    """A call had and will have no effect: the store refused it, or could not be reached before it was sent."""


class UnknownOutcomeError(RecoveryStoreError):
    """The connection broke during a write, so whether the write takes place is unknown.

    The files to which the write would point must not be deleted.
    """


class CheckpointPointer(msgspec.Struct, frozen=True, kw_only=True):
    """A completed checkpoint, as the next master finds it."""

    checkpoint_id: int
    #: The argument of SnapshotStorage.open; never "".
    path: str
    #: The leadership that stored it. Within one job, epochs never decrease as checkpoint ids rise.
    epoch: int
    #: False = a savepoint of the user: the job never deletes it.
    owned: bool = True
    #: True = the user's or another job's until this job claimed it: only the files that it names are deleted.
    claimed: bool = False


class CheckpointRecoveryStore(Protocol):
    """The pointers of one job, as one leadership may write them.

    CheckpointRecovery.of_job makes it. Every write is guarded: once another leadership has begun, a write
    fails with RecoveryStoreError and changes nothing. A write returns only when it is durable, so that the
    next leadership reads it. Reads raise RecoveryStoreError while the store cannot be reached. They must
    never answer "nothing" then, because the job would begin anew. The store retries calls within its own
    limits.
    """

    def next_checkpoint_id(self) -> int:
        """An id above every id that any leadership of this job has used; read once, when a JobMaster begins.

        It is 1 for a job without history. The call changes nothing.
        """
        ...

    def use_checkpoint_id(self, checkpoint_id: int) -> None:
        """Takes an id for a checkpoint or savepoint that is about to begin, before anything is written under it.

        Raises RecoveryStoreError if this or another leadership has used that id or a higher one: another
        master then leads the job. Ids may be left out. After UnknownOutcomeError the id counts as used, and
        the caller continues with a higher one.
        """
        ...

    def begun_ids(self) -> range:
        """All ids under which leaderships of this job may have begun checkpoints.

        A checkpoint with another id in the job's folder belongs to an earlier job with the same job id. A
        read, like `completed`; empty if the first id is unknown.
        """
        ...

    def completed(self) -> tuple[CheckpointPointer, ...]:
        """All pointers by rising id. A recovered job begins from the last."""
        ...

    def add(
        self, checkpoint_id: int, path: str, *, owned: bool = True, claimed: bool = False
    ) -> CheckpointPointer:
        """Stores a pointer under this leadership's epoch; with the return of this call the checkpoint is complete.

        The same id with the same path is no error (a repeated write); with another path it is
        RecoveryStoreError. After RecoveryStoreError the pointer does not and never will exist: the caller
        deletes its files. After UnknownOutcomeError the files stay. The caller then repeats `discard` of the
        id until it returns, and restores no task before. After `discard` the pointer is gone in any case. A
        checkpoint whose `path` is "" lives in the master's memory alone and is never added.
        """
        ...

    def discard(self, checkpoint_id: int) -> None:
        """Removes a pointer, before its files are deleted; no effect if there is none."""
        ...

    @property
    def latest_savepoint_id(self) -> int:
        """Id of the latest savepoint after which the job continues; -1 = none. A read, like `completed`."""
        ...

    def note_savepoint(self, checkpoint_id: int) -> None:
        """Notes a completed savepoint after which the job continues; no pointer to the user's files is kept.

        Every later master must spare the transactions that sinks prepared for it. So this call comes before
        anybody can find the savepoint. An id lower than the stored one has no effect. It fails as `add` does;
        a superfluous note is harmless.
        """
        ...

    def close(self, terminal: bool) -> None:
        """Ends this leadership's use of the store.

        `terminal`: the job has ended for good, and its result is recorded where a new leader looks first.
        Pointers, counter and all other records of the job are then removed; this may be repeated. Otherwise
        everything stays.
        """
        ...


class CheckpointRecovery(Protocol):
    """Makes the stores of jobs; one object for one leadership of the Dispatcher."""

    def of_job(self, job_id: JobID) -> CheckpointRecoveryStore:
        """The store of a job, with the records of earlier leaderships. Blocking. Raises RecoveryStoreError."""
        ...
