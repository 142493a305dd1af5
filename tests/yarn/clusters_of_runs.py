"""A cluster of Hadoop for one process that runs tests: the one that a variable names, else one of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.hadoop.cluster import HadoopCluster
from tests.support.hadoop.layout import default_directory
from tests.support.services.errors import MissingProgramError
from tests.support.services.folders_of_runs import abandoned, one_at_a_time

#: Names the folder of a cluster that runs already.
SHARED = "YARROW_HADOOP_DIRECTORY"
#: Set by who wants these tests skipped where a program is missing that they need.
MAY_SKIP = "YARROW_TEST_WITHOUT_HADOOP"
#: A container waits for several heartbeats of its node: a fifth of a second instead of half a second.
NODE_HEARTBEAT_MS = 200
OWN = f"{default_directory()}-tests"


@contextmanager
def cluster_of_run(shared: str, *, secured: bool = False) -> Iterator[HadoopCluster]:
    """Serving. `shared`: the variable that names a folder of one that others use.

    Raises MissingProgramError, which names the program, where one is missing and `MAY_SKIP` is not set.
    """
    if directory := os.environ.get(shared):
        cluster = HadoopCluster.at(directory)
        cluster.wait_until_ready()
        yield cluster
        return
    suffix = "-secured" if secured else ""
    cluster = HadoopCluster.at(f"{OWN}-{os.getpid()}{suffix}", secured, NODE_HEARTBEAT_MS)
    try:
        with one_at_a_time(OWN):
            take_down_abandoned()
            cluster.up()
    except MissingProgramError as error:
        if os.environ.get(MAY_SKIP):
            pytest.skip(str(error))
        raise MissingProgramError(
            f"{error}; or set {MAY_SKIP}=1 to leave out the tests that need it"
        ) from error
    except BaseException:
        cluster.down()  # Some of its daemons may serve already.
        raise
    try:
        yield cluster
    finally:
        cluster.down()


def take_down_abandoned() -> None:
    """Ends the clusters of test runs that were killed before they could."""
    for folder in abandoned(OWN):
        HadoopCluster.at(folder).down()
