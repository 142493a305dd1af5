"""UploadedFiles: the files of a database to which the next checkpoint may refer.

Owner: the task thread; the snapshot thread calls `uploaded`. Only files of completed checkpoints count. Those
of an aborted checkpoint, or of one with an unknown outcome, may be deleted at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from yarrow.runtime.snapshot.handles import FileStateHandle

Files = Mapping[str, FileStateHandle]


class UploadedFiles:
    """The handles of the files of one database, by checkpoint."""

    def __init__(self) -> None:
        self._pending: dict[int, Files] = {}
        self._completed: Files = MappingProxyType({})
        self._last = -1
        #: Only the restored checkpoint is complete so far.
        self._is_restored = False

    def restored(self, checkpoint_id: int, files: Files) -> None:
        """Notes that the database was opened with these files of a complete checkpoint."""
        self._last, self._completed, self._is_restored = checkpoint_id, files, True

    def reusable(self, oldest: int, folder: str) -> Files:
        """Files of the last checkpoint known to be complete; none if it is older than `oldest`.

        Of restored files, only those in `folder`, where the job shares its files: others may have another
        owner.
        """
        if self._last < oldest:
            return MappingProxyType({})
        if not self._is_restored:
            return self._completed
        own = {name: file for name, file in self._completed.items() if file.path.rpartition("/")[0] == folder}
        return MappingProxyType(own)

    def uploaded(self, checkpoint_id: int, files: Files) -> None:
        """Notes a written checkpoint with these files; whether it will complete is unknown."""
        self._pending[checkpoint_id] = files

    def completed(self, checkpoint_id: int) -> None:
        """Notes a completed checkpoint; earlier ones count no more."""
        files = self._pending.pop(checkpoint_id, None)
        if files is None or checkpoint_id <= self._last:
            return  # a savepoint, which shares nothing; or an old notification
        # A copy, made in one step: the snapshot thread may be adding to it.
        for earlier in [other for other in tuple(self._pending) if other < checkpoint_id]:
            del self._pending[earlier]
        self._last = checkpoint_id
        self._completed = files
        self._is_restored = False

    def aborted(self, checkpoint_id: int) -> None:
        """Notes a checkpoint that will never complete."""
        self._pending.pop(checkpoint_id, None)
