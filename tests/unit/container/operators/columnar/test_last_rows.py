"""The last row of each key by event time, whatever was dropped on the way."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from yarrow.container.operators.columnar.last_rows import KeptRows, LastRows

BATCHES = st.lists(
    st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 4)), min_size=1, max_size=6), max_size=8
)


@given(BATCHES, st.booleans())
def test_the_last_row_of_each_slot_stays(batches: list[list[tuple[int, int | None]]], drops: bool) -> None:
    last = LastRows()
    if drops:
        last._limit = 3
    expected: dict[int, tuple[int, int, int | None]] = {}
    number = 0
    for batch in batches:
        names = []
        for slot, time in batch:
            order = -1 if time is None else time
            if slot not in expected or order >= expected[slot][0]:
                expected[slot] = (order, number, time)
            names.append(f"row {number}")
            number += 1
        stamps = (
            None if all(time is None for _, time in batch) else pa.array([t for _, t in batch], pa.int64())
        )
        last.add(KeptRows(np.array([slot for slot, _ in batch]), [pa.array(names)], stamps))
    found = last.take()
    assert last.take() is None
    if found is None:
        assert not batches
        return
    rows = list(zip(found.slots.tolist(), found.keys[0].to_pylist(), strict=True))
    in_order = sorted(expected.items(), key=lambda item: item[1][:2])
    assert rows == [(slot, f"row {place}") for slot, (_, place, _) in in_order]
    times = [None] * len(rows) if found.timestamps is None else found.timestamps.to_pylist()
    assert times == [time for _, (_, _, time) in in_order]
