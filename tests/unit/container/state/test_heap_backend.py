"""The heap backend against a model: all state kinds, random operations, snapshots at random points and steps."""

from __future__ import annotations

import copy
import gc
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.container.state.contexts import (
    CHECKPOINT,
    InlineOutput,
    Mails,
    context,
    read_inline,
    snapshot_of,
)
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.common.types import Row
from yarrow.container.state import heap_snapshot, pacing
from yarrow.container.state.backend import KeyedBackendContext, KeyedStateBackend, Timer
from yarrow.container.state.errors import NoneInStateError, StateBackendError, StateConflictError
from yarrow.container.state.heap_keyed_state import HeapKeyedStateBackend
from yarrow.datastream.functions import AggregateFunction
from yarrow.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    State,
    ValueStateDescriptor,
)
from yarrow.runtime.data.key_groups import KeyGroupRange, key_group_of
from yarrow.runtime.data.keys import canonicalize
from yarrow.runtime.snapshot.errors import StateSerializationError
from yarrow.runtime.snapshot.handles import InlineStateHandle, KeyGroupsSnapshot, RocksDBSnapshot


class Collected(AggregateFunction[int, list[int], int]):
    """Its accumulator is changed in place."""

    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator[0] += value
        accumulator[1] += 1
        return accumulator

    def get_result(self, accumulator: list[int]) -> int:
        return accumulator[0] * 1000 + accumulator[1]

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return [acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]]


def appended(first: list[int], second: list[int]) -> list[int]:
    first.extend(second)
    return first


VALUE: ValueStateDescriptor[list[int]] = ValueStateDescriptor("value", Types.LIST(Types.LONG()))
LIST: ListStateDescriptor[int] = ListStateDescriptor("list", Types.LONG())
MAP: MapStateDescriptor[int, list[int]] = MapStateDescriptor("map", Types.LONG(), Types.LIST(Types.LONG()))
REDUCING = ReducingStateDescriptor("reducing", appended, Types.LIST(Types.LONG()))
AGGREGATING = AggregatingStateDescriptor("aggregating", Collected(), Types.LIST(Types.LONG()))
KINDS = ["value", "list", "map", "reducing", "aggregating"]


class States:
    """The five states of a backend, with operations that change content in place where programs may."""

    def __init__(self, backend: KeyedStateBackend) -> None:
        self.backend = backend
        self.value = backend.value_state(VALUE)
        self.list = backend.list_state(LIST)
        self.map = backend.map_state(MAP)
        self.reducing = backend.reducing_state(REDUCING)
        self.aggregating = backend.aggregating_state(AGGREGATING)

    def change(self, kind: str, key: Any, number: int) -> None:
        self.backend.current_key = key
        if kind == "value":
            held = self.value.value() or []
            held.append(number)
            self.value.update(held)
        elif kind == "list":
            if number % 3:
                self.list.add(number)
            else:
                self.list.add_all([number, number])
        elif kind == "map":
            held = dict(self.map.items()).get(0, []) if number % 4 == 0 else self.map.get(number % 2) or []
            held.append(number)
            self.map.put(number % 2, held)
            if number % 5 == 0:
                self.map.remove((number + 1) % 2)
        elif kind == "reducing":
            self.reducing.add([number])
        else:
            self.aggregating.add(number)

    def clear(self, kind: str, key: Any) -> None:
        self.backend.current_key = key
        handle: State = getattr(self, kind)
        handle.clear()

    def content(self, key: Any) -> dict[str, Any]:
        self.backend.current_key = key
        found = {
            "value": self.value.value(),
            "list": list(self.list.get()),
            "map": {key: list(value) for key, value in self.map.items()},
            "reducing": self.reducing.get(),
            "aggregating": self.aggregating.get(),
        }
        return {kind: list(held) if isinstance(held, list) else held for kind, held in found.items()}

    def all(self, keys: list[Any]) -> dict[Any, dict[str, Any]]:
        return {canonicalize(key): self.content(key) for key in keys}


class Model:
    """The same over dicts that nothing is shared with."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, Any], Any] = {}

    def change(self, kind: str, key: Any, number: int) -> None:
        place = (kind, canonicalize(key))
        if kind in ("value", "reducing"):
            self.held[place] = [*self.held.get(place, []), number]
        elif kind == "list":
            self.held[place] = [*self.held.get(place, []), *([number] if number % 3 else [number, number])]
        elif kind == "map":
            held = {k: list(v) for k, v in self.held.get(place, {}).items()}
            held[number % 2] = [*held.get(number % 2, []), number]
            if number % 5 == 0:
                held.pop((number + 1) % 2, None)
            self.held[place] = held
        else:
            total, count = self.held.get(place, (0, 0))
            self.held[place] = (total + number, count + 1)

    def clear(self, kind: str, key: Any) -> None:
        self.held.pop((kind, canonicalize(key)), None)

    def all(self, keys: list[Any]) -> dict[Any, dict[str, Any]]:
        found = {}
        for key in map(canonicalize, keys):
            aggregated = self.held.get(("aggregating", key))
            found[key] = {
                "value": self.held.get(("value", key)),
                "list": self.held.get(("list", key), []),
                "map": self.held.get(("map", key), {}),
                "reducing": self.held.get(("reducing", key)),
                "aggregating": None if aggregated is None else aggregated[0] * 1000 + aggregated[1],
            }
        return found


@pytest.fixture(scope="module", autouse=True)
def small_steps() -> Iterator[None]:
    """Snapshots go in as many steps as they can: each chunk is handed over by itself, each shard given back at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heap_snapshot, "BLOCK", 1)
        patch.setattr(pacing, "_STRETCH", 1e-9)
        yield


KEYS: list[Any] = [0, 1, True, 2, 1024, "a", 2.5, float("nan"), (1, "x"), Row(1, 2), None]
#: Few keys are used often: most of what matters happens to a key that was there at a cut.
OPERATIONS = st.tuples(
    st.sampled_from(["change"] * 5 + ["clear"]),
    st.sampled_from(KINDS),
    st.sampled_from([0, "a", Row(1, 2)]) | st.sampled_from(KEYS),
)
SNAPSHOTS = st.sampled_from(["cut", "write", "finish", "discard", "mails", "chunk"])


def stepped_writes(pending: Any, taken: list[Any]) -> Iterator[None]:
    """Writes a snapshot chunk by chunk: each step takes one."""
    # The generator that write() hands to the output is driven from here.
    steps: list[Any] = []

    class Stepping(InlineOutput):
        def write(self, chunks: Any) -> InlineStateHandle:
            steps.append(chunks)
            return InlineStateHandle(data=b"")

    handles = pending.write(Stepping())
    data = []
    for chunks in steps:
        for chunk in chunks:
            data.append(chunk)
            yield
    taken.append(
        [
            KeyGroupsSnapshot(
                key_groups=handle.key_groups,
                states=handle.states,
                handle=InlineStateHandle(data=b"".join(data)),
            )
            for handle in handles
        ]
    )


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(OPERATIONS, SNAPSHOTS), max_size=60), st.booleans(), st.booleans())
def test_snapshots_hold_what_was_there_at_their_cut(
    steps: list[Any], object_reuse: bool, divided: bool
) -> None:
    mails = Mails()
    backend = HeapKeyedStateBackend(context(mails=mails, object_reuse=object_reuse))
    states, model = States(backend), Model()
    if divided:
        for table in backend._tables.values():
            table._flat_limit, table._slots, table._weights = 3, 5, (1, 2)
    writing: list[tuple[Any, Any, list[Any], Any]] = []
    cuts = 0

    def finish(at: int) -> None:
        _, write, taken, then = writing.pop(at)
        for _ in write:
            pass
        restored = States(HeapKeyedStateBackend(context(restored=taken[0])))
        assert restored.all(KEYS) == then

    for number, step in enumerate(steps):
        if isinstance(step, tuple):
            what, kind, key = step
            if what == "change":
                states.change(kind, key, number)
                model.change(kind, key, number)
            else:
                states.clear(kind, key)
                model.clear(kind, key)
        elif step == "cut":
            cuts += 1
            pending = backend.snapshot(cuts, CHECKPOINT)
            taken: list[Any] = []
            writing.append((pending, stepped_writes(pending, taken), taken, model.all(KEYS)))
        elif step == "mails":
            mails.run()
        elif step == "chunk":
            backend.end_of_chunk()
        elif writing and step == "write":
            for _, write, _, _ in writing:
                next(write, None)
                if not writing[0][2]:
                    break
        elif writing and step == "finish" and not writing[0][2]:
            finish(0)
        elif writing and step == "discard":
            writing.pop(len(writing) // 2)[0].discard()
        assert states.all(KEYS) == model.all(KEYS)
    while writing:
        pending, _, taken, _ = writing[-1]
        if not taken:
            finish(len(writing) - 1)
        else:
            writing.pop()
        pending.discard()
    mails.run()
    assert not any(table.is_held for table in backend._tables.values())
    assert States(HeapKeyedStateBackend(context(restored=snapshot_of(backend)))).all(KEYS) == model.all(KEYS)


def test_snapshots_written_by_another_thread_while_state_changes() -> None:
    mails = Mails()
    backend = HeapKeyedStateBackend(context(mails=mails))
    states, model = States(backend), Model()
    for table in backend._tables.values():
        table._flat_limit, table._slots, table._weights = 500, 31, (1, 2)
    keys = list(range(300))
    number = 0
    for round_ in range(6):
        pending = backend.snapshot(round_ + 1, CHECKPOINT)
        then = model.all(keys)
        results: list[Any] = []
        thread = threading.Thread(target=lambda p=pending, r=results: r.append(p.write(InlineOutput())))
        thread.start()
        while thread.is_alive() or number % 300:
            kind = KINDS[number % len(KINDS)]
            states.change(kind, number * 7 % 300, number)
            model.change(kind, number * 7 % 300, number)
            number += 1
            if number % 20 == 0:
                mails.run()
                backend.end_of_chunk()
        thread.join()
        mails.run()
        restored = States(HeapKeyedStateBackend(context(restored=results[0])))
        assert restored.all(keys) == then
        assert states.all(keys) == model.all(keys)


@pytest.mark.parametrize(
    ("declared", "value", "change"),
    [
        (Types.LIST(Types.LONG()), [1, 2], lambda value: value.append(3)),
        (Types.LIST(Types.LIST(Types.LONG())), [[1], [2]], lambda value: value[0].append(3)),
        (Types.LIST(Types.TUPLE([Types.LONG()])), [(1,), None], lambda value: value.clear()),
    ],
)
def test_a_list_changed_in_place_after_a_cut_is_in_the_snapshot_as_it_was(
    declared: TypeInformation, value: list[Any], change: Callable[[Any], None]
) -> None:
    mails = Mails()
    backend = HeapKeyedStateBackend(context(mails=mails))
    descriptor: ValueStateDescriptor[Any] = ValueStateDescriptor("values", declared)
    state = backend.value_state(descriptor)
    keys = range(100)
    for key in keys:
        backend.current_key = key
        state.update(value)
    untouched = read_inline(snapshot_of(backend)[0].handle)  # type: ignore[union-attr]
    mails.run()
    pending = backend.snapshot(2, CHECKPOINT)
    for key in keys:
        backend.current_key = key
        changed = state.value()
        assert changed == value
        change(changed)
        if key % 2:
            state.update(changed)
    (handle,) = pending.write(InlineOutput())
    assert read_inline(handle.handle) == untouched  # type: ignore[union-attr]
    mails.run()
    expected = copy.deepcopy(value)
    change(expected)
    for key in keys:
        backend.current_key = key
        assert state.value() == (expected if key % 2 else value)


def test_shards_go_back_to_their_table_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    mails = Mails()
    backend = HeapKeyedStateBackend(context(mails=mails))
    state = backend.value_state(ValueStateDescriptor("values", Types.LIST(Types.LONG())))
    (table,) = backend._tables.values()
    table._flat_limit, table._slots, table._weights = 100, 31, (1,)
    monkeypatch.setattr(heap_snapshot, "PIECE", 10)
    monkeypatch.setattr(heap_snapshot, "GATHERED", 310)
    for key in range(620):
        backend.current_key = key
        state.update([key])
    backend.end_of_chunk()
    assert table.shard_count == 32
    waiting: list[int] = []
    pending = backend.snapshot(1, CHECKPOINT)
    pending.write(InlineOutput(between=lambda: waiting.append(len(mails.waiting))))
    given = [after - before for before, after in pairwise(waiting) if after > before]
    assert sum(given) > 10
    # What is left at the end goes at once.
    assert max(given[:-1]) <= 4
    mails.run()
    assert not table.is_held


def test_a_snapshot_in_the_middle_of_a_division_holds_each_key_once() -> None:
    backend = HeapKeyedStateBackend(context(mails=(mails := Mails())))
    descriptor: ValueStateDescriptor[Any] = ValueStateDescriptor("values", Types.LONG())
    state = backend.value_state(descriptor)
    (table,) = backend._tables.values()
    table._flat_limit, table._moved_at_once, table._large = 100, 30, 20
    for number in range(110):
        backend.current_key = f"key-{number}"
        state.update(number)
    backend.end_of_chunk()
    assert len(table._first) == 80
    pending = backend.snapshot(1, CHECKPOINT)
    for number in range(0, 110, 3):
        backend.current_key = f"key-{number}"
        assert state.value() == number
        state.update(-number - 1) if number % 2 else state.clear()
    (handle,) = pending.write(InlineOutput())
    mails.run()
    while table.dividing:
        backend.end_of_chunk()
    changed = {number: None if number % 2 == 0 else -number - 1 for number in range(0, 110, 3)}
    restored = HeapKeyedStateBackend(context(restored=[handle]))
    restored_state = restored.value_state(descriptor)
    for number in range(110):
        backend.current_key = restored.current_key = f"key-{number}"
        assert restored_state.value() == number
        assert state.value() == changed.get(number, number)
    assert restored.entries == 110
    assert backend.entries == sum(changed.get(number, number) is not None for number in range(110))


def test_a_dict_that_is_copied_ahead_is_given_back_once() -> None:
    backend = HeapKeyedStateBackend(context(mails=(mails := Mails())))
    values = backend.value_state(ValueStateDescriptor("values", Types.LONG()))
    for backend.current_key in range(5):
        values.update(1)
    backend.snapshot(1, CHECKPOINT).write(InlineOutput())
    assert len(mails.waiting) == 1
    mails.run()
    assert not backend._tables["values"].is_held


@pytest.mark.parametrize("kind", ["values", "lists"])
def test_the_lists_of_a_piece_are_gone_while_its_runs_are_written(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 3457
    monkeypatch.setattr(heap_snapshot, "PIECE", size)
    monkeypatch.setattr(heap_snapshot, "GATHERED", size)
    monkeypatch.setattr(heap_snapshot, "BLOCK", 1)
    backend = HeapKeyedStateBackend(context())
    values = backend.value_state(ValueStateDescriptor("values", Types.LONG()))
    lists = backend.list_state(ListStateDescriptor("lists", Types.LONG()))
    for backend.current_key in range(2 * size):
        values.update(1) if kind == "values" else lists.add(1)
    found: list[int] = []

    def between() -> None:
        if len(found) < 4:
            found.append(sum(type(each) is list and len(each) == size for each in gc.get_objects()))

    backend.snapshot(1, CHECKPOINT).write(InlineOutput(between=between))
    assert found == [0] * 4


@pytest.mark.parametrize("large", [10, 1000])
@pytest.mark.parametrize("kind", ["values", "lists"])
def test_a_dict_of_values_goes_back_before_anything_is_written_and_one_of_lists_after(
    kind: str, large: int
) -> None:
    backend = HeapKeyedStateBackend(context(mails=(mails := Mails())))
    values = backend.value_state(ValueStateDescriptor("values", Types.LONG()))
    lists = backend.list_state(ListStateDescriptor("lists", Types.LONG()))
    table = backend._tables[kind]
    table._large = large
    held: list[bool] = []

    def change_all(by: int) -> None:
        for backend.current_key in range(50):
            values.update(by) if kind == "values" else lists.add(by)

    def between() -> None:
        mails.run()
        held.append(table.is_held)
        change_all(2)

    change_all(1)
    (first,) = backend.snapshot(1, CHECKPOINT).write(InlineOutput())
    mails.run()
    (second,) = backend.snapshot(2, CHECKPOINT).write(InlineOutput(between=between))
    assert held[0] is (kind == "lists")
    assert read_inline(first.handle) == read_inline(second.handle)  # type: ignore[union-attr]


@pytest.mark.parametrize("reverse", [False, True])
def test_rescaled_again_and_again_every_kind_is_the_same(reverse: bool) -> None:
    keys = [*range(60), *(f"k{n}" for n in range(60)), (1, 2), None, 2.5]
    golden = Model()
    parallelism, backends = 2, [HeapKeyedStateBackend(context(subtask=n, parallelism=2)) for n in range(2)]
    for number, following in enumerate((3, 1, 4, None)):
        owners = [(backend.context.key_groups, States(backend)) for backend in backends]
        for key in reversed(keys) if reverse else keys:
            group = key_group_of(canonicalize(key), 16)
            for groups, states in owners:
                if groups.holds(group):
                    for kind in KINDS:
                        states.change(kind, key, number % 7)
        for key in keys:
            for kind in KINDS:
                golden.change(kind, key, number % 7)
        found: dict[Any, Any] = {}
        for groups, states in owners:
            own = [key for key in keys if groups.holds(key_group_of(canonicalize(key), 16))]
            found |= states.all(own)
        assert found == golden.all(keys)
        if following is not None:
            handles = [handle for backend in backends for handle in snapshot_of(backend)]
            parallelism = following
            backends = [
                HeapKeyedStateBackend(context(subtask=n, parallelism=parallelism, restored=handles))
                for n in range(parallelism)
            ]


class Timers:
    """A timer service's section."""

    def __init__(self, *timers: Timer) -> None:
        self.timers = list(timers)

    def snapshot_timers(self) -> list[Timer]:
        return list(self.timers)

    def restore_timers(self, timers: Any) -> None:
        self.timers += timers


class Arrays:
    """An operator's own values by key."""

    value_type = Types.LONG()

    def __init__(self, **entries: int) -> None:
        self.entries = dict(entries)

    @property
    def entry_count(self) -> int:
        return len(self.entries)

    def freeze_entries(self) -> list[tuple[list[Any], list[Any]]]:
        return [(list(self.entries), list(self.entries.values()))] if self.entries else []

    def restore_entries(self, entries: Any) -> None:
        self.entries.update(entries)


def test_timers_and_sections_travel_with_their_key_groups() -> None:
    backend = HeapKeyedStateBackend(context())
    timers = [Timer(5, "a"), Timer(5, "b", (1, 9)), Timer(7, "a"), Timer(-3, 12)]
    backend.register_timers("_event_time_timers", Timers(*timers))
    backend.register_section("_columns", Arrays(a=1, b=2, c=3))
    handles = snapshot_of(backend)
    found_timers: list[Timer] = []
    found_entries: dict[str, int] = {}
    for subtask in range(3):
        made = context(subtask=subtask, parallelism=3, restored=handles)
        part, section, arrays = HeapKeyedStateBackend(made), Timers(), Arrays()
        part.register_timers("_event_time_timers", section)
        part.register_section("_columns", arrays)
        assert all(made.key_groups.holds(key_group_of(timer.key, 16)) for timer in section.timers)
        found_timers += section.timers
        found_entries |= arrays.entries
    assert sorted(found_timers, key=repr) == sorted(timers, key=repr)
    assert found_entries == {"a": 1, "b": 2, "c": 3}


def test_what_nobody_asks_for_is_carried_on() -> None:
    backend = HeapKeyedStateBackend(context())
    states = States(backend)
    for key in range(40):
        states.change("list", key, key)
        states.change("value", key, key)
    second = HeapKeyedStateBackend(context(restored=snapshot_of(backend)))
    second.current_key = 3
    assert second.value_state(VALUE).value() == [3]
    third = HeapKeyedStateBackend(context(restored=snapshot_of(second)))
    fourth = HeapKeyedStateBackend(context(restored=snapshot_of(third)))
    assert States(fourth).all(list(range(40))) == states.all(list(range(40)))


def test_a_backend_without_state_writes_nothing() -> None:
    backend = HeapKeyedStateBackend(context())
    states = States(backend)
    assert snapshot_of(backend) == ()
    states.change("list", 1, 1)
    states.clear("list", 1)
    assert snapshot_of(backend) == ()


def test_a_value_table_is_a_value_state_of_its_name() -> None:
    backend = HeapKeyedStateBackend(context())
    table = backend.value_table("sums", Types.LONG())
    for key in (1, 2.5, float("nan"), Row(1)):
        canonical, shard, _ = table.miss(key)
        shard[canonical] = 7
    restored = HeapKeyedStateBackend(context(restored=snapshot_of(backend)))
    handle = restored.value_state(ValueStateDescriptor("sums", Types.LONG()))
    for key in (1.0, 2.5, float("nan"), Row(1)):
        restored.current_key = key
        assert handle.value() == 7


def make(made: KeyedBackendContext | None = None) -> HeapKeyedStateBackend:
    backend = HeapKeyedStateBackend(made or context(operator_name="my operator"))
    backend.current_key = "k"
    return backend


def test_a_name_is_one_state() -> None:
    backend = make()
    assert backend.list_state(LIST) is backend.list_state(ListStateDescriptor("list", Types.LONG()))
    with pytest.raises(StateConflictError, match=r"'my operator': state 'list' .*list state.*map state"):
        backend.map_state(MapStateDescriptor("list", Types.LONG(), Types.LONG()))
    with pytest.raises(StateConflictError, match=r"state 'list'"):
        backend.list_state(ListStateDescriptor("list", Types.STRING()))
    backend.register_timers("_timers", Timers())
    with pytest.raises(StateConflictError, match=r"'_timers' is taken by the operator"):
        backend.value_state(ValueStateDescriptor("_timers"))
    with pytest.raises(StateConflictError, match=r"'list' is a list state"):
        backend.register_timers("list", Timers())


def test_none_is_refused_where_values_are_added() -> None:
    backend = make()
    states = States(backend)
    for add in (states.list.add, states.reducing.add, states.aggregating.add):
        with pytest.raises(NoneInStateError, match=r"'my operator', state '(list|reducing|aggregating)'"):
            add(None)
    for add_all in (states.list.add_all, states.list.update):
        with pytest.raises(NoneInStateError, match="state 'list'"):
            add_all([1, None])
    assert backend.entries == 0


def test_none_removes_a_value_and_an_empty_list_a_list() -> None:
    states = States(make())
    states.value.update([1])
    states.value.update(None)
    states.list.update([1, 2])
    states.list.update([])
    states.list.add_all([])
    assert states.value.value() is None
    assert list(states.list.get()) == []
    assert states.backend.entries == 0


def test_a_map_is_a_map() -> None:
    backend = make()
    state = backend.map_state(MapStateDescriptor("m"))
    assert state.is_empty() and 1 not in state and state.get(1) is None
    state[1] = "one"
    state.put_all({2: None, Row("r"): "row", float("nan"): "nan", (1, Row(2)): "nested"})
    assert state[True] == "one" and state.contains(2) and state[2] is None
    assert state[Row("r")] == "row" and state[float("nan")] == "nan" and state[(1, Row(2))] == "nested"
    assert [key for key in state if isinstance(key, Row)] == [Row("r")]
    assert len(list(state.items())) == len(list(state.values())) == 5
    for key in list(state):
        del state[key]
    assert state.is_empty() and backend.entries == 0
    state.remove("never there")


def test_state_keys_are_those_with_content() -> None:
    backend = HeapKeyedStateBackend(context())
    states = States(backend)
    for key in (1, 2, "x"):
        states.change("list", key, 1)
    states.clear("list", 2)
    assert set(backend.state_keys("list")) == {1, "x"}
    assert list(backend.state_keys("never asked for")) == []


def test_files_of_rocksdb_are_refused_with_the_remedy() -> None:
    foreign = RocksDBSnapshot(key_groups=(0, 7), backend_id="b", states=(), shared=(), private=())
    made = context(subtask=0, parallelism=2, restored=[foreign], operator_name="my operator")
    with pytest.raises(StateBackendError, match=r"'my operator'.*RocksDB.*savepoint"):
        HeapKeyedStateBackend(made)
    assert not KeyGroupRange(8, 15).intersection(KeyGroupRange(0, 7)).number_of_key_groups
    HeapKeyedStateBackend(context(subtask=1, parallelism=2, restored=[foreign]))


def test_a_failed_write_leaves_the_state_as_it_was() -> None:
    mails = Mails()
    backend = HeapKeyedStateBackend(context(mails=mails))
    states = States(backend)
    states.change("list", 1, 1)

    def fail() -> None:
        raise OSError("the disk is full")

    pending = backend.snapshot(1, CHECKPOINT)
    states.change("list", 1, 2)
    with pytest.raises(OSError, match="full"):
        pending.write(InlineOutput(between=fail))
    pending.discard()
    mails.run()
    assert states.content(1)["list"] == [1, 2]
    assert read_inline(snapshot_of(backend)[0].handle)  # type: ignore[union-attr]


@pytest.mark.parametrize("declared", [Types.INT(), Types.TUPLE([Types.STRING(), Types.INT()])])
def test_a_number_beyond_its_width_fails_the_snapshot_that_would_hold_it(declared: TypeInformation) -> None:
    backend = make()
    state = backend.value_state(ValueStateDescriptor("counts", declared))
    for key in range(20):
        backend.current_key = key
        state.update(key if declared == Types.INT() else ("a", key))
    state.update(1 << 40 if declared == Types.INT() else ("a", 1 << 40))
    with pytest.raises(
        StateSerializationError,
        match=r"'my operator', state 'counts': .*32 bits .*1099511627776.*declared .*Integer",
    ):
        snapshot_of(backend)
