"""CheckpointStorageAccess: writes checkpoints, publishes them to other masters, and deletes them.

Owner: the JobMaster's loop; only its blocking threads touch storage and recovery store. Carries out one
action of the CheckpointCoordinator at a time, and answers with the event that follows. Must not decide
anything. A storage failure fails the checkpoint, never the job.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import Any, Protocol, TypeVar

from yarrow.am.checkpoint.completed import Dropped
from yarrow.am.checkpoint.events import (
    DoubtSettled,
    LocationFailed,
    LocationReady,
    MetadataFailed,
    MetadataStored,
    PrepareLocation,
    StoreMetadata,
)
from yarrow.am.checkpoint.recovery_store import (
    CheckpointRecoveryStore,
    RecoveryStoreError,
    UnknownOutcomeError,
)
from yarrow.am.checkpoint.restore import remove_unpointed
from yarrow.am.execution.errors import failure_of
from yarrow.runtime.common import fault_points
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.timers import Timers
from yarrow.runtime.data.checkpoint_options import CheckpointLocation
from yarrow.runtime.fs import retries
from yarrow.runtime.rpc.messages import FailureCause
from yarrow.runtime.snapshot.handles import CheckpointMetadata
from yarrow.runtime.snapshot.metadata import metadata_size
from yarrow.runtime.snapshot.storage import OpenedSnapshot, SnapshotStorage

_log = logging.getLogger(__name__)
T = TypeVar("T")

#: Seconds between tries to remove a pointer that may have been written.
_DOUBT_PAUSE = 1.0


class _NotPointedTo(Exception):
    """The metadata are written; the pointer to them is not, or its write has an unknown outcome."""

    def __init__(self, pointer: str, error: RecoveryStoreError) -> None:
        super().__init__(str(error))
        self.pointer = pointer
        self.error = error


class RunBlocking(Protocol):
    """Runs a blocking call in another thread."""

    def __call__(self, function: Callable[..., T], *args: Any) -> Awaitable[T]: ...


class CheckpointStorageAccess:
    """Checkpoint storage and recovery store of one job."""

    def __init__(
        self,
        name: str,
        storage: SnapshotStorage,
        recovery: CheckpointRecoveryStore,
        directory: str,
        run_blocking: RunBlocking,
        timers: Timers,
    ) -> None:
        """`name` is the JobMaster's, for the log. `directory` is that of the checkpoints, for messages."""
        self._name = name
        self._storage = storage
        self._recovery = recovery
        self._directory = directory
        self._run_blocking = run_blocking
        self._timers = timers
        self._job_is_over = False
        #: The job is over, and something that must not outlive it could not be deleted.
        self.left_some = False
        #: By checkpoint: the last error of a storage call that is being retried.
        self._retried: dict[int, str] = {}

    def retried(self, checkpoint_id: int) -> str:
        """Why the checkpoint's folder or metadata is being retried now; "" = it is not."""
        return self._retried.get(checkpoint_id, "")

    @contextlib.contextmanager
    def _notes_retries(self, checkpoint_id: int, directory: str) -> Iterator[None]:
        def note(reason: str) -> None:
            self._retried[checkpoint_id] = reason

        try:
            with retries.listening(directory, note):
                yield
        finally:
            self._retried.pop(checkpoint_id, None)

    def job_is_over(self) -> None:
        """Stops the removal of single pointers: `release` removes all of them together."""
        self._job_is_over = True

    async def release(self, terminal: bool) -> None:
        """Gives up the job's checkpoint pointers. `terminal`: no master will begin from them any more."""
        try:
            await self._run_blocking(self._recovery.close, terminal)
        except RecoveryStoreError as error:
            _log.warning("%s: the pointers to checkpoints were not removed: %s", self._name, error)

    async def clean_up(self, kept: Collection[int]) -> None:
        """Deletes checkpoints that masters of an ended job have begun, except the `kept` ones.

        Without kept checkpoints, empty folders are deleted too.
        """
        try:
            if kept:
                # A checkpoint whose pointer write had an unknown outcome may have a pointer by now.
                pointers = await self._run_blocking(self._recovery.completed)
                kept = {*kept, *(pointer.checkpoint_id for pointer in pointers)}
            await self._run_blocking(remove_unpointed, self._storage, self._recovery, kept)
        except Exception as error:
            self.left_some = True
            _log.warning("%s: the files of incomplete checkpoints were not removed: %s", self._name, error)
        if not kept:
            await self._run_blocking(self._storage.clean_up)

    async def mark_kept(self, folders: Collection[str], why: str) -> None:
        """Notes in these folders of an ended job why its checkpoints stay."""
        # Imported late: few jobs end so.
        from yarrow.runtime.ha.stored_files import mark_kept

        for folder in folders:
            try:
                await self._run_blocking(mark_kept, folder, why)
            except Exception as error:
                _log.warning("%s: %s does not say that its checkpoints stay: %s", self._name, folder, error)

    # The folder.

    async def prepare(self, action: PrepareLocation) -> LocationReady | LocationFailed:
        """Takes the checkpoint id and makes the folder."""
        try:
            location = await self._run_blocking(self._begin, action)
        except RecoveryStoreError as error:
            return LocationFailed(action.checkpoint_id, _recovery_failure(error), counts=False)
        except Exception as error:
            return LocationFailed(action.checkpoint_id, self._storage_failure(error, action.directory))
        return LocationReady(action.checkpoint_id, location)

    def _begin(self, action: PrepareLocation) -> CheckpointLocation:
        self._recovery.use_checkpoint_id(action.checkpoint_id)
        with self._notes_retries(action.checkpoint_id, action.directory or self._directory):
            return self._storage.begin(action.checkpoint_id, action.kind, action.directory)

    # The metadata, and the pointer to them.

    async def store(self, action: StoreMetadata) -> MetadataStored | MetadataFailed:
        """Writes the metadata, and the pointer by which other masters find them."""
        try:
            pointer, size = await self._run_blocking(self._write, action.location, action.metadata)
        except _NotPointedTo as failed:
            return MetadataFailed(
                action.checkpoint_id,
                _recovery_failure(failed.error),
                counts=False,
                pointer=failed.pointer,
                in_doubt=isinstance(failed.error, UnknownOutcomeError),
            )
        except Exception as error:
            directory = action.location.directory
            return MetadataFailed(action.checkpoint_id, self._storage_failure(error, directory))
        return MetadataStored(action.checkpoint_id, pointer, size)

    def _write(self, location: CheckpointLocation, metadata: CheckpointMetadata) -> tuple[str, int]:
        """Returns the pointer and the size of the metadata in bytes."""
        checkpoint_id, kind = metadata.checkpoint_id, metadata.kind
        fault_points.reach("coordinator.before-metadata", checkpoint_id=checkpoint_id)
        outlived = kind.is_savepoint and not kind.stops_job
        if outlived:
            try:
                # Before anybody can find it: no master may let sinks discard the transactions that this
                # savepoint holds.
                self._recovery.note_savepoint(checkpoint_id)
            except RecoveryStoreError as error:
                raise _NotPointedTo("", RecoveryStoreError(str(error))) from error
        with self._notes_retries(checkpoint_id, location.directory):
            pointer = self._storage.complete(location, metadata)
        fault_points.reach("coordinator.after-metadata", checkpoint_id=checkpoint_id)
        if pointer and not outlived:
            try:
                self._recovery.add(checkpoint_id, pointer, owned=not kind.is_savepoint)
            except RecoveryStoreError as error:
                raise _NotPointedTo(pointer, error) from error
        return pointer, metadata_size(metadata)

    async def settle(self, checkpoint_id: int) -> DoubtSettled | None:
        """Removes a pointer that may have been written; retries until it is gone or this master ends."""
        while True:
            try:
                await self._run_blocking(self._recovery.discard, checkpoint_id)
            except RecoveryStoreError as error:
                _log.warning(
                    "%s: it is unknown whether other masters can find checkpoint %d: %s",
                    self._name, checkpoint_id, error,
                )  # fmt: skip
                if self._job_is_over:
                    return None
                await self._pause(_DOUBT_PAUSE)
            else:
                return DoubtSettled(checkpoint_id)

    async def _pause(self, seconds: float) -> None:
        over = asyncio.Event()
        timer = self._timers.call_later(seconds, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()

    # Deletion.

    async def delete(self, location: CheckpointLocation, shared: tuple[str, ...]) -> None:
        """Deletes a checkpoint that did not complete, and shared files."""
        try:
            await self._run_blocking(self._storage.discard, location, shared)
        except Exception as error:
            self._was_not_deleted(location.directory, error)

    async def delete_completed(self, dropped: Dropped) -> None:
        """Deletes completed checkpoints.

        The pointer goes first, so that no master finds a half deleted checkpoint.
        """
        checkpoint = dropped.checkpoint
        try:
            if not self._job_is_over:
                await self._run_blocking(self._recovery.discard, checkpoint.checkpoint_id)
            if checkpoint.claimed:
                snapshot = OpenedSnapshot(checkpoint.metadata, checkpoint.directory)
                await self._run_blocking(self._storage.discard_claimed, snapshot, dropped.shared)
            else:
                location = CheckpointLocation(directory=checkpoint.pointer if checkpoint.owned else "")
                await self._run_blocking(self._storage.discard, location, dropped.shared)
        except Exception as error:
            self._was_not_deleted(checkpoint.pointer, error)

    def _was_not_deleted(self, directory: str, error: Exception) -> None:
        """Logs the failure. The end of the job, or the next master, tries the deletion again."""
        self.left_some |= self._job_is_over
        _log.warning("%s: %s was not deleted: %s", self._name, directory, error)

    def _storage_failure(self, error: Exception, directory: str) -> FailureCause:
        if not isinstance(error, YarrowError | OSError):
            _log.error("%s: checkpoint storage failed", self._name, exc_info=error)
        where = directory or self._directory or "the JobManager's memory"
        return failure_of(
            type(error), f"checkpoint storage at {where} failed: {error or type(error).__name__}"
        )


def _recovery_failure(error: RecoveryStoreError) -> FailureCause:
    return failure_of(type(error), f"other masters cannot learn of the checkpoint: {error}")
