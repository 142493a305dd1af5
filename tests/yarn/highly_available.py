"""High availability of a test's cluster: its settings, and what it has in ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.retry import KazooRetry

from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.ha.zookeeper_election import LEADER_FOLDER, leader_node
from yarrow.runtime.ha.zookeeper_records import EPOCH_NODE
from yarrow.runtime.ha.zookeeper_retrieval import decode_leader

#: Seconds for a connection, and for ZooKeeper to be back after a fault.
PATIENCE = 120.0


def high_availability(
    quorum: str, root: str, storage: str, session_timeout: str = "10 s", cluster_id: str = ""
) -> dict[str, str]:
    """Settings with which who leads no more is replaced soon, and a pause of a busy machine ends no session."""
    own = {"high-availability.cluster-id": cluster_id} if cluster_id else {}
    return {
        "high-availability.type": "zookeeper",
        "high-availability.zookeeper.quorum": quorum,
        "high-availability.zookeeper.path.root": root,
        "high-availability.storageDir": storage,
        "high-availability.zookeeper.client.session-timeout": session_timeout,
        "high-availability.zookeeper.client.retry-wait": "1 s",
        **own,
    }


def is_stored(storage: str, cluster_id: str) -> bool:
    """Whether a storage directory has something of a cluster."""
    try:
        return cluster_id in {entry.name for entry in file_system_for(storage).list(storage)}
    except FileNotFoundError:
        return False


def stored_files(storage: str) -> list[str]:
    """Job graphs and shipped files in the storage directory of a cluster id."""
    files = file_system_for(storage)
    found = []
    for part in ("job-graphs", "blobs"):
        with suppress(FileNotFoundError):
            found += [entry.path for entry in files.list(f"{storage}/{part}")]
    return found


@contextmanager
def zookeeper_client(quorum: str) -> Iterator[Any]:
    """A connected client, for as long as the block runs; each call by `retry` outlasts faults of ZooKeeper."""
    patience = KazooRetry(max_tries=-1, max_delay=1.0, deadline=PATIENCE)
    client = KazooClient(quorum, timeout=60.0, command_retry=patience)
    try:
        client.start(PATIENCE)
        yield client
    finally:
        client.stop()
        client.close()


class ClusterNodes:
    """The nodes of one cluster id, read by a client that outlasts faults of ZooKeeper."""

    def __init__(self, client: Any, root: str) -> None:
        self._client, self.root = client, root

    def exists(self) -> bool:
        return self._client.retry(self._client.exists, self.root) is not None

    def epoch(self) -> int:
        """The one that has begun last; 0 before the first."""
        return int(self._read(EPOCH_NODE) or 0)

    def leader_address(self, component: str) -> str:
        """Where the leader of a component is called; OSError while nobody leads."""
        leader = decode_leader(self._read(leader_node(component)))
        if leader is None:
            raise OSError("nobody leads")
        return leader.address

    def candidates(self) -> list[str]:
        """Who stands for election, or leads."""
        return self._children(f"{LEADER_FOLDER}/candidates")

    def of_jobs(self) -> list[str]:
        """Those that hold something of jobs."""
        return [
            f"{part}/{name}" for part in ("jobs", "results", "checkpoints") for name in self._children(part)
        ]

    def pointers(self, job_id: str) -> dict[int, str]:
        """Paths of a job's completed checkpoints by their ids."""
        folder = f"checkpoints/{job_id}/pointers"
        found = {int(name): self._read(f"{folder}/{name}") for name in self._children(folder)}
        return {number: json.loads(data)["path"] for number, data in found.items() if data}

    def remove(self) -> None:
        """All of them, and no error where there is none."""
        self._client.retry(self._client.delete, self.root, recursive=True)

    def _read(self, path: str) -> bytes | None:
        try:
            data: bytes | None = self._client.retry(self._client.get, f"{self.root}/{path}")[0]
        except NoNodeError:
            return None
        return data

    def _children(self, path: str) -> list[str]:
        try:
            return sorted(self._client.retry(self._client.get_children, f"{self.root}/{path}") or [])
        except NoNodeError:
            return []
