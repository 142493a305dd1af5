"""DistributedCache: the files that a program ships with `register_cached_file`, by name.

Owner: the thread that owns the task. A task reads them, and must not change them: other tasks share them.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["DistributedCache"]


class DistributedCache:
    """The cached files of a job on the host of the task."""

    def __init__(self, paths: Mapping[str, str]) -> None:
        """`paths`: the path of each file by its name."""
        self._paths = paths

    def get_file(self, name: str) -> str:
        """Return the path of a cached file, or of a folder. Raises KeyError if none of that name is registered."""
        path = self._paths.get(name)
        if path is None:
            known = ", ".join(map(repr, sorted(self._paths))) or "none"
            raise KeyError(
                f"no cached file is named {name!r}; registered are: {known}. Call"
                " env.register_cached_file(path, name) before the job is submitted"
            )
        return path
