"""Tables by window over both backends, against a dict of dicts: cuts, drops, restores and other parallelisms."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.container.state.contexts import Mails
from tests.unit.container.state.own_backend import OwnBackend
from tests.unit.container.state.rocksdb.storage import CHECKPOINT, SAVEPOINT, Worker
from yarrow.common import Duration
from yarrow.common.serializer import TypeSerializer
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.container.state.backend import KeyedStateBackend
from yarrow.container.state.debug_backend import DebugBackend
from yarrow.container.state.errors import StateConflictError
from yarrow.container.state.heap_keyed_state import HeapKeyedStateBackend
from yarrow.container.state.heap_table import HeapTable
from yarrow.container.state.rocksdb.backend import RocksDBKeyedStateBackend
from yarrow.container.state.rocksdb.database import ColumnFamily, Database
from yarrow.container.state.rocksdb.store import MOST_BYTES, StoreLimits
from yarrow.container.state.rocksdb.window_store import RocksDBWindowTables, WindowTableStore
from yarrow.container.state.value_table import MISSING, ValueTable
from yarrow.container.state.window_tables import TIME_WINDOWS, HeapWindowTables, WindowTables
from yarrow.datastream.state import MapStateDescriptor, StateTtlConfig
from yarrow.datastream.window import CountWindow, CountWindowSerializer, TimeWindow, Window
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError
from yarrow.runtime.data.key_groups import key_group_of
from yarrow.runtime.data.keys import canonicalize
from yarrow.runtime.data.window_forms import WindowForm
from yarrow.runtime.snapshot.errors import StateMigrationError
from yarrow.runtime.snapshot.handles import RocksDBSnapshot
from yarrow.runtime.snapshot.value_serializers import stored_serializer

NAME: Final = "sums"
LISTS: Final = Types.LIST(Types.LONG())
#: Listed in this order: by end, then by start; bytes of places end with 0xff, lie below zero, begin alike.
WINDOWS: Final = [
    TimeWindow(-(1 << 62), -(1 << 61)),
    TimeWindow(-20, -10),
    TimeWindow(-10, 0),
    TimeWindow(0, 10),
    TimeWindow(5, 10),
    TimeWindow(0, 255),
    TimeWindow(0, 256),
    TimeWindow(0xFFFF, (1 << 62) - 1),
]
KEYS: Final[list[Any]] = [0, 1, -5, True, 1.0, "a", "", b"\xff", (1, "x"), None, 2.5, float("nan")]

Held = dict[TimeWindow, dict[Any, list[int]]]


def update(table: ValueTable, key: Any, change: Callable[[Any], Any]) -> None:
    """As generated code does it; `change` gets MISSING where there is nothing."""
    live = table.live
    shard = live[0]
    try:
        if len(live) > 1:
            shard = live[hash(key) % len(live)]
        value = shard[key]
    except (KeyError, TypeError):
        key, shard, value = table.miss(key)
    shard[key] = change(value)


def added(number: int) -> Callable[[Any], list[int]]:
    return lambda value: [number] if value is MISSING else [*value, number]


def content(tables: WindowTables[Any]) -> dict[Any, dict[Any, Any]]:
    """The rows of all windows that have any, in the order of the list."""
    found: dict[Any, dict[Any, Any]] = {}
    for window in tables.windows():
        for keys, values in tables.rows(window):
            rows = found.setdefault(window, {})
            for key, value in zip(keys, values, strict=True):
                assert key not in rows
                rows[key] = value
    return found


def copied(model: Held) -> Held:
    return {
        window: {key: list(value) for key, value in model[window].items()} for window in sorted_windows(model)
    }


def sorted_windows(windows: Any) -> list[TimeWindow]:
    return sorted(windows, key=lambda window: (window.end, window.start))


@dataclass
class Place:
    """Where backends of both kinds live, heap tables with small shards."""

    worker: Worker
    mails: Mails = field(default_factory=Mails)

    def backend(self, kind: str, handles: Any = (), **changes: Any) -> KeyedStateBackend:
        if kind == "rocksdb":
            return self.worker.backend(handles, **changes)
        return HeapKeyedStateBackend(self.worker.context(handles, mails=self.mails, **changes))

    def tables(
        self,
        backend: KeyedStateBackend,
        value_type: TypeInformation = LISTS,
        form: WindowForm[Any] = TIME_WINDOWS,
    ) -> WindowTables[Any]:
        tables: WindowTables[Any] = backend.window_tables(NAME, value_type, form)
        if isinstance(tables, HeapWindowTables):
            like = tables._like
            tables._like = HeapTable(like.protect, like._is_immutable, flat_limit=3, slots=7, weights=(2, 3))
        return tables

    def end(self, backend: KeyedStateBackend) -> None:
        if isinstance(backend, RocksDBKeyedStateBackend):
            self.worker.dispose(backend)
        else:
            backend.dispose()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    worker = Worker(tmp_path)
    yield Place(worker)
    worker.close()


BOTH: Final = pytest.mark.parametrize("kind", ["heap", "rocksdb"])
PUT = st.tuples(st.just("put"), st.sampled_from(WINDOWS[:5]), st.sampled_from(KEYS))
DROP = st.tuples(st.just("drop"), st.sampled_from(WINDOWS[:5]), st.none())
REMOVE = st.tuples(st.sampled_from(["remove", "take"]), st.sampled_from(WINDOWS[:5]), st.sampled_from(KEYS))
READ = st.tuples(st.just("prefetch"), st.sampled_from(WINDOWS[:5]), st.none())
PIECE = st.tuples(st.just("piece"), st.sampled_from(WINDOWS[:5]), st.none())
STEPS = st.sampled_from(
    ["chunk", "list", "cut", "save", "write", "discard", "mails", "announce", "restore", "move"]
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.one_of(PUT, PUT, PUT, REMOVE, REMOVE, DROP, READ, PIECE, PIECE, STEPS, STEPS), max_size=60
    ),
    kind=st.sampled_from(["heap", "rocksdb"]),
)
def test_they_are_what_a_dict_of_dicts_is(
    steps: list[Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("heap_table", "rocksdb.window_store"):
        monkeypatch.setattr(f"yarrow.container.state.{module}.PIECE", 2)
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Worker(Path(folder)))
        backend = place.backend(kind)
        tables = place.tables(backend)
        model: Held = {}
        pending: list[tuple[Any, Held, bool]] = []
        kept: tuple[Any, Held, bool] = ((), {}, True)
        pieces: dict[TimeWindow, Iterator[Any]] = {}
        for number, step in enumerate(steps):
            if isinstance(step, tuple):
                action, window, key = step
                if action == "put":
                    update(tables.table(window), key, added(number))
                    model.setdefault(window, {}).setdefault(canonicalize(key), []).append(number)
                elif action == "remove":
                    tables.table(window).remove(key)
                    model.setdefault(window, {}).pop(canonicalize(key), None)
                elif action == "take":
                    taken = tables.table(window).take(key)
                    assert taken == model.setdefault(window, {}).pop(canonicalize(key), MISSING)
                elif action == "drop":
                    tables.drop(window)
                    model.pop(window, None)
                    pieces.pop(window, None)
                elif action == "piece":
                    piece = next(pieces.setdefault(window, tables.take(window)), None)
                    if piece is None:
                        del pieces[window]
                    for taken_key, value in zip(*(piece or ((), ())), strict=True):
                        assert model[window].pop(taken_key) == value
                else:
                    tables.table(window).prefetch(KEYS)
                    model.setdefault(window, {})
            elif step == "chunk":
                backend.end_of_chunk()
            elif step == "list":
                assert tables.windows() == sorted_windows(model)
                assert tables.windows_until(9) == [w for w in sorted_windows(model) if w.end <= 10]
                assert content(tables) == {window: rows for window, rows in model.items() if rows}
            elif step in ("cut", "save"):
                is_savepoint = step == "save" or kind == "heap"
                cut = backend.snapshot(number, SAVEPOINT if is_savepoint else CHECKPOINT)
                pending.append((cut, copied({w: rows for w, rows in model.items() if rows}), is_savepoint))
            elif step == "announce":
                backend.announce_checkpoint(number)
            elif step == "mails":
                place.mails.run()
            elif step == "write" and pending:
                cut, at_cut, is_savepoint = pending.pop(0)
                kept = (cut.write(place.worker.storage), at_cut, is_savepoint)
            elif step == "discard" and pending:
                pending.pop()[0].discard()
            elif step in ("restore", "move"):
                while pending:
                    pending.pop()[0].discard()
                place.end(backend)
                handles, model, is_savepoint = kept[0], copied(kept[1]), kept[2]
                if step == "move" and is_savepoint:
                    kind = "heap" if kind == "rocksdb" else "rocksdb"
                if kind == "heap" and not is_savepoint:
                    kind = "rocksdb"
                backend = place.backend(kind, handles)
                tables = place.tables(backend)
                pieces = {}
        assert tables.windows() == sorted_windows(model)
        assert content(tables) == {window: rows for window, rows in model.items() if rows}
        for window in tables.windows():
            for keys, values in tables.take(window):
                for taken_key, value in zip(keys, values, strict=True):
                    assert model[window].pop(taken_key) == value
            assert not model[window]
            tables.drop(window)
        assert backend.entries == 0 and content(tables) == {}
        # What was cut before is as it was then.
        while pending:
            cut, at_cut, _ = pending.pop()
            place.mails.run()
            again = place.backend("rocksdb", cut.write(place.worker.storage))
            assert content(place.tables(again)) == at_cut
        place.worker.close()


# ---------------------------------------------------------------------- snapshots


@BOTH
@pytest.mark.parametrize(
    "values", [LISTS, Types.LONG()], ids=["values that may change", "values that cannot"]
)
def test_a_snapshot_under_way_sees_a_dropped_window_and_none_that_came_later(
    place: Place, kind: str, values: TypeInformation
) -> None:
    first, second, later = WINDOWS[1:4]
    backend = place.backend(kind)
    tables = place.tables(backend, values)
    made: Callable[[int], Any] = (lambda number: [number]) if values is LISTS else (lambda number: number)
    for window in (first, second):
        for key in range(40):
            update(tables.table(window), key, lambda value: made(1))
    pending = backend.snapshot(1, SAVEPOINT)
    tables.drop(first)
    update(tables.table(first), 7, lambda value: made(2) if value is MISSING else value)
    update(tables.table(later), 0, lambda value: made(3))
    tables.drop(second)
    backend.end_of_chunk()
    handles = pending.write(place.worker.storage)
    place.mails.run()
    assert content(tables) == {first: {7: made(2)}, later: {0: made(3)}}
    for other in ("heap", "rocksdb"):
        found = content(place.tables(place.backend(other, handles), values))
        assert found == {window: {key: made(1) for key in range(40)} for window in (first, second)}


@BOTH
@pytest.mark.parametrize(
    "values", [LISTS, Types.LONG()], ids=["values that may change", "values that cannot"]
)
def test_a_snapshot_under_way_sees_removed_keys_and_generated_code_does_not(
    place: Place, kind: str, values: TypeInformation
) -> None:
    window, made = WINDOWS[1], added if values is LISTS else lambda number: lambda value: number
    backend = place.backend(kind)
    tables = place.tables(backend, values)
    for key in range(40):
        update(tables.table(window), key, made(key))
    first = content(tables)
    pending = backend.snapshot(1, SAVEPOINT)
    for key in range(0, 40, 2):
        tables.table(window).remove(key)
    second = content(tables)
    assert second == {window: {key: first[window][key] for key in range(1, 40, 2)}}
    later = backend.snapshot(2, SAVEPOINT)
    table = tables.table(window)
    table.prefetch(range(40))
    table.live[0].pop(0, None)
    assert table.take(1) == first[window][1] and table.take(1) is MISSING
    update(table, 2, made(100))
    # A key that is written after its removal has none of its former rows.
    third = {window: {key: value for key, value in second[window].items() if key != 1}}
    third[window][2] = made(100)(MISSING)
    assert content(tables) == third
    for cut, expected in ((later, second), (pending, first)):
        handles = cut.write(place.worker.storage)
        place.mails.run()
        for other in ("heap", "rocksdb"):
            assert content(place.tables(place.backend(other, handles), values)) == expected
    backend.end_of_chunk()
    assert content(tables) == third


@pytest.mark.parametrize("options", [CHECKPOINT, SAVEPOINT], ids=["native", "canonical"])
def test_rescaled_between_backends_each_window_keeps_its_rows(place: Place, options: Any) -> None:
    keys = [*range(50), *(f"k{number}" for number in range(20))]
    expected: dict[Any, dict[Any, list[int]]] = {}
    handles: list[Any] = []
    kinds = ["rocksdb"] * 4 if options is CHECKPOINT else ["heap", "rocksdb", "heap", "rocksdb"]
    for number, (kind, parallelism) in enumerate(zip(kinds, (2, 1, 3, 2), strict=True)):
        backends = [
            place.backend(kind, handles, subtask=n, parallelism=parallelism) for n in range(parallelism)
        ]
        held = [place.tables(backend) for backend in backends]
        merged: dict[Any, dict[Any, Any]] = {}
        for tables in held:
            for window, rows in content(tables).items():
                assert not merged.setdefault(window, {}).keys() & rows.keys()
                merged[window] |= rows
        assert merged == expected
        ended = WINDOWS[number]
        expected.pop(ended, None)
        for backend, tables in zip(backends, held, strict=True):
            tables.drop(ended)
            groups = backend.context.key_groups  # type: ignore[attr-defined]
            for key in keys:
                if groups.holds(key_group_of(key, 16)):
                    for window in WINDOWS[number + 1 : number + 3]:
                        update(tables.table(window), key, added(number))
                        expected.setdefault(window, {}).setdefault(key, []).append(number)
        handles = [
            handle for backend in backends for handle in place.worker.snapshot(backend, number, options)
        ]
        for backend in backends:
            place.end(backend)


@BOTH
def test_a_map_of_windows_and_tables_by_window_are_the_same_in_a_savepoint(place: Place, kind: str) -> None:
    descriptor: MapStateDescriptor[Any, Any] = MapStateDescriptor(
        NAME, Types.TUPLE([Types.LONG(), Types.LONG()]), LISTS
    )
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_days(1)).build())
    backend = place.backend(kind)
    state = backend.map_state(descriptor)
    for key in range(20):
        backend.current_key = key
        for window in WINDOWS:
            state.put((window.start, window.end), [key])
    handles = place.worker.snapshot(backend, 1, SAVEPOINT)
    backend = place.backend(kind, handles)
    tables = place.tables(backend)
    # The times of last access are dropped: whoever opens windows drops them.
    assert content(tables) == {window: {key: [key] for key in range(20)} for window in WINDOWS}
    tables.drop(WINDOWS[2])
    handles = place.worker.snapshot(backend, 2, SAVEPOINT)
    for other in ("heap", "rocksdb"):
        backend = place.backend(other, handles)
        state = backend.map_state(descriptor)
        for key in range(20):
            backend.current_key = key
            found = dict(state.items())
            assert found == {
                (window.start, window.end): [key] for window in WINDOWS if window is not WINDOWS[2]
            }


# ---------------------------------------------------------------------- native checkpoints


def native(place: Place) -> RocksDBSnapshot:
    backend = place.backend("rocksdb")
    tables = place.tables(backend)
    for key in range(30):
        update(tables.table(WINDOWS[2]), key, added(key))
    (handle,) = place.worker.snapshot(backend, 1, CHECKPOINT)
    assert isinstance(handle, RocksDBSnapshot)
    return handle


def test_an_older_version_refuses_a_native_checkpoint_by_name(place: Place) -> None:
    (meta,) = native(place).states
    assert meta.is_by_window and meta.map_key is not None and meta.map_key_form is not None
    # What a release does that knows no entries by window, in the backend and in the state processor.
    with pytest.raises(StateMigrationError, match=r"operator 'op', state 'sums'.*version 1001.*a later"):
        stored_serializer(meta.map_key, "op", meta.name)
    assert stored_serializer(meta.map_key_form, "op", meta.name).config() == meta.map_key_form


def test_native_entries_by_window_are_no_map_and_a_map_is_no_window(place: Place) -> None:
    descriptor: MapStateDescriptor[Any, Any] = MapStateDescriptor(
        NAME, Types.TUPLE([Types.LONG(), Types.LONG()]), LISTS
    )
    backend = place.backend("rocksdb", [native(place)])
    with pytest.raises(StateMigrationError, match=r"'sums'.*by window and key.*entries by key.*canonical"):
        backend.map_state(descriptor)
    backend = place.backend("rocksdb")
    state = backend.map_state(descriptor)
    backend.current_key = 1
    state.put((0, 10), [1])
    handles = place.worker.snapshot(backend, 1, CHECKPOINT)
    with pytest.raises(StateMigrationError, match=r"'sums'.*entries by key.*by window and key.*canonical"):
        place.tables(place.backend("rocksdb", handles))


def test_windows_of_another_type_or_order_are_refused_by_name(place: Place) -> None:
    handle = native(place)
    by_id = WindowForm.of_serializer(CountWindowSerializer(), lambda window: window.id)
    with pytest.raises(StateMigrationError, match=r"'sums': the snapshot holds TupleTypeInfo\(Long, Long\)"):
        place.tables(place.backend("rocksdb", [handle]), form=by_id)
    wider = msgspec.structs.replace(TIME_WINDOWS, stored_type=Types.TUPLE([Types.LONG(), Types.BIG_INT()]))
    with pytest.raises(
        StateMigrationError, match=r"'sums', field 'windows'.*windows of TupleTypeInfo.*canonical"
    ):
        place.tables(place.backend("rocksdb", [handle]), form=wider)
    by_start: WindowForm[TimeWindow] = WindowForm(
        TIME_WINDOWS.stored_type,
        TIME_WINDOWS.to_stored,
        TIME_WINDOWS.from_stored,
        lambda window: window.start,
    )
    with pytest.raises(StateMigrationError, match=r"'sums', field 'windows'.*at another place"):
        place.tables(place.backend("rocksdb", [handle]), form=by_start)


def test_native_windows_that_nobody_asks_for_are_carried(place: Place) -> None:
    expected = {WINDOWS[2]: {key: [key] for key in range(30)}}
    for options in (CHECKPOINT, SAVEPOINT):
        backend = place.backend("rocksdb", [native(place)])
        handles = place.worker.snapshot(backend, 2, options)
        kind = "heap" if options is SAVEPOINT else "rocksdb"
        assert content(place.tables(place.backend(kind, handles))) == expected


def test_values_of_a_wider_type_are_read_as_they_were(place: Place) -> None:
    backend = place.backend("rocksdb")
    tables = place.tables(backend, Types.INT())
    for key in range(20):
        update(tables.table(WINDOWS[3]), key, lambda value: 5)
    handles = place.worker.snapshot(backend, 1, CHECKPOINT)
    tables = place.tables(place.backend("rocksdb", handles), Types.LONG())
    assert content(tables) == {WINDOWS[3]: dict.fromkeys(range(20), 5)}
    with pytest.raises(StateMigrationError, match="'sums'"):
        place.tables(place.backend("rocksdb", handles), Types.STRING())


@pytest.mark.parametrize(
    "stored_type, window",
    [
        (Types.DOUBLE(), 3.0),
        (Types.DOUBLE(), 1e300),
        (Types.FLOAT(), 0.0),
        (Types.TUPLE([Types.DOUBLE(), Types.LONG()]), (3.0, 3)),
        (Types.TUPLE([Types.TUPLE([Types.FLOAT()]), Types.BOOLEAN()]), ((-1.0,), True)),
        (Types.BIG_DEC(), Decimal("2.5")),
    ],
    ids=str,
)
def test_windows_come_back_as_their_declared_type_has_them(
    place: Place, stored_type: TypeInformation, window: Any
) -> None:
    form: WindowForm[Any] = WindowForm(stored_type, lambda window: window, lambda stored: stored, lambda _: 0)
    for kind, options, other in (
        ("rocksdb", CHECKPOINT, "rocksdb"),
        ("rocksdb", SAVEPOINT, "heap"),
        ("heap", SAVEPOINT, "rocksdb"),
    ):
        backend = place.backend(kind)
        update(place.tables(backend, form=form).table(window), "a", added(1))
        handles = place.worker.snapshot(backend, 1, options)
        tables = place.tables(place.backend(other, handles), form=form)
        assert repr(tables.windows()) == repr([window]) and content(tables) == {window: {"a": [1]}}


def rows_in_rocksdb(backend: KeyedStateBackend) -> int:
    assert isinstance(backend, RocksDBKeyedStateBackend)
    return sum(1 for _ in backend._stores[NAME].family.scan(b"", b"\xff\xff"))


def test_a_window_dropped_while_a_checkpoint_holds_writes_goes_right_after(place: Place) -> None:
    backend = place.backend("rocksdb")
    tables = place.tables(backend)
    assert isinstance(backend, RocksDBKeyedStateBackend)
    for window in WINDOWS[:2]:
        for key in range(20):
            update(tables.table(window), key, added(1))
    backend.announce_checkpoint(1)
    assert rows_in_rocksdb(backend) == 40
    database = backend._open().database
    database._released.clear()
    tables.drop(WINDOWS[0])
    backend.end_of_chunk()
    assert tables.windows() == [WINDOWS[1]] and rows_in_rocksdb(backend) == 40
    database._released.set()
    backend.end_of_chunk()
    assert rows_in_rocksdb(backend) == 20
    database._released.clear()
    tables.drop(WINDOWS[1])
    database._released.set()
    # Opened again before a chunk has ended: nothing of what it was shows.
    update(tables.table(WINDOWS[1]), 3, added(2))
    assert content(tables) == {WINDOWS[1]: {3: [2]}}
    handles = place.worker.snapshot(backend, 2, CHECKPOINT)
    assert content(place.tables(place.backend("rocksdb", handles))) == {WINDOWS[1]: {3: [2]}}


def test_removed_keys_are_deleted_in_rocksdb_and_in_later_checkpoints(place: Place) -> None:
    backend = place.backend("rocksdb", limits=StoreLimits(most_changes=1000))
    tables = place.tables(backend)
    for key in range(300):
        update(tables.table(WINDOWS[2]), key, added(key))
    place.worker.snapshot(backend, 1)
    backend.checkpoint_completed(1)
    before = set(place.worker.storage.take_uploaded())
    assert rows_in_rocksdb(backend) == 300
    table = tables.table(WINDOWS[2])
    for key in range(0, 300, 3):
        table.remove(key)
    # Kept back, so that a key that comes again is written once; what is there again is not deleted.
    assert rows_in_rocksdb(backend) == 300 and table.take(3) is MISSING
    update(table, 6, added(-6))
    expected = {WINDOWS[2]: {key: [key] for key in range(300) if key % 3} | {6: [-6]}}
    assert content(tables) == expected
    handles = place.worker.snapshot(backend, 2)
    assert rows_in_rocksdb(backend) == 201
    assert content(tables) == expected
    # Changes only: the files of the first checkpoint are used again.
    (handle,) = handles
    assert isinstance(handle, RocksDBSnapshot)
    assert before and before < {file.name for file in handle.shared}
    assert not before & set(place.worker.storage.take_uploaded())
    for subtask in range(2):
        again = place.backend("rocksdb", handles, subtask=subtask, parallelism=2)
        groups = again.context.key_groups  # type: ignore[attr-defined]
        rows = content(place.tables(again))[WINDOWS[2]]
        mine = [key for key in expected[WINDOWS[2]] if groups.holds(key_group_of(key, 16))]
        assert sorted(rows) == sorted(mine)


def test_removed_keys_are_kept_back_within_bounds_and_wait_for_a_checkpoint(place: Place) -> None:
    backend = place.backend("rocksdb", limits=StoreLimits(most_changes=50))
    tables = place.tables(backend)
    assert isinstance(backend, RocksDBKeyedStateBackend) and isinstance(tables, RocksDBWindowTables)
    for key in range(1000):
        update(tables.table(WINDOWS[2]), key, added(key))
    backend.announce_checkpoint(1)
    table = tables.table(WINDOWS[2])
    database = backend._open().database
    database._released.clear()
    for key in range(100):
        table.remove(key)
    assert rows_in_rocksdb(backend) == 1000 and table.store.changes == 100
    assert sorted(content(tables)[WINDOWS[2]]) == [*range(100, 1000)]
    database._released.set()
    backend.end_of_chunk()
    assert rows_in_rocksdb(backend) == 900 and not table.store.changes
    for key in range(100, 1000):
        table.remove(key)
        assert table.store.changes <= 50
    tables.drop(WINDOWS[2])
    assert backend.entries == 0 and rows_in_rocksdb(backend) == 0


def test_a_window_that_was_never_written_costs_no_read_and_no_deletion(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = place.backend("rocksdb", limits=StoreLimits(most_changes=1000))
    tables = place.tables(backend)

    def refused(*arguments: Any) -> Any:
        raise AssertionError("RocksDB was asked")

    for name in ("get", "get_all", "scan", "delete_all"):
        monkeypatch.setattr(ColumnFamily, name, refused)
    monkeypatch.setattr(Database, "delete_ranges", refused)
    table = tables.table(WINDOWS[3])
    table.prefetch(range(100))
    for key in range(200):
        update(table, key, added(key))
    backend.end_of_chunk()
    assert content(tables) == {WINDOWS[3]: {key: [key] for key in range(200)}}
    assert table.take(7) == [7] and table.take(7) is MISSING
    for key in range(100, 200):
        table.remove(key)
    backend.end_of_chunk()
    assert content(tables) == {WINDOWS[3]: {key: [key] for key in range(100) if key != 7}}
    tables.drop(WINDOWS[3])
    assert backend.entries == 0


def test_all_windows_together_keep_back_a_bounded_number_of_rows(place: Place) -> None:
    backend = place.backend("rocksdb", limits=StoreLimits(most_changes=50))
    tables = place.tables(backend)
    assert isinstance(tables, RocksDBWindowTables)
    windows = [TimeWindow(start, start + 10) for start in range(0, 3000, 10)]
    for number, window in enumerate(windows):
        for key in range(8):
            update(tables.table(window), key, added(number))
        backend.end_of_chunk()
        at_hand = [table.store.at_hand for table in tables._tables.values()]
        assert sum(at_hand) <= 108 and sum(map(bool, at_hand)) <= 64
    assert content(tables) == {window: {key: [at] for key in range(8)} for at, window in enumerate(windows)}
    for window in windows:
        tables.drop(window)
    assert rows_in_rocksdb(backend) == 0 and backend.entries == 0


def test_new_windows_keep_back_no_more_large_values_than_others(place: Place) -> None:
    backend = place.backend("rocksdb", limits=StoreLimits())
    tables = place.tables(backend, Types.STRING())
    assert isinstance(tables, RocksDBWindowTables)
    large = "x" * (MOST_BYTES // 32)
    tables.table(WINDOWS[0]).live[0]["k"] = large
    backend.announce_checkpoint(1)
    tables.drop(WINDOWS[0])
    for start in range(0, 300, 10):
        tables.table(TimeWindow(start, start + 10)).live[0].update(dict.fromkeys(range(20), large))
        backend.end_of_chunk()
        # Two generations of 32 values each, were it not that one written value tells a quarter of its size.
        assert sum(table.store.at_hand for table in tables._tables.values()) <= 4 * 2 * 32 + 20
    assert {len(rows) for rows in content(tables).values()} == {20}


def test_files_of_windows_are_shared_between_checkpoints(place: Place) -> None:
    backend = place.backend("rocksdb")
    tables = place.tables(backend)
    for key in range(2000):
        update(tables.table(WINDOWS[2]), key, added(key))
    place.worker.snapshot(backend, 1)
    backend.checkpoint_completed(1)
    before = set(place.worker.storage.take_uploaded())
    update(tables.table(WINDOWS[3]), 1, added(1))
    handles = place.worker.snapshot(backend, 2)
    (handle,) = handles
    assert isinstance(handle, RocksDBSnapshot)
    assert before and before < {file.name for file in handle.shared}
    assert not before & set(place.worker.storage.take_uploaded())
    found = content(place.tables(place.backend("rocksdb", handles)))
    assert found == {WINDOWS[2]: {key: [key] for key in range(2000)}, WINDOWS[3]: {1: [1]}}


# ---------------------------------------------------------------------- the heap


def test_a_cut_takes_no_step_for_windows_that_nobody_touches(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = place.backend("heap")
    tables: Any = backend.window_tables(NAME, LISTS, TIME_WINDOWS)
    windows = [TimeWindow(start, start + 1) for start in range(500)]
    for number, window in enumerate(windows):
        tables.table(window).live[0][number] = [number]
    large = TimeWindow(-9, 0)
    tables.table(large).live[0].update((key, [key]) for key in range(5000))
    backend.end_of_chunk()
    expected = content(tables)
    cut_tables: list[HeapTable] = []
    cut = HeapTable.cut

    def counted(table: HeapTable, number: int) -> Any:
        cut_tables.append(table)
        return cut(table, number)

    monkeypatch.setattr(HeapTable, "cut", counted)
    first = backend.snapshot(1, SAVEPOINT)
    assert cut_tables == [tables.table(large)]
    for window in windows[:3]:
        update(tables.table(window), 1000, added(1))
    tables.drop(windows[3])
    tables.table(TimeWindow(7000, 7001)).live[0]["new"] = [0]
    assert len(cut_tables) == 5
    # What the first snapshot holds is frozen by the second at once, and nothing else.
    second = backend.snapshot(2, SAVEPOINT)
    assert len(cut_tables) == 5 + 4
    between = content(tables)
    backend.snapshot(3, SAVEPOINT).discard()
    update(tables.table(windows[4]), 4, added(2))
    for pending, then in ((first, expected), (second, between)):
        handles = pending.write(place.worker.storage)
        assert content(place.tables(place.backend("heap", handles))) == then
    place.mails.run()
    assert not tables._cuts and backend.entries == 500 + 5000 - 1 + 3 + 1


@pytest.mark.slow
def test_windows_change_and_go_while_the_snapshot_thread_writes_them(place: Place) -> None:
    backend = place.backend("heap")
    tables: Any = backend.window_tables(NAME, LISTS, TIME_WINDOWS)
    windows = [TimeWindow(start, start + 1) for start in range(3000)]
    for window in windows:
        for key in range(3):
            update(tables.table(window), key, added(0))
    for number in range(1, 4):
        backend.end_of_chunk()
        expected = {
            window: {key: list(value) for key, value in rows.items()}
            for window, rows in content(tables).items()
        }
        pending = backend.snapshot(number, SAVEPOINT)
        with ThreadPoolExecutor(1) as snapshots:
            written = snapshots.submit(pending.write, place.worker.storage)
            # From both ends, so that the threads meet; the task always touches each window once at least.
            for window in [*windows[::-7], *windows[::3], *windows]:
                table = tables.table(window)
                for key in range(3):
                    _, shard, value = table.miss(key)
                    if value is not MISSING:
                        value.append(number)
                        shard[key] = value
                if window.start % 11 == number:
                    tables.drop(window)
                backend.end_of_chunk()
            handles = written.result()
        assert content(place.tables(place.backend("heap", handles))) == expected
        place.mails.run()
        assert not tables._cuts and not any(table.is_held for _, table in tables.tables())


def test_a_large_window_that_is_dropped_is_emptied_in_steps(place: Place) -> None:
    backend = place.backend("heap")
    tables: Any = backend.window_tables(NAME, Types.LONG(), TIME_WINDOWS)
    live = tables.table(WINDOWS[2]).live
    live[0].update(dict.fromkeys(range(10_000), 1))
    (dropped,) = live
    tables.drop(WINDOWS[2])
    assert backend.entries == 0 and tables.windows() == []
    left = []
    while dropped:
        backend.end_of_chunk()
        left.append(len(dropped))
    assert left == [6000, 2000, 0]


def test_a_restore_looks_only_at_windows_that_have_grown(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables: Any = place.backend("heap").window_tables(NAME, Types.LONG(), TIME_WINDOWS)
    looked: list[HeapTable] = []
    monkeypatch.setattr(HeapTable, "divide_if_large", lambda table: looked.append(table))
    # As a savepoint has them: a run for each key group, and many windows.
    tables.restore(([key], [{(key, key + 1): key}]) for key in range(300))
    assert len(tables.windows()) == 300 and len(looked) == 300


# ---------------------------------------------------------------------- windows and backends


@BOTH
def test_rows_are_counted_while_windows_come_and_go(
    place: Place, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = place.backend(kind)
    tables = place.tables(backend)
    for window in WINDOWS[:3]:
        update(tables.table(window), 1, added(1))
    left = [*WINDOWS[3:6]]

    def one(table: Any) -> int:
        # What the task thread does while the thread that reports metrics counts.
        if left:
            tables.table(left.pop())
        return 1

    if kind == "heap":
        monkeypatch.setattr(HeapTable, "entries", property(one))
    else:
        monkeypatch.setattr(WindowTableStore, "changes", property(one))
    assert backend.entries == 3 and not left


@dataclass(frozen=True)
class Day(Window):
    """A window of a user's own type."""

    name: str
    number: int

    def max_timestamp(self) -> int:
        return self.number * 100 - 1


class DaySerializer(TypeSerializer[Day]):
    """The number and the name."""

    def serialize(self, element: Day, stream: BytesIO) -> None:
        stream.write(struct.pack(">q", element.number) + element.name.encode())

    def deserialize(self, stream: BytesIO) -> Day:
        (number,) = struct.unpack(">q", stream.read(8))
        return Day(stream.read().decode(), number)


@BOTH
def test_windows_of_a_users_own_type_are_listed_by_their_end(place: Place, kind: str) -> None:
    form = WindowForm.of_serializer(DaySerializer())
    days = [Day("c", -3), Day("a", 1), Day("b", 1), Day("", 2), Day("\u00e4\xff", 300)]
    options = {"heap": SAVEPOINT, "rocksdb": CHECKPOINT}[kind]
    tables = place.tables(backend := place.backend(kind), Types.LONG(), form)
    for day in reversed(days):
        tables.table(day).live[0]["k"] = day.number
    for _ in range(2):
        assert tables.windows() == days
        assert tables.windows_until(99) == days[:3] and tables.windows_until(98) == days[:1]
        assert content(tables) == {day: {"k": day.number} for day in days}
        handles = place.worker.snapshot(backend, 1, options)
        tables = place.tables(backend := place.backend(kind, handles), Types.LONG(), form)


@BOTH
def test_a_window_without_a_place_is_named(place: Place, kind: str) -> None:
    form: WindowForm[Any] = WindowForm.of_serializer(CountWindowSerializer(), lambda window: window.id)
    tables = place.tables(place.backend(kind), Types.LONG(), form)
    with pytest.raises(InvalidProgramError, match=r"CountWindow\(id=9223372036854775808\).*64-bit integers"):
        tables.table(CountWindow(1 << 63))
    assert tables.windows() == []


class Nameless(Window):
    """A window that is equal to itself alone, as a class without __eq__ has them."""

    def __init__(self, number: int) -> None:
        self.number = number

    def max_timestamp(self) -> int:
        return self.number


@BOTH
def test_windows_that_are_stored_alike_but_are_not_equal_are_refused(place: Place, kind: str) -> None:
    form: WindowForm[Any] = WindowForm(
        Types.LONG(), lambda window: window.number, Nameless, Nameless.max_timestamp
    )
    tables = place.tables(place.backend(kind), form=form)
    window = Nameless(1)
    update(tables.table(window), "a", added(1))
    with pytest.raises(InvalidProgramError, match=r"Nameless.*stored alike.*__eq__ and __hash__ in Nameless"):
        tables.table(Nameless(1))
    # The one that is there is as it was.
    assert tables.windows() == [window] and content(tables) == {window: {"a": [1]}}
    tables.drop(window)
    assert tables.windows() == []


@BOTH
def test_a_name_has_one_kind_of_state(place: Place, kind: str) -> None:
    backend = place.backend(kind)
    assert place.tables(backend) is backend.window_tables(NAME, LISTS, TIME_WINDOWS)
    with pytest.raises(StateConflictError, match=r"'sums'.*by window"):
        backend.map_state(MapStateDescriptor(NAME, Types.TUPLE([Types.LONG(), Types.LONG()]), LISTS))
    with pytest.raises(StateConflictError, match=r"'sums'"):
        backend.value_table(NAME, LISTS)


@BOTH
def test_the_keys_of_all_windows_are_listed_once(place: Place, kind: str) -> None:
    backend = DebugBackend(inner := place.backend(kind), place.worker.context())
    tables: WindowTables[TimeWindow] = backend.window_tables(NAME, LISTS, TIME_WINDOWS)
    for number, key in enumerate([1, "a", 1, "a", 2]):
        update(tables.table(WINDOWS[number % 3]), key, added(number))
    assert sorted(backend.state_keys(NAME), key=str) == [1, 2, "a"]
    assert inner.entries == 5


def test_a_custom_backend_without_them_is_refused_by_name(place: Place) -> None:
    backend = OwnBackend(place.worker.context())
    with pytest.raises(
        UnsupportedFeatureError, match=r"'sums'.*OwnBackend keeps no tables by window.*hashmap or"
    ):
        backend.window_tables(NAME, LISTS, TIME_WINDOWS)
