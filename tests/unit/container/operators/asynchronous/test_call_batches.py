"""Which records go into one call, and when: against a model of a few lines, and the size that follows latency."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.container.operators.asynchronous.call_batches import BatchSize, CallBatches
from yarrow.container.operators.asynchronous.result_queue import PendingResult
from yarrow.runtime.graph.async_spec import AsyncBatchLimits


def limits(max_rows: int, max_wait_ms: int = 10, latency_ms: int = 100) -> AsyncBatchLimits:
    return AsyncBatchLimits(max_rows=max_rows, max_wait_ms=max_wait_ms, latency_ms=latency_ms)


def records(*rows: int) -> list[PendingResult]:
    return [PendingResult(row, None) for row in rows]


def rows_of(calls: list[list[PendingResult]]) -> list[list[int]]:
    return [[record.row for record in call] for call in calls]


#: Milliseconds that go by, and how many records come then.
COURSE = st.lists(st.tuples(st.integers(0, 15), st.integers(0, 9)), max_size=30)


@settings(max_examples=50)
@given(course=COURSE, most=st.integers(1, 6))
def test_calls_begin_as_in_the_model(course: list[tuple[int, int]], most: int) -> None:
    batches = CallBatches(limits(most))
    waiting: list[tuple[int, int]] = []
    now = number = 0
    for passed, coming in course:
        now += passed
        batches.add(records(*range(number, number + coming)), now)
        waiting += [(row, now + 10) for row in range(number, number + coming)]
        number += coming
        expected = []
        while waiting and (len(waiting) >= most or waiting[0][1] <= now):
            expected.append([row for row, _ in waiting[:most]])
            del waiting[:most]
        assert rows_of(batches.take(now)) == expected
        assert batches.due == (waiting[0][1] if waiting else None)
    left = [row for row, _ in waiting]
    assert [row for call in rows_of(batches.take(None)) for row in call] == left
    assert batches.due is None


def test_pieces_of_several_rows_fill_a_call_without_being_cut() -> None:
    batches = CallBatches(limits(10))
    batches.add([PendingResult(size, None, size=size) for size in (4, 5, 3, 10, 1)], 0)
    assert rows_of(batches.take(0)) == [[4, 5], [3], [10]]
    assert rows_of(batches.take(9)) == []
    assert rows_of(batches.take(10)) == [[1]]


def test_a_piece_that_is_larger_than_a_call_has_become_goes_alone() -> None:
    batches = CallBatches(limits(8, latency_ms=100))
    batches.size.measured(8, 0.2)
    assert batches.size.rows < 8
    batches.add([PendingResult(size, None, size=size) for size in (8, 2)], 0)
    assert rows_of(batches.take(None)) == [[8], [2]]


def sizes_of(size: BatchSize, seconds: Callable[[int], float], calls: int) -> list[int]:
    """The rows of so many calls, one after another, that take `seconds` of their rows."""
    sizes = []
    for _ in range(calls):
        rows = size.rows
        size.begun(rows)
        size.measured(rows, seconds(rows))
        sizes.append(rows)
    return sizes


def test_calls_shrink_behind_slow_ones_and_grow_behind_fast_ones() -> None:
    size = BatchSize(limits(64, latency_ms=100))
    assert set(sizes_of(size, lambda rows: 0.001 * rows, 10)) == {64}, "it has its most already"
    late = sizes_of(size, lambda rows: 0.01 * rows, 20)
    assert late[-1] == 10 and sum(rows > 10 for rows in late) <= 4
    assert sizes_of(size, lambda rows: 0.2 * rows, 60)[-1] == 1
    assert sizes_of(size, lambda rows: 0.001 * rows, 10)[-1] == 64


@pytest.mark.parametrize("fixed", [0.15, 0.19, 0.25, 1.0])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_calls_stay_full_where_fewer_rows_would_not_help(fixed: float, noise: float) -> None:
    size, random = BatchSize(limits(256, latency_ms=200)), Random(1)
    sizes = sizes_of(size, lambda rows: (fixed + rows * 1e-6) * random.lognormvariate(0, noise), 300)
    assert sum(rows < 256 for rows in sizes) <= 10
    assert sizes[-1] == 256


def test_a_fixed_cost_that_comes_and_goes_leaves_calls_full() -> None:
    size = BatchSize(limits(256, latency_ms=200))
    sizes_of(size, lambda rows: 0.004 * rows, 50)
    assert size.rows == 50
    assert sizes_of(size, lambda rows: 0.25, 60)[-1] == 256
    assert sizes_of(size, lambda rows: 0.05, 20)[-1] == 256
    # The rows cost again: a trial with fewer shows it.
    assert sizes_of(size, lambda rows: 0.004 * rows, 100)[-1] == 50


def test_calls_with_few_rows_tell_nothing_against_full_ones() -> None:
    size = BatchSize(limits(256, latency_ms=200))
    for _ in range(50):
        size.begun(1)
        size.measured(1, 0.25)
    assert size.rows == 256


def test_the_size_settles_where_calls_take_as_long_as_they_should() -> None:
    """Of a function whose calls take 20 ms, and 1 ms a row: 80 rows take 100 ms."""
    size = BatchSize(limits(256, latency_ms=100))
    sizes = sizes_of(size, lambda rows: 0.020 + 0.001 * rows, 200)[20:]
    assert set(sizes) <= {39, 40, 79, 80} and sizes.count(80) + sizes.count(79) >= len(sizes) - 4


@pytest.mark.parametrize("in_flight", [2, 8])
def test_the_size_settles_while_many_calls_are_under_way(in_flight: int) -> None:
    size = BatchSize(limits(256, latency_ms=100))
    under_way: deque[int] = deque()
    begun = []
    for _ in range(200):
        while len(under_way) < in_flight:
            under_way.append(size.rows)
            begun.append(size.rows)
            size.begun(under_way[-1])
        rows = under_way.popleft()
        size.measured(rows, 0.020 + 0.001 * rows)
    assert max(begun[50:]) <= 81 and sum(rows < 78 for rows in begun[50:]) <= 10
