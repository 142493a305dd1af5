"""A Kafka for one process that runs tests: it goes with this process, also when a signal kills it.

Owner: the caller's thread. YARROW_KAFKA_DIRECTORY names a Kafka that runs already: it is used and left as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.layout import default_directory
from tests.support.services import watched_process
from tests.support.services.folders_of_runs import abandoned, one_at_a_time

#: Names the folder of a Kafka that runs already.
SHARED = "YARROW_KAFKA_DIRECTORY"
OWN = f"{default_directory()}-tests"


@contextmanager
def cluster_of_run(nodes: int = 1, name: str = "") -> Iterator[KafkaCluster]:
    """Serving. `name` tells a cluster from others of this process.

    Raises MissingProgramError, which names the program, where one is missing.
    """
    if nodes == 1 and not name and (directory := os.environ.get(SHARED)):
        cluster = KafkaCluster.at(directory)
        cluster.wait_until_ready()
        yield cluster
        return
    cluster = KafkaCluster.at(f"{OWN}-{os.getpid()}-{nodes}{name}", nodes)
    with guarded(cluster):
        with one_at_a_time(OWN):
            take_down_abandoned()
            cluster.up()
        yield cluster


@contextmanager
def guarded(cluster: KafkaCluster) -> Iterator[None]:
    """Takes the cluster down at the end of this block, and at the end of this process."""
    with watched_process.guarded("tests.support.kafka.guard", cluster.directory, cluster.down):
        yield


def take_down_abandoned() -> None:
    """Ends the clusters of test runs that were killed together with their guards."""
    for folder in abandoned(OWN):
        KafkaCluster.at(folder).down()
