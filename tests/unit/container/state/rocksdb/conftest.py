"""A worker for each test; nothing of it is left behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.container.state.rocksdb.storage import Worker


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    made = Worker(tmp_path)
    yield made
    made.close()
    assert not list(made.local.glob("rocksdb-*"))
    # Nothing holds a deleted file open.
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    assert not [link for link in links if "rocksdb-" in (os.readlink(link) if os.path.islink(link) else "")]
    assert not [t.name for t in threading.enumerate() if t.name.startswith("rocksdb")]
