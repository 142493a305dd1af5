"""Completed checkpoints: which are kept, which go when a newer one comes and when the job ends.

Owner: the JobMaster's loop. Pure: decisions only; what is dropped is returned for the link to delete.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from yarrow.am.checkpoint.shared_state import SharedStateRegistry
from yarrow.common.job_status import JobStatus
from yarrow.runtime.config.options.checkpointing import ExternalizedRetention
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.snapshot.handles import CheckpointMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedCheckpoint:
    """A checkpoint or savepoint that can be restored."""

    checkpoint_id: int
    kind: SnapshotKind
    metadata: CheckpointMetadata
    #: Base of the relative paths in the metadata; "" = all state is inline.
    directory: str
    #: Where it can be opened again, "" when it lives in this process only.
    pointer: str
    #: Shared files, by path.
    shared: tuple[str, ...] = ()
    #: False = of the user or of another job: never deleted by us.
    owned: bool = True
    #: True = of the user or another job, whose files have become ours: others may lie beside them.
    claimed: bool = False
    #: False = pickled values in it are not read.
    trusted: bool = True


@dataclass(frozen=True, slots=True)
class Dropped:
    """A checkpoint that is not kept any more, with the shared files that go with it."""

    checkpoint: CompletedCheckpoint
    shared: tuple[str, ...]


def outlives(status: JobStatus, retention: ExternalizedRetention) -> bool:
    """Whether the checkpoints of a job that has ended so are kept."""
    if not status.is_globally_terminal_state():
        return True
    if retention is ExternalizedRetention.RETAIN_ON_CANCELLATION:
        return status is not JobStatus.FINISHED
    if retention is ExternalizedRetention.DELETE_ON_CANCELLATION:
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
        """What a failure goes back to."""
        return self._checkpoints[-1] if self._checkpoints else None

    @property
    def oldest_id(self) -> int:
        """The id of the oldest own checkpoint that is kept.

        It is -1 when there is none, or when a foreign one is newer. Nothing may refer to files of a foreign
        checkpoint.
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
        """What the job begins from: kept until newer ones take its place, deleted then only if it is ours."""
        if not checkpoint.owned:
            self._registry.protect(checkpoint.shared)
        self._checkpoints.append(checkpoint)
        self._registry.register(checkpoint.checkpoint_id, checkpoint.shared)

    def add(self, checkpoint: CompletedCheckpoint, under_way: Iterable[int] = ()) -> list[Dropped]:
        """Keeps a new one in its place by id; the oldest beyond the number kept are dropped, never the latest.

        Shared files to which those `under_way` may refer stay until these have ended.

        One that is older than all that are kept, because it took longer than its followers, is dropped at once
        when there is no room.
        """
        self._checkpoints.append(checkpoint)
        self._checkpoints.sort(key=lambda kept: kept.checkpoint_id)
        self._registry.register(checkpoint.checkpoint_id, checkpoint.shared)
        dropped = []
        while len(self._checkpoints) > self._retained:
            dropped.append(self._drop(0, under_way))
        return dropped

    def end(self, status: JobStatus, retention: ExternalizedRetention) -> list[Dropped]:
        """The job has ended so: what is not to outlive it."""
        if outlives(status, retention):
            return []
        dropped = []
        while self._checkpoints:
            dropped.append(self._drop(len(self._checkpoints) - 1))
        return dropped

    def _drop(self, index: int, under_way: Iterable[int] = ()) -> Dropped:
        checkpoint = self._checkpoints.pop(index)
        return Dropped(checkpoint, self._registry.release(checkpoint.checkpoint_id, under_way))
