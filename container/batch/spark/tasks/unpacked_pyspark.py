"""A Python process of Spark imports PySpark from its folder, and not from the archives that Spark puts before it.

Spark's archives lie inside the folder of the installed PySpark, and hold the same modules. From an archive each process
compiles them anew. And each `importlib.invalidate_caches` reads the directory of an archive again: this was more than
half of the CPU time of a short task. Owner: the process at its start, before it imports PySpark.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

#: How the name of the archive of py4j begins, which Spark has beside that of PySpark.
_PY4J_ARCHIVE: Final = "py4j-"


def prefer_unpacked() -> None:
    """Takes the archives off the search path of this process, if PySpark is installed beside them."""
    kept = without_archives(sys.path)
    for left_out in set(sys.path) - set(kept):
        sys.path_importer_cache.pop(left_out, None)
    sys.path[:] = kept


def without_archives(path: Sequence[str]) -> list[str]:
    """A search path without the files that lie inside the folder of the PySpark which is installed on it.

    Files of another PySpark stay, as those of an executor's own Spark: its Java needs the same version. The archive of
    py4j stays where none is installed. So does an entry that this process may not read, since imports skip it.
    """
    # Unlike Path.is_file, this takes an entry below a folder of another user as no file.
    files = [each for each in path if os.path.isfile(each)]
    others = [each for each in path if each not in files]
    installed = _folder_of("pyspark", others)
    if installed is None:
        return list(path)
    inside = {each for each in files if installed in Path(each).resolve().parents}
    if _folder_of("py4j", others) is None:
        inside = {each for each in inside if not Path(each).name.startswith(_PY4J_ARCHIVE)}
    return [each for each in path if each not in inside]


def _folder_of(package: str, path: Sequence[str]) -> Path | None:
    """The folder of a package that is installed on a search path; None = it is not, or it is a single file."""
    spec = PathFinder.find_spec(package, path)
    # A folder without `__init__.py` has a spec without an origin.
    if spec is None or spec.origin is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]).resolve()
