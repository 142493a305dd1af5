"""What the state processor asks of a user's SparkSession: the Python of its tasks, and how many run at a time.

Owner: the calling thread. It must not change the session.
"""

from __future__ import annotations

import os
import shutil
import sys

from pyspark.sql import SparkSession

from yarrow.state_processor.errors import StateProcessorError


def tasks_at_a_time(session: SparkSession) -> int:
    """How many tasks Spark runs at a time; where the session does not know, the partitions of its shuffles."""
    try:
        return int(session.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context
        return int(session.conf.get("spark.sql.shuffle.partitions") or 1)


def check_python(session: SparkSession) -> None:
    """Refuses a local session whose tasks would run another Python. Raises StateProcessorError."""
    try:
        context = session.sparkContext
        master, python = str(context.master), str(context.pythonExec)
    except Exception:  # Spark Connect: its server runs elsewhere
        return
    found = shutil.which(python) or python
    if master.startswith("local") and _folder(found) != _folder(sys.executable):
        raise StateProcessorError(
            f"Spark's tasks would run {found}, and this program runs {sys.executable}. Set PYSPARK_PYTHON to"
            f" {sys.executable} before the session starts."
        )


def _folder(executable: str) -> str:
    """The folder of an executable as it is called: environments link theirs to one interpreter."""
    return os.path.realpath(os.path.dirname(executable))
