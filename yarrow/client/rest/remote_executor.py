"""RemoteExecutor: submits jobs to a running cluster by its REST API (`execution.target: remote`).

Owner: the thread that calls execute. Files are stored first, each under a key. The job's graph, which names
the keys, follows in a multipart request like that of Flink's clients.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

import msgspec

from yarrow.client.interrupts import show_no_trace_of_ctrl_c
from yarrow.client.rest.job_heartbeats import JobHeartbeatSettings
from yarrow.client.rest.masters import masters_rest_client
from yarrow.client.rest.remote_job_client import RemoteJobClient
from yarrow.client.rest.rest_client import RestClient
from yarrow.common.job_client import JobClient
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.config.files import load_settings
from yarrow.runtime.config.options import execution
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.validation import validate
from yarrow.runtime.graph.executor import DetachedJobClient, LocalFile
from yarrow.runtime.graph.job_graph import JobGraph, encode_job_graph
from yarrow.runtime.graph.shipped_files import ship_files

_GRAPH_FILE = "job_graph"
#: Seconds in which the server must accept a file.
_UPLOAD_TIMEOUT = 300.0


class RemoteExecutor:
    """The PipelineExecutor of `execution.target: remote`."""

    def execute(
        self, job_graph: JobGraph, configuration: Mapping[str, str], files: Sequence[LocalFile]
    ) -> JobClient:
        """Uploads and submits. Raises RestError with the cluster's words if it refuses."""
        config = settings_of(configuration)
        return run_on(masters_rest_client(config), config, job_graph, files)


def settings_of(configuration: Mapping[str, str]) -> Settings:
    """The checked configuration of a program over that of the file."""
    config = load_settings(os.environ).overlay(Settings(configuration, "the program"))
    validate(config)
    return config


def is_attached(config: Settings) -> bool:
    """Whether the client waits for its job: programs started by `python job.py` do, unless -d is given."""
    return not config.is_set(execution.ATTACHED) or config.get(execution.ATTACHED)


def run_on(rest: RestClient, config: Settings, job_graph: JobGraph, files: Sequence[LocalFile]) -> JobClient:
    """Submits to the cluster behind `rest`, and follows the job if the configuration says so."""
    show_no_trace_of_ctrl_c()
    attached = is_attached(config)
    heartbeats = JobHeartbeatSettings.of(config, attached)
    job_id = submit(rest, with_client(job_graph, heartbeats), files)
    if not attached:
        return DetachedJobClient(job_id)
    return RemoteJobClient(rest, msgspec.structs.replace(job_graph, job_id=JobID(job_id)), heartbeats)


def with_client(job_graph: JobGraph, heartbeats: JobHeartbeatSettings | None) -> JobGraph:
    """The submitted job: with heartbeats it is cancelled when its client is gone."""
    timeout = 0.0 if heartbeats is None else heartbeats.timeout
    return msgspec.structs.replace(job_graph, client_heartbeat_timeout=timeout)


def submit(rest: RestClient, job_graph: JobGraph, files: Sequence[LocalFile]) -> str:
    """Uploads the files and submits the job; returns its id."""

    def store(data: bytes) -> str:
        answer = rest.request(
            "POST", "/blobs", data, {"Content-Type": "application/octet-stream"}, _UPLOAD_TIMEOUT
        )
        return str(json.loads(answer)["key"])

    graph = ship_files(job_graph, files, store)
    request = {"jobGraphFileName": _GRAPH_FILE, "executionPlanFileName": _GRAPH_FILE}
    answer = rest.upload("/jobs", request, {_GRAPH_FILE: encode_job_graph(graph)})
    return str(answer["jobUrl"]).rstrip("/").rpartition("/")[2]
