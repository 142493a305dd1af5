"""Which records go into one call, and when: against a model of a few lines, and the size that follows latency."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.container.operators.asynchronous.call_batches import BatchSize, CallBatches
from yarrow.container.operators.asynchronous.result_queue import PendingResult
from yarrow.runtime.graph.operator_spec import AsyncBatchLimits


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
    batches.size.measured(8, 1.0)
    assert batches.size.rows == 6
    batches.add([PendingResult(size, None, size=size) for size in (8, 2)], 0)
    assert rows_of(batches.take(None)) == [[8], [2]]


def test_calls_shrink_behind_slow_ones_and_grow_behind_fast_ones() -> None:
    size = BatchSize(limits(64, latency_ms=100))
    size.measured(64, 0.05)
    assert size.rows == 64, "it has its most already"
    size.measured(64, 0.2)
    assert size.rows == 48
    size.measured(64, 0.2)
    assert size.rows == 48, "this call had begun before the size changed"
    size.measured(48, 0.1)
    assert size.rows == 52, "just in time"
    size.measured(20, 0.01)
    assert size.rows == 52, "a call with fewer rows tells nothing of more"
    for _ in range(100):
        size.measured(size.rows, 9.0)
    assert size.rows == 1
    for _ in range(100):
        size.measured(size.rows, 0.0)
    assert size.rows == 64


def test_the_size_settles_where_calls_take_as_long_as_they_should() -> None:
    """Of a function whose calls take 20 ms, and 1 ms a row: 80 rows take 100 ms."""
    size = BatchSize(limits(256, latency_ms=100))
    sizes = []
    for _ in range(200):
        size.measured(size.rows, 0.020 + 0.001 * size.rows)
        sizes.append(size.rows)
    assert all(80 * 0.75 - 1 <= rows <= 80 + 16 for rows in sizes[50:])
