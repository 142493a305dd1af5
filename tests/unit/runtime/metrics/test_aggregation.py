"""Aggregates and percentiles of metrics."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.runtime.metrics.aggregation import aggregate, percentile

FINITE = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e9, max_value=1e9)


def test_nothing_cannot_be_aggregated() -> None:
    with pytest.raises(ValueError, match="at least one"):
        aggregate([])


@pytest.mark.parametrize(
    ("values", "skew"),
    [
        ([5.0, 5.0], 0.0),
        ([0.0, 0.0], 0.0),
        ([100.0, 300.0], 50.0),
        ([0.0, 0.0, 0.0, 9.0], 100.0),
        ([-1.0, -3.0], 50.0),
    ],
)
def test_skew_is_the_deviation_in_percent_of_the_mean(values: list[float], skew: float) -> None:
    assert aggregate(values).skew == pytest.approx(skew)


@given(st.lists(FINITE, min_size=1))
def test_aggregates_are_in_order(values: list[float]) -> None:
    found = aggregate(values)
    assert found.min == min(values) <= found.avg <= found.max == max(values)
    assert found.sum == pytest.approx(sum(values), abs=1e-3)
    assert 0 <= found.skew <= 100


@given(st.lists(st.integers(-1000, 1000), min_size=1))
def test_percentiles_lie_within_and_rise(values: list[int]) -> None:
    ordered = sorted(values)
    found = [percentile(ordered, part) for part in (0.0, 0.25, 0.5, 0.75, 0.95, 1.0)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (ordered[0], ordered[-1])
    assert abs(found[2] - statistics.median(ordered)) < 1


def test_percentile_of_nothing_is_zero() -> None:
    assert percentile([], 0.5) == 0
