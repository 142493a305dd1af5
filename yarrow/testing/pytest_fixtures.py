"""Fixtures for tests with pytest: `pytest_plugins = ["yarrow.testing.pytest_fixtures"]` in a conftest.py.

Owner: pytest. Only tests import this module; nothing of the engine needs pytest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from yarrow.testing.mini_cluster import MiniCluster


@pytest.fixture(scope="session")
def mini_cluster_options() -> Mapping[str, str]:
    """Options of the cluster; a conftest.py may define this fixture anew."""
    return {}


@pytest.fixture(scope="session")
def mini_cluster(mini_cluster_options: Mapping[str, str]) -> Iterator[MiniCluster]:
    """A cluster for all tests of the session, on which each `execute` of theirs runs.

    It starts with the first test that asks for it. Each test may also ask it for an environment with options of its
    own: `mini_cluster.get_execution_environment({...})`.
    """
    with MiniCluster({"rest.bind-port": "0", **mini_cluster_options}) as cluster:
        yield cluster
