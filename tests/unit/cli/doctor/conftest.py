"""The doctor in tests asks HDFS once: the servers of these tests answer at once, or never."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from yarrow.runtime.fs.hdfs_settings import HdfsSettings, use_hdfs_settings


@pytest.fixture(autouse=True)
def hdfs_is_asked_once() -> Iterator[None]:
    """A write that a server of a test does not take is not repeated."""
    former = use_hdfs_settings(HdfsSettings(retry_seconds=0))
    yield
    use_hdfs_settings(former)
