"""Windows as slices, against windows listed one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.container.operators.columnar_window.divided_rows import divided
from yarrow.container.operators.time_slices import TimeSlices


def windows_of(time: int, slices: TimeSlices) -> set[tuple[int, int]]:
    """All windows (start, end) that contain a time, found by trying."""
    size, slide, offset = slices.size, slices.slide, slices.offset
    if slices.cumulative:
        first = time - (time - offset) % size
        return {(first, end) for end in range(first + slide, first + size + 1, slide) if time < end}
    starts = [start for start in range(time - size, time + 1) if (start - offset) % slide == 0]
    return {(start, start + size) for start in starts if start <= time < start + size}


shapes = st.one_of(
    st.builds(TimeSlices, st.integers(1, 12), st.integers(1, 12), st.integers(-3, 3)),
    st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(-3, 3)).map(
        lambda drawn: TimeSlices(drawn[0] * drawn[1], drawn[1], drawn[2], cumulative=True)
    ),
)


@given(slices=shapes, time=st.integers(-100, 100))
def test_the_windows_of_a_slice_are_those_of_each_time_in_it(slices: TimeSlices, time: int) -> None:
    start = slices.slice_of(time)
    assert start <= time < start + slices.step
    expected = windows_of(time, slices)
    ends = list(slices.ends_of(start))
    assert ends == sorted(end for _, end in expected)
    assert {(slices.start_of(end), end) for end in ends} == expected
    for end in ends:
        assert start in list(slices.slices_of(end))


@given(slices=shapes, time=st.integers(-100, 100))
def test_the_slices_of_a_window_fill_it(slices: TimeSlices, time: int) -> None:
    for start, end in windows_of(time, slices):
        found = list(slices.slices_of(end))
        assert found == list(range(start, end, slices.step))
        assert slices.is_single == (len(found) == 1) or slices.cumulative


@given(
    slices=shapes,
    times=st.lists(st.integers(-60, 60) | st.integers(-(2**62), 2**62), min_size=1, max_size=40),
)
def test_rows_are_divided_by_slice(slices: TimeSlices, times: list[int]) -> None:
    found = divided(np.array(times, np.int64), slices)
    assert [start for start, _ in found] == sorted({slices.slice_of(time) for time in times})
    for start, rows in found:
        assert list(rows) == [at for at, time in enumerate(times) if slices.slice_of(time) == start]


@pytest.mark.parametrize("times", [[3, 4, 9], [12, 11, 10]])
def test_a_batch_of_one_slice_is_not_split(times: list[int]) -> None:
    ((_, rows),) = divided(np.array(times, np.int64), TimeSlices(10, 10))
    assert rows == range(3)


def test_rows_that_stand_together_are_a_range() -> None:
    found = divided(np.array([3, 4, 12, 15, 14, 33, 35], np.int64), TimeSlices(10, 10))
    assert found == [(0, range(2)), (10, range(2, 5)), (30, range(5, 7))]
