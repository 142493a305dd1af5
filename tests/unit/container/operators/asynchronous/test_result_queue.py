"""Which result may leave next: the queue against a model of a few lines, over random courses of events."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.container.operators.asynchronous.result_queue import PendingResult, ResultQueue
from yarrow.runtime.data.elements import Watermark, WatermarkStatus
from yarrow.runtime.graph.async_spec import ResultOrder

ORDERED, UNORDERED, BY_KEY = ResultOrder.ORDERED, ResultOrder.UNORDERED, ResultOrder.BY_KEY
#: Keys of records, which are numbers.
KEYS = 3

#: A record comes, a watermark comes, or the record of that place among the incomplete ones completes.
EVENTS = st.lists(st.one_of(st.just("record"), st.just("mark"), st.integers(0, 5)), max_size=60)


def drained(queue: ResultQueue) -> list[Any]:
    left = []
    while queue.may_leave:
        found = queue.pop()
        assert found is not None
        if isinstance(found, PendingResult):
            left.append(found.row)
        else:
            left.append(f"w{found.timestamp}" if isinstance(found, Watermark) else "status")
    assert queue.pop() is None
    return left


def added(queue: ResultQueue, row: Any, timestamp: int | None = None) -> PendingResult:
    key = row % KEYS if isinstance(row, int) else None
    record = PendingResult(row, timestamp, key)
    queue.add([record])
    return record


def may_go(row: int, segment: list[int], done: list[int], order: ResultOrder) -> bool:
    """Whether a complete record may leave before the others of its segment that have not left."""
    if order is ORDERED:
        return row == segment[0]
    if order is BY_KEY:
        return all(other in done for other in segment if other < row and other % KEYS == row % KEYS)
    return True


def released(row: int, segment: list[int], done: list[int]) -> int:
    """The number of the completion with which a record may leave: its own, or that of a former record of its key."""
    return max(done.index(other) for other in segment if other <= row and other % KEYS == row % KEYS)


def model_leaves(events: list[Any], done: list[int], left: list[Any], order: ResultOrder) -> list[Any]:
    """What may leave: `events` in order of arrival, `done` in order of completion, without what has `left`.

    A record that waited for an earlier one of its key leaves behind that one.
    """
    leaving: list[Any] = []
    while True:
        waiting = [event for event in events if event not in left and event not in leaving]
        if not waiting:
            return leaving
        segment = []
        for event in waiting:
            if isinstance(event, str):
                break
            segment.append(event)
        if not segment:
            leaving.append(waiting[0])
            continue
        ready = [row for row in done if row in segment and may_go(row, segment, done, order)]
        if not ready:
            return leaving
        if order is BY_KEY:
            ready.sort(key=lambda row: (released(row, segment, done), row))
        leaving.append(ready[0])


@pytest.mark.slow
@pytest.mark.parametrize("order", list(ResultOrder))
@given(events=EVENTS)
def test_results_leave_as_in_the_model(order: ResultOrder, events: list[Any]) -> None:
    queue = ResultQueue.of(order)
    arrived: list[Any] = []
    incomplete: list[PendingResult] = []
    done: list[int] = []
    left: list[Any] = []
    for number, event in enumerate(events):
        if event == "record":
            incomplete.append(added(queue, number))
            arrived.append(number)
        elif event == "mark":
            queue.add_mark(Watermark(number))
            if arrived and isinstance(arrived[-1], str) and arrived[-1] not in left:
                arrived.pop()
            arrived.append(f"w{number}")
        elif incomplete:
            found = incomplete.pop(event % len(incomplete))
            queue.complete(found, [found.row])
            done.append(found.row)
        expected = model_leaves(arrived, done, left, order)
        assert drained(queue) == expected
        left += expected
        rows = [row for row in arrived if isinstance(row, int) and row not in left]
        assert [pending.row for pending in queue.pending()] == rows
        assert len(queue) == len(rows)
    for found in incomplete:
        queue.complete(found, [])
    left += drained(queue)
    assert sorted(map(str, left)) == sorted(map(str, arrived))
    assert len(queue) == 0


def test_a_watermark_cuts_an_unordered_queue_into_segments() -> None:
    queue = ResultQueue.of(UNORDERED)
    first, second = added(queue, "a", 1), added(queue, "b", 2)
    queue.add_mark(Watermark(5))
    third = added(queue, "c", 6)
    queue.complete(third, [])
    queue.complete(second, [])
    assert drained(queue) == ["b"]
    queue.complete(first, [])
    assert drained(queue) == ["a", "w5", "c"]


@pytest.mark.parametrize("order", list(ResultOrder))
def test_of_watermarks_without_records_between_them_the_last_one_waits(order: ResultOrder) -> None:
    queue = ResultQueue.of(order)
    first = added(queue, "a", 1)
    for timestamp in range(1000):
        queue.add_mark(Watermark(timestamp))
    queue.add_mark(WatermarkStatus(True))
    queue.complete(first, [])
    assert drained(queue)[:2] == ["a", "w999"]
    assert not queue.may_leave


def test_an_ordered_queue_waits_for_its_first_record() -> None:
    queue = ResultQueue.of(ORDERED)
    first, second = added(queue, "a", 1), added(queue, "b", 2)
    queue.complete(second, [])
    assert not queue.may_leave
    queue.complete(first, [])
    assert drained(queue) == ["a", "b"]


def test_a_slow_record_holds_back_its_own_key_alone() -> None:
    queue = ResultQueue.of(BY_KEY)
    slow, other, same = (added(queue, row) for row in (0, 1, KEYS))
    queue.complete(same, [])
    queue.complete(other, [])
    assert drained(queue) == [1]
    queue.complete(slow, [])
    assert drained(queue) == [0, KEYS]


def test_rows_are_counted_where_a_record_has_several() -> None:
    queue = ResultQueue.of(ORDERED)
    piece = PendingResult("piece", None, size=7)
    queue.add([piece])
    assert len(queue) == 7
    queue.complete(piece, [])
    drained(queue)
    assert len(queue) == 0
