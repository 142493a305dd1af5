"""Buckets of time and bounds of an interval join against their definition."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from yarrow.container.operators.join.time_buckets import LEAST_LENGTH, SideBounds, bucket_at, bucket_starts
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP

times = st.integers(-20_000, 20_000)
bounds_of = st.tuples(st.integers(-9000, 9000), st.integers(0, 9000)).map(
    lambda pair: SideBounds(pair[0], pair[0] + pair[1])
)


@given(bounds=bounds_of, left=times, right=times)
def test_both_sides_agree_whether_two_rows_meet(bounds: SideBounds, left: int, right: int) -> None:
    other = bounds.mirrored
    assert (left + bounds.lower <= right <= left + bounds.upper) == (
        right + other.lower <= left <= right + other.upper
    )


@given(first=times, length=st.integers(0, 9000), bounds=bounds_of)
def test_the_buckets_of_a_span_hold_all_its_times(first: int, length: int, bounds: SideBounds) -> None:
    last, size = first + length, bounds.bucket_length
    buckets = [bucket_at(start, size) for start in bucket_starts(first, last, size)]
    assert buckets[0].start <= first < buckets[0].end
    assert buckets[-1].start <= last < buckets[-1].end
    assert all(one.end == other.start for one, other in pairwise(buckets))


@given(bounds=bounds_of, time=times)
def test_a_row_looks_into_three_buckets_at_most(bounds: SideBounds, time: int) -> None:
    found = bucket_starts(time + bounds.lower, time + bounds.upper, bounds.bucket_length)
    assert len(list(found)) <= 3


@given(lower=times, width=st.integers(0, 400), time=times)
def test_a_fine_bucket_lies_in_one_stored_bucket_and_a_row_looks_into_three_at_most(
    lower: int, width: int, time: int
) -> None:
    bounds = SideBounds(lower, lower + width)
    length = bounds.fine_length
    assert (length is None) == (width >= 200)
    if length is not None:
        assert bounds.bucket_length % length == 0
        assert len(list(bucket_starts(time + bounds.lower, time + bounds.upper, length))) <= 3


@given(bounds=bounds_of, time=times, watermark=times)
def test_a_bucket_ends_when_no_row_from_the_watermark_on_meets_its_rows(
    bounds: SideBounds, time: int, watermark: int
) -> None:
    last = bounds.last_position(watermark)
    assert last is not None
    # Rows come from the watermark on: the row at `time` meets one if the last of its partners is not below it.
    assert (time <= last) == (time + bounds.upper < watermark)


@given(bounds=bounds_of, time=times)
def test_a_row_that_waits_for_its_bucket_is_not_behind_the_delayed_watermark(
    bounds: SideBounds, time: int
) -> None:
    bucket = bucket_at(time - time % bounds.bucket_length, bounds.bucket_length)
    # The last watermark with which the bucket still waits.
    waiting = bucket.end - 1 + bounds.upper
    assert bounds.last_position(waiting) == bucket.end - 2
    assert waiting - bounds.delay < time


def test_the_ends_of_time_are_no_limits() -> None:
    bounds = SideBounds(-5, 5)
    assert bounds.bucket_length == LEAST_LENGTH
    assert bounds.last_position(MIN_TIMESTAMP) is None
    assert bounds.last_position(MAX_TIMESTAMP) == MAX_TIMESTAMP
    for time in (MIN_TIMESTAMP, MAX_TIMESTAMP):
        bucket = bucket_at(time - time % LEAST_LENGTH, LEAST_LENGTH)
        assert MIN_TIMESTAMP <= bucket.start <= time <= bucket.end <= MAX_TIMESTAMP
