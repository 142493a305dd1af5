"""The processes of a standalone cluster in the foreground: `yarrow jobmanager` and `yarrow taskmanager`.

Owner: the main thread of such a process. Both end orderly at SIGTERM and SIGINT. A TaskExecutor is a child
process of `yarrow taskmanager`, started as a ResourceManager starts one; it is replaced when another
JobManager has taken the lead, and ends with its parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from yarrow.cli.cluster_directory import ClusterDirectory, ClusterSecrets, Leader
from yarrow.cli.errors import CommandError
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.ids import RandomIdFactory, ResourceID, ResourceManagerID
from yarrow.runtime.config.memory import check_job_manager_memory, task_executor_budget
from yarrow.runtime.config.options import jobmanager, rpc, security, taskmanager
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.rpc.bootstrap import PemIdentity, TaskExecutorBootstrap, encode_bootstrap

if TYPE_CHECKING:
    from yarrow.am.rest.server import RestServer

_LOG_FORMAT = "%(asctime)s %(levelname)-5s %(name)s - %(message)s"
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
#: Seconds between two looks at the leader and at the child.
_LOOK = 0.2
#: Seconds a TaskExecutor has to end by itself.
_GRACE = 5.0
_log = logging.getLogger("yarrow.standalone")


def run_job_manager(config: Settings) -> int:
    """Runs until it is told to end; the exit status."""
    check_job_manager_memory(config)
    logging.basicConfig(level=logging.INFO, format=_LOG_FORMAT, stream=sys.stdout)
    return asyncio.run(_job_manager(config, ClusterDirectory.of(config)))


async def _job_manager(config: Settings, directory: ClusterDirectory) -> int:
    from yarrow.am.cluster_entrypoint import ControlPlane
    from yarrow.am.cluster_settings import control_plane_settings
    from yarrow.am.resourcemanager.driver import StandaloneDriver
    from yarrow.runtime.rpc.grpc_transport import GrpcSettings, GrpcTransport
    from yarrow.runtime.rpc.in_process import InProcessTransport
    from yarrow.runtime.rpc.service import RpcService
    from yarrow.testing.web_api import LOOPBACK, start_web_api

    secrets = await asyncio.to_thread(directory.secrets)
    host, limit = config.get(jobmanager.RPC_ADDRESS), config.get(rpc.MESSAGE_MAX_SIZE).bytes
    grpc = GrpcSettings(
        application_id=secrets.application_id,
        bind_host=config.get(jobmanager.BIND_HOST) or "0.0.0.0",
        host=host,
        port=config.get(jobmanager.RPC_BIND_PORT) or config.get(jobmanager.RPC_PORT),
        identity=_identity(config, secrets.job_manager),
        max_message_bytes=limit,
        ask_timeout=config.get(rpc.ASK_TIMEOUT).seconds,
    )
    blobs = tempfile.mkdtemp(prefix="yarrow-blobs-", dir=_temporary_folder(config))
    plane = ControlPlane(
        RpcService([GrpcTransport(grpc), InProcessTransport(max_message_bytes=limit)]),
        StandaloneDriver(),
        control_plane_settings(
            config,
            blob_directory=blobs,
            slots_per_task_executor=config.get(taskmanager.NUMBER_OF_TASK_SLOTS),
            can_request=False,
        ),
    )
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    web: RestServer | None = None
    try:
        await plane.start()
        web = await start_web_api(
            plane,
            config,
            host=LOOPBACK if host in _LOOPBACK else "0.0.0.0",
            any_port=False,
            lazily=False,
            log_directory=directory.log_directory(config),
        )
        leader = plane.resource_manager_leader
        announced = Leader(
            address=leader.address, leader_id=leader.leader_id, web_address=web.address, pid=os.getpid()
        )
        await asyncio.to_thread(directory.announce, announced)
        _log.info("the JobManager runs at %s; JobManager Web Interface: %s", leader.address, web.address)
        _log.info("certificates and secret of the cluster: %s", directory.path)
        await _first(ended.wait(), plane.wait_for_shut_down())
        _log.info("the JobManager ends")
        current = await asyncio.to_thread(directory.leader)
        if current is not None and current.pid == os.getpid():
            await asyncio.to_thread(directory.announce, None)
    finally:
        if web is not None:
            await web.stop()
        await plane.stop()
        await asyncio.to_thread(shutil.rmtree, blobs, ignore_errors=True)
    return 0


async def _first(*works: object) -> None:
    tasks = [asyncio.ensure_future(work) for work in works]  # type: ignore[call-overload]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


def run_task_manager(config: Settings) -> int:
    """Runs a TaskExecutor until it is told to end, or ends by itself; the exit status."""
    task_executor_budget(config)
    logging.basicConfig(level=logging.INFO, format=_LOG_FORMAT, stream=sys.stdout)
    directory = ClusterDirectory.of(config)
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    while not ended.is_set():
        leader = _wait_for_leader(config, directory, ended)
        if leader is None:
            break
        status = _run_task_executor(config, directory, leader, ended)
        if status is not None:
            return status
    return 0


def _wait_for_leader(config: Settings, directory: ClusterDirectory, ended: threading.Event) -> Leader | None:
    patience = config.get(taskmanager.REGISTRATION_TIMEOUT).seconds
    clock = SystemClock()
    begin = clock.monotonic()
    leader = directory.leader()
    if leader is None:
        _log.info("waiting for a JobManager that announces itself in %s", directory.path)
    while leader is None and not ended.wait(_LOOK):
        if clock.monotonic() - begin > patience:
            raise CommandError(
                f"No JobManager has announced itself in {directory.path} within {patience:g} s: start one with"
                " `yarrow jobmanager`, or name the directory of the cluster in security.cluster.directory."
            )
        leader = directory.leader()
    return leader


def _run_task_executor(
    config: Settings, directory: ClusterDirectory, leader: Leader, ended: threading.Event
) -> int | None:
    """One TaskExecutor with one leader; None when another has to follow, or the end was asked for."""
    secrets = directory.find_secrets()
    if secrets is None:
        raise CommandError(f"{directory.path} has no secrets of a cluster: start `yarrow jobmanager` first.")
    working = tempfile.mkdtemp(prefix="yarrow-te-", dir=_temporary_folder(config))
    log_directory = directory.log_directory(config)
    bootstrap = _bootstrap(config, secrets, leader, working, log_directory)
    child = subprocess.Popen(
        [sys.executable, "-m", "yarrow.container.task_executor_main"],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdin is not None
    try:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(encode_bootstrap(bootstrap))
            child.stdin.flush()
        _log.info(
            "the TaskExecutor %s runs, pid %d, for %s", bootstrap.resource_id, child.pid, leader.address
        )
        while not ended.wait(_LOOK):
            status = child.poll()
            if status is not None:
                _log.error(
                    "the TaskExecutor has ended with status %d; see its log in %s", status, log_directory
                )
                return status if status > 0 else 1
            present = directory.leader()
            if present is not None and present.leader_id != leader.leader_id:
                _log.info("another JobManager leads: %s", present.address)
                return None
        return None
    finally:
        _end(child)
        shutil.rmtree(working, ignore_errors=True)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Closes the pipe, which asks the child to end; kills its session when it does not."""
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        child.stdin.close()
    try:
        child.wait(_GRACE)
    except subprocess.TimeoutExpired:
        _log.error("the TaskExecutor does not end: it is killed")
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _bootstrap(
    config: Settings, secrets: ClusterSecrets, leader: Leader, working_directory: str, log_directory: Path
) -> TaskExecutorBootstrap:
    host = config.get(taskmanager.HOST) or _own_address(config)
    resource_id = (
        config.get(taskmanager.RESOURCE_ID) or f"{host}:{os.getpid()}-{RandomIdFactory().hex_id()[:6]}"
    )
    return TaskExecutorBootstrap(
        application_id=secrets.application_id,
        resource_id=ResourceID(resource_id),
        resource_manager_address=leader.address,
        resource_manager_id=ResourceManagerID(leader.leader_id),
        host=host,
        bind_host=config.get(taskmanager.BIND_HOST) or "0.0.0.0",
        identity=_identity(config, secrets.task_executor),
        data_secret=secrets.data_secret,
        configuration=config.to_dict(redact=False),
        log_directory=str(log_directory),
        working_directory=working_directory,
        max_message_bytes=config.get(rpc.MESSAGE_MAX_SIZE).bytes,
        listen_tcp=host not in _LOOPBACK,
    )


def _identity(config: Settings, identity: PemIdentity) -> PemIdentity:
    return identity if config.get(security.INTERNAL_ENABLED) else PemIdentity()


def _own_address(config: Settings) -> str:
    """The address by which this host reaches the JobManager's."""
    master = config.get(jobmanager.RPC_ADDRESS)
    if master in _LOOPBACK:
        return "127.0.0.1"
    if config.get(taskmanager.BIND_POLICY) == "name":
        return socket.getfqdn()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Sends nothing: only the route is looked up.
        probe.connect((master, config.get(jobmanager.RPC_PORT)))
        return str(probe.getsockname()[0])


def _temporary_folder(config: Settings) -> str | None:
    folders = config.get(taskmanager.TMP_DIRS)
    return folders[0] if folders else None
