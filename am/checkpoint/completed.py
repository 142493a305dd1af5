"""Completed checkpoints: which ones are kept, and which are dropped after a newer one or at the end of the job.

Owner: the JobMaster's loop. Pure decisions; dropped checkpoints are returned, and the link deletes them.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from yarrow.am.checkpoint.shared_state import SharedStateRegistry
from yarrow.common.execution_modes import ExternalizedCheckpointRetention
from yarrow.common.job_status import JobStatus
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.rpc.messages import FailureCause
from yarrow.runtime.snapshot.handles import CheckpointMetadata


class CompletedCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint or savepoint that can be restored."""

    checkpoint_id: int
    kind: SnapshotKind
    metadata: CheckpointMetadata
    #: Base of the relative paths in the metadata; "" = all state is inline.
    directory: str
    #: Path by which it can be opened again; "" if it exists in this process only.
    pointer: str
    #: Shared files, by path.
    shared: tuple[str, ...] = ()
    #: False if it belongs to the user or another job: this job never deletes it.
    owned: bool = True
    #: True if it was the user's or another job's and this job took over its files; other files may lie beside
    #: them.
    claimed: bool = False
    #: False if pickled values in it must not be read.
    trusted: bool = True


class Dropped(msgspec.Struct, frozen=True):
    """A checkpoint that is not kept any more, and the shared files to delete with it."""

    checkpoint: CompletedCheckpoint
    shared: tuple[str, ...]


class FinalOutcome(msgspec.Struct, frozen=True):
    """How a job has ended, as far as its checkpoints depend on it."""

    status: JobStatus
    #: True = the job failed by an error that no restart could have helped: the user mends the cause and starts again.
    by_final_error: bool = False
    #: The message of that error.
    why: str = ""

    @staticmethod
    def of(status: JobStatus, cause: FailureCause | None) -> FinalOutcome:
        """The outcome of a job with that status, and that cause if it FAILED."""
        if status is JobStatus.FAILED and cause is not None and cause.is_final:
            return FinalOutcome(status, by_final_error=True, why=cause.message)
        return FinalOutcome(status)


def outlives(outcome: FinalOutcome, retention: ExternalizedCheckpointRetention) -> bool:
    """Whether checkpoints are kept after the job has ended.

    A final error keeps them whatever the retention is: without them the user could only begin anew.
    """
    status = outcome.status
    if outcome.by_final_error or not status.is_globally_terminal_state():
        return True
    if retention is ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION:
        return status is not JobStatus.FINISHED
    if retention is ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION:
        return status is JobStatus.FAILED
    return False


class CompletedCheckpointStore:
    """The newest completed checkpoints, oldest first."""

    def __init__(self, retained: int, registry: SharedStateRegistry) -> None:
        self._retained = retained
        self._registry = registry
        self._checkpoints: list[CompletedCheckpoint] = []

    @property
    def latest(self) -> CompletedCheckpoint | None:
        """The checkpoint from which a failed job restarts."""
        return self._checkpoints[-1] if self._checkpoints else None

    @property
    def oldest_id(self) -> int:
        """The id of the oldest own checkpoint that is kept.

        It is -1 when there is none, or when a foreign one is newer. New checkpoints may not refer to files of
        a foreign one.
        """
        own = [kept.checkpoint_id for kept in self._checkpoints if kept.owned]
        others = [kept.checkpoint_id + 1 for kept in self._checkpoints if not kept.owned]
        return min(own) if own else max(others, default=-1)

    @property
    def all(self) -> tuple[CompletedCheckpoint, ...]:
        """All that are kept, oldest first."""
        return tuple(self._checkpoints)

    def has(self, checkpoint_id: int) -> bool:
        """Whether it is kept."""
        return any(kept.checkpoint_id == checkpoint_id for kept in self._checkpoints)

    def restored(self, checkpoint: CompletedCheckpoint) -> None:
        """Adds the checkpoint from which the job begins.

        Newer ones replace it; it is deleted then only if the job owns it.
        """
        if not checkpoint.owned:
            self._registry.protect(checkpoint.shared)
        self._checkpoints.append(checkpoint)
        self._registry.register(checkpoint.checkpoint_id, checkpoint.shared)

    def add(self, checkpoint: CompletedCheckpoint, under_way: Iterable[int] = ()) -> list[Dropped]:
        """Adds a new checkpoint in the order of ids.

        Drops the oldest ones beyond the retained number, never the latest.

        Shared files that checkpoints `under_way` may refer to stay until those have ended.

        A checkpoint that took longer than its followers may be older than all kept ones. It is dropped at
        once if there is no room.
        """
        self._checkpoints.append(checkpoint)
        self._checkpoints.sort(key=lambda kept: kept.checkpoint_id)
        self._registry.register(checkpoint.checkpoint_id, checkpoint.shared)
        dropped = []
        while len(self._checkpoints) > self._retained:
            dropped.append(self._drop(0, under_way))
        return dropped

    def end(self, outcome: FinalOutcome, retention: ExternalizedCheckpointRetention) -> list[Dropped]:
        """Drops the checkpoints that must not outlive a job that ended so."""
        if outlives(outcome, retention):
            return []
        dropped = []
        while self._checkpoints:
            dropped.append(self._drop(len(self._checkpoints) - 1))
        return dropped

    def _drop(self, index: int, under_way: Iterable[int] = ()) -> Dropped:
        checkpoint = self._checkpoints.pop(index)
        return Dropped(checkpoint, self._registry.release(checkpoint.checkpoint_id, under_way))
