"""Where everything of one Kafka cluster lies below its folder, and how its nodes are called.

Owner: none; values only, nothing is read or written here.
"""

from __future__ import annotations

import getpass
import tempfile
from dataclasses import dataclass
from pathlib import Path

#: Address of every node.
LOOPBACK = "127.0.0.1"


def node_names(nodes: int) -> list[str]:
    """`kafka1`, `kafka2` and so on; the number is the node's id."""
    return [f"kafka{number}" for number in range(1, nodes + 1)]


def node_id(name: str) -> int:
    """The id that the node of that name has in Kafka."""
    return int(name.removeprefix("kafka"))


def default_directory() -> Path:
    """The folder of the cluster that is meant when none is named."""
    return Path(tempfile.gettempdir()) / f"yarrow-kafka-{getpass.getuser()}"


@dataclass(frozen=True)
class Layout:
    """Paths below `root`, which is absolute."""

    root: Path

    @property
    def state(self) -> Path:
        """The file that names ports, jars and processes."""
        return self.root / "cluster.json"

    @property
    def logging(self) -> Path:
        """The configuration of the nodes' log lines."""
        return self.root / "log4j2.properties"

    @property
    def credentials(self) -> Path:
        """The folder of certificates and keys."""
        return self.root / "credentials"

    def configuration_of(self, node: str) -> Path:
        """The properties that one node reads."""
        return self.root / f"{node}.properties"

    def log_of(self, node: str) -> Path:
        """The output of one node."""
        return self.root / "logs" / f"{node}.log"

    def data_of(self, node: str) -> Path:
        """The folder with the data that one node keeps between its starts."""
        return self.root / "data" / node
