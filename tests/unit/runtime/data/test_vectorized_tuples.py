"""Hashes of several columns agree with those of the tuples that rows give, for every combination of types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import example, given
from hypothesis import strategies as st

from tests.format.keys.test_golden_keys import VECTORS, build
from tests.support.stored_keys import key_groups_of_columns
from tests.unit.runtime.data.test_vectorized_keys import COLUMNS
from yarrow.common.types import Row
from yarrow.runtime.data.errors import ColumnKeyError
from yarrow.runtime.data.key_groups import group_of_raw_key, hash_of_key
from yarrow.runtime.data.keys import canonicalize
from yarrow.runtime.data.vectorized_hashes import xxh3_64_array
from yarrow.runtime.data.vectorized_tuples import key_hashes_of_columns

GROUPS = 1009


def _raw(value: Any) -> Any:
    return Row(**{name: _raw(item) for name, item in value.items()}) if isinstance(value, dict) else value


def _expected(rows: list[tuple[Any, ...]]) -> list[int]:
    return [hash_of_key(canonicalize(tuple(map(_raw, row)))) for row in rows]


@pytest.mark.slow
@given(st.data())
def test_every_combination_of_types_agrees_with_the_row_form(data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=2, max_size=8))
    count = data.draw(st.integers(0, 12))
    values = [
        data.draw(st.lists(st.none() | COLUMNS[name][1], min_size=count, max_size=count)) for name in chosen
    ]
    columns = [pa.array(column, COLUMNS[name][0]) for name, column in zip(chosen, values, strict=True)]
    rows = list(zip(*values, strict=True))
    assert key_hashes_of_columns(columns).tolist() == _expected(rows)
    start = data.draw(st.integers(0, count))
    assert key_hashes_of_columns([column.slice(start) for column in columns]).tolist() == _expected(
        rows[start:]
    )


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, -1]),
            st.none() | st.floats() | st.sampled_from([1.0, -0.0, 2.0**63, 1e300, 0.5]),
            st.none() | st.integers(0, 2**64 - 1),
        ),
        max_size=20,
    )
)
@example([])
def test_columns_of_one_word_are_hashed_as_rows_are(rows: list[tuple[Any, ...]]) -> None:
    kinds = (pa.int64(), pa.float64(), pa.uint64())
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
    assert key_hashes_of_columns(columns).tolist() == _expected(rows)
    assert key_groups_of_columns(columns, GROUPS).tolist() == [group_of_raw_key(row, GROUPS) for row in rows]


def test_many_distinct_values_in_many_columns() -> None:
    columns = [pa.array(list(range(500))) for _ in range(9)]  # 500**9 is beyond 64 bits
    assert key_hashes_of_columns(columns).tolist() == _expected([(i,) * 9 for i in range(500)])
    texts = [pa.array([str(i) for i in range(500)]) for _ in range(9)]
    assert key_hashes_of_columns(texts).tolist() == _expected([(str(i),) * 9 for i in range(500)])


@pytest.mark.parametrize("length", [17, 24, 31, 32, 33, 42, 48, 63, 64])
def test_numpy_hashes_what_xxhash_does(length: int) -> None:
    inputs = np.random.default_rng(length).integers(0, 256, (100, length), np.uint8)
    found = xxh3_64_array(np.frombuffer(inputs.tobytes(), np.dtype(f"V{length}")))
    assert found.tolist() == [xxhash.xxh3_64_intdigest(each.tobytes()) for each in inputs]


def test_lengths_that_numpy_does_not_hash_are_refused() -> None:
    for length in (16, 65):
        with pytest.raises(ValueError, match=f"inputs of {length} bytes"):
            xxh3_64_array(np.zeros(1, np.dtype(f"V{length}")))


_OF_COLUMNS = {"none", "bool", "int", "float", "nan", "str", "bytes", "date", "time", "datetime", "duration"}
_TUPLES = [
    vector
    for vector in VECTORS
    if vector["key"][0] == "tuple"
    and len(vector["key"][1]) > 1
    and all(kind in _OF_COLUMNS for kind, _ in vector["key"][1])
]


@pytest.mark.parametrize("vector", _TUPLES, ids=lambda vector: vector["encoding"])
def test_the_golden_tuples_as_columns(vector: dict[str, Any]) -> None:
    columns = [pa.array([value, value]) for value in build(vector["key"])]
    assert key_hashes_of_columns(columns).tolist() == [int(vector["hash"], 16)] * 2
    assert key_groups_of_columns(columns, 128).tolist() == [vector["group_of_128"]] * 2
    assert key_groups_of_columns(columns, 32768).tolist() == [vector["group_of_32768"]] * 2


def test_there_are_golden_tuples_of_words_of_texts_and_with_nulls() -> None:
    kinds = [tuple(kind for kind, _ in vector["key"][1]) for vector in _TUPLES]
    assert {("int", "int"), ("str", "int"), ("int", "none"), ("int", "float", "datetime")} <= set(kinds)


def test_columns_that_are_no_key_are_refused() -> None:
    with pytest.raises(ColumnKeyError, match="at least one column"):
        key_hashes_of_columns([])
    with pytest.raises(ColumnKeyError, match=r"differ in length: \[1, 2\]"):
        key_hashes_of_columns([pa.array([1]), pa.array([1, 2])])
    with pytest.raises(ColumnKeyError, match="list"):
        key_hashes_of_columns([pa.array([1]), pa.array([[1]])])
