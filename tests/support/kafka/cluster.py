"""KafkaCluster: the one API to a Kafka on loopback, for the command line, tests and measurements.

Owner: the caller's thread; every method blocks. What runs is known from the cluster's folder alone, so that any
process may use, look at or stop a cluster that another one has started.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.support.kafka import configuration, readiness, state
from tests.support.kafka.credentials import Credentials
from tests.support.kafka.layout import LOOPBACK, Layout, default_directory, node_names
from tests.support.kafka.state import ClusterState
from tests.support.services import class_archive, ports, processes, serving
from tests.support.services.daemon_status import is_alive
from tests.support.services.errors import ServiceError
from tests.support.services.folder_lock import locked
from tests.support.services.jars import jar_folder
from tests.support.services.service_cluster import ServiceCluster
from tests.support.services.system_packages import java_home
from yarrow.testing.tcp_relay import TcpRelay

POM = Path(__file__).parent / "pom.xml"
#: Seconds in which every node serves, on a machine that is busy with other things.
START_SECONDS = 120.0
_STOP_SECONDS = 8.0
_REQUEST_SECONDS = 30.0
_HEAP_MB = 384
#: Flags that make a small Java program start fast and stay lean.
_LEAN = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData")


class KafkaCluster(ServiceCluster[ClusterState]):
    """One Kafka in a folder of its own."""

    service, member, script = "Kafka", "node", "scripts/kafka"

    def __init__(self, layout: Layout, nodes: int = 1) -> None:
        self._layout = layout
        self._nodes = nodes

    @staticmethod
    def at(directory: Path | str | None = None, nodes: int = 1) -> KafkaCluster:
        """The cluster of a folder (default: the one that all share), whether it runs or not.

        `nodes` counts when the cluster is made; one that was made keeps to what it is.
        """
        root = Path(directory) if directory is not None else default_directory()
        return KafkaCluster(Layout(Path(os.path.abspath(root))), nodes)

    # Its folder, addresses and nodes.

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every node, with commas: for clients."""
        return configuration.bootstrap_servers(self._state().ports)

    @property
    def secured_servers(self) -> str:
        """The same for clients that log in by SASL PLAIN; see `credentials.USER`."""
        return self.servers("secured")

    def servers(self, use: str) -> str:
        """The same for one way to connect: tls, mutual, expired, misnamed, scram, oauth."""
        return configuration.bootstrap_servers(self._state().ports, use)

    @property
    def credentials(self) -> Credentials:
        """What clients and brokers show each other."""
        return Credentials(self._layout.credentials)

    def relay(self, node: str = "kafka1") -> TcpRelay:
        """A relay between one node and the clients that bootstrap at the relay's address; the caller closes it."""
        known = self._state().ports
        return TcpRelay((LOOPBACK, known[f"{node}.relayed"]), port=known[f"{node}.relay"])

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes."""
        return node_names(self._state().nodes)

    # Starting and stopping.

    def up(self, seconds: float = START_SECONDS) -> bool:
        """Starts every node that does not run, and waits until all serve; False when all did already.

        Raises NotReadyError after stopping what this call has started, when one does not come up.
        """
        with locked(self._layout.root):
            known = self._prepare()
            missing = [name for name in node_names(known.nodes) if not is_alive(known.processes, name)]
            try:
                for name in missing:
                    self._format(known, name)
                for name in missing:
                    self._launch(known, name)
                self._wait(known, node_names(known.nodes), seconds)
            except BaseException:
                processes.stop([known.processes[name] for name in missing if name in known.processes], 0.0)
                raise
            return bool(missing)

    def kill(self, node: str = "kafka1", number: signal.Signals = signal.SIGKILL) -> None:
        """Sends a signal to one node; after SIGKILL it waits until the process is gone.

        Raises ServiceError when the node does not run.
        """
        self._kill(node, number)

    def start(self, node: str = "kafka1") -> bool:
        """Starts one node that has ended, on its ports and data; False when it runs. Waits for nothing."""
        return self._start(node)

    def bring_back(self) -> None:
        """Lets stopped nodes go on, starts those that have ended, and waits until all serve."""
        known = self._state()
        for record in known.processes.values():
            if processes.is_stopped(record):
                processes.send(record, signal.SIGCONT)
        if all(is_alive(known.processes, name) for name in node_names(known.nodes)):
            return
        self.up()

    def wait_until_ready(self, *nodes: str, seconds: float = START_SECONDS) -> None:
        """Waits until these nodes (default: all) serve."""
        self._wait_until_ready(nodes, seconds)

    # Topics.

    def create_topic(self, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None) -> None:
        """Makes a topic with so many partitions; returns when each node that serves knows it.

        Raises KafkaException, and NotReadyError if a node does not hear of it.
        """
        known, admin = self._state(), self._admin()
        topic = NewTopic(name, num_partitions=partitions, config=dict(settings or {}))
        admin.create_topics([topic], operation_timeout=_REQUEST_SECONDS)[name].result(_REQUEST_SECONDS)
        started = known.processes
        serving.wait_until_serving(
            [
                node
                for node in node_names(known.nodes)
                if is_alive(started, node) and not processes.is_stopped(started[node])
            ],
            _REQUEST_SECONDS,
            lambda node: readiness.what_is_unknown(known.ports, node, name, partitions),
            lambda node: is_alive(started, node),
            self._layout.log_of,
        )

    def delete_topic(self, name: str) -> None:
        """Removes a topic. Raises KafkaException."""
        admin = self._admin()
        deleted = admin.delete_topics([name], operation_timeout=_REQUEST_SECONDS)
        deleted[name].result(_REQUEST_SECONDS)

    def add_partitions(self, name: str, total: int) -> None:
        """Gives a topic more partitions, `total` in all. Raises KafkaException."""
        admin = self._admin()
        added = admin.create_partitions([NewPartitions(name, total)])
        added[name].result(_REQUEST_SECONDS)

    # How it is done.

    def _admin(self) -> AdminClient:
        """A client that must live until its requests are answered."""
        return AdminClient({"bootstrap.servers": self.bootstrap_servers})

    def _prepare(self) -> ClusterState:
        """The state of a cluster that may be started: made anew where none of it runs."""
        known = state.load(self._layout)
        if known is not None and any(is_alive(known.processes, name) for name in node_names(known.nodes)):
            return known
        nodes = known.nodes if known is not None else self._nodes
        home, jars = java_home(), jar_folder(POM, "kafka")
        root = self._layout.root
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if root.stat().st_uid != os.geteuid():
            raise ServiceError(f"{root} belongs to somebody else: name another folder with --directory")
        names = configuration.port_names(nodes)
        chosen = known.ports if known is not None and known.ports.keys() == set(names) else {}
        # A relay that stands there is no stranger.
        own = [port for name, port in chosen.items() if not name.endswith(".relay")]
        if not own or not all(ports.is_free(port) for port in own):
            chosen = ports.choose(str(root), names)
        known = ClusterState(nodes, dict(chosen), str(jars), str(home))
        self.credentials.make()
        configuration.write(self._layout, known.ports, nodes)
        (root / "logs").mkdir(exist_ok=True)
        state.save(self._layout, known)
        return known

    def _format(self, known: ClusterState, node: str) -> None:
        """Makes an empty storage where there is none."""
        if (self._layout.data_of(node) / "meta.properties").exists():
            return
        settings = str(self._layout.configuration_of(node))
        command = self._java(known, "kafka.tools.StorageTool", "format", "-t", configuration.CLUSTER_ID)
        done = subprocess.run(
            [*command, "-c", settings, *configuration.scram_users()],
            env=self._environment(),
            cwd=self._layout.root,
            capture_output=True,
            text=True,
            check=False,
            timeout=START_SECONDS,
        )
        if done.returncode != 0:
            shutil.rmtree(self._layout.data_of(node), ignore_errors=True)
            raise ServiceError(f"{node} could not make its storage:\n{(done.stdout + done.stderr)[-3000:]}")

    def _launch(self, known: ClusterState, name: str) -> None:
        command = self._java(known, "kafka.Kafka", str(self._layout.configuration_of(name)))
        known.processes[name] = processes.start(
            command, self._layout.log_of(name), self._environment(), self._layout.root
        )
        state.save(self._layout, known)

    def _java(self, known: ClusterState, main: str, *arguments: str) -> list[str]:
        return [
            str(Path(known.java_home) / "bin" / "java"),
            f"-Xmx{_HEAP_MB}m",
            *_LEAN,
            *class_archive.daemon_flags(known.java_home, Path(known.jars)),
            "-Djava.net.preferIPv4Stack=true",
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.credentials.token_keys.as_uri()}",
            f"-Dlog4j2.configurationFile={self._layout.logging}",
            "-cp",
            f"{known.jars}/*",
            main,
            *arguments,
        ]

    @staticmethod
    def _environment() -> dict[str, str]:
        """The environment of nodes, which has nothing of the caller's Python."""
        inherited = ("HOME", "LANG", "PATH", "TZ", "USER", "TMPDIR")
        return {name: os.environ[name] for name in inherited if name in os.environ}

    # What all clusters ask.

    @property
    def _folder(self) -> Layout:
        return self._layout

    def _load(self) -> ClusterState | None:
        return state.load(self._layout)

    def _save(self, known: ClusterState) -> None:
        state.save(self._layout, known)

    def _names(self, known: ClusterState) -> list[str]:
        return node_names(known.nodes)

    def _possible_names(self) -> list[str]:
        return self.nodes

    def _what_is_missing(self, ports: dict[str, int], name: str) -> str | None:
        return readiness.what_is_missing(ports, name)

    def _stop(self, known: ClusterState, keep: bool) -> None:
        # Nobody reads the data again: there is nothing to wait for.
        processes.stop(known.processes.values(), _STOP_SECONDS if keep else 0.0)
