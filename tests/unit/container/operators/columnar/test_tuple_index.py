"""Slots of keys in several columns: one a tuple, whatever the batches are; taken up again from a snapshot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.container.operators.columnar.columns import KEY_COLUMNS, array_of, cut
from yarrow.common.types import Row
from yarrow.container.operators.columnar.tuple_index import index_of_keys
from yarrow.runtime.data.keys import canonicalize


def _canonical(row: tuple[Any, ...]) -> Any:
    return canonicalize(tuple(Row(**value) if isinstance(value, dict) else value for value in row))


@pytest.mark.slow
@settings(max_examples=60)
@given(data=st.data())
def test_one_slot_for_each_tuple_in_whatever_batches(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(KEY_COLUMNS)), min_size=2, max_size=4))
    count = data.draw(st.integers(1, 40))
    values = [
        data.draw(st.lists(st.none() | KEY_COLUMNS[name][1], min_size=count, max_size=count))
        for name in names
    ]
    kinds = [KEY_COLUMNS[name][0] for name in names]
    columns = {
        f"c{at}": array_of(part, kind) for at, (part, kind) in enumerate(zip(values, kinds, strict=True))
    }
    index = index_of_keys(kinds, tuples=True)
    slots: list[int] = []
    for batch in cut(columns, data.draw(st.lists(st.integers(0, 40), max_size=4))):
        slots += index.slots_of(batch.batch.columns).tolist()
    by_key: dict[Any, int] = {}
    for row, slot in zip(zip(*values, strict=True), slots, strict=True):
        assert by_key.setdefault(_canonical(row), slot) == slot
    assert sorted(by_key.values()) == list(range(index.size))

    keys_of = index.frozen_keys()
    half = index.size // 2
    keys = keys_of(0, half) + keys_of(half, index.size)
    assert keys == sorted(by_key, key=by_key.__getitem__)
    again = index_of_keys(kinds, tuples=True)
    restored = again.restore(keys)
    found = again.slots_of(list(columns.values())).tolist()
    assert found == [int(restored[slot]) for slot in slots]
    assert again.size == index.size


def test_a_frozen_index_does_not_know_what_comes_later() -> None:
    index = index_of_keys([pa.int64(), pa.string()], tuples=True)
    index.slots_of([pa.array([1, None]), pa.array(["a", "b"])])
    keys_of, size = index.frozen_keys(), index.size
    generator = np.random.default_rng(5)
    many = pa.array(generator.integers(0, 1 << 40, 100_000))
    index.slots_of([many, pa.array(["a"] * 100_000)])
    assert keys_of(0, size) == [(1, "a"), (None, "b")]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (1, r"the key 1 is no tuple of 2 values"),
        ((1, 2, 3), r"\(1, 2, 3\) is no tuple of 2 values"),
        (("a", 1), "not all keys are of type int64"),
    ],
)
def test_keys_of_another_shape_are_refused(key: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        index_of_keys([pa.int64(), pa.int64()], tuples=True).restore([key])
