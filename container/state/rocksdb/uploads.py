"""UploadedFiles: which files of a database the next checkpoint may refer to.

Owner: the task thread; `uploaded` is called by the snapshot thread. Only files of completed checkpoints count: those of
one that was aborted, or of which nobody knows yet what became, may be deleted at any time.
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
        #: Nothing is complete but what the database was restored from.
        self._is_restored = False

    def restored(self, checkpoint_id: int, files: Files) -> None:
        """The database was opened with these files of a complete checkpoint."""
        self._last, self._completed, self._is_restored = checkpoint_id, files, True

    def reusable(self, oldest: int, folder: str) -> Files:
        """Files of the last checkpoint known to be complete; none when it is older than `oldest`.

        Of what was restored only what lies in `folder`, where the job shares its files: others may be somebody else's.
        """
        if self._last < oldest:
            return MappingProxyType({})
        if not self._is_restored:
            return self._completed
        own = {name: file for name, file in self._completed.items() if file.path.rpartition("/")[0] == folder}
        return MappingProxyType(own)

    def uploaded(self, checkpoint_id: int, files: Files) -> None:
        """A checkpoint of these files was written; whether it will be complete is not known."""
        self._pending[checkpoint_id] = files

    def completed(self, checkpoint_id: int) -> None:
        """That checkpoint is complete; earlier ones no longer count."""
        files = self._pending.pop(checkpoint_id, None)
        if files is None or checkpoint_id <= self._last:
            return  # a savepoint, which shares nothing; or an old story
        # A copy, made in one step: the snapshot thread may just be adding to it.
        for earlier in [other for other in tuple(self._pending) if other < checkpoint_id]:
            del self._pending[earlier]
        self._last = checkpoint_id
        self._completed = files
        self._is_restored = False

    def aborted(self, checkpoint_id: int) -> None:
        """That checkpoint will never be complete."""
        self._pending.pop(checkpoint_id, None)
