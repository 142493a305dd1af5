"""Slots of key columns: one a key, whatever the batches are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.container.operators.columnar.columns import KEY_COLUMNS, array_of, cut
from yarrow.common.types import Row
from yarrow.container.operators.columnar.vectorized_index import WordIndex, key_index
from yarrow.runtime.data.errors import ColumnKeyError
from yarrow.runtime.data.keys import canonicalize


def _canonical(value: Any) -> Any:
    return canonicalize(Row(**value) if isinstance(value, dict) else value)


@pytest.mark.parametrize("name", KEY_COLUMNS)
@settings(max_examples=25)
@given(data=st.data())
def test_one_slot_for_each_key_in_whatever_batches(name: str, data: st.DataObject) -> None:
    kind, values_of = KEY_COLUMNS[name]
    values = data.draw(st.lists(st.none() | values_of, min_size=1, max_size=40))
    cuts = data.draw(st.lists(st.integers(0, 40), max_size=4))
    index = key_index(kind)
    slots = [
        slot
        for batch in cut({"key": array_of(values, kind)}, cuts)
        for slot in index.slots(batch.batch.column(0)).tolist()
    ]
    by_key: dict[Any, int] = {}
    for value, slot in zip(values, slots, strict=True):
        assert by_key.setdefault(_canonical(value), slot) == slot
    assert sorted(by_key.values()) == list(range(index.size))


def test_a_table_grows_and_keeps_its_slots() -> None:
    generator = np.random.default_rng(3)
    index, known = WordIndex(), dict[int, int]()
    for shift in (0, 40, 52):
        keys = generator.integers(0, 50_000, 30_000) << shift
        for key, slot in zip(keys.tolist(), index.slots(pa.array(keys)).tolist(), strict=True):
            assert known.setdefault(key, slot) == slot
    assert sorted(known.values()) == list(range(index.size))


def test_many_new_keys_at_once_fill_a_small_table_over() -> None:
    index = WordIndex()
    keys = pa.array(np.concatenate((np.arange(100_000), np.arange(100_000))))
    slots = index.slots(keys)
    assert (slots[:100_000] == slots[100_000:]).all()
    assert index.size == len(np.unique(slots)) == 100_000


def test_unused_values_of_a_dictionary_get_no_slot() -> None:
    index = key_index(pa.dictionary(pa.int32(), pa.string()))
    column = pa.DictionaryArray.from_arrays(pa.array([2, 2], pa.int32()), pa.array(["a", "b", "c"]))
    assert index.slots(column).tolist() == [0, 0]
    assert index.size == 1


def test_a_list_is_no_key() -> None:
    with pytest.raises(ColumnKeyError, match="list"):
        key_index(pa.list_(pa.int64())).slots(pa.array([[1]]))
