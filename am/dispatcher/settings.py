"""DispatcherSettings: the Dispatcher's part of a cluster's configuration.

Owner: none; read once when the control plane is assembled.
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

    #: jobstore.max-capacity: number of kept ended jobs.
    finished_jobs: int = 100
    #: jobstore.expiration-time: seconds.
    finished_expiration: float = 3600.0
    #: True = job results are kept as long as the cluster id, so that no job id runs twice.
    keep_results: bool = False
    #: jobmanager.archive.fs.dir: the archive of ended jobs; None = there is none.
    archive: JobArchive | None = None
    #: Raises YarrowError for a job whose own configuration is impossible on this cluster.
    check_job: Callable[[JobGraph], None] = field(default=lambda graph: None)
    #: The settings of a job, from its graph.
    job_master: Callable[[JobGraph], JobMasterSettings] = field(default=lambda graph: JobMasterSettings())
