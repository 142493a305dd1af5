"""Runs of rows sorted by slot and time against plain lists, and the words by which they are sorted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.container.operators.columnar_join import sorted_runs
from yarrow.container.operators.columnar_join.row_words import MOST_SLOTS, TIME_BITS, RowWords
from yarrow.container.operators.columnar_join.sorted_runs import SortedRuns

SCHEMA = pa.schema([("n", pa.int64())])
ORDERING = RowWords.around(0)

#: (slot, time) of each row of a batch.
batches_of = st.lists(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-20, 20)), min_size=1, max_size=12), max_size=6
)


def words(rows: list[tuple[int, int]], by: int = 0) -> Any:
    slots, times = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return ORDERING.shifted(slots, times, by)


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 3, 1000])
@given(batches=batches_of, lower=st.integers(-9, 9), length=st.integers(0, 9))
def test_rows_between_two_times_of_a_slot_are_found(
    most: int, batches: list[list[tuple[int, int]]], lower: int, length: int
) -> None:
    kept = SortedRuns(SCHEMA)
    rows: list[tuple[int, int]] = []
    for batch in batches:
        numbers = pa.record_batch([pa.array(range(len(rows), len(rows) + len(batch)))], schema=SCHEMA)
        rows += batch
        kept.add(ORDERING, words(batch), numbers, np.zeros(len(batch), np.bool_))
    asked = [(slot, time) for slot in range(4) for time in range(-25, 25, 5)]
    with pytest.MonkeyPatch.context() as patched:
        # A frequent key takes no more memory: its pairs come in parts.
        patched.setattr(sorted_runs, "MOST_PAIRS", most)
        found: list[tuple[int, int]] = []
        for pairs in kept.meeting(ORDERING, words(asked, lower), words(asked, lower + length)):
            assert len(pairs.own) <= most
            numbers = pairs.run.rows.column(0).take(pa.array(pairs.other)).to_pylist()
            found += zip(pairs.own.tolist(), numbers, strict=True)
    assert sorted(found) == [
        (own, number)
        for own, (slot, time) in enumerate(asked)
        for number, (of, at) in enumerate(rows)
        if of == slot and lower <= at - time <= lower + length
    ]
    assert kept.size == len(rows)
    assert kept.oldest == min((time for _, time in rows), default=None)
    # Runs of similar size have become one.
    assert len(kept.runs) <= 6


@given(
    slots=st.lists(st.integers(0, MOST_SLOTS - 1), min_size=1, max_size=5),
    base=st.integers(-(1 << 50), 1 << 50),
    by=st.integers(-(1 << 62), 1 << 62),
    data=st.data(),
)
def test_words_sort_by_slot_and_time_and_shifts_stay_within_the_slot(
    slots: list[int], base: int, by: int, data: st.DataObject
) -> None:
    ordering = RowWords(base)
    span = st.integers(1, (1 << TIME_BITS) - 2)
    times = [base + data.draw(span) for _ in slots]
    of_slots, of_times = np.array(slots, np.int64), np.array(times, np.int64)
    made = ordering.words(of_slots, of_times)
    assert not ordering.outside(of_times).any()
    assert ordering.slots(made).tolist() == slots
    assert ordering.times(made).tolist() == times
    assert np.argsort(made, kind="stable").tolist() == sorted(
        range(len(slots)), key=lambda at: (slots[at], times[at])
    )
    shifted = ordering.shifted(of_slots, of_times, by)
    assert ordering.slots(shifted).tolist() == slots
    first, last = base, base + (1 << TIME_BITS) - 1
    assert ordering.times(shifted).tolist() == [max(first, min(time + by, last)) for time in times]
    assert ordering.outside(np.array([first, last])).all()
