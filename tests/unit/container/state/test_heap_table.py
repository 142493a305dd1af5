"""HeapTable against a model: random changes, cuts and releases in any order, at every size."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.container.state.frozen_shard import FrozenShard, pieces_of
from yarrow.container.state.heap_table import HeapTable
from yarrow.container.state.value_table import MISSING

KEYS = st.one_of(st.integers(-4, 30), st.sampled_from(["a", "b", None, (1, "x"), 1.0, True, float("nan")]))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS),
        st.tuples(st.just("remove"), KEYS),
        st.tuples(st.just("take"), KEYS),
        st.tuples(st.just("cut"), st.just(0)),
        st.tuples(st.just("release"), st.integers(0, 5)),
        st.tuples(st.just("end chunk"), st.just(0)),
        st.tuples(st.just("copy"), st.integers(0, 5)),
    ),
    max_size=80,
)


def content(shard: FrozenShard, size: int = 3) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for keys, values in shard.pieces(size):
        assert 0 < len(keys) <= size
        for key, value in zip(keys, values, strict=True):
            assert key not in found
            found[key] = value
    return found


def content_of_cut(frozen: list[tuple[int, FrozenShard]]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for _, frozen_shard in frozen:
        shard = content(frozen_shard)
        assert not found.keys() & shard.keys()
        found |= shard
    return found


def untaken_content(frozen: list[tuple[int, FrozenShard]]) -> dict[Any, Any]:
    """The content of a cut. Shards that no thread has copied or read may still be copied afterwards."""
    found: dict[Any, Any] = {}
    for _, shard in frozen:
        pieces = shard.pieces(3) if shard._copied is not None else pieces_of(shard.layers, 3)
        for keys, values in pieces:
            assert not found.keys() & set(keys)
            found.update(zip(keys, values, strict=True))
    return found


def copy_ahead(table: HeapTable, cut: int, frozen: list[tuple[int, FrozenShard]]) -> None:
    """Copies first dicts whose content cannot change, and gives them back."""
    for index, shard in frozen:
        if shard.is_copied_ahead:
            shard.copy_ahead()
            table.release(cut, index)


def divide(table: HeapTable) -> None:
    """To the end, however many chunks that takes."""
    table.end_of_chunk()
    assert not table.flat
    while table.dividing:
        table.end_of_chunk()


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(STEPS, st.sampled_from([2, 10, 1000]), st.booleans())
def test_agrees_with_a_dict_whatever_cuts_hold(
    steps: list[tuple[str, Any]], flat_limit: int, is_immutable: bool
) -> None:
    table = HeapTable(None, is_immutable, flat_limit=flat_limit, slots=11, weights=(1, 2))
    table._moved_at_once, table._large, table._patience = 2, 4, 2
    model: dict[Any, Any] = {}
    held: list[tuple[int, list[tuple[int, FrozenShard]], dict[Any, Any]]] = []
    copied: set[int] = set()
    for number, (step, argument) in enumerate(steps):
        if step == "put":
            key, shard, value = table.miss(argument)
            assert value == model.get(key, MISSING)
            shard[key] = model[key] = number
        elif step == "remove":
            table.remove(argument)
            model.pop(table.peek(argument)[0], None)
        elif step == "take":
            assert table.take(argument) == model.pop(table.peek(argument)[0], MISSING)
        elif step == "end chunk":
            table.end_of_chunk()
        elif step == "cut":
            held.append((number, table.cut(number), dict(model)))
        elif step == "copy" and held:
            cut, frozen, _ = held[argument % len(held)]
            copy_ahead(table, cut, frozen)
            copied.add(cut)
        elif held:
            cut, frozen, then = held.pop(argument % len(held))
            copy_ahead(table, cut, frozen)
            assert content_of_cut(frozen) == then
            for index, _ in frozen:
                table.release(cut, index)
                table.release(cut, index)
        for cut, frozen, then in held:
            if cut in copied or not any(shard.is_copied_ahead for _, shard in frozen):
                assert content_of_cut(frozen) == then
            else:
                # The snapshot thread reads no content before it has copied what is to be copied ahead.
                assert untaken_content(frozen) == then
        # Generated code takes what it finds there as a value.
        assert all(type(value) is int for shard in table.live for value in shard.values())
        keys = table.keys()
        assert len(keys) == len(set(keys))
        if number % 2:  # finding a key moves it
            assert {key: table.peek(key)[2] for key in keys} == model
    for cut, frozen, _ in held:
        for index, _ in frozen:
            table.release(cut, index)
    assert not table.is_held
    assert table.entries == len(model)
    while table.dividing:
        table.end_of_chunk()
    assert {key: value for shard in table.live for key, value in shard.items()} == model
    assert all(table.shard_of(key)[key] == value for key, value in model.items())


@pytest.mark.parametrize("is_immutable", [True, False])
def test_a_cut_tells_that_a_first_dict_that_cannot_change_is_to_be_copied_ahead(is_immutable: bool) -> None:
    table = HeapTable(None, is_immutable)
    table.live[0].update({1: "a", 2: "b"})
    ((_, first),) = table.cut(1)
    assert first.is_copied_ahead is is_immutable
    assert content(first) == {1: "a", 2: "b"}


def test_layers_are_never_more_than_cuts_that_hold_them() -> None:
    table = HeapTable(None, True)
    table.live[0][0] = 0
    previous: tuple[int, list[tuple[int, FrozenShard]]] | None = None
    for cut in range(1, 50):
        frozen = table.cut(cut)
        table.live[0][cut] = cut
        if previous is not None:
            table.release(previous[0], previous[1][0][0])
        previous = cut, frozen
        assert len(frozen[0][1].layers) <= 2
    assert sorted(table.keys()) == list(range(50))


def test_content_of_a_cut_is_given_as_a_copy() -> None:
    table = HeapTable(list, False)
    table.live[0]["k"] = [1]
    frozen = table.cut(1)
    _, shard, value = table.miss("k")
    value.append(2)
    assert "k" not in shard
    assert content_of_cut(frozen) == {"k": [1]}


@pytest.mark.parametrize("step", [1000, 1024, 86_400_000, 1 << 20])
def test_keys_with_a_common_factor_spread_over_all_shards(step: int) -> None:
    table = HeapTable(None, True, flat_limit=100)
    table.live[0].update(dict.fromkeys(range(0, 100_000 * step, step)))
    divide(table)
    sizes = {id(shard): len(shard) for shard in table.live}
    assert len(sizes) == table.shard_count - 1 > 500
    assert max(sizes.values()) < 2 * 100_000 / table.shard_count


@pytest.mark.slow
def test_even_growth_rehashes_few_dicts_at_a_time() -> None:
    table = HeapTable(None, True, flat_limit=100)
    table.live[0].update(dict.fromkeys(range(200)))
    divide(table)
    sizes = {id(shard): sys.getsizeof(shard) for shard in table.live}
    most = 0
    for start in range(200, 1_000_000, 8191):
        for key in range(start, start + 8191):
            table.shard_of(key)[key] = None
        grown = {id(shard): sys.getsizeof(shard) for shard in table.live}
        if start > 100_000:  # dicts of some hundred entries cost nothing
            most = max(most, sum(grown[shard] != size for shard, size in sizes.items()))
        sizes = grown
    assert 0 < most <= table.shard_count // 7


def test_a_shard_of_values_that_cannot_change_is_copied_at_its_first_access_unless_it_is_read_already() -> (
    None
):
    table = HeapTable(None, True, flat_limit=10, slots=7, weights=(1,))
    for key in range(40):
        table.shard_of(key)[key] = str(key)
    divide(table)
    cut = table.cut(1)
    shard_read, shard_copied = cut[0][1], cut[1][1]
    begun = shard_read.pieces(2)
    first_keys, _ = next(begun)
    for key in range(40):
        _, shard, value = table.miss(key)
        assert value == str(key)
        shard[key] = "new"
    assert shard_read.layers and not shard_copied.layers
    rest = {k: v for keys, values in begun for k, v in zip(keys, values, strict=True)}
    assert len(first_keys) == 2 and rest and all(value == str(key) for key, value in rest.items())
    assert all(value == str(key) for key, value in content(shard_copied).items())
    for index, _ in cut:
        table.release(1, index)
    assert not table.is_held
    assert {table.peek(key)[2] for key in range(40)} == {"new"}


def test_values_that_can_change_stay_below_until_the_release() -> None:
    table = HeapTable(list, False)
    table.shard_of(1)[1] = [1]
    cut = table.cut(1)
    _, shard, value = table.miss(1)
    value.append(2)
    shard[1] = value
    assert content_of_cut(cut) == {1: [1]}


def test_a_division_moves_a_few_entries_after_each_chunk_and_each_key_is_in_one_place() -> None:
    table = HeapTable(None, True, flat_limit=100, slots=11, weights=(1, 2))
    table._moved_at_once = 10
    table.live[0].update((key, str(key)) for key in range(101))
    for left in range(91, 0, -10):
        table.end_of_chunk()
        assert table.dividing
        assert len(table._first) == left
        assert sorted(table.keys()) == list(range(101))
    table.end_of_chunk()
    assert not table.dividing
    assert all(table.shard_of(key)[key] == str(key) for key in range(101))


@pytest.mark.parametrize("look", [HeapTable.find, HeapTable.miss])
@pytest.mark.parametrize("flat_limit", [100, 2])
def test_operators_that_change_what_they_find_do_not_reach_the_cut(look: Any, flat_limit: int) -> None:
    table = HeapTable(list, False, flat_limit=flat_limit, slots=5, weights=(1,))
    for key in range(5):
        table.miss(key)[1][key] = [key]
    if flat_limit == 2:
        divide(table)
    cut = table.cut(1)
    for key in range(5):
        key, entries, value = look(table, key)
        value.append("new")
        entries[key] = value
    assert content_of_cut(cut) == {key: [key] for key in range(5)}
    assert {key: look(table, key)[2] for key in range(5)} == {key: [key, "new"] for key in range(5)}


def test_a_key_that_is_found_in_the_first_dict_moves_unless_a_snapshot_holds_it() -> None:
    table = HeapTable(list, False, flat_limit=3, slots=5, weights=(1,))
    table._moved_at_once = 0
    table.live[0].update((key, [key]) for key in range(5))
    table.end_of_chunk()
    key, shard, value = table.peek(0)
    assert shard is table.shard_of(0) and shard[key] is value and 0 not in table._first
    cut = table.cut(1)
    key, shard, value = table.miss(1)
    assert shard is table._first and key not in shard
    value.append("new")
    shard[key] = value
    assert table.peek(1)[1] is table.shard_of(1)
    table.remove(2)
    assert table.peek(2)[2] is MISSING
    assert content_of_cut(cut) == {key: [key] for key in range(5)}
    second = table.cut(2)
    assert content_of_cut(second) == {0: [0], 1: [1, "new"], 3: [3], 4: [4]}
    for number, shards in ((2, second), (1, cut)):
        for index, _ in shards:
            table.release(number, index)
    table._moved_at_once = 10
    divide(table)
    assert {key: table.shard_of(key).get(key) for key in range(5)} == {
        0: [0],
        1: [1, "new"],
        2: None,
        3: [3],
        4: [4],
    }


def test_a_large_dict_goes_back_before_many_changes_must_be_merged() -> None:
    table = HeapTable(None, True)
    table._large, table._patience = 10, 5
    table.live[0].update(dict.fromkeys(range(20), "old"))
    cut = table.cut(1)
    assert cut[0][1].is_copied_ahead
    for key in range(6):
        assert table.is_held
        _, shard, value = table.miss(key)
        assert value == "old"
        shard[key] = "new"
        if key < 5:
            table.end_of_chunk()
    table.end_of_chunk()
    assert not table.is_held
    assert [table.live[0][key] for key in range(20)] == ["new"] * 6 + ["old"] * 14
    cut[0][1].copy_ahead()
    assert content_of_cut(cut) == dict.fromkeys(range(20), "old")
