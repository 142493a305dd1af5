"""The archive of Spark's classes for the drivers of a run of tests: written once, with as much time as Java needs.

A user's driver gives Java three minutes for it. A busy machine may need more: no driver would ever have the archive,
and each would take more than twice the time to start. `python -m tests.support.spark_classes` is a SparkDriver that
waits.
"""

from __future__ import annotations

import fcntl
import sys
from pathlib import Path
from unittest.mock import patch

from tests.support.batch_runner import collecting_graph
from tests.support.spark_driver import LIMIT, spark_driver
from tests.unit.runtime.graph.programs import environment
from yarrow.container.batch.spark import driver_main
from yarrow.container.batch.spark.java import class_archive
from yarrow.runtime.common.cache_folder import spark_classes_folder


def write_classes(classes: Path, folder: Path) -> None:
    """Has one driver write the archive, unless it is there; other processes of the run wait meanwhile.

    Without an archive, drivers start as ever, only slower: a Java that cannot write it fails no test here.

    Args:
        classes: the folder that YARROW_SPARK_CLASSES names.
        folder: an empty one for the driver.
    """
    with open(classes.with_suffix(".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if any(classes.glob("*.jsa")):
            return
        with spark_driver(folder, module=__name__) as driver:
            env = environment(2)
            pairs = env.from_collection([(str(number % 5), number) for number in range(100)])
            sums = pairs.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
            outcome = driver.run(collecting_graph(env, sums))
            assert outcome.failure is None, outcome.failure
            # Java writes at the end of a driver that is released after a job.
            driver.release()
            driver.process.wait(LIMIT)


def archive_flags() -> list[str]:
    """Flags with which Java of Spark, that no driver starts, takes the run's archive; none without an archive."""
    # Java does without one of other jars, so only that of the last driver is of use.
    archives = sorted(spark_classes_folder().glob("*.jsa"), key=lambda archive: archive.stat().st_mtime)
    return [f"-XX:SharedArchiveFile={archive}" for archive in archives[-1:]]


if __name__ == "__main__":
    with patch.multiple(class_archive, WRITING_SECONDS=LIMIT, IDLE_SECONDS=LIMIT):
        sys.exit(driver_main.main())
