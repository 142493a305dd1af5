"""The order of rows for a snapshot, against its definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from yarrow.container.operators.rows_by_key import order_by_key_and_time

LEAST, MOST = -(2**63), 2**63 - 1
numbers = st.integers(-3, 3) | st.integers(LEAST, MOST) | st.sampled_from([LEAST, MOST])


@given(st.lists(st.tuples(numbers, numbers), min_size=1))
def test_rows_stand_by_key_and_time_and_equal_ones_as_they_came(rows: list[tuple[int, int]]) -> None:
    ids, times = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    assert order_by_key_and_time(ids, times).tolist() == sorted(range(len(rows)), key=rows.__getitem__)
