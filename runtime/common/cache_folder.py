"""The folder in which files that were fetched once are kept for this user.

Owner: none; pure but for the environment.
"""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Below XDG_CACHE_HOME, or ~/.cache; it may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "yarrow"


def spark_classes_folder() -> Path:
    """Where archives of Spark's classes are kept: YARROW_SPARK_CLASSES, else a folder of the cache."""
    own = os.environ.get("YARROW_SPARK_CLASSES")
    return Path(own) if own else cache_folder() / "spark-classes"
