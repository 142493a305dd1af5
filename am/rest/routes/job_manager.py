"""Paths about the control plane process, which Flink's API calls the job manager.

Owner: the event loop of the REST server.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from typing import Annotated

from fastapi import Path
from fastapi.responses import Response, StreamingResponse

from yarrow.am.rest.log_files import LogFolder
from yarrow.am.rest.models.cluster import (
    ConfigurationEntry,
    Environment,
    LogFile,
    LogList,
    LogUrl,
    ProcessRuntime,
    ThreadDumpBody,
)
from yarrow.am.rest.routes.cluster_access import PLAIN_TEXT, Access, JobIdPath, refusals
from yarrow.am.rest.routes.flink_router import flink_router
from yarrow.am.rest.services import RestServices, interpreter
from yarrow.runtime.common.thread_dump import thread_stacks

router = flink_router("Control plane")

LogName = Annotated[
    str, Path(alias="filename", min_length=1, max_length=256, description="A name that the list of logs has.")
]


@router.get("/jobmanager/config", responses=refusals())
async def cluster_configuration(access: Access) -> list[ConfigurationEntry]:
    """The cluster's configuration; values of secret keys are hidden."""
    return configuration_entries(access.services)


@router.get("/jobs/{jobid}/jobmanager/config", responses=refusals(400, 404))
async def cluster_configuration_of_job(access: Access, job_id: JobIdPath) -> list[ConfigurationEntry]:
    """The configuration of the cluster that runs the job."""
    await access.job(job_id)
    return configuration_entries(access.services)


def configuration_entries(services: RestServices) -> list[ConfigurationEntry]:
    """The cluster's configuration by key."""
    values = services.settings.to_dict()
    return [ConfigurationEntry(key=key, value=values[key]) for key in sorted(values)]


@router.get("/jobmanager/environment", responses=refusals())
async def environment() -> Environment:
    """The interpreter of the control plane, and where it imports from."""
    return _environment()


@router.get("/jobs/{jobid}/jobmanager/environment", responses=refusals(400, 404))
async def environment_of_job(access: Access, job_id: JobIdPath) -> Environment:
    """The interpreter of the control plane that runs the job."""
    await access.job(job_id)
    return _environment()


def _environment() -> Environment:
    options = [f"-X{name}" if value is True else f"-X{name}={value}" for name, value in sys._xoptions.items()]
    runtime = ProcessRuntime(version=interpreter(), arch=platform.machine(), options=options)
    return Environment(jvm=runtime, classpath=list(sys.path))


@router.get("/jobs/{jobid}/jobmanager/log-url", responses=refusals(400, 404))
async def log_url(access: Access, job_id: JobIdPath) -> LogUrl:
    """The address of the control plane's log."""
    await access.job(job_id)
    return LogUrl(url="/jobmanager/log")


@router.get("/jobmanager/logs", responses=refusals())
async def log_list(access: Access) -> LogList:
    """The log files of the control plane."""
    files = LogFolder.of(access.services).list()
    return LogList(logs=[LogFile(name=each.name, size=each.size, mtime=each.mtime) for each in files])


@router.get("/jobmanager/log", response_class=Response, responses=PLAIN_TEXT | refusals())
async def main_log(access: Access) -> StreamingResponse:
    """The control plane's own log; empty while there is none."""
    return _text(LogFolder.of(access.services).read_main_log())


@router.get("/jobmanager/stdout", response_class=Response, responses=PLAIN_TEXT | refusals())
async def standard_output(access: Access) -> StreamingResponse:
    """The printed output of the control plane; empty while it has printed nothing."""
    return _text(LogFolder.of(access.services).read_main_output())


@router.get("/jobmanager/logs/{filename}", response_class=Response, responses=PLAIN_TEXT | refusals(400, 404))
async def log_file(access: Access, name: LogName) -> StreamingResponse:
    """One of the listed log files."""
    return _text(LogFolder.of(access.services).read(name))


def _text(pieces: Iterator[bytes]) -> StreamingResponse:
    return StreamingResponse(pieces, media_type="text/plain; charset=utf-8")


@router.get("/jobmanager/thread-dump", responses=refusals())
async def thread_dump() -> ThreadDumpBody:
    """The stacks of the control plane's threads."""
    return ThreadDumpBody.of_stacks(thread_stacks())
