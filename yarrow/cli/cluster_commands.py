"""start-cluster and stop-cluster: the daemons of a standalone cluster on this machine.

Owner: the main thread. Started processes are recorded with their start times, and exactly these are stopped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from yarrow.cli.targets import default_conf_directory
from yarrow.client.errors import CommandError
from yarrow.client.rest.cluster_token import token_for
from yarrow.client.rest.masters import rest_address
from yarrow.client.rest.rest_client import RestClient, RestError, RestUnavailableError, RetryPolicy
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.private_files import private_opener
from yarrow.runtime.config.files import CONF_DIR_VARIABLES
from yarrow.runtime.config.settings import Settings
from yarrow.standalone.cluster_directory import ClusterDirectory, Daemon, start_ticks

#: Flink's names of the two daemons: scripts look for them.
_JOB_MANAGER, _TASK_MANAGER = "standalonesession", "taskexecutor"
_COMMANDS = {_JOB_MANAGER: "jobmanager", _TASK_MANAGER: "taskmanager"}
_LOCAL_NAMES = {"localhost", "127.0.0.1", "::1"}
#: Seconds in which a cluster must come up, and a daemon must end by itself.
_START_DEADLINE, _STOP_DEADLINE = 60.0, 15.0
#: Characters of a log that are shown for a failed start.
_TAIL = 3000


def start_cluster(config: Settings, dynamic: Sequence[str]) -> None:
    """Starts the daemons, and returns when they work together; after an error none is left."""
    directory = ClusterDirectory.of(config)
    running = directory.daemons()
    if running:
        pids = ", ".join(str(daemon.pid) for daemon in running)
        raise CommandError(
            f"A cluster of this configuration runs already (pids {pids}): stop it with `yarrow stop-cluster`."
        )
    task_executors = count_task_executors(conf_directory())
    print("Starting cluster.", flush=True)
    started: list[Daemon] = []
    try:
        _start(directory, config, _JOB_MANAGER, dynamic, started)
        _wait(directory, config, started, "the JobManager", lambda: directory.leaders.present() is not None)
        for _ in range(task_executors):
            _start(directory, config, _TASK_MANAGER, dynamic, started)
        host, port = rest_address(config)
        token = token_for(config, host, port)
        rest = RestClient.of(config, host, port, token=token, retry=RetryPolicy(0))
        _wait(directory, config, started, "the TaskExecutors", lambda: _registered(rest) >= task_executors)
    except BaseException:
        _stop(directory, started)
        raise
    leader = directory.leaders.present()
    print(f"Certificates, secret and logs of the cluster: {directory.path}")
    print(f"JobManager Web Interface: {leader.web_address if leader else rest.address}")


def stop_cluster(config: Settings) -> None:
    """Stops the daemons that start-cluster started, TaskExecutors first."""
    directory = ClusterDirectory.of(config)
    daemons = directory.daemons()
    host = socket.gethostname()
    for role in (_TASK_MANAGER, _JOB_MANAGER):
        if not any(daemon.role == role for daemon in daemons):
            print(f"No {role} daemon to stop on host {host}.")
    _stop(directory, daemons)


def conf_directory() -> Path | None:
    """The directory of the configuration."""
    for variable in CONF_DIR_VARIABLES:
        if os.environ.get(variable):
            return Path(os.environ[variable])
    return default_conf_directory()


def count_task_executors(conf: Path | None) -> int:
    """Lines of `workers` in the configuration directory; 1 without the file.

    Raises CommandError for a line that names another host: no command runs on another host.
    """
    path = None if conf is None else conf / "workers"
    if path is None or not path.is_file():
        return 1
    lines = [line.partition("#")[0].strip() for line in path.read_text().splitlines()]
    hosts = [line for line in lines if line]
    for host in hosts:
        if host not in _LOCAL_NAMES | {socket.gethostname()}:
            raise CommandError(
                f"{path} names the host {host!r}, but start-cluster starts processes on this machine only: run"
                " `yarrow taskmanager` there, with the files of security.cluster.directory."
            )
    return len(hosts)


def _start(
    directory: ClusterDirectory, config: Settings, role: str, dynamic: Sequence[str], started: list[Daemon]
) -> None:
    print(f"Starting {role} daemon on host {socket.gethostname()}.", flush=True)
    arguments = [argument for value in dynamic for argument in ("-D", value)]
    path = _log_file(directory, config, role, len(started))
    with open(path, "ab", opener=private_opener) as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "yarrow.cli.main", _COMMANDS[role], *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    started.append(Daemon(role, process.pid, start_ticks(process.pid) or 0))
    # Nobody waits for this process: a warning about that would come at the end of this one.
    process.returncode = 0
    directory.remember(started)


def _log_file(directory: ClusterDirectory, config: Settings, role: str, number: int) -> Path:
    return directory.log_directory(config) / f"yarrow-{role}-{number}-{socket.gethostname()}.log"


def _registered(rest: RestClient) -> int:
    try:
        return int(rest.get("/overview")["taskmanagers"])
    except (RestError, RestUnavailableError):
        return 0


def _wait(
    directory: ClusterDirectory, config: Settings, started: list[Daemon], what: str, holds: Callable[[], bool]
) -> None:
    clock, pause = SystemClock(), threading.Event()
    end = clock.monotonic() + _START_DEADLINE
    while not holds():
        for number, daemon in enumerate(started):
            if not daemon.is_running:
                log = _log_file(directory, config, daemon.role, number)
                raise CommandError(f"The {daemon.role} daemon has ended. The end of {log}:\n{_tail(log)}")
        if clock.monotonic() > end:
            raise CommandError(
                f"{what} did not start within {_START_DEADLINE:g} s: see the logs in"
                f" {directory.log_directory(config)}"
            )
        pause.wait(0.05)


def _tail(path: Path) -> str:
    return path.read_bytes()[-_TAIL:].decode("utf-8", "replace").strip()


def _stop(directory: ClusterDirectory, daemons: Sequence[Daemon]) -> None:
    host = socket.gethostname()
    for daemon in reversed(daemons):
        if daemon.is_running:
            print(f"Stopping {daemon.role} daemon (pid: {daemon.pid}) on host {host}.", flush=True)
            _end(daemon)
    directory.remember([])
    directory.leaders.clear()


def _end(daemon: Daemon) -> None:
    """Sends SIGTERM, and SIGKILL to the whole session if that does not help."""
    clock, pause = SystemClock(), threading.Event()
    end = clock.monotonic() + _STOP_DEADLINE
    with contextlib.suppress(ProcessLookupError):
        os.kill(daemon.pid, signal.SIGTERM)
    while daemon.is_running and clock.monotonic() < end:
        pause.wait(0.02)
    if daemon.is_running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(daemon.pid, signal.SIGKILL)
