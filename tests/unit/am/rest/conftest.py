"""Fixtures of the tests of the REST API."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.am.rest.fakes import FakeCluster


@pytest.fixture
def cluster(tmp_path: Path) -> FakeCluster:
    """A cluster in memory with folders of its own."""
    return FakeCluster(tmp_path)
