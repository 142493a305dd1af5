"""Slots of key columns: one a key, whatever the batches are."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
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


@pytest.mark.slow
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


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        (pa.float64(), 2**53 + 1),
        (pa.float64(), "1.5"),
        (pa.float64(), Decimal("0.1")),
        (pa.int64(), 1.5),
        (pa.int64(), Decimal("0.1")),
        (pa.date32(), dt.datetime(2020, 1, 1, 12)),
        (pa.date32(), 5),
        (pa.timestamp("us"), 5),
        (pa.timestamp("us"), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
        (pa.timestamp("us", "UTC"), dt.datetime(2020, 1, 1)),
        (pa.time64("us"), 5),
        (pa.string(), 5),
        (pa.string(), ("a", 5)),
        (pa.binary(), "a"),
        (pa.dictionary(pa.int8(), pa.string()), b"a"),
        (pa.decimal128(5, 2), "1.5"),
        (pa.duration("us"), 5),
        (pa.struct([("a", pa.int64())]), (5,)),
    ],
    ids=repr,
)
def test_a_restored_key_of_another_type_is_refused_and_not_made_another_key(
    kind: pa.DataType, key: Any
) -> None:
    with pytest.raises(ValueError, match="key"):
        key_index(kind).restore([key, None])


@pytest.mark.parametrize("written", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("read", ["s", "ms", "us", "ns"])
def test_keys_of_timestamps_are_the_same_in_each_unit(written: str, read: str) -> None:
    values = [dt.datetime(2020, 1, 1, 12), None, dt.datetime(1969, 1, 1)]
    index, again = key_index(pa.timestamp(written)), key_index(pa.timestamp(read))
    index.slots(pa.array(values, pa.timestamp(written)))
    restored = again.restore(index.frozen_keys()(0, index.size))
    found = again.slots(pa.array(values, pa.timestamp(read)))
    assert found.tolist() == restored[index.slots(pa.array(values, pa.timestamp(written)))].tolist()
    assert again.size == 3


def test_date64_values_within_a_day_are_one_key() -> None:
    index = key_index(pa.date64())
    column = pa.array([0, 1, 86_399_999, 86_400_000, -1], pa.int64()).view(pa.date64())
    assert index.slots(column).tolist() == [0, 0, 0, 1, 2]
    assert index.frozen_keys()(0, index.size) == [
        dt.date(1970, 1, 1),
        dt.date(1970, 1, 2),
        dt.date(1969, 12, 31),
    ]


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        (pa.timestamp("ns"), 1),
        (pa.timestamp("s"), 10**15),
        (pa.time64("ns"), 1),
        (pa.time64("us"), -1),
        (pa.date64(), 2**62),
    ],
    ids=repr,
)
def test_a_value_that_is_no_key_is_refused_before_a_snapshot_fails(kind: pa.DataType, number: int) -> None:
    with pytest.raises(ColumnKeyError, match="key column"):
        key_index(kind).slots(pa.array([number, None], pa.int64()).view(kind))
