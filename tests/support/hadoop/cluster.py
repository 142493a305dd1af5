"""HadoopCluster: the one API to a cluster, for the command line, tests and measurements.

Owner: the caller's thread; every method blocks. What runs is known from the cluster's folder alone, so that any
process may use, look at or stop a cluster that another one has started.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.support.hadoop import (
    configuration,
    containers,
    kerberos,
    launchers,
    port_names,
    readiness,
    state,
    web,
)
from tests.support.hadoop.containers import ContainerProcess
from tests.support.hadoop.errors import HadoopError
from tests.support.hadoop.jars import KDC_POM, jar_folder
from tests.support.hadoop.layout import (
    DAEMONS,
    KDC,
    LOOPBACK,
    Daemon,
    Layout,
    daemon_named,
    default_directory,
    user,
)
from tests.support.hadoop.leftovers import Leftovers, Places, znodes_below
from tests.support.hadoop.state import ClusterState
from tests.support.services import class_archive, ports, processes
from tests.support.services.daemon_status import is_alive
from tests.support.services.folder_lock import locked
from tests.support.services.service_cluster import ServiceCluster
from tests.support.services.system_packages import java_home
from yarrow.runtime.common.cache_folder import spark_classes_folder
from yarrow.runtime.common.clock import SystemClock

#: Seconds in which everything serves, on a machine that is busy with other things.
START_SECONDS = 180.0
_STOP_SECONDS = 8.0
_COMMAND_SECONDS = 120.0
_LOOK_AGAIN_SECONDS = 0.25
_ENDED = {"FINISHED", "FAILED", "KILLED"}
_EVERYWHERE = Places()
_NOTHING = Leftovers()


def _daemons(known: ClusterState) -> tuple[Daemon, ...]:
    """In the order to start them."""
    return (KDC, *DAEMONS) if known.kerberos else DAEMONS


class HadoopCluster(ServiceCluster[ClusterState]):
    """One Hadoop in a folder of its own."""

    service, member, script = "cluster", "daemon", "scripts/hadoop"
    error = HadoopError

    def __init__(self, layout: Layout, secured: bool = False, node_heartbeat_ms: int = 500) -> None:
        self._layout = layout
        self._secured = secured
        self._node_heartbeat_ms = node_heartbeat_ms
        self._clock = SystemClock()

    @staticmethod
    def at(
        directory: Path | str | None = None, secured: bool = False, node_heartbeat_ms: int = 500
    ) -> HadoopCluster:
        """The cluster of a folder (default: the one that all share), whether it runs or not.

        With `secured` it asks for Kerberos when it is made; one that was made keeps to what it is. Containers are
        allocated, started and reported with the NodeManagers' heartbeats: with fewer milliseconds each comes sooner.
        """
        root = Path(directory) if directory is not None else default_directory()
        return HadoopCluster(Layout(Path(os.path.abspath(root))), secured, node_heartbeat_ms)

    # What it is.

    @property
    def conf_dir(self) -> Path:
        """HADOOP_CONF_DIR for clients."""
        return self._layout.conf

    def local_dir(self, node_manager: str) -> Path:
        """The folder of a node's containers."""
        return self._layout.local_dir(node_manager)

    @property
    def hdfs_url(self) -> str:
        """The root of its HDFS, without a slash at the end."""
        return f"hdfs://{LOOPBACK}:{self.ports['namenode.rpc']}"

    @property
    def name_node_web(self) -> str:
        """The NameNode's web address."""
        return f"http://{LOOPBACK}:{self.ports['namenode.web']}"

    @property
    def zookeeper_quorum(self) -> str:
        """host:port of ZooKeeper."""
        return f"{LOOPBACK}:{self.ports['zookeeper.client']}"

    @property
    def resource_manager_web(self) -> str:
        """The ResourceManager's web address."""
        return f"http://{LOOPBACK}:{self.ports['resourcemanager.web']}"

    @property
    def ports(self) -> dict[str, int]:
        """All ports by `daemon.use`."""
        return self._state().ports

    def environment(self) -> dict[str, str]:
        """Variables with which clients find this cluster; PATH is the caller's behind the launchers' folder."""
        known = self._state()
        path = [str(self._layout.bin), str(Path(known.java_home) / "bin"), os.environ.get("PATH", os.defpath)]
        secured = {"JAVA_TOOL_OPTIONS": kerberos.java_options(self._layout)} if known.kerberos else {}
        return {
            **secured,
            "HADOOP_CONF_DIR": str(self.conf_dir),
            "JAVA_HOME": known.java_home,
            "PATH": os.pathsep.join(path),
        }

    # Starting and stopping.

    def up(self, seconds: float = START_SECONDS) -> bool:
        """Starts every daemon that does not run, and waits until all serve; False when all did already.

        Raises NotReadyError after stopping what this call has started, when one does not come up.
        """
        with locked(self._layout.root):
            known = self._prepare()
            missing = [daemon for daemon in _daemons(known) if not is_alive(known.processes, daemon.name)]
            formatted = False
            try:
                if KDC in missing:
                    self._launch(known, KDC.name)
                    self._wait(known, [KDC.name], seconds)
                    self._wait_for_keytab(seconds)
                formatted = "namenode" in {daemon.name for daemon in missing} and self._format(known)
                for daemon in missing:
                    if daemon is not KDC:
                        self._launch(known, daemon.name)
                self._wait(known, self._names(known), seconds)
            except BaseException:
                processes.stop([known.processes[d.name] for d in missing if d.name in known.processes], 2.0)
                self.kill_containers()
                if formatted:
                    shutil.rmtree(self._layout.data_of("namenode"), ignore_errors=True)
                raise
            self._make_folders(known)
            return bool(missing)

    def kill(self, daemon: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Sends a signal to one daemon; after SIGKILL it waits until the process is gone.

        Raises HadoopError when the daemon does not run.
        """
        self._kill(daemon, number)

    def start(self, daemon: str) -> bool:
        """Starts one daemon that has ended, on its ports and data; False when it runs. Waits for nothing."""
        return self._start(daemon)

    def bring_back(self) -> None:
        """Lets stopped daemons go on, starts those that have ended, and waits until all serve."""
        found = self.status()
        if found and all(daemon.serving for daemon in found):
            return
        for daemon in found:
            if daemon.pid is not None and not daemon.serving:
                self.kill(daemon.name, signal.SIGCONT)
        self.up()

    def wait_until_ready(self, *daemons: str, seconds: float = START_SECONDS) -> None:
        """Waits until these daemons (default: all) serve: no safe mode, nodes RUNNING."""
        self._wait_until_ready(daemons, seconds)

    def applications(self, states: Iterable[str] = ()) -> list[dict[str, Any]]:
        """YARN's report of every application, or of those in certain states."""
        query = f"?states={','.join(states)}" if states else ""
        found = web.get(f"{self.resource_manager_web}/ws/v1/cluster/apps{query}")["apps"]
        return list((found or {}).get("app", []))

    def application(self, application: str) -> dict[str, Any]:
        """YARN's report of one application: `state`, `finalStatus`, `diagnostics`, `trackingUrl` and more."""
        return dict(web.get(f"{self.resource_manager_web}/ws/v1/cluster/apps/{application}")["app"])

    def attempts(self, application: str) -> list[dict[str, Any]]:
        """YARN's report of every attempt of an application, the oldest first."""
        url = f"{self.resource_manager_web}/ws/v1/cluster/apps/{application}/appattempts"
        found = (web.get(url)["appAttempts"] or {}).get("appAttempt", [])
        return sorted(found, key=lambda attempt: int(attempt["id"]))

    def containers(self, application: str) -> list[dict[str, Any]]:
        """What the nodes that answer say of an application's containers: `id`, `state`, `nodeId`, memory."""
        found: list[dict[str, Any]] = []
        for node in readiness.running_nodes(self.ports):
            listed = web.get(f"http://{node['nodeHTTPAddress']}/ws/v1/node/containers")["containers"]
            found += (listed or {}).get("container", [])
        return [entry for entry in found if containers.names_in(entry["id"])[0] == application]

    def container_processes(self, application: str | None = None) -> list[ContainerProcess]:
        """Processes of containers, of one application or of all."""
        found = containers.processes(self._layout)
        return [process for process in found if application in (None, process.application)]

    def container_logs(self, application: str, size: int = 100_000) -> dict[str, str]:
        """The ends of the logs of an application's containers, by `container/file`.

        Local ones while it runs; afterwards what YARN has collected, as one text under "collected".
        """
        local = containers.local_logs(self._layout, application, size)
        if local:
            return local
        done = self.run(*self._as_user(), "yarn", "logs", "-applicationId", application)
        return {"collected": (done.stdout or done.stderr)[-10 * size :]}

    def kill_application(self, application: str) -> None:
        """Ends an application as `yarn application -kill` does."""
        done = self.run(*self._as_user(), "yarn", "application", "-kill", application)
        if done.returncode != 0:
            raise HadoopError(f"{application} could not be killed: {(done.stderr or done.stdout)[-1000:]}")

    def kill_containers(self, application: str | None = None) -> None:
        """Ends processes of containers, of one application or of all, past YARN: those of a lost node, say."""
        # A process may be forking while others are ended, hence again.
        for _ in range(10):
            left = [process.record for process in self.container_processes(application)]
            if not left:
                return
            for record in left:
                processes.send(record, signal.SIGKILL)
            processes.wait_until_ended(left, 5.0)
        raise HadoopError(f"containers of {self.directory} start processes faster than they can be killed")

    def leftovers(
        self, places: Places = _EVERYWHERE, before: Leftovers = _NOTHING, seconds: float = 0.0
    ) -> Leftovers:
        """What programs have left since `before`; waits up to `seconds` for it to go by itself."""
        deadline = self._clock.monotonic() + seconds
        while True:
            left = self._look(places).since(before)
            if not left or self._clock.monotonic() >= deadline:
                return left
            time.sleep(_LOOK_AGAIN_SECONDS)

    def run(self, *command: str, seconds: float = _COMMAND_SECONDS) -> subprocess.CompletedProcess[str]:
        """Runs a program (`yarn`, `hdfs`, or any other) in this cluster's environment, its output caught."""
        environment = {**os.environ, **self.environment()}
        program = shutil.which(command[0], path=environment["PATH"]) or command[0]
        return subprocess.run(
            [program, *command[1:]],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )

    # How it is done.

    def _as_user(self) -> Sequence[str]:
        """In front of a command of Hadoop's that has to log in, as the one user whose applications run here."""
        if not self._state().kerberos:
            return ()
        return (
            "env",
            *(f"{name}={value}" for name, value in kerberos.login(self._layout, kerberos.USER).items()),
        )

    def _prepare(self) -> ClusterState:
        """The state of a cluster that may be started: made anew where none of it runs."""
        known = state.load(self._layout)
        if known is not None and any(is_alive(known.processes, daemon.name) for daemon in _daemons(known)):
            return known
        secured = known.kerberos if known is not None else self._secured
        home, jars = java_home(), jar_folder()
        root = self._layout.root
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if root.stat().st_uid != os.geteuid():
            raise HadoopError(f"{root} belongs to somebody else: name another folder with --directory")
        names = (*port_names.NAMES, port_names.KDC_NAME) if secured else port_names.NAMES
        chosen = known.ports if known is not None and known.ports.keys() == set(names) else {}
        if not chosen or not all(ports.is_free(port) for port in chosen.values()):
            chosen = ports.choose(str(root), names)
        known = ClusterState(dict(chosen), str(jars), str(home), kerberos=secured)
        configuration.write(self._layout, known.ports, jars, secured, self._node_heartbeat_ms)
        if secured:
            kerberos.write(self._layout, known.ports)
        launchers.write(self._layout.bin, home, self._layout.conf, jars)
        for folder in (self._layout.logs, *(self._layout.data_of(daemon.name) for daemon in _daemons(known))):
            folder.mkdir(parents=True, exist_ok=True)
        state.save(self._layout, known)
        return known

    def _format(self, known: ClusterState) -> bool:
        """Makes an empty HDFS where there is none; whether it did."""
        if (self._layout.data_of("namenode") / "current" / "VERSION").exists():
            return False
        command = [*self._command(known, daemon_named("namenode")), "-format", "-nonInteractive"]
        done = subprocess.run(
            command,
            env=self._daemon_environment(known),
            cwd=self._layout.root,
            capture_output=True,
            text=True,
            check=False,
            timeout=START_SECONDS,
        )
        if done.returncode != 0:
            raise HadoopError(f"the NameNode could not make an empty HDFS:\n{done.stderr[-3000:]}")
        return True

    def _launch(self, known: ClusterState, name: str) -> None:
        daemon = daemon_named(name)
        command = self._command(known, daemon)
        if daemon.name == "zookeeper":
            command.append(str(self._layout.conf / "zoo.cfg"))
        log = self._layout.log_of(daemon.name)
        known.processes[daemon.name] = processes.start(
            command, log, self._daemon_environment(known), self._layout.root
        )
        state.save(self._layout, known)

    def _command(self, known: ClusterState, daemon: Daemon) -> list[str]:
        if daemon is KDC:
            return list(kerberos.kdc_command(self._layout, known.java_home, jar_folder(KDC_POM)))
        return [
            str(Path(known.java_home) / "bin" / "java"),
            f"-Xmx{daemon.heap}m",
            *launchers.LEAN,
            *launchers.MODULES,
            *class_archive.daemon_flags(known.java_home, Path(known.jars)),
            "-Dhadoop.root.logger=INFO,console",
            "-Djava.net.preferIPv4Stack=true",
            "-cp",
            # A folder before the jars would keep Java from the archive. No jar has files of the same names.
            f"{known.jars}/*:{self._layout.conf_of(daemon.name)}",
            daemon.main,
        ]

    def _daemon_environment(self, known: ClusterState) -> dict[str, str]:
        """What daemons, and by the NodeManagers' list containers, inherit: nothing of the caller's Python."""
        inherited = ("HOME", "LANG", "TZ", "USER", "TMPDIR")
        kept = {name: os.environ[name] for name in inherited if name in os.environ}
        own = {"JAVA_HOME": known.java_home, "YARROW_SPARK_CLASSES": str(spark_classes_folder())}
        return {**kept, **self.environment(), **own}

    def _look(self, places: Places) -> Leftovers:
        folders = places.folders if places.folders is not None else (f"/user/{user()}", "/tmp")
        port = self.ports["namenode.web"]
        # Folders that are kept hold a folder for each application that ever ran: a request for each of them.
        files = [
            path for folder in folders for path in web.files_below(port, folder, user(), places.is_below_kept)
        ]
        return Leftovers(
            applications=[app["id"] for app in self.applications() if app["state"] not in _ENDED],
            processes=[
                f"{process.pid} {process.container}: {process.command}"
                for process in self.container_processes()
            ],
            znodes=znodes_below(self.zookeeper_quorum, places.znode_root),
            files=[path for path in files if not places.is_kept(path)],
        )

    def _make_folders(self, known: ClusterState) -> None:
        if known.kerberos:
            kerberos.make_folders(self._layout, self.run)
            return
        port = known.ports["namenode.web"]
        for path, permission in (
            ("/tmp", "1777"),
            ("/tmp/logs", "1777"),
            ("/user", "755"),
            (f"/user/{user()}", "755"),
        ):
            web.make_folder(port, path, permission, user())

    def _wait_for_keytab(self, seconds: float) -> None:
        deadline = self._clock.monotonic() + seconds
        while not kerberos.has_all_keys(self._layout):
            if self._clock.monotonic() >= deadline:
                raise HadoopError(f"the KDC has written no keytab; see {self._layout.log_of(KDC.name)}")
            time.sleep(_LOOK_AGAIN_SECONDS)

    # What all clusters ask.

    @property
    def _folder(self) -> Layout:
        return self._layout

    def _load(self) -> ClusterState | None:
        return state.load(self._layout)

    def _save(self, known: ClusterState) -> None:
        state.save(self._layout, known)

    def _names(self, known: ClusterState) -> list[str]:
        return [daemon.name for daemon in _daemons(known)]

    def _possible_names(self) -> list[str]:
        return [daemon.name for daemon in (KDC, *DAEMONS)]

    def _what_is_missing(self, ports: dict[str, int], name: str) -> str | None:
        return readiness.what_is_missing(ports, name)

    def _stop(self, known: ClusterState, keep: bool) -> None:
        processes.stop(known.processes.values(), _STOP_SECONDS)
        self.kill_containers()
