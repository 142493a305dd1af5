"""A ZooKeeper server of one test: to be paused, killed and restarted without harming the cluster that others use."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.support.free_ports import free_port
from tests.support.hadoop.jars import jar_folder
from tests.support.services.system_packages import java_home
from tests.yarn.waiting import until as until

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
#: Seconds in which it serves, on a busy machine.
START = 180.0


def remove_at_once(client: KazooClient, path: str) -> None:
    """Removes a node and all below it in one transaction: nobody sees, or mends, a half of it."""
    while True:
        removal = client.transaction()
        for node in reversed(_nodes(client, path)):
            removal.delete(node)
        # Nodes that came or went since they were listed: nothing was removed.
        if not any(isinstance(result, Exception) for result in removal.commit()):
            return


def _nodes(client: KazooClient, path: str) -> list[str]:
    """The node and all below it, parents first."""
    try:
        children = client.get_children(path)
    except NoNodeError:
        return []
    return [path, *(node for child in children for node in _nodes(client, f"{path}/{child}"))]


class PrivateZooKeeper:
    """One server on a port of its own; `stop` ends it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "data").mkdir(parents=True)
        properties = {
            "dataDir": folder / "data",
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "tickTime": 250,
            "minSessionTimeout": 1000,
            "maxSessionTimeout": 60000,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
        }
        (folder / "zoo.cfg").write_text("".join(f"{key}={value}\n" for key, value in properties.items()))

    @property
    def quorum(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns when it serves."""
        java = Path(java_home()) / "bin" / "java"
        command = [str(java), "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]
        with (self._folder / "zookeeper.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, f"{self._folder}:{jar_folder()}/*", MAIN, str(self._folder / "zoo.cfg")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
            )
        until(self._serves, START, "ZooKeeper serves")

    def _serves(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0) as connection:
                connection.sendall(b"ruok")
                return connection.recv(8) == b"imok"
        except OSError:
            return False

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def stop(self) -> None:
        """Kills it; what it has acknowledged is on disk."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
