"""SharedStateRegistry: which checkpoints need which shared files, so that a file goes when nobody needs it.

A checkpoint under way may refer to files of the completed one that its tasks knew when they cut. When that one is not
kept any more, its files stay until every checkpoint has ended that was under way then. Owner: the JobMaster's loop.
Pure: it names files to delete, the link deletes them. Files are known by their path.
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
        #: Files that no kept checkpoint needs, and the checkpoints under way that may refer to them.
        self._awaited: dict[str, set[int]] = {}

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

    def release(self, checkpoint_id: int, under_way: Iterable[int] = ()) -> tuple[str, ...]:
        """A checkpoint is not kept any more; the files that nobody else needs, in order of their names.

        While others are `under_way` there are none: `ended` gives them with the last of these.
        """
        gone = []
        for path in self._files.pop(checkpoint_id, frozenset()):
            self._holders[path] -= 1
            if self._holders[path] == 0:
                del self._holders[path]
                gone.append(path)
        awaited = frozenset(under_way)
        if awaited:
            for path in gone:
                self._awaited.setdefault(path, set()).update(awaited)
        return self.unneeded(gone)

    def ended(self, checkpoint_id: int) -> tuple[str, ...]:
        """A checkpoint under way has ended, and is registered if it is kept; the files that waited for it alone."""
        free = []
        for path, awaited in list(self._awaited.items()):
            awaited.discard(checkpoint_id)
            if not awaited:
                del self._awaited[path]
                free.append(path)
        return self.unneeded(free)

    def unneeded(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Those of the paths that are ours and that no kept checkpoint needs, nor one under way."""
        needed = (self._holders, self._foreign, self._awaited)
        return tuple(sorted(path for path in set(paths) if not any(path in each for each in needed)))
