"""ErrorBounds: the number of bad records in a minute, and their share of the latest records."""

from __future__ import annotations

import pytest

from yarrow.common.values.error_handling import ErrorHandling, error_handling
from yarrow.container.operators.error_bounds import ErrorBounds, TooManyErrorsError


def bounds(per_minute: int | None = None, share: float | None = None) -> ErrorBounds:
    handling: ErrorHandling = error_handling("skip", per_minute, share)
    return ErrorBounds("source 'people' could not read", handling)


def test_a_minute_may_have_so_many_and_the_next_one_again() -> None:
    counted = bounds(per_minute=3)
    for minute in range(4):
        counted.count(10, 2, 100.0 * minute)
        counted.count(10, 1, 100.0 * minute + 59)
    with pytest.raises(TooManyErrorsError, match=r"'people' could not read 4 records within a minute.*=3"):
        counted.count(10, 3, 418.5)


def test_old_errors_leave_the_window_one_by_one() -> None:
    counted = bounds(per_minute=2)
    for second in range(0, 600, 30):
        counted.count(0, 1, float(second))
    with pytest.raises(TooManyErrorsError):
        counted.count(0, 2, 600.0)


def test_none_at_all_can_be_asked_for() -> None:
    with pytest.raises(TooManyErrorsError, match="max_per_minute=0"):
        bounds(per_minute=0).count(1, 1, 0.0)


def test_a_share_counts_from_a_hundred_records_on() -> None:
    counted = bounds(share=0.1)
    counted.count(0, 40, 0.0)
    counted.count(59, 0, 0.0)
    with pytest.raises(
        TooManyErrorsError, match=r"41 of the latest 100 records, and on_error allows max_share=0.1"
    ):
        counted.count(0, 1, 0.0)


def test_an_input_that_ends_is_looked_at_with_fewer_records() -> None:
    counted = bounds(share=0.5)
    counted.count(2, 3, 0.0)
    with pytest.raises(TooManyErrorsError, match="3 of the latest 5 records"):
        counted.end()
    even = bounds(share=0.5)
    even.count(2, 2, 0.0)
    even.end()
    bounds(share=0.5).end()


@pytest.mark.parametrize("calls", [[(4000, 0), (0, 1000)], [(4000, 1000)]])
def test_many_errors_at_once_are_compared_with_what_came_before(calls: list[tuple[int, int]]) -> None:
    counted = bounds(share=0.5)
    for taken, left_out in calls:
        counted.count(taken, left_out, 0.0)
    counted.end()


def test_good_records_behind_errors_do_not_hide_them_at_the_end() -> None:
    counted = bounds(share=0.5)
    counted.count(30, 60, 0.0)
    counted.count(20, 0, 1.0)
    with pytest.raises(TooManyErrorsError, match="60 of the latest 110"):
        counted.end()


def test_a_long_good_past_does_not_hide_a_bad_present() -> None:
    counted = bounds(share=0.5)
    for _ in range(1000):
        counted.count(1000, 0, 0.0)
    with pytest.raises(TooManyErrorsError):
        for _ in range(30):
            counted.count(0, 100, 0.0)


def test_a_bad_past_is_forgotten() -> None:
    counted = bounds(share=0.2)
    counted.count(900, 100, 0.0)
    for _ in range(20):
        counted.count(500, 0, 0.0)
    counted.count(900, 100, 0.0)
    counted.end()
