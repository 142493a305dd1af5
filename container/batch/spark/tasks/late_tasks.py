"""Late tasks: those that Spark still runs when their job has failed, or has been cancelled.

Owner: the thread of a run. Spark tells a failure while other tasks of the job compute. Such a task begins files again,
which somebody has removed meanwhile. Must not end tasks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
#: Seconds that Spark has to end tasks that nobody needs any more. It gives each of them 2 to 4 s by itself.
LATE_SECONDS: Final = 20.0
#: Seconds between two looks: Spark calls nobody when a task ends.
_LOOK_SECONDS: Final = 0.05


def tasks_have_ended(session: SparkSession, group: str) -> bool:
    """Waits until no task of a group of Spark jobs runs; False if some still do after LATE_SECONDS.

    True as well if Java has ended, and its tasks with it.
    """
    tracker = session.sparkContext.statusTracker()
    pause = threading.Event()
    for _ in range(round(LATE_SECONDS / _LOOK_SECONDS)):
        try:
            if not any(_active_tasks(tracker, group)):
                return True
        except Exception as error:  # py4j raises various errors once Java has ended
            _log.debug("Spark does not tell of its tasks: %r", error)
            return True
        pause.wait(_LOOK_SECONDS)
    return False


def _active_tasks(tracker: Any, group: str) -> Iterator[int]:
    """The number of running tasks of each stage of the group's jobs."""
    for job_id in tracker.getJobIdsForGroup(group):
        job = tracker.getJobInfo(job_id)
        for stage_id in () if job is None else job.stageIds:
            stage = tracker.getStageInfo(stage_id)
            if stage is not None:
                yield stage.numActiveTasks
