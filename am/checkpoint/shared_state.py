"""SharedStateRegistry: which checkpoints need which shared files. A file that no checkpoint needs is deleted.

A pending checkpoint may refer to files of the completed one that its tasks knew at their cut. When that one
is dropped, its files stay until every checkpoint that was pending then has ended. Owner: the JobMaster's
loop. Pure: it names files to delete, and the link deletes them. Files are known by their paths.
"""

from __future__ import annotations

from collections.abc import Iterable


class SharedStateRegistry:
    """Counts shared files over the kept checkpoints and those from which the job was restored."""

    def __init__(self) -> None:
        self._files: dict[int, frozenset[str]] = {}
        self._holders: dict[str, int] = {}
        #: Files of a snapshot that the job does not own: never deleted.
        self._foreign: set[str] = set()
        #: Files that no kept checkpoint needs, with the pending checkpoints that may refer to them.
        self._awaited: dict[str, set[int]] = {}

    def register(self, checkpoint_id: int, paths: Iterable[str]) -> None:
        """Adds a kept checkpoint and its files; a repeated call adds more files to it."""
        known = self._files.get(checkpoint_id, frozenset())
        added = frozenset(paths) - known
        self._files[checkpoint_id] = known | added
        for path in added:
            self._holders[path] = self._holders.get(path, 0) + 1

    def protect(self, paths: Iterable[str]) -> None:
        """Protects files of another owner: they are never named for deletion."""
        self._foreign.update(paths)

    def release(self, checkpoint_id: int, under_way: Iterable[int] = ()) -> tuple[str, ...]:
        """Removes a checkpoint. Returns the files that no other checkpoint needs, sorted by name.

        While others are `under_way`, it returns none. `ended` then returns the files with the last of these.
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
        """Ends a pending checkpoint, which is registered if it is kept.

        Returns the files that waited for it alone.
        """
        free = []
        for path, awaited in list(self._awaited.items()):
            awaited.discard(checkpoint_id)
            if not awaited:
                del self._awaited[path]
                free.append(path)
        return self.unneeded(free)

    def unneeded(self, paths: Iterable[str]) -> tuple[str, ...]:
        """The paths that the job owns and that neither a kept nor a pending checkpoint needs."""
        needed = (self._holders, self._foreign, self._awaited)
        return tuple(sorted(path for path in set(paths) if not any(path in each for each in needed)))
