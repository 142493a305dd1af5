"""What lost SparkDrivers leave of the savepoint of a stream's history, removed when the job has ended.

Owner: a thread of the BatchJobMaster. A driver that fails removes its own; one that was killed cannot. Must not touch
a savepoint that is complete, nor what another job writes into the same folder.
"""

from __future__ import annotations

import logging

from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.graph.batch.history import history_of
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.snapshot.writing.savepoint_folder import ForeignFiles

_log = logging.getLogger(__name__)


def remove_unfinished_savepoint(job: JobGraph) -> None:
    """Does nothing for a job that reads no history; what storage keeps is told in the log. May block."""
    try:
        history = history_of(job)
        if history is not None:
            ForeignFiles.remove_unfinished(history.savepoint, job.job_id)
    except (OSError, YarrowError):
        _log.warning("what job %s has left of a savepoint stays there", job.job_id, exc_info=True)
