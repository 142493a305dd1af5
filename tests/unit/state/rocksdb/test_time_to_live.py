"""Time to live in RocksDB: what has expired is not seen, is swept out of the files, and keeps its time in snapshots."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.state.contexts import CHECKPOINT as INLINE
from tests.unit.state.rocksdb.storage import CHECKPOINT, SAVEPOINT, Worker
from yarrow.common.time import Duration
from yarrow.common.typeinfo import Types
from yarrow.container.state.heap_keyed_state import HeapKeyedStateBackend
from yarrow.container.state.rocksdb.backend import RocksDBKeyedStateBackend
from yarrow.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from yarrow.runtime.common.clock import ManualClock

TTL = StateTtlConfig.new_builder(Duration.of_seconds(10)).build()


def living(descriptor: Any) -> Any:
    descriptor.enable_time_to_live(TTL)
    return descriptor


def value() -> ValueStateDescriptor[int]:
    return living(ValueStateDescriptor("value", Types.LONG()))  # type: ignore[no-any-return]


def filled(backend: Any, keys: range) -> None:
    numbers, pairs, single = (
        backend.list_state(living(ListStateDescriptor("list", Types.LONG()))),
        backend.map_state(living(MapStateDescriptor("map", Types.STRING(), Types.LONG()))),
        backend.value_state(value()),
    )
    for key in keys:
        backend.current_key = key
        numbers.add(key)
        pairs.put("a", key)
        single.update(key)


def seen(backend: Any, key: int) -> tuple[list[int], dict[str, int], int | None]:
    backend.current_key = key
    return (
        list(backend.list_state(living(ListStateDescriptor("list", Types.LONG()))).get()),
        dict(backend.map_state(living(MapStateDescriptor("map", Types.STRING(), Types.LONG()))).items()),
        backend.value_state(value()).value(),
    )


def stored(backend: RocksDBKeyedStateBackend) -> int:
    """Entries in the files and buffers of RocksDB."""
    return sum(len(list(backend.state_keys(name))) for name in ("list", "map", "value"))


@pytest.mark.parametrize("options", [CHECKPOINT, SAVEPOINT], ids=["native", "canonical"])
def test_times_of_access_survive_a_restore(worker: Worker, options: Any) -> None:
    clock = ManualClock(1_000_000)
    backend = worker.backend(clock=clock)
    filled(backend, range(0, 20))
    clock.advance(6)
    filled(backend, range(20, 40))
    handles = worker.snapshot(backend, 1, options)
    restored = worker.backend(handles, clock=clock)
    clock.advance(6)
    assert [seen(restored, key) for key in (3, 33)] == [([], {}, None), ([33], {"a": 33}, 33)]
    clock.advance(6)
    assert seen(restored, 33) == ([], {}, None)


def test_the_sweep_removes_what_nobody_reads(worker: Worker) -> None:
    clock = ManualClock(1_000_000)
    backend = worker.backend(clock=clock)
    filled(backend, range(300))
    worker.snapshot(backend, 1, INLINE)
    assert stored(backend) == 900
    clock.advance(6)
    filled(backend, range(100))
    clock.advance(6)
    for _ in range(30):
        backend.end_of_chunk()
    # The first hundred lists have one element left of two; their other states were written anew.
    assert stored(backend) == 300
    assert seen(backend, 50) == ([50], {"a": 50}, 50) and seen(backend, 200) == ([], {}, None)
    clock.advance(12)
    for _ in range(30):
        backend.end_of_chunk()
    assert stored(backend) == 0


@pytest.mark.parametrize("to_ttl", [True, False], ids=["added", "taken-away"])
def test_time_to_live_may_come_and_go(worker: Worker, to_ttl: bool) -> None:
    clock = ManualClock(1_000_000)
    plain: StateDescriptor = ValueStateDescriptor("value", Types.LONG())
    before, after = (plain, value()) if to_ttl else (value(), plain)
    backend = worker.backend(clock=clock)
    state = backend.value_state(before)  # type: ignore[arg-type]
    for key in range(30):
        backend.current_key = key
        state.update(key)
    for handles in (worker.snapshot(backend, 1), worker.snapshot(backend, 2, SAVEPOINT)):
        restored = worker.backend(handles, clock=clock)
        found = restored.value_state(after)  # type: ignore[arg-type]
        restored.current_key = 7
        assert found.value() == 7
        clock.advance(11)
        assert found.value() == (None if to_ttl else 7)
    heap = HeapKeyedStateBackend(worker.context(handles, clock=clock))
    heap.current_key = 8
    assert heap.value_state(after).value() == 8  # type: ignore[arg-type]
