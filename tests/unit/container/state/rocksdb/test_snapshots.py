"""Which files checkpoints upload, what the cut does and does not wait for, and what stays on the disk."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.container.state.rocksdb.storage import CHECKPOINT, LOCATION, SAVEPOINT, Worker
from tests.unit.container.state.test_heap_backend import Arrays, Timers
from tests.unit.runtime.snapshot.stored_classes import Opaque
from yarrow.common.typeinfo import Types
from yarrow.container.state.backend import KeyedStateBackend, Timer
from yarrow.container.state.backend_builder import keyed_state_backend
from yarrow.container.state.errors import StateBackendError
from yarrow.container.state.heap_keyed_state import HeapKeyedStateBackend
from yarrow.container.state.rocksdb.errors import RocksDBError, RocksDBFolderError, StateValueTooLargeError
from yarrow.container.state.rocksdb.store import StoreLimits
from yarrow.container.state.value_table import MISSING
from yarrow.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from yarrow.runtime.data.checkpoint_options import (
    CheckpointLocation,
    CheckpointOptions,
    CheckpointType,
    SnapshotKind,
)
from yarrow.runtime.snapshot.errors import StateMigrationError, UntrustedPickleError
from yarrow.runtime.snapshot.handles import KeyGroupsSnapshot, RocksDBSnapshot

VALUE: ValueStateDescriptor[int] = ValueStateDescriptor("value", Types.LONG())
LIST: ListStateDescriptor[str] = ListStateDescriptor("list", Types.STRING())


def put(backend: KeyedStateBackend, keys: Any, value: int) -> None:
    state = backend.value_state(VALUE)
    for key in keys:
        backend.current_key = key
        state.update(value)


def held(backend: KeyedStateBackend, keys: Any) -> list[int | None]:
    state = backend.value_state(VALUE)
    found = []
    for key in keys:
        backend.current_key = key
        found.append(state.value())
    return found


def only_native(handles: tuple[Any, ...]) -> RocksDBSnapshot:
    (handle,) = [handle for handle in handles if isinstance(handle, RocksDBSnapshot)]
    return handle


def test_files_of_completed_checkpoints_alone_are_referred_to(worker: Worker) -> None:
    backend = worker.backend()
    put(backend, range(100), 1)
    first = worker.snapshot(backend, 1)
    uploaded = worker.storage.take_uploaded()
    assert uploaded
    backend.checkpoint_completed(1)
    put(backend, range(3), 2)
    aborted = worker.snapshot(backend, 2)
    of_second = worker.storage.take_uploaded()
    assert of_second and not set(of_second) & set(uploaded)
    assert only_native(aborted).backend_id == only_native(first).backend_id
    backend.checkpoint_aborted(2)
    worker.storage.delete_but(first)
    put(backend, range(3, 6), 3)
    third = worker.snapshot(backend, 3)
    # What the aborted one had uploaded is uploaded again; what the completed one has is not.
    again = worker.storage.take_uploaded()
    assert set(of_second) <= set(again) and not set(again) & set(uploaded)
    backend.checkpoint_completed(3)
    worker.storage.delete_but(third)
    worker.dispose(backend)
    assert held(worker.backend(third), range(7)) == [2, 2, 2, 3, 3, 3, 1]


def test_while_nobody_knows_of_a_checkpoint_its_files_are_not_referred_to(worker: Worker) -> None:
    backend = worker.backend()
    put(backend, range(10), 1)
    worker.snapshot(backend, 1)
    once = worker.storage.take_uploaded()
    second = worker.snapshot(backend, 2)
    assert worker.storage.take_uploaded() == once
    backend.checkpoint_completed(2)
    backend.checkpoint_completed(1)  # late: subsumed by the second
    worker.storage.delete_but(second)
    third = worker.snapshot(backend, 3)
    assert not worker.storage.take_uploaded()
    assert held(worker.backend(third), range(10)) == [1] * 10


def test_what_was_restored_is_not_uploaded_again(worker: Worker) -> None:
    backend = worker.backend()
    put(backend, range(100), 1)
    first = worker.snapshot(backend, 7)
    worker.dispose(backend)
    worker.storage.take_uploaded()
    backend = worker.backend(first, checkpoint_id=7)
    second = worker.snapshot(backend, 8)
    assert not worker.storage.take_uploaded()
    assert only_native(second).shared == only_native(first).shared != ()
    # Checkpoint 8 is given up: what it refers to is that of checkpoint 7 still.
    backend.checkpoint_aborted(8)
    put(backend, range(3), 2)
    third = worker.snapshot(backend, 9)
    assert worker.storage.take_uploaded()
    assert set(only_native(first).shared) <= set(only_native(third).shared)
    backend.checkpoint_completed(9)
    worker.storage.delete_but(third)
    worker.dispose(backend)
    assert held(worker.backend(third, checkpoint_id=9), range(4)) == [2, 2, 2, 1]


def test_what_is_not_the_jobs_own_or_divided_is_uploaded(worker: Worker) -> None:
    backend = worker.backend()
    put(backend, range(100), 1)
    first = worker.snapshot(backend, 7)
    whole = set(worker.storage.take_uploaded())
    elsewhere = CheckpointLocation(directory="checkpoint", shared_directory="shared of another job")
    refused = [CheckpointOptions(kind=SnapshotKind.CHECKPOINT, location=elsewhere)]
    # The job has begun from it and does not own it.
    refused.append(CheckpointOptions(kind=SnapshotKind.CHECKPOINT, location=LOCATION, oldest_kept=8))
    for options in refused:
        restored = worker.backend(first, checkpoint_id=7)
        again = worker.snapshot(restored, 8, options)
        assert set(worker.storage.take_uploaded()) == whole
        assert not set(only_native(again).shared) & set(only_native(first).shared)
    half = worker.backend(first, checkpoint_id=7, parallelism=2)
    divided = only_native(worker.snapshot(half, 8))
    assert worker.storage.take_uploaded() and not set(divided.shared) & set(only_native(first).shared)


def test_a_savepoint_between_checkpoints_changes_nothing_for_them(worker: Worker) -> None:
    backend = worker.backend()
    put(backend, range(10), 1)
    first = worker.snapshot(backend, 1)
    backend.checkpoint_completed(1)
    worker.storage.take_uploaded()
    savepoint = worker.snapshot(backend, 2, SAVEPOINT)
    backend.checkpoint_completed(2)
    assert [type(handle) for handle in savepoint] == [KeyGroupsSnapshot]
    worker.snapshot(backend, 3)
    assert not worker.storage.take_uploaded()
    worker.storage.delete_but(first)


@pytest.mark.parametrize(
    ("settings", "shared_directory"),
    [({"execution.checkpointing.incremental": "false"}, "shared"), ({}, "")],
    ids=["not-incremental", "no-shared-directory"],
)
def test_without_sharing_all_files_belong_to_the_checkpoint(
    worker: Worker, settings: dict[str, str], shared_directory: str
) -> None:
    location = CheckpointLocation(directory="", shared_directory=shared_directory)
    options = CheckpointOptions(kind=SnapshotKind.CHECKPOINT, location=location)
    backend = worker.backend(settings=settings)
    put(backend, range(10), 1)
    for checkpoint in (1, 2):
        handles = worker.snapshot(backend, checkpoint, options)
        backend.checkpoint_completed(checkpoint)
        assert not only_native(handles).shared and not worker.storage.uploaded
    assert held(worker.backend(handles), range(10)) == [1] * 10


def test_the_task_goes_on_while_the_helper_links(worker: Worker) -> None:
    backend = worker.backend()
    put(backend, range(20), 1)
    pending = backend.snapshot(1, CHECKPOINT)
    # Fewer changes than may be kept back: none of these waits, whether or not the database is linked already.
    put(backend, range(20), 2)
    backend.end_of_chunk()
    assert held(backend, range(20)) == [2] * 20
    restored = worker.backend(pending.write(worker.storage))
    assert held(restored, range(20)) == [1] * 20


def test_local_files_end_with_the_backend_or_with_the_snapshot_that_reads_them(worker: Worker) -> None:
    backend = worker.backend()
    put(backend, range(20), 1)
    written, discarded = backend.snapshot(1, CHECKPOINT), backend.snapshot(2, CHECKPOINT)
    worker.dispose(backend)
    assert list(worker.local.glob("rocksdb-*/checkpoint-*"))
    discarded.discard()
    handles = written.write(worker.storage)
    written.discard()
    assert not list(worker.local.glob("rocksdb-*"))
    assert held(worker.backend(handles), range(20)) == [1] * 20


def test_what_a_dead_process_left_is_removed_and_never_read(worker: Worker) -> None:
    dead = worker.local / "rocksdb-0123"
    (dead / "db").mkdir(parents=True)
    (dead / "in-use").touch()
    (dead / "db" / "CURRENT").write_text("nonsense")
    alive = worker.backend()
    put(alive, [1], 1)
    assert not dead.exists()
    other = worker.backend()
    assert held(other, [1]) == [None] and held(alive, [1]) == [1]
    assert len(list(worker.local.glob("rocksdb-*"))) == 2


def test_directories_are_those_of_the_configuration(worker: Worker, tmp_path: Path) -> None:
    settings = {"state.backend.rocksdb.localdir": str(tmp_path / "disk")}
    backend = worker.backend(settings=settings)
    put(backend, [1], 1)
    assert list((tmp_path / "disk").glob("rocksdb-*/db/CURRENT"))
    worker.dispose(backend)
    assert not list((tmp_path / "disk").glob("rocksdb-*"))
    (tmp_path / "file").touch()
    refused = worker.backend(settings={"state.backend.rocksdb.localdir": str(tmp_path / "file" / "x")})
    with pytest.raises(RocksDBFolderError, match=r"file/x.*state\.backend\.rocksdb\.localdir"):
        refused.value_state(VALUE)


def test_every_directory_is_looked_at_before_a_task_takes_a_record(worker: Worker, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    def made_with(directories: str) -> KeyedStateBackend:
        settings = {"state.backend.type": "rocksdb", "state.backend.rocksdb.localdir": directories}
        return keyed_state_backend(worker.context(settings=settings))

    backend = made_with(f"file://{tmp_path}/fast disk,{tmp_path}/b")
    assert (tmp_path / "fast disk").is_dir() and (tmp_path / "b").is_dir()
    backend.dispose()
    with pytest.raises(RocksDBFolderError, match=rf"^{tmp_path}/file/x: this directory of state\.backend"):
        made_with(f"{tmp_path}/a,file://{tmp_path}/file/x")
    with pytest.raises(RocksDBFolderError, match=r"^rocks: .* \(the path is not absolute\)"):
        made_with("rocks")


def test_an_operator_without_keyed_state_opens_no_database(worker: Worker) -> None:
    backend = worker.backend()
    backend.end_of_chunk()
    backend.announce_checkpoint(1)
    for options in (CHECKPOINT, SAVEPOINT):
        assert worker.snapshot(backend, 1, options) == ()
    assert not worker.local.exists()


def test_timers_and_sections_travel_beside_the_files(worker: Worker) -> None:
    for options in (CHECKPOINT, SAVEPOINT):
        backend = worker.backend()
        backend.register_timers("timers", Timers(Timer(5, "a"), Timer(6, 2, ("w", 1))))
        backend.register_section("arrays", Arrays(a=1, b=2))
        put(backend, ["a", 2], 7)
        handles = worker.snapshot(backend, 1, options)
        restored = [worker.backend(handles, subtask=n, parallelism=2) for n in range(2)]
        timers, arrays = [Timers(), Timers()], [Arrays(), Arrays()]
        for n in range(2):
            restored[n].register_timers("timers", timers[n])
            restored[n].register_section("arrays", arrays[n])
        assert sorted((t.timestamp, t.key) for each in timers for t in each.timers) == [(5, "a"), (6, 2)]
        assert {**arrays[0].entries, **arrays[1].entries} == {"a": 1, "b": 2}
        for each in (backend, *restored):
            worker.dispose(each)


@pytest.mark.parametrize("options", [CHECKPOINT, SAVEPOINT], ids=["native", "canonical"])
@pytest.mark.parametrize("then", [CHECKPOINT, SAVEPOINT], ids=["native", "canonical"])
def test_states_that_nobody_asks_for_are_carried_on(worker: Worker, options: Any, then: Any) -> None:
    backend = worker.backend()
    put(backend, range(30), 1)
    numbers = backend.list_state(LIST)
    for key in range(30):
        backend.current_key = key
        numbers.add_all(["x", str(key)])
    handles = worker.snapshot(backend, 1, options)
    between = [worker.backend(handles, subtask=n, parallelism=2) for n in range(2)]
    for each in between:
        assert each.value_state(VALUE) is not None
    handles = tuple(handle for each in between for handle in worker.snapshot(each, 2, then))
    last = worker.backend(handles)
    found = last.list_state(LIST)
    for key in range(30):
        last.current_key = key
        assert list(found.get()) == ["x", str(key)]
        found.add("behind")
        assert list(found.get()) == ["x", str(key), "behind"]
    assert held(last, range(30)) == [1] * 30


def test_values_that_are_only_read_are_kept_within_a_bound_of_bytes(worker: Worker) -> None:
    written = worker.backend(limits=StoreLimits())
    texts: ValueStateDescriptor[str] = ValueStateDescriptor("texts", Types.STRING())
    maps: MapStateDescriptor[int, str] = MapStateDescriptor("maps", Types.LONG(), Types.STRING())
    keys, text = range(400), "x" * 100_000
    for key in keys:
        written.current_key = key
        written.value_state(texts).update(text)
        written.map_state(maps).put(key, text)
        written.end_of_chunk()
    backend = worker.backend(worker.snapshot(written, 1), limits=StoreLimits())
    worker.dispose(written)
    value, of_map = backend.value_state(texts), backend.map_state(maps)
    for ahead in (False, True):
        for start in range(0, len(keys), 20):
            chunk = keys[start : start + 20]
            if ahead:
                backend.prefetch(chunk)
            for key in chunk:
                backend.current_key = key
                assert value.value() == of_map.get(key) == text
            backend.end_of_chunk()
            caches: list[dict[Any, Any]] = [store._read for store in backend._stores.values()]  # type: ignore[attr-defined]
            kept = [sum(_size(found) for found in cache.values()) for cache in caches]
            # Of 40 MB: several times what changes may be, since values read and written are kept apart.
            assert max(kept) <= 12 * 1024 * 1024
    assert max(kept) > 0


def _size(value: object) -> int:
    return len(value) if isinstance(value, str | bytes) else 0


def test_a_value_beyond_the_limit_is_refused_by_state_and_key(worker: Worker) -> None:
    backend = worker.backend(limits=StoreLimits(most_changes=4, largest_value=100))
    state = backend.map_state(MapStateDescriptor("map", Types.STRING(), Types.STRING()))
    numbers = backend.list_state(LIST)
    backend.current_key = "the key"
    state.put("a", "x" * 90)
    numbers.add("kept")
    changes: list[Callable[[], None]] = [
        lambda: state.put("b", "x" * 200),
        lambda: state.put_all({"c": "y", "d": "x" * 200}),
        lambda: numbers.add_all(["y", "x" * 200]),
        lambda: numbers.update(["x" * 200]),
    ]
    for change in changes:
        with pytest.raises(StateValueTooLargeError, match=r"state '(map|list)', key 'the key'.*at most 100"):
            change()
    # A refused change leaves nothing behind.
    assert dict(state.items()) == {"a": "x" * 90} and list(numbers.get()) == ["kept"]
    value = backend.value_state(ValueStateDescriptor("text", Types.STRING()))
    value.update("x" * 200)
    with pytest.raises(StateValueTooLargeError, match="state 'text', key 'the key'"):
        backend.snapshot(1, CHECKPOINT)


def test_a_full_disk_is_named_with_operator_state_and_path(worker: Worker) -> None:
    backend = worker.backend(operator_name="counts")
    state = backend.value_state(ValueStateDescriptor("text", Types.STRING()))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        # Python ignores the signal: writes beyond the limit fail, as they do on a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, hard))
        with pytest.raises(RocksDBError) as caught:
            for number in range(20):
                for key in range(1000):
                    backend.current_key = number * 1000 + key
                    state.update(f"{key:05d}{number:05d}" * 20)
                backend.end_of_chunk()
                backend.snapshot(number, CHECKPOINT).write(worker.storage)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "operator 'counts'" in str(caught.value) and str(worker.local) in str(caught.value)


def test_a_changed_type_is_rewritten_or_refused_by_name(worker: Worker) -> None:
    backend = worker.backend()
    put(backend, range(20), 3)
    pairs = backend.map_state(
        MapStateDescriptor("map", Types.INT(), Types.TUPLE([Types.LONG(), Types.INT()]))
    )
    backend.current_key = 1
    pairs.put_all({1: (1, 2), 2: (3, None)})
    handles = worker.snapshot(backend)
    other = worker.backend(handles)
    wide = other.value_state(ValueStateDescriptor("value", Types.DOUBLE()))
    other.current_key = 19
    assert (wide.value(), type(wide.value())) == (3.0, float)
    changed: MapStateDescriptor[int, tuple[float, int]] = MapStateDescriptor(
        "map", Types.LONG(), Types.TUPLE([Types.DOUBLE(), Types.LONG()])
    )
    other.current_key = 1
    assert dict(other.map_state(changed).items()) == {1: (1.0, 2), 2: (3.0, None)}
    assert other.map_state(changed).get(2) == (3.0, None)
    with pytest.raises(StateMigrationError, match="state 'value'"):
        worker.backend(handles).value_state(ValueStateDescriptor("value", Types.STRING()))
    with pytest.raises(StateMigrationError, match="value state"):
        worker.backend(handles).list_state(ListStateDescriptor("value", Types.LONG()))


def test_the_heap_refuses_files_and_reads_savepoints(worker: Worker) -> None:
    backend = worker.backend()
    put(backend, range(20), 3)
    with pytest.raises(StateBackendError):
        HeapKeyedStateBackend(worker.context(worker.snapshot(backend, 1)))
    heap = HeapKeyedStateBackend(worker.context(worker.snapshot(backend, 2, SAVEPOINT)))
    assert held(heap, range(20)) == [3] * 20


def test_a_table_reads_a_chunk_at_once_and_writes_by_generations(worker: Worker) -> None:
    backend = worker.backend(limits=StoreLimits(most_changes=8))
    table = backend.value_table("sums", Types.TUPLE([Types.LONG(), Types.LONG()]))
    assert table.wants_keys
    expected: dict[int, int] = {}
    for chunk in range(40):
        keys = [(chunk * 7 + n * n) % 50 for n in range(9)] + [2.0, True]
        table.prefetch(keys)
        for key in keys:
            live = table.live[0]
            if key in live:
                value = live[key]
            else:
                key, live, value = table.miss(key)
            count = 0 if value is MISSING else value[1]
            live[key] = (int(key), count + 1)
            expected[int(key)] = expected.get(int(key), 0) + 1
        backend.end_of_chunk()
        if chunk % 9 == 8:
            handles = worker.snapshot(backend, chunk)
            backend.checkpoint_completed(chunk)
    for restored in (worker.backend(handles), backend):
        table = restored.value_table("sums", Types.TUPLE([Types.LONG(), Types.LONG()]))
        assert not restored.wants_keys
    assert {key: table.miss(key)[2][1] for key in expected} == expected
    assert sorted(backend.state_keys("sums")) == sorted(expected)


@pytest.mark.parametrize("cut_every", [1, 2, 5])
def test_keys_told_for_several_chunks_survive_cuts_between_them(worker: Worker, cut_every: int) -> None:
    backend = worker.backend(limits=StoreLimits(most_changes=16))
    assert backend.read_ahead_rows == 0
    table = backend.value_table("sums", Types.TUPLE([Types.LONG(), Types.LONG()]))
    assert backend.read_ahead_rows == 8
    expected: dict[int, int] = {}
    chunks = 0
    for number in range(30):
        keys = [(number * 5 + n * n) % 40 for n in range(12)] * 2
        table.prefetch(keys)
        for start in range(0, len(keys), 4):
            live = table.live[0]
            for key in keys[start : start + 4]:
                value = live.get(key)
                if value is None:
                    _, live, value = table.miss(key)
                count = 0 if value is MISSING else value[1]
                live[key] = (key, count + 1)
                expected[key] = expected.get(key, 0) + 1
            backend.end_of_chunk()
            chunks += 1
            if not chunks % cut_every:
                handles = worker.snapshot(backend, chunks)
                backend.checkpoint_completed(chunks)
    handles = worker.snapshot(backend, 1000)
    for restored in (worker.backend(handles), backend):
        table = restored.value_table("sums", Types.TUPLE([Types.LONG(), Types.LONG()]))
        assert {key: table.miss(key)[2][1] for key in expected} == expected


def test_databases_of_a_worker_share_one_bounded_memory(worker: Worker) -> None:
    settings = {"state.backend.rocksdb.memory.fixed-per-slot": "8 mb"}
    backends = [worker.backend(settings=settings, subtask=n, parallelism=4) for n in range(4)]
    for number, backend in enumerate(backends, 1):
        # Each has another number of rows: databases of their own would not use the same.
        put(backend, range(1000 * number), 1)
        backend.end_of_chunk()

    def asked_for_metrics() -> list[dict[str, Any]]:
        return [dict(backend.context.metrics._registry.values()) for backend in backends]

    metrics = asked_for_metrics()
    assert {values["op.rocksdb_block-cache-capacity"] for values in metrics} == {8 * 1024 * 1024}
    # RocksDB's threads may write meanwhile, which changes what is used between two of the answers.
    give_up = time.monotonic() + 60
    while len({values["op.rocksdb_block-cache-usage"] for values in metrics}) > 1:
        assert time.monotonic() < give_up, metrics
        metrics = asked_for_metrics()
    assert 0 < metrics[0]["op.rocksdb_block-cache-usage"] <= 8 * 1024 * 1024
    assert all(values["op.rocksdb_estimate-num-keys"] > 0 for values in metrics)
    assert LOCATION.shared_directory


def test_writes_that_rocksdb_holds_up_are_tried_again(worker: Worker) -> None:
    settings = {
        "state.backend.rocksdb.writebuffer.size": "64 kb",
        "state.backend.rocksdb.memory.fixed-per-slot": "8 mb",
    }
    backend = worker.backend(settings=settings, limits=StoreLimits(most_changes=64))
    state = backend.value_state(ValueStateDescriptor("text", Types.STRING()))
    for number in range(20_000):
        backend.current_key = number
        state.update(f"{number:05d}" * 40)
        if number % 500 == 0:
            backend.end_of_chunk()
    for number in range(0, 20_000, 777):
        backend.current_key = number
        assert state.value() == f"{number:05d}" * 40


def asked(kind: SnapshotKind = SnapshotKind.CHECKPOINT, **options: Any) -> CheckpointOptions:
    return CheckpointOptions(kind=kind, location=LOCATION, **options)


def test_a_native_savepoint_shares_nothing_and_restores(worker: Worker) -> None:
    backend = worker.backend()
    put(backend, range(100), 1)
    first = worker.snapshot(backend, 1)
    backend.checkpoint_completed(1)
    worker.storage.take_uploaded()
    savepoint = worker.snapshot(backend, 2, asked(SnapshotKind.SAVEPOINT, native=True))
    assert only_native(savepoint).private and not only_native(savepoint).shared
    assert not worker.storage.take_uploaded()
    put(backend, range(3), 2)
    third = worker.snapshot(backend, 3)
    of_first = {file.name for file in only_native(first).shared}
    assert of_first <= {file.name for file in only_native(third).shared}, "a savepoint is nothing to it"
    worker.storage.delete_but([])
    assert held(worker.backend(savepoint), range(101)) == [1] * 100 + [None]


def test_a_full_checkpoint_refers_to_nothing_earlier_and_is_referred_to(worker: Worker) -> None:
    backend = worker.backend()
    put(backend, range(100), 1)
    worker.snapshot(backend, 1)
    backend.checkpoint_completed(1)
    once = worker.storage.take_uploaded()
    full = worker.snapshot(backend, 2, asked(checkpoint_type=CheckpointType.FULL))
    assert worker.storage.take_uploaded() == once
    backend.checkpoint_completed(2)
    worker.storage.delete_but(full)
    third = worker.snapshot(backend, 3)
    assert not worker.storage.take_uploaded()
    assert held(worker.backend(third), range(100)) == [1] * 100


def test_an_incremental_checkpoint_of_a_job_that_takes_full_ones(worker: Worker) -> None:
    backend = worker.backend(settings={"execution.checkpointing.incremental": "false"})
    incremental = asked(checkpoint_type=CheckpointType.INCREMENTAL)
    put(backend, range(100), 1)
    worker.snapshot(backend, 1, incremental)
    once = worker.storage.take_uploaded()
    backend.checkpoint_completed(1)
    worker.snapshot(backend, 2, incremental)
    assert once and not worker.storage.take_uploaded()
    backend.checkpoint_completed(2)
    own = worker.snapshot(backend, 3)
    assert not only_native(own).shared
    backend.checkpoint_completed(3)
    worker.storage.delete_but([])
    again = worker.snapshot(backend, 4, incremental)
    assert worker.storage.take_uploaded() == once, "what the second had went when the third took its place"
    assert held(worker.backend(again), range(100)) == [1] * 100


def test_files_of_checkpoints_that_are_not_kept_any_more_are_not_referred_to(worker: Worker) -> None:
    backend = worker.backend()
    put(backend, range(100), 1)
    worker.snapshot(backend, 1)
    backend.checkpoint_completed(1)
    once = worker.storage.take_uploaded()
    # That the second is complete, and the first gone with it, has not been told here.
    worker.snapshot(backend, 2)
    worker.snapshot(backend, 3, asked(oldest_kept=1))
    assert not worker.storage.take_uploaded()
    worker.snapshot(backend, 4, asked(oldest_kept=2))
    assert worker.storage.take_uploaded() == once


def test_a_checkpoint_that_cannot_be_linked_fails_alone(worker: Worker) -> None:
    backend = worker.backend()
    put(backend, range(30), 1)
    assert backend._resources is not None
    # RocksDB links to no folder that is there.
    in_the_way = Path(backend._resources.folder.checkpoint("1-1"))
    in_the_way.mkdir()
    with pytest.raises(RocksDBError, match=f"write a checkpoint in .*{worker.local.name}"):
        worker.snapshot(backend, 1)
    put(backend, range(3), 2)
    second = worker.snapshot(backend, 2)
    assert not in_the_way.exists()
    worker.dispose(backend)
    assert held(worker.backend(second), range(5)) == [2, 2, 2, 1, 1]


PICKLED: ValueStateDescriptor[object] = ValueStateDescriptor("pickled", Types.PICKLED_BYTE_ARRAY())


def test_pickles_of_a_snapshot_that_nobody_trusts_are_not_read(worker: Worker) -> None:
    first = worker.backend()
    first.current_key = 1
    first.value_state(PICKLED).update(Opaque(1))
    handles = worker.snapshot(first, 1)
    assert worker.backend(handles).value_state(PICKLED) is not None

    def read(backend: KeyedStateBackend, declared: ValueStateDescriptor[Any]) -> Any:
        backend.current_key = 1
        return backend.value_state(declared).value()

    assert read(worker.backend(handles), PICKLED) == Opaque(1)
    with pytest.raises(UntrustedPickleError, match="operator 'op', state 'pickled'"):
        read(worker.backend(handles, trusted=False), PICKLED)
    with pytest.raises(UntrustedPickleError, match="operator 'op', state 'pickled'"):
        # The form of its values has changed: they are read when the state is registered.
        worker.backend(handles, trusted=False).value_state(ValueStateDescriptor("pickled", Types.LONG()))
    with pytest.raises(UntrustedPickleError, match="operator 'op', state 'pickled'"):
        # Nobody asks for it, and a savepoint of it would read it.
        worker.snapshot(worker.backend(handles, trusted=False), 2, SAVEPOINT)
    carried = worker.backend(handles, trusted=False)
    carried.current_key = 1
    own: ValueStateDescriptor[object] = ValueStateDescriptor("own", Types.PICKLED_BYTE_ARRAY())
    carried.value_state(own).update(Opaque(2))
    carried.end_of_chunk()
    worker.snapshot(carried, 3)
    assert carried.value_state(own).value() == Opaque(2)
