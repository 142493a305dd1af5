"""Has a Python process of Spark import PySpark from its folder, in place of the archives that Spark puts before it.

Spark's archives lie inside the folder of the installed PySpark, and hold the same modules. From an archive each process
compiles them anew. And each `importlib.invalidate_caches` reads the directory of an archive again: this was more than
half of the CPU time of a short task. Owner: the process at its start, before it imports PySpark.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path


def prefer_unpacked() -> None:
    """Takes the archives off the search path of this process, if PySpark is installed beside them."""
    kept = without_archives(sys.path)
    for left_out in set(sys.path) - set(kept):
        sys.path_importer_cache.pop(left_out, None)
    sys.path[:] = kept


def without_archives(path: Sequence[str]) -> list[str]:
    """A search path without the files that lie inside the folder of the PySpark which is installed on it.

    Files of another PySpark stay, as those of an executor's own Spark: its Java needs the same version.
    """
    spec = PathFinder.find_spec("pyspark", [each for each in path if not Path(each).is_file()])
    if spec is None or spec.origin is None:
        return list(path)
    installed = Path(spec.origin).resolve().parent
    return [each for each in path if not (Path(each).is_file() and installed in Path(each).resolve().parents)]
