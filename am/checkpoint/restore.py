"""StartingPoint: the storage and the snapshot from which a job begins, and the parts that its tasks restore.

Owner: `starting_point` blocks and runs in the Dispatcher's threads, before anything of the job is started.
`restore_plan` is pure and runs on the JobMaster's loop.
"""

from __future__ import annotations

import contextlib
import logging
import posixpath
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from yarrow.am.checkpoint.completed import CompletedCheckpoint, FinalOutcome, outlives
from yarrow.am.checkpoint.pending import absolute
from yarrow.am.checkpoint.recovery_in_memory import InMemoryCheckpointRecovery
from yarrow.am.checkpoint.recovery_store import CheckpointPointer, CheckpointRecovery, CheckpointRecoveryStore
from yarrow.am.checkpoint.settings import CheckpointSettings, StorageKind
from yarrow.am.checkpoint.targets import checked_path
from yarrow.am.execution.execution_graph import Execution, ExecutionGraph
from yarrow.am.execution.restore import RestorePlan, TaskRestore
from yarrow.runtime.common.errors import RestoreError, YarrowError
from yarrow.runtime.common.ids import ExecutionAttemptID, IdFactory, JobID, RandomIdFactory
from yarrow.runtime.common.paths import join
from yarrow.runtime.config.options import execution
from yarrow.runtime.data.checkpoint_options import CheckpointLocation
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.fs.whole_files import TEMPORARY_PREFIX
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.snapshot import storage as storages
from yarrow.runtime.snapshot.custom_storage import StorageContext, load_storage
from yarrow.runtime.snapshot.errors import SnapshotError, SnapshotNotFoundError
from yarrow.runtime.snapshot.storage import (
    EarlierCheckpoint,
    FileSystemSnapshotStorage,
    JobManagerSnapshotStorage,
    SnapshotStorage,
)
from yarrow.runtime.snapshot.trust import SnapshotTrust, check_trust

if TYPE_CHECKING:
    from yarrow.runtime.snapshot.assignment import Assignment

_log = logging.getLogger(__name__)


class StartingPoint(msgspec.Struct, frozen=True):
    """Everything that a JobMaster needs to take checkpoints and to restore them."""

    storage: SnapshotStorage
    #: Pointers to this job's completed checkpoints.
    recovery: CheckpointRecoveryStore
    restored: CompletedCheckpoint | None = None
    #: Lower ids may have been used by an earlier run of the job.
    next_id: int = 1
    #: Further checkpoints that a former master has kept, oldest first.
    older: tuple[CompletedCheckpoint, ...] = ()
    #: -1 = none.
    latest_savepoint_id: int = -1
    #: Checkpoints that former masters began and nobody can find; deleted once the job has begun.
    leftovers: tuple[CheckpointLocation, ...] = ()


def starting_point(
    job: JobGraph,
    settings: CheckpointSettings,
    ids: IdFactory | None = None,
    *,
    recovering: bool = False,
    recovery: CheckpointRecovery | None = None,
) -> tuple[JobGraph, StartingPoint]:
    """The job, with the max parallelism of the restored snapshot, and its starting point. Blocking.

    `recovering`: the job ran before under another master. It then continues from the newest checkpoint to
    which `recovery` points. If there is no pointer, the job begins as it is configured. A checkpoint without
    a pointer in its storage was never complete, or belongs to another job. Without `recovery`, the job
    continues from the newest complete checkpoint in its storage.

    Raises RestoreError with operator, state and path if the job cannot begin there. Raises RestoreError with
    path and key if its checkpoints cannot be written. Raises RecoveryStoreError if the position of a former
    master is unknown.
    """
    try:
        trust = SnapshotTrust.of(settings.secret_file, settings.trust_pickle)
    except SnapshotError as error:
        raise RestoreError(str(error)) from error
    storage = _storage(job.job_id, settings, ids, trust.secret)
    store = (recovery or InMemoryCheckpointRecovery()).of_job(job.job_id)
    earlier = _earlier(storage, settings)
    highest = max((each.checkpoint_id for each in earlier), default=0)
    start = StartingPoint(
        storage,
        store,
        next_id=max(store.next_checkpoint_id(), highest + 1),
        latest_savepoint_id=store.latest_savepoint_id,
    )
    pointers: Sequence[CheckpointPointer] = ()
    if recovering:
        pointers = store.completed() if recovery is not None else _found(earlier)
    if recovering:
        # Before this master begins any checkpoint: all these belong to former masters.
        left = unpointed(earlier, store, {pointer.checkpoint_id for pointer in pointers})
        start = msgspec.structs.replace(start, leftovers=tuple(left))
    if pointers:
        return _recovered(job, settings, start, trust, pointers)
    if not settings.restore_path:
        return job, start
    adopted, restored = _restored(job, settings, storage, trust)
    return adopted, msgspec.structs.replace(start, restored=restored)


def in_memory(job_id: JobID) -> StartingPoint:
    """A job that begins anew and keeps its checkpoints in the master's memory."""
    return StartingPoint(JobManagerSnapshotStorage(job_id), InMemoryCheckpointRecovery().of_job(job_id))


def folders_to_mark(outcome: FinalOutcome, settings: CheckpointSettings, own: Iterable[str]) -> set[str]:
    """The folders in which a failed job notes that its checkpoints stay; `own`: paths of those that belong to it."""
    if not outcome.by_final_error or settings.storage is StorageKind.CUSTOM:
        return set()
    return {posixpath.dirname(path) for path in own if path}


def remove_checkpoints(
    job: JobGraph, settings: CheckpointSettings, outcome: FinalOutcome, recovery: CheckpointRecovery
) -> None:
    """Removes the checkpoints that must not outlive a job whose master died after the job's end. Blocking.

    May be repeated. Raises RestoreError, SnapshotError, RecoveryStoreError, FileSystemError and OSError.
    After an error the next call finds the rest, because the pointers stay.
    """
    storage = _storage(job.job_id, settings, None, b"")
    store = recovery.of_job(job.job_id)
    pointers = store.completed()
    if outlives(outcome, settings.retention):
        remove_unpointed(storage, store, {pointer.checkpoint_id for pointer in pointers})
        own = [each.path for each in pointers if each.owned and not each.claimed]
        if folders := folders_to_mark(outcome, settings, own):
            # Imported late: few jobs end so.
            from yarrow.runtime.ha.stored_files import mark_kept

            for folder in folders:
                mark_kept(folder, outcome.why)
        return
    for pointer in pointers:
        if pointer.claimed:
            with contextlib.suppress(SnapshotNotFoundError):
                storage.discard_claimed(storage.open(pointer.path, verify=False))
        elif pointer.owned:
            storage.discard(CheckpointLocation(directory=pointer.path))
    for left in storage.earlier():
        if not left.complete:
            storage.discard(CheckpointLocation(directory=left.pointer))
    remove_unpointed(storage, store)
    # The last checkpoint's removal removes the shared files too.
    storage.clean_up()


def unpointed(
    earlier: Sequence[EarlierCheckpoint], recovery: CheckpointRecoveryStore, kept: Collection[int]
) -> list[CheckpointLocation]:
    """Checkpoints that masters of this job have begun, with ids that are not `kept`.

    They were aborted, were dropped and not deleted, or ended with their master before there was a pointer. No
    other record names them. Blocking; raises RecoveryStoreError.
    """
    begun = recovery.begun_ids()
    return [
        CheckpointLocation(directory=left.pointer)
        for left in earlier
        if left.checkpoint_id in begun and left.checkpoint_id not in kept
    ]


def remove_unpointed(
    storage: SnapshotStorage, recovery: CheckpointRecoveryStore, kept: Collection[int] = ()
) -> None:
    """Removes the checkpoints of an ended job that have no pointer and are not `kept`.

    Blocking; raises the errors of storage and recovery.
    """
    for left in unpointed(storage.earlier(), recovery, kept):
        storage.discard(left)


def _earlier(storage: SnapshotStorage, settings: CheckpointSettings) -> Sequence[EarlierCheckpoint]:
    """The checkpoints in the storage. A job without periodic checkpoints may have an unreachable storage."""
    try:
        return storage.earlier()
    except (OSError, YarrowError) as error:
        if settings.interval is None:
            return ()
        raise RestoreError(
            "the checkpoints of earlier runs cannot be read from "
            f"execution.checkpointing.dir: {error}. Check that the folder can be read."
        ) from error


def _found(earlier: Sequence[EarlierCheckpoint]) -> tuple[CheckpointPointer, ...]:
    """The newest complete checkpoint in a storage, for a job without pointers."""
    complete = [each for each in earlier if each.complete]
    newest = max(complete, key=lambda each: each.checkpoint_id, default=None)
    if newest is None:
        return ()
    return (CheckpointPointer(checkpoint_id=newest.checkpoint_id, path=newest.pointer, epoch=0),)


def _recovered(
    job: JobGraph,
    settings: CheckpointSettings,
    start: StartingPoint,
    trust: SnapshotTrust,
    pointers: Sequence[CheckpointPointer],
) -> tuple[JobGraph, StartingPoint]:
    """Begins from the newest pointer and no other: a job never goes back further unless told to."""
    *before, newest = pointers
    adopted, restored = _restored(job, _pointing(settings, newest), start.storage, trust)
    older = []
    for pointer in before:
        try:
            _, kept = _restored(job, _pointing(settings, pointer), start.storage, trust)
        except RestoreError as error:
            _log.warning("job %s: checkpoint %d cannot be read: %s", job.job_id, pointer.checkpoint_id, error)
            if not pointer.claimed:
                older.append(_unread(pointer, restored))
        else:
            older.append(_owned_as(kept, pointer))
    stored = restored.metadata.latest_savepoint_id
    latest = max(start.latest_savepoint_id, -1 if stored is msgspec.UNSET else stored)
    start = msgspec.structs.replace(
        start, restored=_owned_as(restored, newest), older=tuple(older), latest_savepoint_id=latest
    )
    return adopted, start


def _unread(pointer: CheckpointPointer, newest: CompletedCheckpoint) -> CompletedCheckpoint:
    """A checkpoint from which nothing begins.

    It is deleted with its folder in its turn, unless it was claimed: then too little is known of it.
    """
    metadata = msgspec.structs.replace(newest.metadata, checkpoint_id=pointer.checkpoint_id, operators=())
    unread = msgspec.structs.replace(
        newest, checkpoint_id=pointer.checkpoint_id, metadata=metadata, directory=pointer.path, shared=()
    )
    return _owned_as(unread, pointer)


def _pointing(settings: CheckpointSettings, pointer: CheckpointPointer) -> CheckpointSettings:
    return replace(
        settings,
        restore_path=pointer.path,
        claim_mode=execution.ClaimMode.CLAIM,
        ignore_unclaimed_state=True,
    )


def _owned_as(checkpoint: CompletedCheckpoint, pointer: CheckpointPointer) -> CompletedCheckpoint:
    return msgspec.structs.replace(
        checkpoint, pointer=pointer.path, owned=pointer.owned, claimed=pointer.claimed
    )


# Storage.


def _storage(
    job_id: JobID, settings: CheckpointSettings, ids: IdFactory | None, secret: bytes
) -> SnapshotStorage:
    directory = settings.directory
    if directory and settings.storage is not StorageKind.CUSTOM:
        checked_path(directory, "execution.checkpointing.dir")
    if settings.savepoint_directory:
        checked_path(settings.savepoint_directory, "execution.checkpointing.savepoint-dir")
    if settings.storage is StorageKind.CUSTOM:
        return _custom_storage(job_id, settings, secret)
    if settings.storage is StorageKind.JOB_MANAGER:
        if directory:
            _probe(directory, ids)
        return JobManagerSnapshotStorage(
            job_id,
            max_state_size=settings.max_inline_state,
            message_limit=settings.message_limit,
            directory=directory,
            inline_threshold=settings.inline_threshold,
            ids=ids,
            secret=secret,
        )
    if not directory:
        raise RestoreError(
            "execution.checkpointing.storage: filesystem needs a folder: set execution.checkpointing.dir to one that"
            " all processes reach"
        )
    if settings.interval is not None:
        _probe(directory, ids)
    return FileSystemSnapshotStorage(
        directory, job_id, inline_threshold=settings.inline_threshold, ids=ids, secret=secret
    )


def _custom_storage(job_id: JobID, settings: CheckpointSettings, secret: bytes) -> SnapshotStorage:
    context = StorageContext(
        job_id=job_id,
        settings=settings.keys,
        directory=settings.directory,
        inline_threshold=settings.inline_threshold,
        secret=secret,
    )
    try:
        return load_storage(settings.custom_storage).checkpoint_storage(context)
    except (OSError, YarrowError) as error:
        raise RestoreError(f"the storage of checkpoints cannot be used: {error}") from error


def _probe(directory: str, ids: IdFactory | None) -> None:
    """Finds a folder without write permission before the job runs, not at its first checkpoint."""
    path = join(directory, f"{TEMPORARY_PREFIX}{(ids or RandomIdFactory()).hex_id()}")
    try:
        files = file_system_for(path)
        with files.create(path) as stream:
            stream.write(b"?")
        files.delete(path)
    except (OSError, YarrowError) as error:
        raise RestoreError(
            f"checkpoints cannot be written to {directory} (execution.checkpointing.dir): {error}. Check the path and"
            " who may write there."
        ) from error


# The snapshot from which a job begins.


def _restored(
    job: JobGraph, settings: CheckpointSettings, storage: SnapshotStorage, trust: SnapshotTrust
) -> tuple[JobGraph, CompletedCheckpoint]:
    # Imported late: key groups import numpy, which a master needs only for a restore.
    from yarrow.runtime.snapshot.assignment import assign
    from yarrow.runtime.snapshot.savepoint_check import max_parallelism_of_savepoint, with_max_parallelism

    path = settings.restore_path
    if settings.storage is not StorageKind.CUSTOM:
        path = checked_path(path, execution.SAVEPOINT_PATH.key)
    if settings.claim_mode is execution.ClaimMode.LEGACY:
        raise RestoreError(
            f"{execution.CLAIM_MODE.key}: LEGACY is refused: nobody would own {path}. Use NO_CLAIM, which "
            "leaves the files to you, or CLAIM, with which the job may delete the files."
        )
    try:
        opened = storage.open(path)
    except (OSError, YarrowError) as error:
        raise RestoreError(f"job {job.name!r} cannot be restored: {error}") from error
    metadata, directory = opened.metadata, opened.directory
    try:
        adopted = with_max_parallelism(job, max_parallelism_of_savepoint(metadata, job))
        assign(metadata, adopted, allow_non_restored=settings.ignore_unclaimed_state)
        trusted = check_trust(metadata, opened.seal, trust, directory)
    except SnapshotError as error:
        raise RestoreError(f"job {job.name!r} cannot be restored from {directory}: {error}") from error
    completed = CompletedCheckpoint(
        checkpoint_id=metadata.checkpoint_id,
        kind=metadata.kind,
        metadata=metadata,
        directory=directory,
        pointer=directory,
        shared=tuple(sorted({absolute(file.path, directory) for file in metadata.shared_files()})),
        owned=settings.claim_mode is execution.ClaimMode.CLAIM,
        claimed=settings.claim_mode is execution.ClaimMode.CLAIM,
        trusted=trusted,
    )
    return adopted, completed


def dispose_savepoint(path: str) -> None:
    """Deletes a savepoint. Blocking. Refuses a folder that is no savepoint."""
    storages.dispose_savepoint(checked_path(path, "savepoint to dispose of"))


# The parts of tasks.


class Restorer:
    """Divides a checkpoint into the parts of tasks: once, and again after a change of parallelism."""

    def __init__(self, graph: ExecutionGraph) -> None:
        self._graph = graph
        self._checkpoint_id = -1
        #: The job for which the checkpoint was divided.
        self._job: JobGraph | None = None
        self._assignment: Assignment | None = None

    def plan(self, checkpoint: CompletedCheckpoint, executions: Sequence[Execution]) -> RestorePlan:
        """The parts of `checkpoint` for executions that are about to be deployed."""
        job, assignment = self._graph.job, self._assignment
        if assignment is None or checkpoint.checkpoint_id != self._checkpoint_id or self._job is not job:
            from yarrow.runtime.snapshot.assignment import assign

            # Unclaimed state was refused or accepted when the job was submitted.
            assignment = assign(checkpoint.metadata, job, allow_non_restored=True)
            self._assignment, self._checkpoint_id, self._job = assignment, checkpoint.checkpoint_id, job
        tasks: dict[ExecutionAttemptID, TaskRestore] = {}
        for task in executions:
            place = (task.vertex.id, task.subtask)
            states = assignment.tasks.get(place, {})
            beside_enumerator = task.vertex.has_enumerator and task.subtask == 0
            coordinator = assignment.coordinators.get(task.vertex.head.id) if beside_enumerator else None
            finished = place in assignment.finished
            if states or coordinator is not None or finished:
                tasks[task.attempt_id] = TaskRestore(states, coordinator, finished)
        return RestorePlan(checkpoint.checkpoint_id, checkpoint.directory, tasks, checkpoint.trusted)
