"""A cluster of Hadoop for one process that runs tests: the one that a variable names, else one of its own."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.hadoop.cluster import HadoopCluster
from tests.support.hadoop.layout import default_directory
from tests.support.services.errors import MissingProgramError

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
        with one_at_a_time():
            take_down_abandoned()
            cluster.up()
    except MissingProgramError as error:
        if os.environ.get(MAY_SKIP):
            pytest.skip(str(error))
        raise MissingProgramError(
            f"{error}; or set {MAY_SKIP}=1 to leave out the tests that need it"
        ) from error
    try:
        yield cluster
    finally:
        cluster.down()


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Waits for others that bring up theirs: they would take the same ports, and each other's time."""
    with open(f"{OWN}.lock", "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def take_down_abandoned() -> None:
    """Ends the clusters of test runs that were killed before they could."""
    for folder in default_directory().parent.glob(f"{os.path.basename(OWN)}-*"):
        owner = folder.name.removeprefix(f"{os.path.basename(OWN)}-").partition("-")[0]
        if folder.is_dir() and owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
            HadoopCluster.at(folder).down()
