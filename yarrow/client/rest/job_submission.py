"""Submits jobs to a running cluster by its REST API, and follows them.

Owner: the thread that calls execute. Files are stored first, each under a key. The job's graph, which names
the keys, follows in a multipart request like that of Flink's clients.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from yarrow.client.interrupts import show_no_trace_of_ctrl_c
from yarrow.client.rest.job_heartbeats import JobHeartbeatSettings
from yarrow.client.rest.remote_job_client import RemoteJobClient
from yarrow.client.rest.rest_client import UPLOAD_SECONDS, RestClient
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
    answer = _upload(rest, "/jobs", {}, job_graph, files)
    return str(answer["jobUrl"]).rstrip("/").rpartition("/")[2]


def submit_schedule(
    rest: RestClient, times: Mapping[str, str], job_graph: JobGraph, files: Sequence[LocalFile]
) -> Mapping[str, Any]:
    """Uploads the files, and submits a job that runs at these times; returns what REST says of the schedule."""
    return _upload(rest, "/schedules", {"schedule": times}, with_client(job_graph, None), files)


def _upload(
    rest: RestClient,
    path: str,
    request: Mapping[str, Any],
    job_graph: JobGraph,
    files: Sequence[LocalFile],
) -> Mapping[str, Any]:
    def store(data: bytes) -> str:
        answer = rest.request(
            "POST", "/blobs", data, {"Content-Type": "application/octet-stream"}, UPLOAD_SECONDS
        )
        return str(json.loads(answer)["key"])

    graph = ship_files(job_graph, files, store)
    names = {"jobGraphFileName": _GRAPH_FILE, "executionPlanFileName": _GRAPH_FILE}
    answer: Mapping[str, Any] = rest.upload(
        path, {**names, **request}, {_GRAPH_FILE: encode_job_graph(graph)}
    )
    return answer
