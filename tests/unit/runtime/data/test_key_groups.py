"""Key groups, ranges of subtasks and the router."""

from __future__ import annotations

from typing import Any

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tests.support.stored_keys import key_group
from tests.unit.runtime.data.key_examples import keys
from yarrow.runtime.data.errors import InvalidParallelismError
from yarrow.runtime.data.key_groups import (
    EMPTY_KEY_GROUP_RANGE,
    KeyGroupRange,
    group_of_raw_key,
    hash_of_key,
    key_group_of,
    key_group_range_for_operator_index,
    key_hash,
    mix64,
    operator_index_for_key_group,
)
from yarrow.runtime.data.keys import canonicalize, encode_key


@given(st.integers(1, 500), st.data())
def test_ranges_cover_all_groups_once_and_agree_with_the_index(
    max_parallelism: int, data: st.DataObject
) -> None:
    parallelism = data.draw(st.integers(1, max_parallelism))
    ranges = [key_group_range_for_operator_index(max_parallelism, parallelism, i) for i in range(parallelism)]
    assert [group for r in ranges for group in r.groups()] == list(range(max_parallelism))
    for index, groups in enumerate(ranges):
        assert groups.number_of_key_groups >= 1
        for group in groups.groups():
            assert operator_index_for_key_group(max_parallelism, parallelism, group) == index


def test_ranges_refuse_what_cannot_be() -> None:
    with pytest.raises(InvalidParallelismError, match="5 is outside 1 to the max parallelism 4"):
        key_group_range_for_operator_index(4, 5, 0)
    with pytest.raises(InvalidParallelismError, match="subtask index 2"):
        key_group_range_for_operator_index(4, 2, 2)


def test_intersection() -> None:
    assert KeyGroupRange(0, 10).intersection(KeyGroupRange(5, 20)) == KeyGroupRange(5, 10)
    assert KeyGroupRange(0, 4).intersection(KeyGroupRange(5, 20)) == EMPTY_KEY_GROUP_RANGE
    assert EMPTY_KEY_GROUP_RANGE.number_of_key_groups == 0
    assert KeyGroupRange(2, 4).holds(4)
    assert not KeyGroupRange(2, 4).holds(5)


def test_the_hashes_are_the_named_ones() -> None:
    assert mix64(0) == 0xE220A8397B1DCDAF  # first output of splitmix64 seeded with 0
    assert hash_of_key(0) == mix64(0)
    assert hash_of_key("a") == xxhash.xxh3_64_intdigest(b"\x01\x05\x00\x00\x00\x01a", seed=0)


@given(keys)
def test_the_hash_is_that_of_the_encoding(key: Any) -> None:
    canonical = canonicalize(key)
    assert hash_of_key(canonical) == key_hash(encode_key(canonical))
    assert 0 <= key_group(encode_key(canonical), 128) == key_group_of(canonical, 128) < 128


@given(st.one_of(keys, st.text(), st.text(st.characters(categories=["Cs", "Lu"]))))
def test_the_group_of_a_raw_key_is_that_of_its_encoding(key: Any) -> None:
    assert group_of_raw_key(key, 4096) == key_group(encode_key(canonicalize(key)), 4096)


@pytest.mark.parametrize("size", [0, 1, 85, 86, 254, 255, 256, 70_000])
def test_the_group_of_a_text_of_any_length(size: int) -> None:
    for text in ("x" * size, "\N{EURO SIGN}" * size):
        assert group_of_raw_key(text, 4096) == key_group(encode_key(text), 4096)


def test_consecutive_integers_and_strings_spread() -> None:
    for values in (range(12800), [f"user-{i}" for i in range(12800)], [i / 3 for i in range(1, 38401, 3)]):
        counts = [0] * 128
        for value in values:
            counts[key_group_of(canonicalize(value), 128)] += 1
        assert min(counts) > 50
        assert max(counts) < 160
