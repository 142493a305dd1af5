"""Which result may leave next: the queue against a model of a few lines, over random courses of events."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.container.operators.asynchronous.result_queue import PendingResult, ResultQueue
from yarrow.runtime.data.elements import Watermark, WatermarkStatus

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


def model_leaves(events: list[Any], done: list[int], left: list[Any], *, ordered: bool) -> list[Any]:
    """What may leave: `events` in order of arrival, `done` in order of completion, without what has `left`."""
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
        ready = [row for row in done if row in (segment[:1] if ordered else segment)]
        if not ready:
            return leaving
        leaving.append(ready[0])


@pytest.mark.parametrize("ordered", [True, False])
@given(events=EVENTS)
def test_results_leave_as_in_the_model(ordered: bool, events: list[Any]) -> None:
    queue = ResultQueue.of(ordered=ordered)
    arrived: list[Any] = []
    incomplete: list[PendingResult] = []
    done: list[int] = []
    left: list[Any] = []
    for number, event in enumerate(events):
        if event == "record":
            incomplete.append(queue.add(number, None))
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
        expected = model_leaves(arrived, done, left, ordered=ordered)
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
    queue = ResultQueue.of(ordered=False)
    first, second = queue.add("a", 1), queue.add("b", 2)
    queue.add_mark(Watermark(5))
    third = queue.add("c", 6)
    queue.complete(third, [])
    queue.complete(second, [])
    assert drained(queue) == ["b"]
    queue.complete(first, [])
    assert drained(queue) == ["a", "w5", "c"]


@pytest.mark.parametrize("ordered", [True, False])
def test_of_watermarks_without_records_between_them_the_last_one_waits(ordered: bool) -> None:
    queue = ResultQueue.of(ordered=ordered)
    first = queue.add("a", 1)
    for timestamp in range(1000):
        queue.add_mark(Watermark(timestamp))
    queue.add_mark(WatermarkStatus(True))
    queue.complete(first, [])
    assert drained(queue)[:2] == ["a", "w999"]
    assert not queue.may_leave


def test_an_ordered_queue_waits_for_its_first_record() -> None:
    queue = ResultQueue.of(ordered=True)
    first, second = queue.add("a", 1), queue.add("b", 2)
    queue.complete(second, [])
    assert not queue.may_leave
    queue.complete(first, [])
    assert drained(queue) == ["a", "b"]
