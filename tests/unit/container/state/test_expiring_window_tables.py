"""Tables by window whose values are pairs of a time and a value: snapshots of both forms, and both backends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.container.state.contexts import Mails
from tests.unit.container.state.rocksdb.storage import CHECKPOINT, SAVEPOINT, Worker
from yarrow.common.time import Time
from yarrow.common.typeinfo import Types
from yarrow.container.batch.single_key_state import SingleKeyStateBackend
from yarrow.container.state.backend import KeyedStateBackend
from yarrow.container.state.debug_backend import DebugBackend
from yarrow.container.state.errors import StateConflictError
from yarrow.container.state.heap_keyed_state import HeapKeyedStateBackend
from yarrow.container.state.window_tables import TIME_WINDOWS, WindowTables
from yarrow.datastream.state import StateTtlConfig
from yarrow.datastream.window import TimeWindow
from yarrow.runtime.common.clock import ManualClock

LIFETIME = StateTtlConfig.new_builder(Time.milliseconds(1000)).build()
ONE, OTHER = TimeWindow(0, 10), TimeWindow(10, 20)

BACKENDS = pytest.mark.parametrize("kind", ["hashmap", "rocksdb"])


class Place:
    """Backends that restore from each other, by one clock."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.clock = ManualClock(1000)
        self.mails = Mails()

    def backend(self, kind: str, handles: Any = ()) -> KeyedStateBackend:
        if kind == "rocksdb":
            return self.worker.backend(handles, clock=self.clock)
        return HeapKeyedStateBackend(self.worker.context(handles, mails=self.mails, clock=self.clock))

    def end(self, backend: KeyedStateBackend) -> None:
        if isinstance(backend, HeapKeyedStateBackend):
            backend.dispose()
        else:
            self.worker.dispose(backend)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    worker = Worker(tmp_path)
    yield Place(worker)
    worker.close()


def tables_of(backend: KeyedStateBackend, ttl: StateTtlConfig | None = LIFETIME) -> WindowTables[Any]:
    tables: WindowTables[Any] = backend.window_tables("sums", Types.LONG(), TIME_WINDOWS, ttl)
    return tables


def put(tables: WindowTables[Any], window: TimeWindow, values: dict[Any, Any]) -> None:
    for key, value in values.items():
        found, entries, _ = tables.table(window).find(key)
        entries[found] = value


def content(tables: WindowTables[Any]) -> dict[Any, dict[Any, Any]]:
    return {
        window: {
            key: value
            for keys, values in tables.rows(window)
            for key, value in zip(keys, values, strict=True)
        }
        for window in tables.windows()
    }


@pytest.mark.parametrize("options", [CHECKPOINT, SAVEPOINT], ids=["native", "canonical"])
@BACKENDS
def test_times_are_part_of_snapshots_and_go_with_the_time_to_live(
    place: Place, kind: str, options: Any
) -> None:
    backend = place.backend(kind)
    put(tables_of(backend), ONE, {"a": (900, 1), "b": (1000, 2)})
    put(tables_of(backend), OTHER, {"a": (1000, 3)})
    handles = place.worker.snapshot(backend, 1, options)
    place.end(backend)
    restored = place.backend(kind, handles)
    kept = {ONE: {"a": (900, 1), "b": (1000, 2)}, OTHER: {"a": (1000, 3)}}
    assert content(tables_of(restored)) == kept
    handles = place.worker.snapshot(restored, 2, options)
    place.end(restored)
    without = place.backend(kind, handles)
    bare = {ONE: {"a": 1, "b": 2}, OTHER: {"a": 3}}
    assert content(tables_of(without, None)) == bare
    handles = place.worker.snapshot(without, 3, options)
    place.end(without)
    place.clock.advance(2)
    again = place.backend(kind, handles)
    # What had no time counts as accessed at the restore.
    stamped = {window: {key: (3000, value) for key, value in rows.items()} for window, rows in bare.items()}
    assert content(tables_of(again)) == stamped
    place.end(again)


@BACKENDS
def test_the_sweep_goes_round_all_windows(place: Place, kind: str) -> None:
    backend = place.backend(kind)
    tables = tables_of(backend)
    for start in range(0, 100, 10):
        put(tables, TimeWindow(start, start + 10), {key: (key, key) for key in range(0, 2000, 100)})
    backend.announce_checkpoint(1)
    place.clock.advance(1)
    for _ in range(5):
        backend.end_of_chunk()
    place.worker.snapshot(backend, 1, SAVEPOINT)
    left = {key: (key, key) for key in range(1100, 2000, 100)}
    backend.end_of_chunk()
    assert all(rows == left for rows in content(tables).values())
    assert len(tables.windows()) == 10
    place.end(backend)


def test_the_same_state_has_one_time_to_live(place: Place) -> None:
    backend = place.backend("hashmap")
    tables_of(backend)
    with pytest.raises(StateConflictError, match="another time to live"):
        tables_of(backend, None)


def test_a_backend_that_finds_changes_keeps_the_time_to_live(place: Place) -> None:
    backend = DebugBackend(place.backend("hashmap"), place.worker.context())
    assert backend.keeps_access_times
    assert tables_of(backend).ttl is not None


def test_no_value_expires_over_bounded_input(place: Place) -> None:
    backend = SingleKeyStateBackend(place.worker.context((), mails=place.mails, clock=place.clock))
    assert not backend.keeps_access_times
    assert tables_of(backend).ttl is None
    put(tables_of(backend), ONE, {"a": 1})
    place.clock.advance(5)
    backend.end_of_chunk()
    assert content(tables_of(backend)) == {ONE: {"a": 1}}
    backend.dispose()
