"""What an application has stored for high availability, at its end: gone once YARN knows, however it ended."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.yarn.private_zookeeper import until
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.file_system import file_system_for
from yarrow.runtime.yarn.cluster_descriptor import YarnCluster, YarnClusterDescriptor
from yarrow.testing.hadoop.cluster import HadoopCluster

PATIENCE = 120.0
#: In which a master that YARN has let go removes the rest.
GRACE = 10.0
ROOT = f"/yarrow-ends-{os.getpid()}"


@dataclass
class Ends:
    """Sessions and what they store."""

    settings: Settings
    storage: str
    zookeeper: KazooClient

    def stored(self, application_id: str) -> bool:
        if self.zookeeper.exists(f"{ROOT}/{application_id}") is not None:
            return True
        try:
            names = [entry.name for entry in file_system_for(self.storage).list(self.storage)]
        except FileNotFoundError:
            return False
        return application_id in names

    def started(self, descriptor: YarnClusterDescriptor) -> YarnCluster:
        cluster = descriptor.deploy_session()
        until(lambda: self.stored(cluster.application_id), PATIENCE, "it stores something")
        return cluster


@pytest.fixture
def ends(hadoop: HadoopCluster, hadoop_environment: None, tmp_path: Path) -> Iterator[Ends]:
    storage = f"{hadoop.hdfs_url}/tests/ends-{os.getpid()}"
    settings = Settings(
        {
            "yarn.application.name": f"ends of tests {os.getpid()}",
            "yarn.environment": "none",
            "yarn.properties-file.location": str(tmp_path / "files"),
            "jobmanager.memory.process.size": "640m",
            "taskmanager.memory.process.size": "640m",
            "high-availability.type": "zookeeper",
            "high-availability.zookeeper.quorum": hadoop.zookeeper_quorum,
            "high-availability.zookeeper.path.root": ROOT,
            "high-availability.storageDir": storage,
        }
    )
    client = KazooClient(hadoop.zookeeper_quorum)
    client.start(PATIENCE)
    try:
        yield Ends(settings, storage, client)
    finally:
        client.delete(ROOT, recursive=True)
        client.stop()
        client.close()
        file_system_for(storage).delete(storage, recursive=True)


def test_nothing_is_stored_of_a_session_that_was_stopped(ends: Ends) -> None:
    with YarnClusterDescriptor(ends.settings) as descriptor:
        cluster = ends.started(descriptor)
        request = urllib.request.Request(f"{cluster.rest_address}/cluster", method="DELETE")
        request.add_header("Authorization", f"Bearer {cluster.rest_token}")
        urllib.request.urlopen(request, timeout=10).close()
        client = descriptor.client((b"", b""))
        until(lambda: client.report(cluster.application_id).state.has_ended, PATIENCE, "it has ended")
        until(lambda: not ends.stored(cluster.application_id), GRACE, "nothing is stored")


def test_nothing_is_stored_of_a_session_that_was_killed(ends: Ends) -> None:
    with YarnClusterDescriptor(ends.settings) as descriptor:
        cluster = ends.started(descriptor)
        descriptor.kill(cluster.application_id)
        until(lambda: not ends.stored(cluster.application_id), GRACE, "nothing is stored")
