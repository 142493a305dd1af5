"""A worker for each test; nothing of it is left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.state.rocksdb.storage import Worker


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    made = Worker(tmp_path)
    yield made
    made.close()
    assert not list(made.local.glob("rocksdb-*"))
    assert not [t.name for t in threading.enumerate() if t.name.startswith("rocksdb")]
