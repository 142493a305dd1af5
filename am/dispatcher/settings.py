"""DispatcherSettings: what the configuration of a cluster says to its Dispatcher.

Owner: none; read once by whoever assembles the control plane.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from yarrow.am.dispatcher.job_archive import JobArchive
from yarrow.am.jobmaster.scheduling.settings import JobMasterSettings
from yarrow.runtime.graph.job_graph import JobGraph


@dataclass(frozen=True, slots=True)
class DispatcherSettings:
    """Options of the Dispatcher."""

    #: jobstore.max-capacity: ended jobs kept.
    finished_jobs: int = 100
    #: jobstore.expiration-time, in seconds.
    finished_expiration: float = 3600.0
    #: True = how jobs have ended is kept as long as the cluster id, so that no id runs twice.
    keep_results: bool = False
    #: jobmanager.archive.fs.dir: where ended jobs are archived; None = nowhere.
    archive: JobArchive | None = None
    #: Raises YarrowError for a job whose own configuration cannot be on this cluster.
    check_job: Callable[[JobGraph], None] = field(default=lambda graph: None)
    #: Settings of a job, given its own configuration.
    job_master: Callable[[JobGraph], JobMasterSettings] = field(default=lambda graph: JobMasterSettings())
