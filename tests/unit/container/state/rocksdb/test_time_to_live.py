"""Time to live in RocksDB: what has expired is not seen, is swept out of the files, and keeps its time in snapshots."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.container.state.contexts import CHECKPOINT as INLINE
from tests.unit.container.state.rocksdb.storage import CHECKPOINT, SAVEPOINT, Worker
from tests.unit.container.state.test_ttl import NOTHING, UPDATES, VISIBILITY, States, advance, config
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


def test_a_savepoint_leaves_out_what_has_expired(worker: Worker) -> None:
    clock = ManualClock(1_000_000)
    backend = worker.backend(clock=clock)
    filled(backend, range(50))
    clock.advance(6)
    filled(backend, range(10))
    clock.advance(6)
    heap = HeapKeyedStateBackend(worker.context(worker.snapshot(backend, 1, SAVEPOINT), clock=clock))
    # Of each of the first ten keys the second element of the list, and what was written anew.
    assert [seen(heap, key) for key in (3, 30)] == [([3], {"a": 3}, 3), ([], {}, None)]
    assert heap.entries == 30
    clock.advance(12)
    # All of the state has expired.
    again = HeapKeyedStateBackend(worker.context(worker.snapshot(backend, 2, SAVEPOINT), clock=clock))
    seen(again, 3)
    assert again.entries == 0


@pytest.mark.parametrize("options", [CHECKPOINT, SAVEPOINT], ids=["native", "canonical"])
@pytest.mark.parametrize("update", [UPDATES.OnCreateAndWrite, UPDATES.OnReadAndWrite])
def test_all_kinds_live_as_on_the_heap(worker: Worker, update: Any, options: Any) -> None:
    clock = ManualClock(1_000_000)
    heap = States(HeapKeyedStateBackend(worker.context(clock=clock)), config(update))
    disk = States(worker.backend(clock=clock), config(update))
    seen: list[Any] = []
    for step, milliseconds in enumerate((0, 6, 3, 0, 7, 9, 4, 11, 4)):
        advance(clock, milliseconds)
        if step in (0, 3, 6):
            heap.write(step)
            disk.write(step)
        if step == 5:
            handles = worker.snapshot(disk.backend, step, options)
            disk = States(worker.backend(handles, clock=clock), config(update))
        disk.backend.end_of_chunk()
        found = disk.read()
        assert found == heap.read()
        seen.append(found)
    assert NOTHING in seen and any(found != NOTHING for found in seen[4:])


def test_expired_values_are_shown_until_they_are_cleaned_up(worker: Worker) -> None:
    clock = ManualClock(1_000_000)
    states = States(worker.backend(clock=clock), config(visibility=VISIBILITY.ReturnExpiredIfNotCleanedUp))
    states.write(1)
    advance(clock, 11)
    assert states.read() == [1, [1], {1: 1}, 1, 1]
    assert states.read() == NOTHING


@pytest.mark.differs(told="There is no compaction filter")
@pytest.mark.parametrize(("asked_for", "left"), [("nothing", 1), ("incremental", 1), ("compact filter", 0)])
def test_without_background_clean_up_only_that_of_rocksdb_sweeps(
    worker: Worker, asked_for: str, left: int
) -> None:
    builder = StateTtlConfig.new_builder(Duration.of_seconds(10)).disable_cleanup_in_background()
    if asked_for == "incremental":
        builder.cleanup_incrementally(10)
    elif asked_for == "compact filter":
        builder.cleanup_in_rocksdb_compact_filter(1000)
    clock = ManualClock(1_000_000)
    backend = worker.backend(clock=clock)
    descriptor: ValueStateDescriptor[int] = ValueStateDescriptor("value", Types.LONG())
    descriptor.enable_time_to_live(builder.build())
    state = backend.value_state(descriptor)
    backend.current_key = 1
    state.update(1)
    worker.snapshot(backend, 1)
    clock.advance(11)
    backend.end_of_chunk()
    assert len(list(backend.state_keys("value"))) == left
    assert state.value() is None


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
