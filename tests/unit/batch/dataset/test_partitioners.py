"""Partitions by hash and by sampled ranges."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from yarrow.batch.dataset.partitioners import SampledOrders, bounds_of, hash_partition, range_of


@given(st.lists(st.lists(st.integers(-20, 20)), max_size=4), st.integers(1, 6))
def test_ranges_are_in_order_and_equal_keys_stay_together(parts: list[list[int]], partitions: int) -> None:
    samples = [next(SampledOrders(lambda row: row).map_partition(part)) for part in parts]
    bounds = bounds_of(samples, partitions)
    assert len(bounds) < partitions
    assert all(first < second for first, second in pairwise(bounds))
    found: dict[int, list[int]] = {}
    for part in parts:
        for row in part:
            found.setdefault(range_of(row, bounds), []).append(row)
    assert all(0 <= each < partitions for each in found)
    ordered = [found[each] for each in sorted(found)]
    assert all(max(first) < min(second) for first, second in pairwise(ordered))


def test_ranges_have_about_as_many_rows_each() -> None:
    parts: list[Any] = [range(0, 90_000), range(90_000, 100_000)]
    samples = [next(SampledOrders(lambda row: row).map_partition(part)) for part in parts]
    bounds = bounds_of(samples, 4)
    sizes = [0] * 4
    for part in parts:
        for row in part:
            sizes[range_of(row, bounds)] += 1
    assert min(sizes) > 20_000 and max(sizes) < 30_000


def test_equal_keys_have_one_partition() -> None:
    for key in (1, "a", (1, "x"), None):
        assert 0 <= hash_partition(key, 7) < 7
    assert hash_partition(1, 7) == hash_partition(1.0, 7) == hash_partition(True, 7)
    assert {hash_partition(number, 3) for number in range(50)} == {0, 1, 2}
