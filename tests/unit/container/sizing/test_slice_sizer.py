"""Rows of chunks and polls, from what chunks and polls of former sizes have cost."""

from __future__ import annotations

from random import Random

import pytest

from yarrow.container.sizing.slice_sizer import PollSizer, SliceSizer


def test_chunks_follow_the_cost_of_a_row() -> None:
    sizer = SliceSizer(0.005)
    assert sizer.rows == 1
    for _ in range(10):
        sizer.measured(sizer.rows, sizer.rows * 1e-7)
    assert sizer.rows == 2048
    # A single slow chunk may have lost its core; several in a row are a slow function.
    sizer.measured(2048, 2048 * 1e-3)
    assert sizer.rows == 512
    sizer.measured(512, 512 * 1e-7)
    assert sizer.rows == 2048
    late = 0.0
    while sizer.rows > 1:
        late += sizer.rows * 1e-3
        sizer.measured(sizer.rows, sizer.rows * 1e-3)
    assert late < 2.048 * 4 / 3
    sizer.measured(0, 1.0)
    assert sizer.rows == 1
    # Nothing but a trial tells that two rows cost twice as much as one.
    sizes = []
    for _ in range(50):
        sizes.append(sizer.rows)
        sizer.measured(sizer.rows, sizer.rows * 0.02)
    assert set(sizes) == {1, 2} and sizes.count(2) <= 2


@pytest.mark.parametrize("fixed", [0.001, 0.01, 0.1])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_chunks_spread_what_a_call_costs_by_itself(fixed: float, noise: float) -> None:
    sizer, random = SliceSizer(0.005), Random(1)
    for _ in range(40):
        seconds = fixed + sizer.rows * 1e-6
        sizer.measured(sizer.rows, seconds * random.lognormvariate(0, noise))
    assert sizer.rows == 2048


def test_a_fixed_cost_is_spread_to_a_tenth_and_no_further() -> None:
    sizer = SliceSizer(0.005)
    for _ in range(100):
        sizer.measured(sizer.rows, 0.01 + sizer.rows * 1e-4)
    assert sizer.rows == pytest.approx(900, abs=20)
    # From now on it is the rows that cost.
    late = 0.0
    while sizer.rows > 1:
        late += sizer.rows * 1e-2
        sizer.measured(sizer.rows, sizer.rows * 1e-2)
    assert late < 9.0 * 4 / 3


def chunks_of(row_seconds: float) -> SliceSizer:
    """The chunks of a chain in which each row takes that long."""
    chunks = SliceSizer(0.005)
    for _ in range(20):
        chunks.measured(chunks.rows, chunks.rows * row_seconds)
    return chunks


def test_a_source_is_asked_for_many_rows_from_the_first_poll_on() -> None:
    quick = chunks_of(1e-6)
    slow = PollSizer(0.005, blocking=False)
    asked = [slow.rows]
    for _ in range(40):
        slow.measured(slow.rows, slow.rows * 1e-3, quick)
        asked.append(slow.rows)
    assert set(asked) == {256, 512} and asked.count(512) <= 2
    for fixed in (0.001, 0.01, 0.1):
        sizer = PollSizer(0.005, blocking=False)
        for _ in range(5):
            assert sizer.rows >= 256
            sizer.measured(sizer.rows, fixed, quick)
        assert sizer.rows == 2048
        for _ in range(500):
            sizer.measured(sizer.rows, fixed + sizer.rows * 1e-7, quick)
            assert sizer.rows == 2048
    blocking = PollSizer(0.005, blocking=True)
    assert blocking.rows == 2048
    blocking.measured(10, 5.0, quick)
    assert blocking.rows == 2048


def test_where_rows_cost_much_behind_the_source_no_more_are_asked_for() -> None:
    sizer, slow = PollSizer(0.005, blocking=False), chunks_of(0.01)
    for _ in range(50):
        sizer.measured(sizer.rows, 0.02, slow)
        assert sizer.rows == 256


def test_chunks_are_longer_where_state_is_read_for_all_of_a_chunk() -> None:
    sizer = SliceSizer(0.005)
    sizer.read_ahead()
    for _ in range(10):
        sizer.measured(sizer.rows, sizer.rows * 1e-5)
    assert sizer.rows == 1000
    for _ in range(10):
        sizer.measured(sizer.rows, sizer.rows * 1e-7)
    assert sizer.rows == 1024


def test_rows_that_state_is_read_for_at_once_fill_four_slices() -> None:
    sizer = SliceSizer.of_reads(0.005)
    for _ in range(10):
        sizer.measured(sizer.rows, sizer.rows * 1e-5)
    assert sizer.rows == pytest.approx(2000, abs=1)
    for _ in range(10):
        sizer.measured(sizer.rows, sizer.rows * 1e-6)
    assert sizer.rows == 4096
