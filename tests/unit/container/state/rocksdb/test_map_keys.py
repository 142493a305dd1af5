"""Keys of maps in state: of every declared type, equal ones are one key, in both backends and through all snapshots."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from tests.unit.container.state.rocksdb.storage import CHECKPOINT, SAVEPOINT, Worker
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.common.types import Row
from yarrow.container.state.backend import KeyedStateBackend
from yarrow.container.state.heap_keyed_state import HeapKeyedStateBackend
from yarrow.datastream.state import MapState, MapStateDescriptor
from yarrow.runtime.snapshot.errors import SnapshotFormatError, StateMigrationError

PAIR = Types.ROW_NAMED(["a", "b"], [Types.BOOLEAN(), Types.BIG_DEC()])
#: Declared type, keys, and for each another that is equal to it.
KEYS: list[tuple[TypeInformation | None, list[Any], list[Any]]] = [
    (Types.BOOLEAN(), [True, False], [1, 0]),
    (Types.LONG(), [1, -(2**62)], [True, -(2**62)]),
    (Types.DOUBLE(), [1.0, 2.5, -0.0], [1, 2.5, 0.0]),
    (Types.BIG_DEC(), [Decimal("2.50"), Decimal("7"), Decimal("0.1")],
     [Decimal("2.5"), Decimal("7.000"), Decimal("0.10")]),
    (Types.STRING(), ["a", "ä"], ["a", "ä"]),
    (Types.SQL_DATE(), [dt.date(2020, 1, 2)], [dt.date(2020, 1, 2)]),
    (Types.TUPLE([Types.BOOLEAN(), Types.STRING()]), [(True, "x"), (False, None)], [(1, "x"), (0, None)]),
    (Types.TUPLE([Types.LONG(), Types.TUPLE([Types.BIG_DEC()])]), [(1, (Decimal("1.50"),))],
     [(1, (Decimal("1.5"),))]),
    (PAIR, [Row(a=True, b=Decimal("1.50")), Row(a=None, b=None)], [Row(a=1, b=Decimal("1.5")), Row(a=None, b=None)]),
    (Types.ROW([Types.LONG(), Types.STRING()]), [Row(1, "x"), Row(2, "y")], [Row(True, "x"), Row(2, "y")]),
    (None, [Row(a=1), (1, Row(2)), float("nan"), "x", None], [Row(a=True), (1.0, Row(2)), float("nan"), "x", None]),
]  # fmt: skip
IDS = [str(declared) for declared, _, _ in KEYS]


def backends(worker: Worker) -> dict[str, Callable[..., KeyedStateBackend]]:
    return {
        "heap": lambda restored=(): HeapKeyedStateBackend(worker.context(restored)),
        "rocksdb": lambda restored=(): worker.backend(restored),
    }


def map_of(backend: KeyedStateBackend, declared: TypeInformation | None) -> MapState[Any, Any]:
    descriptor: MapStateDescriptor[Any, Any] = MapStateDescriptor("map", declared, Types.LONG())
    backend.current_key = "k"
    return backend.map_state(descriptor)


def check(state: MapState[Any, Any], keys: list[Any], equal: list[Any]) -> None:
    for number, (key, other) in enumerate(zip(keys, equal, strict=True)):
        assert state.get(key) == state.get(other) == number
        assert state.contains(key) and state.contains(other)
    shown = list(state.keys())
    assert len(shown) == len(keys)
    assert sorted(map(repr, map(type, shown))) == sorted(map(repr, map(type, keys)))
    for key in keys:
        assert key != key or key in shown


@pytest.mark.slow
@pytest.mark.parametrize(("declared", "keys", "equal"), KEYS, ids=IDS)
@pytest.mark.parametrize("kind", ["heap", "rocksdb"])
def test_equal_keys_are_one_through_checkpoints_and_savepoints(
    worker: Worker, kind: str, declared: TypeInformation | None, keys: list[Any], equal: list[Any]
) -> None:
    make = backends(worker)
    backend = make[kind]()
    state = map_of(backend, declared)
    for number, key in enumerate(keys):
        state.put(key, -1)
        state.put(key, number)
    check(state, keys, equal)
    checkpoint, savepoint = worker.snapshot(backend, 1, CHECKPOINT), worker.snapshot(backend, 2, SAVEPOINT)
    check(map_of(make[kind](checkpoint), declared), keys, equal)
    for other in make:
        restored = make[other](savepoint)
        state = map_of(restored, declared)
        check(state, keys, equal)
        again = make[other](worker.snapshot(restored, 3, CHECKPOINT))
        check(map_of(again, declared), keys, equal)
        for key in equal:
            state.remove(key)
        assert state.is_empty()


TWO = [Types.LONG(), Types.LONG()]


@pytest.mark.parametrize("options", [CHECKPOINT, SAVEPOINT], ids=["native", "canonical"])
def test_fields_of_keys_may_be_moved_though_one_takes_the_place_of_another(
    worker: Worker, options: Any
) -> None:
    backend = worker.backend()
    state = map_of(backend, Types.ROW_NAMED(["a", "b"], TWO))
    pairs = [(x, y) for x in range(4) for y in range(4)]
    for x, y in pairs:
        state.put(Row(a=x, b=y), 10 * x + y)
    restored = worker.backend(worker.snapshot(backend, 1, options))
    state = map_of(restored, Types.ROW_NAMED(["b", "a"], TWO))
    assert {(key["a"], key["b"]): value for key, value in state.items()} == {
        (x, y): 10 * x + y for x, y in pairs
    }
    assert all(state.get(Row(b=y, a=x)) == 10 * x + y for x, y in pairs)


@pytest.mark.parametrize("options", [CHECKPOINT, SAVEPOINT], ids=["native", "canonical"])
@pytest.mark.parametrize("kind", ["heap", "rocksdb"])
def test_keys_that_would_become_one_are_refused(worker: Worker, kind: str, options: Any) -> None:
    make = backends(worker)
    backend = make[kind]()
    state = map_of(backend, Types.ROW_NAMED(["a", "b"], TWO))
    state.put(Row(a=1, b=1), 1)
    state.put(Row(a=1, b=2), 2)
    handles = worker.snapshot(backend, 1, options)
    with pytest.raises(
        (StateMigrationError, SnapshotFormatError), match=r"operator 'op'.*state 'map'.*equal"
    ):
        map_of(make[kind](handles), Types.ROW_NAMED(["a"], TWO[:1]))
