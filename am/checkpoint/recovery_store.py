"""CheckpointRecoveryStore: what of a job's checkpoints must outlive its master: pointers, the counter of ids.

Owner: any thread of the master's process; calls block and several may run at once. Holds pointers only, never state.
It must not decide which checkpoints are kept (completed.py) nor touch their files (storage.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import JobID


class RecoveryStoreError(YarrowError):
    """A call had no effect, and never will: the store refused it, or could not be reached before it was sent."""


class UnknownOutcomeError(RecoveryStoreError):
    """Whether a write has taken place, or still will, is not known: the connection broke while it was under way.

    What the write would point to must not be deleted.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPointer:
    """A completed checkpoint, as the next master finds it."""

    checkpoint_id: int
    #: What SnapshotStorage.open takes; never "".
    path: str
    #: Leadership under which it was stored. Those of one job never fall with rising ids of checkpoints.
    epoch: int
    #: False = of the user: a savepoint, never deleted by the job.
    owned: bool = True
    #: True = of the user or another job until this one began from it: only the files that it names are deleted.
    claimed: bool = False


class CheckpointRecoveryStore(Protocol):
    """The pointers of one job, as one leadership may write them.

    Made for a job by CheckpointRecovery.of_job. Every write is guarded: once another leadership has begun, it fails
    with RecoveryStoreError and changes nothing. A write has returned only when it is durable: what it stored is in
    what the next leadership reads. Reads raise RecoveryStoreError while the store cannot be reached, and must never
    answer "nothing" then: a job would begin anew. Calls are tried again by the store within its own limits.
    """

    def next_checkpoint_id(self) -> int:
        """An id above every one that any leadership of this job has used; read once, when a JobMaster begins.

        1 for a job without history. Changes nothing.
        """
        ...

    def use_checkpoint_id(self, checkpoint_id: int) -> None:
        """Takes an id for a checkpoint or savepoint that is to begin, before anything is written under it.

        RecoveryStoreError when it is not above every id used before, by this leadership or any other (somebody else
        leads the job). Ids may be left out. With UnknownOutcomeError the id is spent too: the caller goes on with a
        higher one.
        """
        ...

    def begun_ids(self) -> range:
        """All that leaderships of this job may have begun checkpoints under, from the first to the last.

        What lies in the job's folder under another id is of an earlier job with the same id. A read, as `completed`;
        empty where the first is not known.
        """
        ...

    def completed(self) -> tuple[CheckpointPointer, ...]:
        """All pointers, by rising id. The last is what a recovered job begins from."""
        ...

    def add(
        self, checkpoint_id: int, path: str, *, owned: bool = True, claimed: bool = False
    ) -> CheckpointPointer:
        """Stores a pointer under this leadership's epoch; with its return the checkpoint is complete.

        The same id with the same path again is no error (a repeated write); with another path it is
        RecoveryStoreError. After RecoveryStoreError the pointer is not there and never will be: its files are deleted.
        After UnknownOutcomeError they stay, and no task is restored before `discard` of the id has returned, which is
        tried again until it does: the pointer is then gone, whatever had become of it.
        A checkpoint whose `path` is "" lives in the master's memory alone and is never added.
        """
        ...

    def discard(self, checkpoint_id: int) -> None:
        """Removes a pointer, before its files are deleted; no effect when there is none."""
        ...

    @property
    def latest_savepoint_id(self) -> int:
        """Id of the latest savepoint that the job lives on after; -1 = none. As `completed`, a read."""
        ...

    def note_savepoint(self, checkpoint_id: int) -> None:
        """Such a savepoint is complete; its files are the user's and no pointer to them is kept.

        Transactions that sinks have prepared for it must be spared by every later master: called before the savepoint
        can be found by anybody. Lower than the one stored already: no effect. Fails as `add` does; one too many does
        no harm.
        """
        ...

    def close(self, terminal: bool) -> None:
        """This leadership is done with the job.

        `terminal`: the job has ended for good and its result is recorded where a new leader looks first. Pointers,
        counter and all else of it are removed, repeatedly without error. Otherwise everything stays as it is.
        """
        ...


class CheckpointRecovery(Protocol):
    """Gives the stores of jobs; one object for one leadership of the Dispatcher."""

    def of_job(self, job_id: JobID) -> CheckpointRecoveryStore:
        """The store of a job, with what earlier leaderships have left in it. Blocking; RecoveryStoreError."""
        ...
