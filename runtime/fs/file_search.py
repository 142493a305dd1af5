"""The files behind a path: one file, all files below a folder, or the matches of a pattern.

Owner: any thread; blocking.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator

from yarrow.runtime.common.paths import SCHEME, is_hidden
from yarrow.runtime.fs.file_system import FileStatus, FileSystem, exists
from yarrow.runtime.fs.registry import file_system_for

__all__ = ["find_files"]

_GLOB = re.compile(r"[*?\[]")


def find_files(path: str) -> list[FileStatus]:
    """The files that `path` stands for, by path: a file, a folder with all below it, or a pattern of `*?[`.

    Hidden files and folders are left out unless `path` names one itself. Raises FileNotFoundError naming
    the path when a plain path is missing; a pattern that matches nothing gives an empty list.
    """
    file_system = file_system_for(path)
    if _GLOB.search(path) and not exists(file_system, path):
        roots = list(_matches(file_system, path))
    else:
        roots = [file_system.status(path)]
    found = [file for root in roots for file in _files_below(file_system, root)]
    return sorted(found, key=lambda file: file.path)


def _files_below(file_system: FileSystem, root: FileStatus) -> Iterator[FileStatus]:
    if not root.is_dir:
        yield root
        return
    for entry in file_system.list(root.path):
        if not is_hidden(entry.name):
            yield from _files_below(file_system, entry)


def _matches(file_system: FileSystem, pattern: str) -> Iterator[FileStatus]:
    """Entries that match, level by level: `*` does not cross a folder, as in a shell."""
    scheme = SCHEME.match(pattern)
    authority_end = pattern.find("/", scheme.end()) if scheme else -1
    prefix, rest = (pattern[:authority_end], pattern[authority_end:]) if scheme else ("", pattern)
    parts = rest.split("/")
    fixed = next(index for index, part in enumerate(parts) if _GLOB.search(part))
    start = prefix + "/".join(parts[:fixed]) if fixed else "."
    if fixed and not start.strip("/"):
        start = "/"
    try:
        level = [file_system.status(start)]
    except FileNotFoundError:
        return
    for part in parts[fixed:]:
        level = [
            entry
            for folder in level
            if folder.is_dir
            for entry in file_system.list(folder.path)
            if fnmatch.fnmatchcase(entry.name, part)
            and (part.startswith((".", "_")) or not is_hidden(entry.name))
        ]
    yield from level
