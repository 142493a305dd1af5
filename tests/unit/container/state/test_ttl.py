"""Time to live on the heap, by a clock driven by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.total import Total
from tests.unit.container.state.contexts import CHECKPOINT, InlineOutput, Mails, context, snapshot_of
from yarrow.common.time import Time
from yarrow.common.typeinfo import Types
from yarrow.container.state.backend import KeyedStateBackend
from yarrow.container.state.errors import NoneInStateError, StateConflictError
from yarrow.container.state.heap_keyed_state import HeapKeyedStateBackend
from yarrow.container.state.heap_table import HeapTable
from yarrow.container.state.ttl import TimeToLive
from yarrow.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.snapshot.handles import KeyGroupsSnapshot, StateKind

UPDATES = StateTtlConfig.UpdateType
VISIBILITY = StateTtlConfig.StateVisibility
LIFETIME = 10


def config(
    update: UPDATES = UPDATES.OnCreateAndWrite, visibility: VISIBILITY = VISIBILITY.NeverReturnExpired
) -> StateTtlConfig:
    return (
        StateTtlConfig.new_builder(Time.milliseconds(LIFETIME))
        .set_update_type(update)
        .set_state_visibility(visibility)
        .build()
    )


class States:
    """The five states of a backend with one time to live."""

    def __init__(self, backend: KeyedStateBackend, ttl: StateTtlConfig | None) -> None:
        self.backend = backend
        value: ValueStateDescriptor[int] = ValueStateDescriptor("value", Types.LONG())
        elements: ListStateDescriptor[int] = ListStateDescriptor("list", Types.LONG())
        mapped: MapStateDescriptor[int, int] = MapStateDescriptor("map", Types.LONG(), Types.LONG())
        reducing: ReducingStateDescriptor[int] = ReducingStateDescriptor(
            "reducing", lambda a, b: a + b, Types.LONG()
        )
        aggregating = AggregatingStateDescriptor("aggregating", Total(), Types.LONG())
        descriptors: list[StateDescriptor] = [value, elements, mapped, reducing, aggregating]
        for descriptor in descriptors:
            if ttl is not None:
                descriptor.enable_time_to_live(ttl)
        self.value = backend.value_state(value)
        self.list = backend.list_state(elements)
        self.map = backend.map_state(mapped)
        self.reducing = backend.reducing_state(reducing)
        self.aggregating = backend.aggregating_state(aggregating)
        backend.current_key = "k"

    def write(self, number: int) -> None:
        self.value.update(number)
        self.list.add(number)
        self.map.put(number, number)
        self.reducing.add(number)
        self.aggregating.add(number)

    def read(self) -> list[Any]:
        return [
            self.value.value(),
            list(self.list.get()),
            dict(self.map.items()),
            self.reducing.get(),
            self.aggregating.get(),
        ]


NOTHING: list[Any] = [None, [], {}, None, None]


def made(
    ttl: StateTtlConfig | None, *restored: KeyGroupsSnapshot, clock: ManualClock | None = None
) -> tuple[ManualClock, States]:
    clock = clock or ManualClock(1000)
    return clock, States(HeapKeyedStateBackend(context(clock=clock, restored=restored)), ttl)


def advance(clock: ManualClock, milliseconds: int) -> None:
    clock.advance(milliseconds / 1000)


def test_what_was_written_lives_for_its_time_and_no_longer() -> None:
    clock, states = made(config())
    states.write(1)
    advance(clock, 9)
    assert states.read() == [1, [1], {1: 1}, 1, 1]
    advance(clock, 1)
    assert states.read() == NOTHING
    assert states.backend.entries == 0, "what was read as expired is removed"


def test_elements_and_entries_expire_one_by_one() -> None:
    clock, states = made(config())
    states.write(1)
    advance(clock, 5)
    states.write(2)
    advance(clock, 5)
    assert states.read() == [2, [2], {2: 2}, 3, 3]


@pytest.mark.parametrize("update", [UPDATES.OnCreateAndWrite, UPDATES.OnReadAndWrite])
def test_reads_make_young_only_where_asked_for(update: UPDATES) -> None:
    clock, states = made(config(update))
    states.write(1)
    for _ in range(3):
        advance(clock, 6)
        found = states.read()
    assert found == ([1, [1], {1: 1}, 1, 1] if update is UPDATES.OnReadAndWrite else NOTHING)


@pytest.mark.parametrize("read", ["get", "contains", "keys", "values", "is_empty"])
def test_every_read_of_a_map_makes_young(read: str) -> None:
    clock, states = made(config(UPDATES.OnReadAndWrite))
    states.map.put(1, 1)
    for _ in range(3):
        advance(clock, 6)
        method = getattr(states.map, read)
        found = method(1) if read in ("get", "contains") else method()
        assert found in (1, True, [1]) if read != "is_empty" else found is False


def test_disabled_never_expires() -> None:
    clock, states = made(config(UPDATES.Disabled))
    states.write(1)
    advance(clock, 1000)
    assert states.read() == [1, [1], {1: 1}, 1, 1]


def test_expired_values_are_shown_until_they_are_cleaned_up() -> None:
    clock, states = made(config(visibility=VISIBILITY.ReturnExpiredIfNotCleanedUp))
    states.write(1)
    advance(clock, 11)
    assert states.read() == [1, [1], {1: 1}, 1, 1]
    assert states.read() == NOTHING, "the first read has cleaned up"


def test_the_sweep_removes_what_nobody_reads() -> None:
    clock, states = made(config())
    for key in range(500):
        states.backend.current_key = key
        states.write(key)
    advance(clock, 5)
    states.backend.current_key = 0
    states.list.add(1)
    advance(clock, 6)
    for _ in range(20):
        states.backend.end_of_chunk()
    assert states.backend.entries == 1
    assert list(states.list.get()) == [1]


def test_no_slice_of_the_sweep_touches_more_keys_than_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice lists the keys of one dict at most beyond those it looks at; a table that is swept has no large dict."""
    touched = 0
    list_shard, is_living = HeapTable.keys_of_shard, TimeToLive.living

    def counted_list(table: HeapTable, index: int) -> list[Any]:
        nonlocal touched
        keys = list_shard(table, index)
        touched += len(keys)
        return keys

    def counted_look(kind: StateKind, stored: Any, deadline: int) -> Any:
        nonlocal touched
        touched += 1
        return is_living(kind, stored, deadline)

    clock = ManualClock(1000)
    backend = HeapKeyedStateBackend(context(clock=clock))
    descriptor: ValueStateDescriptor[int] = ValueStateDescriptor("value", Types.LONG())
    descriptor.enable_time_to_live(config())
    value = backend.value_state(descriptor)
    monkeypatch.setattr(HeapTable, "keys_of_shard", counted_list)
    monkeypatch.setattr(TimeToLive, "living", staticmethod(counted_look))
    slices = []

    def run_chunk(start: int) -> None:
        nonlocal touched
        for number in range(start, start + 2000):
            backend.current_key = f"key-{number}"
            value.update(number)
        touched = 0
        backend.end_of_chunk()
        slices.append(touched)

    for start in range(0, 100_000, 2000):
        run_chunk(start)
    advance(clock, LIFETIME)
    while backend.entries > 2000:
        run_chunk(0)
        assert len(slices) < 500, "the sweep does not come round"
    # What is looked at, and the first dict, which the last chunk may have taken beyond its limit.
    assert max(slices) <= 5000 + 10_000 + 2000


def test_background_clean_up_can_be_switched_off() -> None:
    off = StateTtlConfig.new_builder(Time.milliseconds(LIFETIME)).disable_cleanup_in_background().build()
    clock, states = made(off)
    states.write(1)
    advance(clock, 11)
    states.backend.end_of_chunk()
    assert states.backend.entries == 5
    assert states.read() == NOTHING


def test_a_snapshot_leaves_out_what_has_expired_and_keeps_the_time_of_the_rest() -> None:
    clock, states = made(config())
    states.write(1)
    advance(clock, 5)
    states.backend.current_key = "young"
    states.write(2)
    advance(clock, 6)
    (handle,) = snapshot_of(states.backend)
    assert isinstance(handle, KeyGroupsSnapshot) and all(state.ttl for state in handle.states)
    clock, restored = made(config(), handle, clock=clock)
    assert restored.backend.entries == 5
    assert restored.read() == NOTHING
    restored.backend.current_key = "young"
    assert restored.read() == [2, [2], {2: 2}, 2, 2]
    advance(clock, 4)
    assert restored.read() == NOTHING


def test_time_to_live_may_come_and_go_between_two_versions_of_a_program() -> None:
    _, states = made(None)
    states.write(1)
    clock = ManualClock(50_000)
    (plain,) = snapshot_of(states.backend)
    assert isinstance(plain, KeyGroupsSnapshot)
    clock, aging = made(config(), plain, clock=clock)
    assert aging.read() == [1, [1], {1: 1}, 1, 1]
    (stamped,) = snapshot_of(aging.backend)
    assert isinstance(stamped, KeyGroupsSnapshot)
    advance(clock, 11)
    assert aging.read() == NOTHING
    _, ageless = made(None, stamped, clock=clock)
    assert ageless.read() == [1, [1], {1: 1}, 1, 1]


def test_one_name_has_one_time_to_live() -> None:
    _, states = made(config())
    with pytest.raises(StateConflictError, match="another time to live"):
        states.backend.value_state(ValueStateDescriptor("value", Types.LONG()))


def test_none_is_refused_by_the_name_of_the_state() -> None:
    _, states = made(config())
    unfit: Any = None
    with pytest.raises(NoneInStateError, match="state 'list'"):
        states.list.add(unfit)
    with pytest.raises(NoneInStateError, match="state 'list'"):
        states.list.add_all([1, unfit])


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "read", "advance", "sweep", "cut", "mails"]),
        st.integers(0, 3),
    ),
    max_size=50,
)


@settings(max_examples=100, deadline=None)
@given(STEPS, st.sampled_from([UPDATES.OnCreateAndWrite, UPDATES.OnReadAndWrite]))
def test_agrees_with_a_model_whenever_it_is_swept_and_cut(
    steps: list[tuple[str, int]], update: UPDATES
) -> None:
    clock, mails = ManualClock(1000), Mails()
    backend = HeapKeyedStateBackend(context(clock=clock, mails=mails))
    states = States(backend, config(update))
    model: dict[int, dict[int, int]] = {}  # key -> number -> time of its last access
    pending: list[Any] = []
    for number, (step, key) in enumerate(steps):
        backend.current_key = key
        now = clock.epoch_ms()
        if step == "write":
            states.list.add(number)
            states.map.put(number, number)
            model.setdefault(key, {})[number] = now
        elif step == "read":
            living = [n for n, at in model.get(key, {}).items() if at + LIFETIME > now]
            assert list(states.list.get()) == living
            assert list(states.map.keys()) == living
            if update is UPDATES.OnReadAndWrite:
                model[key] = dict.fromkeys(living, now)
        elif step == "advance":
            advance(clock, key + 1)
        elif step == "sweep":
            backend.end_of_chunk()
        elif step == "cut":
            pending.append(backend.snapshot(number, CHECKPOINT))
        else:
            for each in pending:
                each.write(InlineOutput())
            pending.clear()
            mails.run()
