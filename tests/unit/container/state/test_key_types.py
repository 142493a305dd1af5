"""The type of keys beside keyed state: written by both backends, compared where one restores."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, structs

from tests.unit.container.state.rocksdb.storage import CHECKPOINT, SAVEPOINT, Worker
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.common.types import Row
from yarrow.container.state.backend import KeyedStateBackend, Timer
from yarrow.container.state.backend_builder import keyed_state_backend
from yarrow.datastream.state import ValueStateDescriptor
from yarrow.runtime.data.checkpoint_options import CheckpointOptions
from yarrow.runtime.snapshot.errors import SavepointMismatchError
from yarrow.runtime.snapshot.handles import KeyedStateHandle, RocksDBSnapshot

COUNT: ValueStateDescriptor[int] = ValueStateDescriptor("count", Types.LONG())
TEXTS, NUMBERS = ["a", "b", "c", "d"], [1, 2, 3, 4]
NAMED = Types.ROW_NAMED(["name", "number"], [Types.STRING(), Types.LONG()])
BACKENDS = ["hashmap", "rocksdb"]
#: A backend and a kind of snapshot that it writes.
WRITTEN = [("hashmap", CHECKPOINT), ("rocksdb", CHECKPOINT), ("rocksdb", SAVEPOINT)]


class Timers:
    """A section of timers."""

    def __init__(self, keys: Iterable[Any] = ()) -> None:
        self.timers = [Timer(1000, key) for key in keys]

    def snapshot_timers(self) -> Collection[Timer]:
        return self.timers

    def restore_timers(self, timers: Iterable[Timer]) -> None:
        self.timers += timers


class Backends:
    """Makes backends of any kind, and ends them."""

    def __init__(self, folder: Path) -> None:
        self.worker = Worker(folder)
        self._made: list[KeyedStateBackend] = []

    def made(
        self,
        kind: str,
        key_type: TypeInformation | None,
        restored: Iterable[KeyedStateHandle] = (),
        columns: tuple[str, ...] = (),
        **changes: Any,
    ) -> KeyedStateBackend:
        context = self.worker.context(
            tuple(restored), settings={"state.backend.type": kind}, operator_name="totals", **changes
        )
        backend = keyed_state_backend(
            msgspec.structs.replace(context, key_type=key_type, key_columns=columns)
        )
        self._made.append(backend)
        return backend

    def written(
        self,
        kind: str,
        key_type: TypeInformation | None,
        keys: Iterable[Any],
        options: CheckpointOptions = CHECKPOINT,
    ) -> tuple[KeyedStateHandle, ...]:
        """A snapshot with a value for each key."""
        return self.snapshot(self.filled(self.made(kind, key_type), keys), options)

    @staticmethod
    def filled(backend: KeyedStateBackend, keys: Iterable[Any]) -> KeyedStateBackend:
        state = backend.value_state(COUNT)
        for number, key in enumerate(keys):
            backend.current_key = key
            state.update(number)
        return backend

    def snapshot(
        self, backend: KeyedStateBackend, options: CheckpointOptions = CHECKPOINT
    ) -> tuple[KeyedStateHandle, ...]:
        return backend.snapshot(1, options).write(self.worker.storage)

    def close(self) -> None:
        for backend in self._made:
            backend.dispose()


@pytest.fixture
def backends(tmp_path: Path) -> Iterator[Backends]:
    made = Backends(tmp_path)
    yield made
    made.close()


def types_of(handles: Iterable[KeyedStateHandle]) -> list[Any]:
    return [handle.key_type for handle in handles]


def value_of(backend: KeyedStateBackend, key: Any) -> Any:
    state = backend.value_state(COUNT)
    backend.current_key = key
    return state.value()


@pytest.mark.parametrize(("kind", "options"), WRITTEN)
@pytest.mark.parametrize(
    ("declared", "keys", "stored"),
    [
        (Types.STRING(), TEXTS, "STRING"),
        (Types.INT(), NUMBERS, "INT"),
        (Types.INT(), [None], "INT"),
        (Types.TUPLE([Types.STRING(), Types.INT()]), [("a", 1)], ["TUPLE", ["STRING", "INT"]]),
        (NAMED, [Row(name="a", number=1)], NAMED.to_spec()),
        (NAMED, [Row("a", 1)], ["ROW", ["STRING", "LONG"], None]),
        (None, TEXTS, UNSET),
        (Types.INT(), TEXTS, UNSET),
        (Types.STRING(), NUMBERS, UNSET),
        (Types.PICKLED_BYTE_ARRAY(), TEXTS, UNSET),
        (Types.LIST(Types.LONG()), [(1, 2)], UNSET),
    ],
    ids=str,
)
def test_what_keys_bear_out_of_the_declared_type_is_written(
    backends: Backends,
    kind: str,
    options: CheckpointOptions,
    declared: TypeInformation | None,
    keys: list[Any],
    stored: Any,
) -> None:
    handles = backends.written(kind, declared, keys, options)
    assert types_of(handles) == [stored]
    assert isinstance(handles[0], RocksDBSnapshot) is (kind == "rocksdb" and options is CHECKPOINT)


@pytest.mark.parametrize(("kind", "options"), WRITTEN)
@pytest.mark.parametrize("reader", BACKENDS)
def test_keys_of_another_type_are_refused_where_they_would_not_be_found(
    backends: Backends, kind: str, options: CheckpointOptions, reader: str
) -> None:
    if reader == "hashmap" and kind == "rocksdb" and options is CHECKPOINT:
        pytest.skip("native checkpoints are RocksDB's own")
    handles = backends.written(kind, Types.STRING(), TEXTS, options)
    with pytest.raises(SavepointMismatchError) as refused:
        backends.made(reader, Types.INT(), handles)
    assert refused.value.operator == "totals"
    told = str(refused.value)
    for part in ("operator 'totals'", "'count'", "String", "Integer", "state_processor", "uid", "run -n"):
        assert part in told
    for same in (Types.STRING(), Types.CHAR(), None, Types.PICKLED_BYTE_ARRAY()):
        assert value_of(backends.made(reader, same, handles), "c") == 2
    parts = [handles, handles]
    for subtask, own in enumerate(parts):
        with pytest.raises(SavepointMismatchError):
            backends.made(reader, Types.INT(), own, subtask=subtask, parallelism=2)


@pytest.mark.parametrize(("kind", "options"), WRITTEN)
def test_state_of_an_older_release_is_not_compared(
    backends: Backends, kind: str, options: CheckpointOptions
) -> None:
    written = backends.written(kind, Types.STRING(), TEXTS, options)
    older = [structs.replace(handle, key_type=UNSET) for handle in written]
    assert value_of(backends.made(kind, Types.INT(), older), "c") == 2
    later = [structs.replace(handle, key_type=["OF A LATER RELEASE"]) for handle in written]
    assert value_of(backends.made(kind, Types.INT(), later), "c") == 2


@pytest.mark.parametrize("kind", BACKENDS)
def test_operators_with_timers_alone_have_keys_too(backends: Backends, kind: str) -> None:
    backend = backends.made(kind, Types.STRING())
    backend.register_timers("event timers", Timers(TEXTS))
    handles = backends.snapshot(backend)
    assert types_of(handles) == ["STRING"]
    with pytest.raises(SavepointMismatchError, match="'event timers'"):
        backends.made(kind, Types.LONG(), handles)
    timers = Timers()
    backends.made(kind, Types.STRING(), handles).register_timers("event timers", timers)
    assert {timer.key for timer in timers.timers} == set(TEXTS)


@pytest.mark.parametrize(("kind", "options"), WRITTEN)
def test_a_wider_type_is_the_one_that_is_written_from_then_on(
    backends: Backends, kind: str, options: CheckpointOptions
) -> None:
    handles = backends.written(kind, Types.INT(), NUMBERS, options)
    wider = backends.made(kind, Types.LONG(), handles)
    assert value_of(wider, 3) == 2
    assert types_of(backends.snapshot(wider, options)) == ["LONG"]


@pytest.mark.parametrize(("kind", "options"), WRITTEN)
def test_states_that_nobody_asks_for_keep_the_type_of_their_keys(
    backends: Backends, kind: str, options: CheckpointOptions
) -> None:
    handles = backends.written(kind, Types.STRING(), TEXTS, options)
    carried = backends.snapshot(backends.made(kind, Types.STRING(), handles), options)
    assert types_of(carried) == ["STRING"]
    untyped = [structs.replace(handle, key_type=UNSET) for handle in handles]
    # The program has numbers for keys, and the state that it carries has texts: neither is the type of all.
    mixed = backends.filled(backends.made(kind, Types.LONG(), untyped), ())
    assert types_of(backends.snapshot(mixed, options)) == [UNSET]


@pytest.mark.parametrize("kind", BACKENDS)
def test_a_later_checkpoint_of_a_backend_has_the_type_when_keys_have_come(
    backends: Backends, kind: str
) -> None:
    backend = backends.filled(backends.made(kind, Types.STRING()), ())
    assert types_of(backends.snapshot(backend)) in ([], [UNSET])
    backends.filled(backend, TEXTS)
    assert types_of(backends.snapshot(backend)) == ["STRING"]
    assert types_of(backends.snapshot(backend)) == ["STRING"]


PAIRS = Types.TUPLE([Types.STRING(), Types.STRING()])


@pytest.mark.parametrize(("kind", "options"), WRITTEN)
@pytest.mark.parametrize("declared", [PAIRS, None], ids=str)
def test_columns_of_keys_that_have_changed_places_are_refused(
    backends: Backends, kind: str, options: CheckpointOptions, declared: TypeInformation | None
) -> None:
    written = backends.filled(
        backends.made(kind, declared, columns=("city", "land")), [("a", "b"), ("b", "a")]
    )
    handles = backends.snapshot(written, options)
    assert [handle.key_columns for handle in handles] == [("city", "land")]
    for moved in (("land", "city"), ("land", "name")):
        with pytest.raises(SavepointMismatchError) as refused:
            backends.made(kind, declared, handles, columns=moved)
        for part in (
            "operator 'totals'",
            "'count'",
            "['city', 'land']",
            str(list(moved)),
            "key_by",
            "run -n",
        ):
            assert part in str(refused.value)
    # Other names, rows keyed by a function, and savepoints of an older release are not compared.
    for same in (("city", "land"), ("city", "state"), ("town", "nation"), ()):
        assert value_of(backends.made(kind, declared, handles, columns=same), ("b", "a")) == 1
    older = [structs.replace(handle, key_columns=UNSET) for handle in handles]
    assert value_of(backends.made(kind, declared, older, columns=("land", "city")), ("b", "a")) == 1
    # What is carried on unasked has them still.
    carried = backends.snapshot(backends.made(kind, declared, handles, columns=("city", "land")), options)
    assert [handle.key_columns for handle in carried] == [("city", "land")]


@pytest.mark.parametrize(("kind", "options"), WRITTEN)
@pytest.mark.parametrize("keys", [TEXTS, [("a",)], [("a", "b", "c")]], ids=str)
def test_columns_that_the_keys_are_not_made_of_are_not_written(
    backends: Backends, kind: str, options: CheckpointOptions, keys: list[Any]
) -> None:
    written = backends.filled(backends.made(kind, None, columns=("city", "land")), keys)
    assert [handle.key_columns for handle in backends.snapshot(written, options)] == [UNSET]
