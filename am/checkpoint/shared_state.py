"""SharedStateRegistry: which checkpoints need which shared files, so that a file goes when nobody needs it.

Owner: the JobMaster's loop. Pure: it names files to delete, the link deletes them. Files are known by their path.
"""

from __future__ import annotations

from collections.abc import Iterable


class SharedStateRegistry:
    """Counts shared files over the checkpoints that are kept and those the job was restored from."""

    def __init__(self) -> None:
        self._files: dict[int, frozenset[str]] = {}
        self._holders: dict[str, int] = {}
        #: Of a snapshot that is not ours: never deleted.
        self._foreign: set[str] = set()

    def register(self, checkpoint_id: int, paths: Iterable[str]) -> None:
        """A checkpoint is kept and needs these; the same checkpoint again adds to its files."""
        known = self._files.get(checkpoint_id, frozenset())
        added = frozenset(paths) - known
        self._files[checkpoint_id] = known | added
        for path in added:
            self._holders[path] = self._holders.get(path, 0) + 1

    def protect(self, paths: Iterable[str]) -> None:
        """These belong to somebody else: they are never named for deletion."""
        self._foreign.update(paths)

    def release(self, checkpoint_id: int) -> tuple[str, ...]:
        """A checkpoint is not kept any more; the files that nobody else needs, in order of their names."""
        gone = []
        for path in self._files.pop(checkpoint_id, frozenset()):
            self._holders[path] -= 1
            if self._holders[path] == 0:
                del self._holders[path]
                gone.append(path)
        return self.unneeded(gone)

    def unneeded(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Those of the paths that no kept checkpoint needs and that are ours."""
        return tuple(
            sorted(path for path in set(paths) if path not in self._holders and path not in self._foreign)
        )
