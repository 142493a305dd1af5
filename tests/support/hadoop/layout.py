"""Where everything of one cluster lies below its folder, and which daemons it has.

Owner: none; values only, nothing is read or written here.
"""

from __future__ import annotations

import getpass
import tempfile
from dataclasses import dataclass
from pathlib import Path

#: Address of every daemon but the second NodeManager.
LOOPBACK = "127.0.0.1"
#: The hosts of the NodeManagers: two names, so that YARN sees two hosts.
NODE_ADDRESSES = {"nodemanager1": LOOPBACK, "nodemanager2": "127.0.0.2"}
#: Variables of the NodeManager that containers get. The last names the folder of Spark's classes, since a container's
#: home has none.
CONTAINER_VARIABLES = "JAVA_HOME,HADOOP_CONF_DIR,PATH,LANG,TZ,YARROW_SPARK_CLASSES"


@dataclass(frozen=True)
class Daemon:
    """One process of the cluster."""

    name: str
    main: str
    #: Largest heap in MB.
    heap: int


DAEMONS: tuple[Daemon, ...] = (
    Daemon("zookeeper", "org.apache.zookeeper.server.quorum.QuorumPeerMain", 128),
    Daemon("namenode", "org.apache.hadoop.hdfs.server.namenode.NameNode", 256),
    Daemon("resourcemanager", "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager", 384),
    Daemon("datanode", "org.apache.hadoop.hdfs.server.datanode.DataNode", 256),
    Daemon("nodemanager1", "org.apache.hadoop.yarn.server.nodemanager.NodeManager", 256),
    Daemon("nodemanager2", "org.apache.hadoop.yarn.server.nodemanager.NodeManager", 256),
)
#: First of a secured cluster: the others log in when they start.
KDC = Daemon("kdc", "org.apache.hadoop.minikdc.MiniKdc", 96)
NODE_MANAGERS = tuple(NODE_ADDRESSES)


def daemon_named(name: str) -> Daemon:
    """The daemon of that name; raises KeyError for any other."""
    return {daemon.name: daemon for daemon in (KDC, *DAEMONS)}[name]


def user() -> str:
    """The user that runs the cluster: superuser of its HDFS."""
    return getpass.getuser()


def default_directory() -> Path:
    """The folder of the cluster that is meant when none is named."""
    return Path(tempfile.gettempdir()) / f"yarrow-hadoop-{user()}"


@dataclass(frozen=True)
class Layout:
    """Paths below `root`, which is absolute."""

    root: Path

    @property
    def state(self) -> Path:
        """What runs: ports, jars and processes."""
        return self.root / "cluster.json"

    @property
    def conf(self) -> Path:
        """Configuration of clients and of all daemons but the NodeManagers: HADOOP_CONF_DIR."""
        return self.root / "conf"

    @property
    def bin(self) -> Path:
        """The launchers `yarn` and `hdfs`."""
        return self.root / "bin"

    @property
    def logs(self) -> Path:
        """One file for each daemon's output."""
        return self.root / "logs"

    def conf_of(self, daemon: str) -> Path:
        """The configuration that one daemon reads."""
        return self.root / f"conf-{daemon}" if daemon in NODE_ADDRESSES else self.conf

    def log_of(self, daemon: str) -> Path:
        """The output of one daemon."""
        return self.logs / f"{daemon}.log"

    def data_of(self, daemon: str) -> Path:
        """What one daemon keeps between starts."""
        return self.root / "data" / daemon

    def local_dir(self, node_manager: str) -> Path:
        """Working directories of a node's containers lie below this folder."""
        return self.root / "nm-local-dir" / node_manager

    def log_dir(self, node_manager: str) -> Path:
        """Logs of a node's containers while their application runs."""
        return self.root / "nm-log-dir" / node_manager
