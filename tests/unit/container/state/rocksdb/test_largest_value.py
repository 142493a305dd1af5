"""Values at RocksDB's own limit of 2^31 bytes: 9 GB of memory and as much time as a disk takes; left to bench/soak."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.container.state.rocksdb.storage import Worker
from yarrow.common.typeinfo import Types
from yarrow.container.state.rocksdb.errors import StateValueTooLargeError
from yarrow.container.state.rocksdb.store import DEFAULT_LIMITS, LARGEST_VALUE
from yarrow.datastream.state import ValueStateDescriptor

pytestmark = [
    pytest.mark.soak,
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("YARROW_SOAK"), reason="needs 9 GB: bench/soak --largest-value"),
]

BLOB: ValueStateDescriptor[bytes] = ValueStateDescriptor("blob", Types.PRIMITIVE_ARRAY(Types.BYTE()))
#: What stands before the bytes of a single value of that type in the database.
HEAD = 10


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    made = Worker(tmp_path)
    yield made
    made.close()


def test_a_value_of_2_to_the_31_bytes_is_refused_by_operator_state_and_key(worker: Worker) -> None:
    backend = worker.backend(limits=DEFAULT_LIMITS)
    state = backend.value_state(BLOB)
    backend.current_key = "small"
    state.update(b"small")
    backend.end_of_chunk()
    handles = worker.snapshot(backend)
    backend.current_key = "large"
    state.update(b"x" * (LARGEST_VALUE + 1 - HEAD))
    match = "operator 'op', state 'blob', key 'large': the value has 2147483648 bytes, RocksDB holds at most"
    with pytest.raises(StateValueTooLargeError, match=match):
        worker.snapshot(backend)
    worker.dispose(backend)
    restored = worker.backend(handles)
    found = restored.value_state(BLOB)
    for key, value in (("small", b"small"), ("large", None)):
        restored.current_key = key
        assert found.value() == value


def test_the_largest_value_is_written_and_restored(worker: Worker) -> None:
    backend = worker.backend(limits=DEFAULT_LIMITS)
    state = backend.value_state(BLOB)
    backend.current_key = "large"
    size = LARGEST_VALUE - HEAD
    state.update(b"x" * (size - 1) + b"y")
    handles = worker.snapshot(backend)
    worker.dispose(backend)
    restored = worker.backend(handles)
    restored.current_key = "large"
    value = restored.value_state(BLOB).value()
    assert value is not None and len(value) == size and value[:1] + value[-1:] == b"xy"
