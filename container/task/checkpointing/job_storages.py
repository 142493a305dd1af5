"""JobStorages: the workers' side of each job's checkpoint storage, as its configuration names it.

Owner: `use` is called on the task thread before anything of a job runs; any thread may call the rest
afterwards. Must not know tasks or the written content.
"""

from __future__ import annotations

from yarrow.runtime.common.ids import JobID
from yarrow.runtime.config.options import checkpointing
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.storage_names import is_custom
from yarrow.runtime.data.checkpoint_options import CheckpointLocation
from yarrow.runtime.snapshot.custom_storage import StorageContext, load_storage
from yarrow.runtime.snapshot.snapshot_reader import SnapshotReader
from yarrow.runtime.snapshot.worker_file import FileSystemWorkerStorage, SnapshotFile, WorkerStorage


class JobStorages:
    """One storage for each job: files, unless the job names its own."""

    def __init__(self) -> None:
        self._files: WorkerStorage = FileSystemWorkerStorage()
        self._own: dict[JobID, WorkerStorage] = {}

    def use(self, job_id: JobID, settings: Settings) -> None:
        """Prepares the storage of a job; a repeated call has no effect.

        Raises SnapshotStorageError if it cannot be loaded.
        """
        name = settings.get(checkpointing.STORAGE)
        if name is None or not is_custom(name) or job_id in self._own:
            return
        context = StorageContext(
            job_id=job_id,
            settings=settings.to_dict(redact=False),
            directory=settings.get(checkpointing.DIRECTORY) or "",
            inline_threshold=settings.get(checkpointing.DATA_INLINE_THRESHOLD).bytes,
        )
        self._own[job_id] = load_storage(name).worker_storage(context)

    def open_output(self, job_id: JobID, location: CheckpointLocation) -> SnapshotFile:
        """The output of this worker for the checkpoint of a job."""
        return self._of(job_id).open_output(location)

    def reader(self, job_id: JobID, directory: str) -> SnapshotReader:
        """The reader of the snapshot that a job restores."""
        return self._of(job_id).reader(directory)

    def _of(self, job_id: JobID) -> WorkerStorage:
        return self._own.get(job_id, self._files)
