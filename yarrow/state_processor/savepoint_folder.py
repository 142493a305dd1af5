"""SavepointFolder: a savepoint that is being written; without its metadata it is none, and what fails is removed.

Owner: the calling thread. It must not know the content.
"""

from __future__ import annotations

import contextlib
from types import TracebackType

from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import RandomIdFactory
from yarrow.runtime.common.paths import join
from yarrow.runtime.data.checkpoint_options import CheckpointLocation
from yarrow.runtime.fs.file_system import exists
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.snapshot.handles import CheckpointMetadata
from yarrow.runtime.snapshot.metadata import METADATA_FILE
from yarrow.runtime.snapshot.snapshot_folders import make_folder, write_metadata
from yarrow.runtime.snapshot.worker_file import WorkerSnapshotFile
from yarrow.state_processor.errors import StateProcessorError
from yarrow.state_processor.pickle_trust import PickleTrust


class SavepointFolder:
    """A new savepoint that is being written; a `with` block that ends without `complete` leaves nothing behind."""

    def __init__(self, path: str) -> None:
        """Raises StateProcessorError where a savepoint is there already, SnapshotStorageError where none can be."""
        self._path = path.rstrip("/") or "/"
        self._files = file_system_for(self._path)
        if exists(self._files, join(self._path, METADATA_FILE)):
            raise StateProcessorError(
                f"{path} holds a savepoint or checkpoint already: it is never overwritten. Name another folder."
            )
        self._made = not exists(self._files, self._path)
        make_folder(self._path)
        self._ids = RandomIdFactory()
        #: The folder of the state files.
        self.output = WorkerSnapshotFile(CheckpointLocation(directory=self._path), self._ids)
        self._complete = False

    def complete(self, metadata: CheckpointMetadata, trust: PickleTrust) -> str:
        """Writes the metadata, sealed where there is a secret: from now on it is a savepoint."""
        self.output.close()
        write_metadata(self._path, metadata, self._ids, trust.secret)
        self._complete = True
        return self._path

    def __enter__(self) -> SavepointFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._complete:
            return
        self.output.discard()
        if self._made:
            with contextlib.suppress(OSError, YarrowError):
                self._files.delete(self._path)
