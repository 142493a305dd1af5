"""The canonical form of keyed state: any entries, any range of key groups, any new parallelism."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.runtime.snapshot.memory_output import MemoryOutput, read_inline
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.common.types import Row
from yarrow.runtime.data.key_groups import (
    KeyGroupRange,
    key_group_of,
    key_group_range_for_operator_index,
)
from yarrow.runtime.data.keys import canonicalize
from yarrow.runtime.data.serializers.tuple_lists import TupleListTypeInfo, list_of
from yarrow.runtime.snapshot import key_group_form
from yarrow.runtime.snapshot.errors import (
    SnapshotFormatError,
    StateMigrationError,
    StateSerializationError,
    UntrustedPickleError,
)
from yarrow.runtime.snapshot.handles import KeyGroupsSnapshot, StateKind
from yarrow.runtime.snapshot.key_columns import dump_keys, key_groups_of, load_keys, split_by_key_group
from yarrow.runtime.snapshot.key_group_form import (
    Run,
    StateForm,
    TimerValues,
    ValuesByWindow,
    divided_runs,
    encode_run,
    encoded_runs,
    write_key_groups,
)
from yarrow.runtime.snapshot.restored_state import RestoredKeyedState
from yarrow.runtime.snapshot.value_serializers import value_serializer

MAX_PARALLELISM = 128
ALL = KeyGroupRange(0, MAX_PARALLELISM - 1)

keys = st.one_of(
    st.integers(),
    st.text(st.characters()),
    st.floats(),
    st.none(),
    st.binary(),
    st.tuples(st.integers(), st.text()),
    st.dates(),
).map(canonicalize)
key_columns = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), unique=True),
    st.lists(st.text(), unique=True),
    st.lists(keys, unique_by=repr),
)
scalars = st.one_of(st.none(), st.integers(), st.text(), st.tuples(st.text(), st.integers()))


def form(name: str, kind: StateKind, value: TypeInformation | None = None, **more: Any) -> StateForm:
    map_key = value_serializer(more.pop("map_key", None), name, "op") if kind is StateKind.MAP else None
    return StateForm(name, kind, value_serializer(value, name, "op", allow_pickle=True), map_key, **more)


def snapshot_of(
    states: Sequence[StateForm], tables: Sequence[dict[Any, Any]], groups: KeyGroupRange = ALL
) -> KeyGroupsSnapshot:
    runs = [
        Run(number, group, run_keys, values)
        for number, table in enumerate(tables)
        for group, (run_keys, values) in split_by_key_group(
            list(table), MAX_PARALLELISM, list(table.values())
        )
        if groups.holds(group)
    ]
    handle = MemoryOutput().write(write_key_groups(states, runs))
    return KeyGroupsSnapshot(
        key_groups=(groups.start, groups.end), states=tuple(state.meta() for state in states), handle=handle
    )


def restored(
    *handles: KeyGroupsSnapshot, groups: KeyGroupRange = ALL, trusted: bool = True
) -> RestoredKeyedState:
    return RestoredKeyedState(handles, groups, read_inline, "op", trusted=trusted)


def table_of(
    state: RestoredKeyedState, name: str, kind: StateKind, *types: Any, **more: Any
) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for run in state.take(name, kind, *(types or (None,)), **more):
        assert len(run.keys) == len(run.values)
        assert all(key_group_of(key, MAX_PARALLELISM) == run.key_group for key in run.keys)
        assert not found.keys() & set(run.keys)
        found.update(zip(run.keys, run.values, strict=True))
    return found


@given(key_columns)
def test_key_groups_in_bulk_are_those_of_single_keys(column: list[Any]) -> None:
    assert key_groups_of(column, MAX_PARALLELISM).tolist() == [
        key_group_of(key, MAX_PARALLELISM) for key in column
    ]


@given(key_columns)
def test_columns_of_keys_come_back(column: list[Any]) -> None:
    key_form, data = dump_keys(column)
    found = load_keys(key_form, memoryview(data), len(column))
    assert list(map(repr, found)) == list(map(repr, column))
    assert list(map(type, found)) == list(map(type, column))


_SESSION = Types.TUPLE([Types.LONG(), Types.TUPLE([Types.LONG(), Types.DOUBLE()])])
_longs = st.integers(-(2**63), 2**63 - 1)
_sessions = st.tuples(_longs, st.none() | st.tuples(_longs, st.floats(allow_nan=False)))
#: Kind and declared type of a state, and a strategy for its values.
divisible = st.sampled_from(
    [
        (StateKind.VALUE, Types.LONG(), st.none() | _longs),
        (
            StateKind.VALUE,
            TupleListTypeInfo(_SESSION),
            st.lists(_sessions, min_size=1, max_size=3).map(list_of),
        ),
        (
            StateKind.REDUCING,
            Types.TUPLE([Types.STRING(), Types.BOOLEAN()]),
            st.tuples(st.text(), st.booleans()),
        ),
        (
            StateKind.VALUE,
            Types.LIST(Types.STRING()),
            st.none() | st.lists(st.none() | st.text(), max_size=2),
        ),
        (
            StateKind.VALUE,
            Types.TUPLE([Types.BIG_INT(), Types.FLOAT()]),
            st.tuples(st.integers(), st.floats()),
        ),
        (StateKind.AGGREGATING, None, scalars),
        (StateKind.LIST, Types.LONG(), st.lists(_longs, max_size=2)),
    ]
)


@given(key_columns, divisible, st.data(), st.booleans())
def test_runs_that_are_encoded_together_are_those_that_are_encoded_alone(
    column: list[Any], state: tuple[StateKind, Any, Any], data: st.DataObject, ttl: bool
) -> None:
    kind, value_type, one = state
    values = data.draw(st.lists(one, min_size=len(column), max_size=len(column)))
    if ttl:
        values = [[(1, each) for each in value] if kind is StateKind.LIST else (1, value) for value in values]
    of_state = form("s", kind, value_type, ttl=ttl)
    assert encoded(of_state, divided_runs(of_state, 0, column, values, 7)) == encoded(
        of_state, split_runs(column, values)
    )


@given(key_columns, st.data(), st.booleans())
def test_timers_that_are_encoded_together_are_those_that_are_encoded_alone(
    column: list[Any], data: st.DataObject, namespaced: bool
) -> None:
    times = data.draw(st.lists(_longs, min_size=len(column), max_size=len(column)))
    spaces = data.draw(st.lists(scalars, min_size=len(column), max_size=len(column)))
    if not namespaced:
        spaces = [None] * len(column)
    timers = TimerValues(np.array(times, dtype=np.int64), spaces if namespaced else None)
    of_state = form("t", StateKind.TIMERS)
    assert encoded(of_state, divided_runs(of_state, 0, column, timers, 7)) == encoded(
        of_state, split_runs(column, list(zip(times, spaces, strict=True)))
    )


_TIME_WINDOW = Types.TUPLE([Types.LONG(), Types.LONG()])
#: Stored forms of windows, and the declared type of each form.
stored_windows = st.sampled_from(
    [
        (st.tuples(_longs, _longs), _TIME_WINDOW),
        # Some do not fit: columns write them, as numbers.
        (st.tuples(st.integers(0, 1), st.sampled_from([3, True])), _TIME_WINDOW),
        (st.tuples(st.text(), st.none() | st.booleans()), Types.TUPLE([Types.STRING(), Types.BOOLEAN()])),
        (st.binary(), Types.PRIMITIVE_ARRAY(Types.BYTE())),
        (_longs, Types.LONG()),
        (st.tuples(_longs, st.text()), None),
    ]
)


@given(key_columns, divisible.filter(lambda state: state[0] is not StateKind.LIST), stored_windows, st.data())
def test_values_by_window_that_are_encoded_together_are_maps_that_are_encoded_alone(
    column: list[Any], state: tuple[StateKind, Any, Any], windows: Any, data: st.DataObject
) -> None:
    _, value_type, one = state
    stored, window_type = windows
    # A window may come in several pieces, and a piece may be empty.
    ends = sorted(data.draw(st.lists(st.integers(0, len(column)), max_size=4)))
    counts = [end - start for start, end in pairwise([0, *ends, len(column)])]
    size = len(column)
    by_window = ValuesByWindow(
        data.draw(st.lists(stored, min_size=len(counts), max_size=len(counts))),
        counts,
        data.draw(st.lists(one, min_size=size, max_size=size)),
    )
    of_state = form("w", StateKind.MAP, value_type, map_key=window_type)
    maps = by_window.maps()
    assert [len(each) for each in maps] == [1] * size
    assert encoded(of_state, divided_runs(of_state, 0, column, by_window, 7)) == encoded(
        of_state, split_runs(column, maps)
    )


def test_a_window_that_does_not_fit_is_named() -> None:
    of_state = form("w", StateKind.MAP, Types.LONG(), map_key=_TIME_WINDOW)
    by_window = ValuesByWindow([(1, 2), (1, "x")], [1, 1], [3, 4])
    with pytest.raises(StateSerializationError, match=r"'w'.*'x'"):
        list(divided_runs(of_state, 0, [1, 2], by_window, 128))


def split_runs(column: list[Any], values: list[Any]) -> list[Run]:
    return [Run(0, group, own, contents) for group, (own, contents) in split_by_key_group(column, 7, values)]


def encoded(of_state: StateForm, runs: Iterable[Run]) -> list[Any]:
    """Each run as bytes, with its first key, which tells the type of all."""
    return [(repr(run.keys[0]), list(encode_run(of_state, run))) for run in runs]


def test_more_entries_than_a_part_has_are_encoded_run_by_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_group_form, "MAX_PART", 2)
    of_state = form("s", StateKind.VALUE, Types.LONG())
    runs = list(divided_runs(of_state, 0, [1, 2, 3], [4, 5, 6], 1))
    assert runs == [Run(0, 0, [1, 2, 3], [4, 5, 6])]


def test_more_entries_of_windows_than_a_part_has_are_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_group_form, "MAX_PART", 2)
    of_state = form("w", StateKind.MAP, Types.LONG(), map_key=_TIME_WINDOW)
    by_window = ValuesByWindow([(0, 5), (5, 9)], [2, 1], [4, 5, 6])
    runs = list(divided_runs(of_state, 0, [1, 2, 3], by_window, 1))
    assert runs == [Run(0, 0, [1, 2, 3], [{(0, 5): 4}, {(0, 5): 5}, {(5, 9): 6}])]


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("kind", [StateKind.VALUE, StateKind.LIST, StateKind.MAP, StateKind.TIMERS])
def test_the_lists_of_a_piece_are_gone_when_its_first_run_is_there(kind: StateKind, text: bool) -> None:
    size = 4321
    values: Any = [[number] if kind is StateKind.LIST else number for number in range(size)]
    if kind is StateKind.TIMERS:
        values = TimerValues(np.arange(size, dtype=np.int64), values)
    if kind is StateKind.MAP:
        values = ValuesByWindow([(0, 5), (5, 9)], [size - 1, 1], values)
    column = list(map(str, range(size))) if text else list(range(size))
    runs = divided_runs(form("s", kind), 0, column, values, 7)
    del column, values
    next(runs)
    assert not [each for each in gc.get_objects() if type(each) in (list, tuple) and len(each) == size]


def test_what_does_not_fit_is_named_by_its_run() -> None:
    of_state = form("s", StateKind.VALUE, TupleListTypeInfo(_SESSION))
    values: list[Any] = [(1, (2, 3.0)), (1, ("x", 3.0))]
    with pytest.raises(StateSerializationError, match=r"'s'.*'x'"):
        list(divided_runs(of_state, 0, [1, 2], values, 128))


@given(key_columns)
def test_split_gives_every_key_once_in_order_of_groups(column: list[Any]) -> None:
    parts = list(split_by_key_group(column, MAX_PARALLELISM, range(len(column))))
    groups = [group for group, _ in parts]
    assert groups == sorted(set(groups))
    assert sorted(place for _, (_, places) in parts for place in places) == list(range(len(column)))
    assert all(
        column[place] is key for _, (part, places) in parts for key, place in zip(part, places, strict=True)
    )


@pytest.mark.slow
@given(key_columns, st.data(), st.integers(1, 5), st.integers(1, 5))
def test_rescaling_keeps_every_entry(column: list[Any], data: st.DataObject, old: int, new: int) -> None:
    """Whatever subtasks wrote, another number of subtasks finds all of it, once."""
    values = {key: data.draw(scalars) for key in column}
    lists = {key: data.draw(st.lists(scalars, max_size=3)) for key in column}
    maps = {key: {"a": data.draw(scalars), 1: None} for key in column}
    timers = {key: (data.draw(st.integers(0, 2**60)), data.draw(scalars)) for key in column}
    kinds = (StateKind.VALUE, StateKind.LIST, StateKind.MAP, StateKind.TIMERS)
    tables: dict[StateKind, dict[Any, Any]] = dict(zip(kinds, (values, lists, maps, timers), strict=True))
    handles = [
        snapshot_of(
            [form(kind.value, kind) for kind in kinds],
            list(tables.values()),
            key_group_range_for_operator_index(MAX_PARALLELISM, old, index),
        )
        for index in range(old)
    ]
    for kind, table in tables.items():
        found: dict[Any, Any] = {}
        for index in range(new):
            groups = key_group_range_for_operator_index(MAX_PARALLELISM, new, index)
            found |= table_of(restored(*handles, groups=groups), kind.value, kind)
        assert found == table


def test_time_to_live_travels_and_may_be_declared_anew() -> None:
    states = [
        form("v", StateKind.VALUE, Types.LONG(), ttl=True),
        form("l", StateKind.LIST, Types.LONG(), ttl=True),
        form("m", StateKind.MAP, Types.LONG(), ttl=True),
        form("plain", StateKind.LIST, Types.LONG()),
    ]
    tables: list[dict[Any, Any]] = [
        {1: (10, 5)}, {1: [(10, 5), (11, 6)]}, {1: {"a": (10, 5)}}, {1: [5, 6]}
    ]  # fmt: skip
    handle = snapshot_of(states, tables)
    kept = restored(handle)
    assert table_of(kept, "v", StateKind.VALUE, Types.LONG(), ttl=True) == tables[0]
    assert table_of(kept, "l", StateKind.LIST, Types.LONG(), ttl=True) == tables[1]
    assert table_of(kept, "m", StateKind.MAP, Types.LONG(), ttl=True) == tables[2]
    added = table_of(kept, "plain", StateKind.LIST, Types.LONG(), ttl=True, access_time_ms=99)
    assert added == {1: [(99, 5), (99, 6)]}
    dropped = restored(handle)
    assert table_of(dropped, "v", StateKind.VALUE, Types.LONG()) == {1: 5}
    assert table_of(dropped, "l", StateKind.LIST, Types.LONG()) == {1: [5, 6]}
    assert table_of(dropped, "m", StateKind.MAP, Types.LONG()) == {1: {"a": 5}}


def test_entries_come_migrated() -> None:
    old = Types.ROW_NAMED(["a", "gone"], [Types.INT(), Types.STRING()])
    new = Types.ROW_NAMED(["a", "b"], [Types.DOUBLE(), Types.STRING()])
    handle = snapshot_of([form("s", StateKind.VALUE, old)], [{"k": Row(a=1, gone="x")}])
    assert table_of(restored(handle), "s", StateKind.VALUE, new) == {"k": Row(a=1.0, b=None)}
    state = restored(handle)
    with pytest.raises(
        StateMigrationError, match=r"operator 'op', state 's', field 'a': .* Integer, .* String"
    ):
        state.take("s", StateKind.VALUE, Types.ROW_NAMED(["a"], [Types.STRING()]))
    with pytest.raises(StateMigrationError, match="value state, the program declares list state"):
        state.take("s", StateKind.LIST, old)
    assert state.names() == ["s"]


def test_states_that_nobody_asks_for_are_carried_on() -> None:
    handle = snapshot_of(
        [form("kept", StateKind.VALUE), form("lost", StateKind.MAP)], [{1: 1, 2: 2}, {1: {"a": 1}, 5: {}}]
    )
    state = restored(handle)
    table_of(state, "kept", StateKind.VALUE)
    metas, runs = state.carried(1)
    states = [form("kept", StateKind.VALUE)]
    data = MemoryOutput().write(write_key_groups(states, [Run(0, 3, ["x"], [1])], runs))
    again = restored(
        KeyGroupsSnapshot(key_groups=(0, 127), states=(*[s.meta() for s in states], *metas), handle=data)
    )
    assert table_of(again, "lost", StateKind.MAP) == {1: {"a": 1}, 5: {}}
    # It may still be asked for later in the life of the first one.
    assert table_of(state, "lost", StateKind.MAP) == {1: {"a": 1}, 5: {}}
    assert state.carried(1) == ([], [])


class Opaque:
    """Made of more than fields."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Opaque, ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque)

    __hash__ = None  # type: ignore[assignment]


def test_pickled_values_are_marked_and_read_only_where_trusted() -> None:
    handle = snapshot_of([form("s", StateKind.VALUE)], [{1: Opaque()}])
    assert handle.states[0].value.pickled == (f"{__name__}.Opaque",)
    assert table_of(restored(handle), "s", StateKind.VALUE) == {1: Opaque()}
    with pytest.raises(UntrustedPickleError, match="operator 'op', state 's'"):
        table_of(restored(handle, trusted=False), "s", StateKind.VALUE)


def test_runs_and_parts_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_group_form, "MAX_RUN", 3)
    monkeypatch.setattr(key_group_form, "MAX_PART", 2)
    table = {key: [key, key + 1] for key in range(10)}
    states = [form("s", StateKind.LIST, Types.LONG())]
    data = b"".join(write_key_groups(states, [Run(0, 0, list(table), list(table.values()))]))
    runs = list(encoded_runs(data, ALL))
    assert [run.entries for run in runs] == [3, 3, 3, 1]
    found: dict[int, Any] = {}
    for run in runs:
        found.update(zip(*key_group_form.decoded_run(states[0], run), strict=True))
    assert found == table


@given(st.data())
def test_bytes_cut_short_or_joined_are_found(data: st.DataObject) -> None:
    states = [form("s", StateKind.VALUE, Types.LONG())]
    whole = b"".join(write_key_groups(states, [Run(0, 1, [1, 2], [3, 4]), Run(0, 2, ["a"], [5])]))
    cut = data.draw(st.integers(0, len(whole) - 1))
    for damaged in (whole[:cut], whole + whole[: cut + 1], whole[cut + 1 :]):
        with pytest.raises(SnapshotFormatError):
            list(encoded_runs(damaged, ALL))


@given(
    keys=st.one_of(
        st.lists(st.integers(-(2**63), 2**63 - 1)),
        st.lists(st.integers(2**62, 2**65)),
        st.lists(st.one_of(st.integers(), st.text(), st.booleans(), st.none(), st.floats(allow_nan=False))),
    ),
    most=st.integers(1, 32768),
)
def test_groups_of_canonical_keys_are_those_of_each(keys: list[Any], most: int) -> None:
    canonical = list(map(canonicalize, keys))
    assert key_groups_of(canonical, most).tolist() == [key_group_of(key, most) for key in canonical]
