"""The processes of a standalone cluster in the foreground: `yarrow jobmanager` and `yarrow taskmanager`.

Owner: the main thread of such a process. Both end orderly at SIGTERM and SIGINT. `yarrow taskmanager` starts
its TaskExecutor as a child process, as a ResourceManager does. The child is replaced when another JobManager
leads, and ends with its parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from yarrow.client.errors import CommandError
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.end_signal import EndSignal
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import RandomIdFactory, ResourceID, ResourceManagerID
from yarrow.runtime.config.memory import check_job_manager_memory, task_executor_budget
from yarrow.runtime.config.options import (
    high_availability,
    jobmanager,
    rest,
    rpc,
    security,
    taskmanager,
)
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.client_folder import (
    STANDALONE_MASTER,
    WORKING_DIRECTORY_PREFIX,
    ClientFolder,
    parent_folder,
    remove_abandoned,
)
from yarrow.runtime.fs.hdfs_settings import HdfsSettings, use_hdfs_settings
from yarrow.runtime.ha.settings import is_highly_available
from yarrow.runtime.rpc.bootstrap import (
    TASK_EXECUTOR_COMMAND,
    PemIdentity,
    TaskExecutorBootstrap,
    encode_bootstrap,
)
from yarrow.runtime.rpc.loopback import LOOPBACK, LOOPBACK_NAMES
from yarrow.runtime.security.keystores import internal_identity, rest_identity
from yarrow.standalone.cluster_directory import ClusterDirectory, ClusterSecrets
from yarrow.standalone.leader_announcements import Leader, LeaderAnnouncements
from yarrow.standalone.printed_output import PrintedOutput

if TYPE_CHECKING:
    from yarrow.am.control_plane import ControlPlane
    from yarrow.am.rest.server.server import RestServer
    from yarrow.runtime.ha.services import HighAvailabilityServices

T = TypeVar("T")

_LOG_FORMAT = "%(asctime)s %(levelname)-5s %(name)s - %(message)s"
#: Seconds between two looks at the leader and at the child.
_LOOK = 0.2
#: Seconds in which a TaskExecutor may end by itself.
_GRACE = 5.0
_log = logging.getLogger("yarrow.standalone")


def run_job_manager(config: Settings) -> int:
    """Runs until it is told to end; returns the exit status."""
    check_job_manager_memory(config)
    use_hdfs_settings(HdfsSettings.of(config))
    # Unusable settings are reported before anything is started.
    internal_identity(config)
    rest_identity(config)
    logging.basicConfig(level=logging.INFO, format=_LOG_FORMAT, stream=sys.stdout)
    for library in ("hdfs", "uvicorn"):
        # Each request would be a line.
        logging.getLogger(library).setLevel(logging.WARNING)
    # Until something needs an orderly end, Ctrl-C ends the process at once, like SIGTERM. The start first
    # waits for ZooKeeper and HDFS, which may be away for long, and blocks.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    directory = ClusterDirectory.of(config)
    secrets = directory.secrets()
    services = _high_availability(config, secrets)
    return asyncio.run(_job_manager(config, directory, secrets, services))


class _Signals:
    """SIGTERM and SIGINT cancel the work of this process, even during its start; neither disturbs its end."""

    def __init__(self) -> None:
        """Make it in the task that does the work."""
        self.first: signal.Signals | None = None
        self._work = asyncio.current_task()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._came, number)

    def end_has_begun(self) -> None:
        """Notes that the work is already ending."""
        self._work = None

    def _came(self, number: signal.Signals) -> None:
        if self.first is None and self._work is not None:
            self.first = number
            self._work.cancel()


async def _job_manager(
    config: Settings, directory: ClusterDirectory, secrets: ClusterSecrets, services: HighAvailabilityServices
) -> int:
    """Runs until a signal comes or a client ends it; then stops all started parts in order."""
    signals = _Signals()
    folder: ClientFolder | None = None
    try:
        folder = _own_folder(config, STANDALONE_MASTER)
        blobs, logs = os.path.join(folder.path, "blobs"), directory.log_directory(config)
        announcer = _LeaderAnnouncer(directory.leaders)
        plane = await _started_plane(config, secrets, services, blobs, logs, announcer.leadership_changed)
        await _serve(plane, announcer, config, directory, secrets, Path(folder.path), signals)
    except asyncio.CancelledError:
        if signals.first is None:
            raise
        _log.info("the JobManager has ended: it got the signal %s", signals.first.name)
    finally:
        if folder is not None:
            await asyncio.to_thread(folder.remove)
    return 0


def _high_availability(config: Settings, secrets: ClusterSecrets) -> HighAvailabilityServices:
    """Raises ConfigError, ZooKeeperUnreachableError and FileSystemError before anything else is started."""
    from yarrow.runtime.ha.none import NoHighAvailability

    if not is_highly_available(config):
        return NoHighAvailability()
    from yarrow.runtime.fs.registry import file_system_for
    from yarrow.runtime.ha.zookeeper_services import open_services

    services = open_services(config, secrets.data_secret)
    try:
        file_system_for(services.storage_directory).make_dirs(services.storage_directory)
    except (OSError, YarrowError) as error:
        services.client.stop()
        raise CommandError(
            f"{services.storage_directory} ({high_availability.STORAGE_DIR.key}) cannot be used: {error}."
        ) from error
    return services


async def _started_plane(
    config: Settings,
    secrets: ClusterSecrets,
    services: HighAvailabilityServices,
    blobs: str,
    log_directory: Path,
    on_leadership: Callable[[int | None], None],
) -> ControlPlane:
    """A started control plane on the first free RPC port. Raises AddressError if there is none."""
    from yarrow.am.control_plane import ControlPlane, ControlPlaneServices
    from yarrow.am.control_plane_settings import control_plane_settings
    from yarrow.am.resourcemanager.driver import StandaloneDriver
    from yarrow.am.resourcemanager.slot_spark_drivers import DriversInSlots
    from yarrow.runtime.rpc.grpc_transport import GrpcSettings, GrpcTransport
    from yarrow.runtime.rpc.in_process import InProcessTransport
    from yarrow.runtime.rpc.service import AddressError, RpcService

    limit = config.get(rpc.MESSAGE_MAX_SIZE).bytes
    settings = control_plane_settings(
        config,
        blob_directory=blobs,
        slots_per_task_executor=config.get(taskmanager.NUMBER_OF_TASK_SLOTS),
        can_request=False,
    )
    failure: AddressError | None = None
    for port in _rpc_ports(config, services):
        grpc = GrpcSettings(
            application_id=secrets.application_id,
            bind_host=config.get(jobmanager.BIND_HOST) or "0.0.0.0",
            host=config.get(jobmanager.RPC_ADDRESS),
            port=port,
            identity=_identity(config, secrets.job_manager),
            max_message_bytes=limit,
            ask_timeout=config.get(rpc.ASK_TIMEOUT).seconds,
            connect_timeout=config.get(rpc.CONNECT_TIMEOUT).seconds,
        )
        plane = ControlPlane(
            RpcService([GrpcTransport(grpc), InProcessTransport(max_message_bytes=limit)]),
            StandaloneDriver(),
            settings,
            ControlPlaneServices(
                high_availability=services,
                log_directory=log_directory,
                on_leadership=on_leadership,
                print_output=PrintedOutput(log_directory).write,
                spark_drivers=DriversInSlots(_identity(config, secrets.spark_driver)),
            ),
        )
        try:
            await plane.start()
        except AddressError as error:
            failure = error
            continue
        return plane
    raise failure or CommandError(f"{high_availability.JOB_MANAGER_PORT.key} names no port.")


def _rpc_ports(config: Settings, services: HighAvailabilityServices) -> list[int]:
    """jobmanager.rpc.port or, with several masters, high-availability.jobmanager.port; 0 = any."""
    if not services.is_highly_available:
        return [config.get(jobmanager.RPC_BIND_PORT) or config.get(jobmanager.RPC_PORT)]
    intervals = config.get(high_availability.JOB_MANAGER_PORT).intervals
    return [port for first, last in intervals for port in range(first, last + 1)]


async def _serve(
    plane: ControlPlane,
    announcer: _LeaderAnnouncer,
    config: Settings,
    directory: ClusterDirectory,
    secrets: ClusterSecrets,
    folder: Path,
    signals: _Signals,
) -> None:
    """Serves until a client ends it, or a signal cancels it.

    Temporary files go into `folder` if no other place is configured.
    """
    from yarrow.am.rest.server.web_api import start_web_api

    host = config.get(jobmanager.RPC_ADDRESS)
    web: RestServer | None = None
    try:
        web = await start_web_api(
            plane,
            config,
            host=LOOPBACK if host in LOOPBACK_NAMES else "0.0.0.0",
            any_port=False,
            lazily=False,
            log_directory=directory.log_directory(config),
            token=secrets.rest_token,
            temporary_directory=folder,
        )
        announcer.begin(plane, web.address)
        await plane.announce_web(_reachable(web.address, config))
        await announcer.announce()
        _log.info("the JobManager runs; JobManager Web Interface: %s", web.address)
        _log.info("certificates and secret of the cluster: %s", directory.path)
        await plane.wait_for_shut_down()
    finally:
        signals.end_has_begun()
        _log.info("the JobManager ends")
        await announcer.close()
        if web is not None:
            await web.stop()
        await plane.stop()


class _LeaderAnnouncer:
    """Keeps the announcement of this process as its leadership is; one writing at a time, each of the present state."""

    def __init__(self, leaders: LeaderAnnouncements) -> None:
        self._leaders = leaders
        #: None before `begin` and from `close` on.
        self._plane: ControlPlane | None = None
        self._web_address = ""
        #: Id of the leadership that this process has announced; None = none.
        self._announced: str | None = None
        self._turn = asyncio.Lock()
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, plane: ControlPlane, web_address: str) -> None:
        """Announces changes of leadership from now on."""
        self._plane, self._web_address = plane, web_address

    def leadership_changed(self, _epoch: int | None) -> None:
        """Announces the new state in the background, between `begin` and `close`."""
        if self._plane is None:
            return
        task = asyncio.get_running_loop().create_task(self._announce_or_tell())
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def announce(self) -> None:
        """Announces the present state; a cancelled caller does not cut the writing short."""
        await asyncio.shield(self._announce_in_turn())

    async def close(self) -> None:
        """Withdraws, after what is being announced."""
        self._plane = None
        await asyncio.gather(*self._running, return_exceptions=True)
        async with self._turn:
            await self._withdraw()

    async def _announce_or_tell(self) -> None:
        try:
            await self._announce_in_turn()
        except OSError as error:
            _log.error("the address of the leader cannot be written for clients on this host: %s", error)

    async def _announce_in_turn(self) -> None:
        async with self._turn:
            plane = self._plane
            if plane is None:
                return
            if not plane.leads:
                _log.info("this JobManager stands by")
                await self._withdraw()
                return
            leader = plane.resource_manager_leader
            _log.info("this JobManager leads, at %s", leader.address)
            self._announced = leader.leader_id
            announced = Leader(
                address=leader.address,
                leader_id=leader.leader_id,
                web_address=self._web_address,
                pid=os.getpid(),
                host=socket.gethostname(),
            )
            await asyncio.to_thread(self._leaders.announce, announced)

    async def _withdraw(self) -> None:
        former, self._announced = self._announced, None
        if former is not None:
            await asyncio.to_thread(self._leaders.withdraw, former)


def _reachable(web_address: str, config: Settings) -> str:
    """The URL of REST for other hosts."""
    host = config.get(rest.ADDRESS) or config.get(jobmanager.RPC_ADDRESS)
    scheme, _, local = web_address.partition("://")
    return f"{scheme}://{host}:{local.rpartition(':')[2]}"


def run_task_manager(config: Settings) -> int:
    """Runs a TaskExecutor until it is told to end, or ends by itself; returns the exit status."""
    task_executor_budget(config)
    internal_identity(config)
    logging.basicConfig(level=logging.INFO, format=_LOG_FORMAT, stream=sys.stdout)
    directory = ClusterDirectory.of(config)
    ended = EndSignal()
    if is_highly_available(config):
        # The TaskExecutor follows the leaders itself, by ZooKeeper.
        if _wait_for(directory.find_secrets, "its secrets", config, directory, ended) is None:
            return 0
        status = _run_task_executor(config, directory, None, ended)
        return 0 if status is None else status
    while not ended.is_set():
        leader = _wait_for(directory.leaders.present, "its address", config, directory, ended)
        if leader is None:
            break
        status = _run_task_executor(config, directory, leader, ended)
        if status is not None:
            return status
    return 0


def _wait_for(
    look: Callable[[], T | None],
    what: str,
    config: Settings,
    directory: ClusterDirectory,
    ended: EndSignal,
) -> T | None:
    """Waits for a result of `look`; None if the end was requested. Raises CommandError if nothing comes in time."""
    patience = config.get(taskmanager.REGISTRATION_TIMEOUT).seconds
    clock = SystemClock()
    begin = clock.monotonic()
    found = look()
    if found is None:
        _log.info("waiting for %s in %s", what, directory.path)
    while found is None and not ended.wait(_LOOK):
        if clock.monotonic() - begin > patience:
            raise CommandError(
                f"No JobManager has put {what} into {directory.path} within {patience:g} s: start one with"
                " `yarrow jobmanager`, or name the directory of the cluster in security.cluster.directory."
            )
        found = look()
    return found


def _run_task_executor(
    config: Settings, directory: ClusterDirectory, leader: Leader | None, ended: EndSignal
) -> int | None:
    """Runs one TaskExecutor with one leader; None = with each present leader.

    Returns its status, or None if another leader must be followed or the end was requested.
    """
    secrets = directory.find_secrets()
    if secrets is None:
        raise CommandError(f"{directory.path} has no secrets of a cluster: start `yarrow jobmanager` first.")
    log_directory = directory.log_directory(config)
    working = _own_folder(config, WORKING_DIRECTORY_PREFIX)
    bootstrap = _bootstrap(config, secrets, leader, working.path, log_directory)
    child = subprocess.Popen(
        [sys.executable, *TASK_EXECUTOR_COMMAND],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdin is not None
    try:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(encode_bootstrap(bootstrap))
            child.stdin.flush()
        whose = "any leader" if leader is None else leader.address
        _log.info("the TaskExecutor %s runs, pid %d, for %s", bootstrap.resource_id, child.pid, whose)
        while not ended.wait(_LOOK):
            status = child.poll()
            if status is not None:
                _log.error(
                    "the TaskExecutor has ended with status %d; see its log in %s", status, log_directory
                )
                return status if status > 0 else 1
            present = directory.leaders.present() if leader is not None else None
            if leader is not None and present is not None and present.leader_id != leader.leader_id:
                _log.info("another JobManager leads: %s", present.address)
                return None
        return None
    finally:
        _end(child)
        working.remove()


def _end(child: subprocess.Popen[bytes]) -> None:
    """Closes the pipe, which asks the child to end; kills its session if it does not."""
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
    config: Settings,
    secrets: ClusterSecrets,
    leader: Leader | None,
    working_directory: str,
    log_directory: Path,
) -> TaskExecutorBootstrap:
    host = config.get(taskmanager.HOST) or _own_address(config)
    resource_id = (
        config.get(taskmanager.RESOURCE_ID) or f"{host}:{os.getpid()}-{RandomIdFactory().hex_id()[:6]}"
    )
    return TaskExecutorBootstrap(
        application_id=secrets.application_id,
        resource_id=ResourceID(resource_id),
        resource_manager_address="" if leader is None else leader.address,
        resource_manager_id=ResourceManagerID("" if leader is None else leader.leader_id),
        host=host,
        bind_host=config.get(taskmanager.BIND_HOST) or "0.0.0.0",
        identity=_identity(config, secrets.task_executor),
        data_secret=secrets.data_secret,
        configuration=config.to_dict(redact=False),
        log_directory=str(log_directory),
        working_directory=working_directory,
        max_message_bytes=config.get(rpc.MESSAGE_MAX_SIZE).bytes,
        listen_tcp=host not in LOOPBACK_NAMES,
    )


def _identity(config: Settings, made: PemIdentity) -> PemIdentity:
    """The user's own identity, else the one that was made with the cluster; empty without TLS."""
    if not config.get(security.INTERNAL_ENABLED):
        return PemIdentity()
    return internal_identity(config) or made


def _own_address(config: Settings) -> str:
    """The address from which this host reaches the JobManager."""
    master = config.get(jobmanager.RPC_ADDRESS)
    if master in LOOPBACK_NAMES:
        return LOOPBACK
    if config.get(taskmanager.BIND_POLICY) == "name":
        return socket.getfqdn()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Sends nothing: only the route is looked up.
        probe.connect((master, config.get(jobmanager.RPC_PORT)))
        return str(probe.getsockname()[0])


def _own_folder(config: Settings, prefix: str) -> ClientFolder:
    """A new folder of this process, after removing those of killed processes of its kind."""
    parent = parent_folder(config)
    remove_abandoned(parent, prefix)
    return ClientFolder(parent, prefix)
