"""A cluster of Hadoop for one run of tests: the one that a variable names, else one of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from yarrow.testing.hadoop.cluster import HadoopCluster
from yarrow.testing.hadoop.errors import MissingProgramError
from yarrow.testing.hadoop.layout import default_directory


@contextmanager
def cluster_of_run(shared: str, *, secured: bool = False) -> Iterator[HadoopCluster]:
    """Serving; skips where a program is missing. `shared`: the variable that names a folder of one that others use."""
    if directory := os.environ.get(shared):
        cluster = HadoopCluster.at(directory)
        cluster.wait_until_ready()
        yield cluster
        return
    suffix = "-secured" if secured else ""
    cluster = HadoopCluster.at(f"{default_directory()}-tests-{os.getpid()}{suffix}", secured=secured)
    try:
        cluster.up()
    except MissingProgramError as error:
        pytest.skip(str(error))
    try:
        yield cluster
    finally:
        cluster.down()
