"""Runs that are made of columns are those of their rows, byte for byte; rows are looked at where they must be."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.state_processor.bootstrapped import COUNT, EXPIRING, NAMES
from yarrow.common import Types
from yarrow.datastream.state import StateDescriptor, ValueStateDescriptor
from yarrow.runtime.snapshot.key_group_form import MAX_RUN, EncodedRun, Run, encode_run
from yarrow.state_processor import StateProcessorError
from yarrow.state_processor.keyed_writing import KeyedTarget
from yarrow.state_processor.spark.encoded_columns import encoded_columns
from yarrow.state_processor.spark.key_buckets import KeyBuckets
from yarrow.state_processor.spark.keyed_columns import KeyedColumns

TEXT: ValueStateDescriptor[str] = ValueStateDescriptor("text", Types.STRING())


def columns_of(descriptor: StateDescriptor) -> KeyedColumns:
    return KeyedColumns(
        operator="op", target=KeyedTarget.of(descriptor), schema=pa.schema([]), buckets=KeyBuckets.of(16, 1)
    )


def encoded(descriptor: StateDescriptor, table: pa.Table, groups: list[int]) -> list[EncodedRun] | None:
    columns = columns_of(descriptor)
    return encoded_columns(columns, columns.target.form("op"), table, np.array(groups, np.int64))


def of_rows(descriptor: StateDescriptor, table: pa.Table, groups: list[int]) -> list[EncodedRun]:
    """The same runs, row by row."""
    form = columns_of(descriptor).target.form("op")
    keys, values = (table.column(name).to_pylist() for name in ("key", "value"))
    return [
        run
        for group in sorted(set(groups))
        for run in encode_run(
            form,
            Run(
                0,
                group,
                [key for key, own in zip(keys, groups, strict=True) if own == group],
                [value for value, own in zip(values, groups, strict=True) if own == group],
            ),
        )
    ]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
KEYS = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.string(): texts | texts.map(lambda text: text * 7),
}


@given(st.data())
def test_runs_of_columns_are_those_of_rows(data: Any) -> None:
    kind = data.draw(st.sampled_from(list(KEYS)))
    descriptor, values = data.draw(
        st.sampled_from([(COUNT, st.integers(-(2**63), 2**63 - 1)), (TEXT, st.text("abc", max_size=3))])
    )
    rows = data.draw(
        st.lists(st.tuples(KEYS[kind], values), min_size=1, max_size=40, unique_by=lambda row: row[0])
    )
    table = pa.table({"key": pa.array([key for key, _ in rows], kind), "value": [value for _, value in rows]})
    cut = data.draw(st.integers(0, len(rows)))
    table = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    groups = sorted(data.draw(st.lists(st.integers(0, 15), min_size=len(rows), max_size=len(rows))))
    assert encoded(descriptor, table, groups) == of_rows(descriptor, table, groups)


@pytest.mark.parametrize("key", ["number", "text"])
def test_long_runs_are_cut(key: str) -> None:
    numbers = range(MAX_RUN * 2 + 10)
    keys = list(numbers) if key == "number" else [f"{n}" for n in numbers]
    table = pa.table({"key": keys, "value": list(numbers)})
    groups = [0] * 5 + [3] * (len(numbers) - 5)
    found = encoded(COUNT, table, groups)
    assert found is not None and [run.entries for run in found] == [5, MAX_RUN, MAX_RUN, 5]
    assert found == of_rows(COUNT, table, groups)


@pytest.mark.parametrize(
    ("descriptor", "table"),
    [
        (COUNT, pa.table({"key": [1, 1], "value": [1, 2]})),
        (COUNT, pa.table({"key": ["a", "a"], "value": [1, 2]})),
        (COUNT, pa.table({"key": ["a"], "value": pa.array([None], pa.int64())})),
        (COUNT, pa.table({"key": [1.5], "value": [1]})),
        (COUNT, pa.table({"key": pa.array([2**63], pa.uint64()), "value": [1]})),
        (TEXT, pa.table({"key": [1], "value": ["a\0b"]})),
        (NAMES, pa.table({"key": [1], "value": [["a"]]})),
        (EXPIRING, pa.table({"key": [1], "value": [1]})),
        (ValueStateDescriptor("s", Types.BIG_INT()), pa.table({"key": [1], "value": [1]})),
        (ValueStateDescriptor("s", Types.PICKLED_BYTE_ARRAY()), pa.table({"key": [1], "value": [1]})),
    ],
    ids=[
        "number twice", "text twice", "null", "float", "large", "text with NUL", "list", "ttl", "big", "untyped",
    ],
)  # fmt: skip
def test_other_rows_are_looked_at(descriptor: StateDescriptor, table: pa.Table) -> None:
    assert encoded(descriptor, table, [0] * table.num_rows) is None


def test_texts_of_more_than_two_gib_are_looked_at() -> None:
    """No array of texts holds them together. The bytes are pages that nobody touches."""
    size = 800 << 20
    offsets = pa.py_buffer(np.array([0, size], np.int32))
    large = pa.StringArray.from_buffers(1, offsets, pa.py_buffer(mmap.mmap(-1, size)))
    values = pa.chunked_array([large, large, large])
    assert encoded(TEXT, pa.table({"key": [1, 2, 3], "value": values}), [0, 0, 0]) is None


def test_large_texts_of_several_key_groups_need_no_common_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """All texts of the bucket fit in no array, those of each run do."""
    joined = pa.concat_arrays

    def limited(arrays: list[pa.Array]) -> pa.Array:
        if sum(map(len, arrays)) > 2:
            raise pa.ArrowInvalid("offset overflow")
        return joined(arrays)

    monkeypatch.setattr(pa, "concat_arrays", limited)
    table = pa.table(
        {
            "key": pa.chunked_array([["a"], ["b", "c"], ["d"]]),
            "value": pa.chunked_array([["x", "y", "z"], ["v"]]),
        }
    )
    groups = [0, 0, 3, 3]
    assert encoded(TEXT, table, groups) == of_rows(TEXT, table, groups)


def test_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        StateProcessorError, match=r"operator 'op', state 'n': a column of int64 is no column of int8"
    ):
        encoded(ValueStateDescriptor("n", Types.BYTE()), pa.table({"key": [1], "value": [300]}), [0])
