"""Tables by window in a canonical and in a native savepoint, written once: every later release must read both.

`python -m tests.format.test_windows_version_1 FOLDER` wrote them; never write them again. A release before tables by
window restores the canonical one, and refuses the native one by operator and state.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.counting_ids import CountingIdFactory
from tests.unit.container.state.contexts import context
from tests.unit.container.state.rocksdb.storage import MEMORY
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.container.state.backend import KeyedBackendContext, KeyedStateBackend
from yarrow.container.state.heap_keyed_state import HeapKeyedStateBackend
from yarrow.container.state.rocksdb.backend import RocksDBKeyedStateBackend
from yarrow.container.state.window_tables import TIME_WINDOWS, WindowTables
from yarrow.datastream.window import CountWindow, CountWindowSerializer, TimeWindow
from yarrow.runtime.common.ids import JobID, OperatorID
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointOptions, SnapshotKind
from yarrow.runtime.data.window_forms import WindowForm
from yarrow.runtime.snapshot.errors import StateMigrationError
from yarrow.runtime.snapshot.handles import (
    CheckpointMetadata,
    KeyedStateHandle,
    OperatorState,
    OperatorSubtaskState,
    RocksDBSnapshot,
)
from yarrow.runtime.snapshot.opening import open_snapshot
from yarrow.runtime.snapshot.snapshot_reader import SnapshotReader
from yarrow.runtime.snapshot.storage import FileSystemSnapshotStorage
from yarrow.runtime.snapshot.value_serializers import stored_serializer
from yarrow.runtime.snapshot.worker_file import FileSystemWorkerStorage
from yarrow.state_processor import SavepointReader

FOLDER = Path(__file__).parent / "windows-version-1"
COUNTS = WindowForm.of_serializer(CountWindowSerializer(), lambda window: window.id)


@dataclass(frozen=True)
class State:
    """A state by window, and what it holds."""

    value_type: TypeInformation | None
    form: WindowForm[Any]
    rows: dict[Any, dict[Any, Any]]


STATES = {
    "sums": State(
        Types.LONG(),
        TIME_WINDOWS,
        {
            TimeWindow(-20, -10): {1: 5, "a": -(2**40)},
            TimeWindow(0, 10): {number: number * number for number in range(-3, 30)},
            TimeWindow(5, 10): {1: 7},
            TimeWindow(1_700_000_000_000, 1_700_000_060_000): {"\u00e4": 0, None: 1, (1, "x"): 2, 2.5: 3},
        },
    ),
    "seen": State(
        Types.LIST(Types.STRING()),
        COUNTS,
        {
            CountWindow(-1): {"a": ["x", "y"]},
            CountWindow(0): {"a": []},
            CountWindow(7): {7: ["z"], "b": ["w"]},
        },
    ),
    "anything": State(None, TIME_WINDOWS, {TimeWindow(0, 255): {1: {"set": {1, 2}}, 2: ("pair", None)}}),
}


def backend_context(folder: str, restored: Sequence[KeyedStateHandle] = ()) -> KeyedBackendContext:
    made = context(restored=restored, settings=MEMORY, operator_name="windows")
    return msgspec.structs.replace(made, local_directory=folder, trusted=False)


def tables_of(backend: KeyedStateBackend, name: str) -> WindowTables[Any]:
    state = STATES[name]
    tables: WindowTables[Any] = backend.window_tables(name, state.value_type, state.form)
    return tables


def write(folder: str) -> None:
    """Writes both savepoints, `canonical` and `native`, below `folder`."""
    with tempfile.TemporaryDirectory() as local:
        heap = HeapKeyedStateBackend(backend_context(local))
        rocksdb = RocksDBKeyedStateBackend(backend_context(local))
        for kind, backend, native in (("canonical", heap, False), ("native", rocksdb, True)):
            for name, state in STATES.items():
                tables = tables_of(backend, name)
                for window, rows in state.rows.items():
                    tables.table(window).live[0].update(rows)
            options = CheckpointOptions(
                kind=SnapshotKind.SAVEPOINT, location=CheckpointLocation(directory=""), native=native
            )
            _write_one(f"{folder}/{kind}", backend, options)
            backend.dispose()


def _write_one(folder: str, backend: KeyedStateBackend, options: CheckpointOptions) -> None:
    job_id = JobID("0123456789abcdef" * 2)
    storage = FileSystemSnapshotStorage(folder, job_id, inline_threshold=64, ids=CountingIdFactory())
    location = storage.begin(3, SnapshotKind.SAVEPOINT, folder)
    output = FileSystemWorkerStorage(CountingIdFactory()).open_output(location)
    keyed = backend.snapshot(3, options).write(output)
    output.close()
    state = OperatorState(
        operator_id=OperatorID("ab" * 16), name="windows", uid="windows", parallelism=1, max_parallelism=16,
        subtasks={0: OperatorSubtaskState(keyed=keyed)},
    )  # fmt: skip
    metadata = CheckpointMetadata(
        engine_version="0.1.0", job_id=job_id, job_name="golden", checkpoint_id=3, timestamp_ms=1_700_000_000_000,
        kind=SnapshotKind.SAVEPOINT, operators=(state,),
    )  # fmt: skip
    storage.complete(location, metadata)


def path_of(kind: str, folder: Path = FOLDER) -> str:
    (path,) = (folder / kind).iterdir()
    return str(path)


@pytest.mark.parametrize(
    ("kind", "backend"), [("canonical", "heap"), ("canonical", "rocksdb"), ("native", "rocksdb")]
)
def test_it_restores_window_by_window(kind: str, backend: str, tmp_path: Path) -> None:
    opened = open_snapshot(path_of(kind))
    (operator,) = opened.metadata.operators
    handles = operator.subtasks[0].keyed
    assert [isinstance(handle, RocksDBSnapshot) for handle in handles] == [kind == "native"]
    reader = SnapshotReader(opened.directory)
    made = msgspec.structs.replace(
        backend_context(str(tmp_path), handles), read=reader.of("operator 'windows'")
    )
    restored: KeyedStateBackend = (
        HeapKeyedStateBackend(made) if backend == "heap" else RocksDBKeyedStateBackend(made)
    )
    for name, state in STATES.items():
        tables = tables_of(restored, name)
        assert tables.windows() == list(state.rows)
        for window, rows in state.rows.items():
            found: dict[Any, Any] = {}
            for keys, values in tables.rows(window):
                found.update(zip(keys, values, strict=True))
            assert found == rows
    restored.dispose()


@pytest.mark.parametrize("kind", ["canonical", "native"])
def test_the_state_processor_reads_it_as_maps_of_windows(kind: str) -> None:
    reader = SavepointReader.read(path_of(kind))
    found: dict[tuple[int, int], dict[Any, Any]] = {}
    for row in reader.read_keyed_state("ab" * 16, "sums").to_pylist():
        for window, value in row["value"]:
            found.setdefault(tuple(window.values()), {})[row["key"]] = value
    sums = STATES["sums"].rows
    assert {window: len(rows) for window, rows in found.items()} == {
        (window.start, window.end): len(rows) for window, rows in sums.items()
    }
    assert sorted(found[0, 10].values()) == sorted(sums[TimeWindow(0, 10)].values())
    seen = reader.read_keyed_state("ab" * 16, "seen").to_pylist()
    windows = {bytes(window) for row in seen for window, _ in row["value"]}
    assert windows == {number.to_bytes(8, "big", signed=True) for number in (-1, 0, 7)}


def test_the_native_one_bears_the_mark_that_older_releases_refuse_by_name() -> None:
    (operator,) = open_snapshot(path_of("native")).metadata.operators
    (handle,) = operator.subtasks[0].keyed
    for meta in handle.states:
        assert meta.is_by_window and meta.map_key is not None
        with pytest.raises(StateMigrationError, match=f"'windows', state '{meta.name}'.*version 1001"):
            stored_serializer(meta.map_key, operator.name, meta.name)
    (operator,) = open_snapshot(path_of("canonical")).metadata.operators
    assert not any(meta.is_by_window for handle in operator.subtasks[0].keyed for meta in handle.states)


def test_this_release_writes_the_same_bytes(tmp_path: Path) -> None:
    write(str(tmp_path))
    golden, written = Path(path_of("canonical")), Path(path_of("canonical", tmp_path))
    names = sorted(path.name for path in golden.iterdir())
    assert sorted(path.name for path in written.iterdir()) == names
    for name in names:
        assert (written / name).read_bytes() == (golden / name).read_bytes()


if __name__ == "__main__":
    write(sys.argv[1])
