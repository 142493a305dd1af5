"""RemoteExecutor: submits jobs to a standalone cluster by its REST API (`execution.target: remote`).

Owner: the thread that calls execute; blocking. A bounded job whose executors run on YARN brings its environment there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from yarrow.client.rest.job_submission import run_on, settings_of
from yarrow.client.rest.masters import masters_rest_client
from yarrow.common.job_client import JobClient
from yarrow.runtime.graph.executor import LocalFile
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import JobType


class RemoteExecutor:
    """The PipelineExecutor of `execution.target: remote`."""

    def execute(
        self, job_graph: JobGraph, configuration: Mapping[str, str], files: Sequence[LocalFile]
    ) -> JobClient:
        """Uploads and submits. Raises RestError with the cluster's words if it refuses."""
        config = settings_of(configuration)
        if job_graph.job_type is JobType.BATCH:
            # Streams need nothing of YARN.
            from yarrow.client.yarn.spark_environment import with_executors_environment

            job_graph = with_executors_environment(job_graph, config)
        return run_on(masters_rest_client(config), config, job_graph, files)
