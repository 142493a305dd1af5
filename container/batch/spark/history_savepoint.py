"""HistorySavepoint: the savepoint that a run leaves of a stream's history, begun before tasks run.

Owner: the run's thread. Tasks write the files of their key groups, and this module the metadata alone. Must not run
tasks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from types import TracebackType

from yarrow.container.batch.history.savepoint_metadata import savepoint_metadata
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.config.options import security
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.snapshot.opening import open_snapshot
from yarrow.runtime.snapshot.trust import read_secret
from yarrow.runtime.snapshot.writing.savepoint_folder import (
    ForeignFiles,
    SavepointExistsError,
    SavepointFolder,
)


class HistorySavepoint:
    """The savepoint of one run. Use it as a context manager: one that is not completed leaves nothing behind."""

    def __init__(self, graph: JobGraph, path: str, settings: Settings) -> None:
        """Raises SavepointExistsError for a savepoint of another job, SnapshotStorageError without access."""
        self._graph = graph
        secret_file = settings.get(security.SNAPSHOT_SECRET_FILE)
        self._secret = read_secret(secret_file) if secret_file else b""
        self._folder: SavepointFolder | None = None
        #: Where tasks write; None = a former run of the job has left the savepoint complete.
        self.place: ForeignFiles | None = None
        # Runs of this job that were lost have left these.
        with contextlib.suppress(OSError, YarrowError):
            ForeignFiles.remove_unfinished(path, graph.job_id)
        try:
            self._folder = SavepointFolder(path)
        except SavepointExistsError:
            if open_snapshot(path, verify=False).metadata.job_id != graph.job_id:
                raise
            return
        self.place = self._folder.foreign_files(graph.job_id)

    @property
    def is_there(self) -> bool:
        """Whether a former run of the job has completed it: nothing is left to be done."""
        return self._folder is None

    def complete(
        self,
        states: Mapping[tuple[JobVertexID, int], bytes],
        enumerators: Mapping[JobVertexID, bytes],
        now_ms: int,
    ) -> None:
        """Writes the metadata over what the tasks have left. Raises SnapshotStorageError."""
        assert self._folder is not None, "the savepoint is not complete"
        self._folder.complete(savepoint_metadata(self._graph, states, enumerators, now_ms), self._secret)

    def __enter__(self) -> HistorySavepoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._folder is not None:
            self._folder.__exit__(kind, error, trace)
