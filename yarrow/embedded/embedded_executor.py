"""EmbeddedExecutor: runs each job of `python job.py` in a cluster of its own on this machine.

Owner: the thread that calls execute. Each job has its own cluster with as many slots as it needs; nothing is
left of it when the result is there. It needs no event loop of the caller, and works inside a running one.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence

from yarrow.client.interrupts import end_in_order_by_signals, show_no_trace_of_ctrl_c
from yarrow.embedded.cluster_shape import shape_for_job
from yarrow.embedded.local_job_client import LocalJobClient
from yarrow.embedded.mini_cluster import MiniCluster
from yarrow.runtime.config.files import load_settings
from yarrow.runtime.config.options import execution, python
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.validation import validate
from yarrow.runtime.config.values.errors import ContradictoryOptions
from yarrow.runtime.graph.executor import LocalFile
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.shipped_files import archive_folders
from yarrow.runtime.graph.states import JobType
from yarrow.runtime.interpreters.interpreter import of_task_executors, worker_interpreter


class EmbeddedExecutor:
    """The PipelineExecutor of `execution.target: local`."""

    def execute(
        self, job_graph: JobGraph, configuration: Mapping[str, str], files: Sequence[LocalFile]
    ) -> LocalJobClient:
        """Runs a job with a program's settings, above those of the directory that the environment names."""
        config = load_settings(os.environ).overlay(Settings(configuration, "the program"))
        return self.run(job_graph, config, files)

    def run(self, job_graph: JobGraph, config: Settings, files: Sequence[LocalFile]) -> LocalJobClient:
        """Starts a cluster with these settings alone and submits the job.

        When that fails, nothing is left running.
        """
        validate(config)
        config = _for_cluster(config, files)
        if job_graph.job_type is JobType.BATCH:
            # Streams need no client of YARN.
            from yarrow.client.yarn.spark_environment import with_executors_environment

            job_graph = with_executors_environment(job_graph, config)
        show_no_trace_of_ctrl_c()
        if config.get(execution.IN_PROCESS):
            # There is no TaskExecutor of its own process that would outlive this one and remove the cluster's files.
            end_in_order_by_signals()
        cluster = MiniCluster(config, shape_for_job(job_graph, config)).start()
        try:
            client = cluster.submit(job_graph, files)
        except BaseException:
            cluster.close()
            raise
        _tell_address(cluster.web_address)
        return client


#: Addresses that were printed.
_told: set[str] = set()


def _tell_address(address: str | None) -> None:
    """Prints once the address of the job's page and REST API; a later job on the same port prints nothing."""
    if address is None or address in _told:
        return
    _told.add(address)
    with contextlib.suppress(OSError, ValueError, AttributeError):
        print(f"JobManager Web Interface: {address}", file=sys.stderr, flush=True)


def _for_cluster(config: Settings, files: Sequence[LocalFile]) -> Settings:
    """`config` without an interpreter in an archive of the job.

    Raises ConfigError for a python.executable that cannot run the workers.
    """
    cluster = of_task_executors(config, archive_folders(files))
    path = worker_interpreter(cluster)
    if cluster != config:
        path = config.get(python.EXECUTABLE)
    if config.get(execution.IN_PROCESS) and path != sys.executable:
        raise ContradictoryOptions(
            f"{python.EXECUTABLE.key} is {path}, but with {execution.IN_PROCESS.key} functions run in the"
            f" program's own interpreter, {sys.executable}. Remove one of them.",
            (python.EXECUTABLE.key, execution.IN_PROCESS.key),
        )
    return cluster
