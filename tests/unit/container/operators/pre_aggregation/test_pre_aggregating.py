"""What a pre-aggregation gives away, and when: the triples between a stream and its windows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest

from tests.support.window_functions import CountedCalls, NumbersInPlace
from yarrow.common.time import Time
from yarrow.container.operators.pre_aggregation.pre_aggregating import PreAggregatingOperator
from yarrow.datastream import DataStream
from yarrow.datastream.data_stream import operator_of
from yarrow.datastream.window import (
    CumulativeEventTimeWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from yarrow.runtime.data.elements import (
    MAX_TIMESTAMP,
    CheckpointBarrier,
    RowBatch,
    Watermark,
    WatermarkStatus,
)
from yarrow.runtime.graph.transformations import PartitionTransformation
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

TUMBLING = TumblingEventTimeWindows.of(Time.milliseconds(10))


def add(first: Any, second: Any) -> Any:
    return first[0], first[1] + second[1]


def triples(assigner: WindowAssigner[Any, Any] = TUMBLING, function: Any = add) -> Any:
    """A fragment that ends with the pre-aggregation of windows, in front of the exchange."""

    def fragment(rows: DataStream) -> DataStream:
        cut = rows.key_by(lambda row: row[0]).window(assigner)
        made = (
            cut.aggregate(function, pre_aggregate=True)
            if isinstance(function, NumbersInPlace)
            else cut.reduce(function, pre_aggregate=True)
        )
        (partition,) = operator_of(made).reads
        return DataStream(rows.get_execution_environment(), cast(PartitionTransformation, partition).read)

    return fragment


@pytest.fixture
def opened() -> Iterator[Any]:
    harnesses: list[OperatorHarness] = []

    def start(fragment: Any, max_entries: int | None = None, **settings: Any) -> OperatorHarness:
        harnesses.append(OperatorHarness(fragment, **settings))
        if max_entries is not None:
            operator = pre_aggregating(harnesses[-1])
            operator._spec = msgspec.structs.replace(operator._spec, max_entries=max_entries)
        return harnesses[-1]

    yield start
    for harness in harnesses:
        harness.close()


def pre_aggregating(harness: OperatorHarness) -> PreAggregatingOperator:
    """The operator, at the head of its task."""
    (found,) = [
        operator
        for task in harness.tasks
        for operator in task.chain.operators
        if isinstance(operator, PreAggregatingOperator)
    ]
    return found


def taken(harness: OperatorHarness) -> list[tuple[Any, int | None]]:
    """The triples since the last call, with their times."""
    stamps = harness.timestamps()
    return list(zip(harness.take(), stamps, strict=True))


def test_partial_values_leave_when_the_watermark_passes_their_window_and_before_it(opened: Any) -> None:
    harness = opened(triples())
    harness.push(("a", 1), ("b", 2), ("a", 4), ("a", 8), timestamps=[0, 9, 3, 10])
    assert taken(harness) == []
    harness.watermark(8)
    assert taken(harness) == []
    harness.watermark(9)
    first, second, *_ = [
        each for each in harness.elements() if not isinstance(each, Watermark) or each.timestamp > 8
    ]
    assert isinstance(first, RowBatch) and second == Watermark(9)
    assert taken(harness) == [(("a", ("a", 5), None), 0), (("b", ("b", 2), None), 0)]
    harness.watermark(MAX_TIMESTAMP)
    assert taken(harness) == [(("a", ("a", 8), None), 10)]
    assert not pre_aggregating(harness)._held.slices


def test_a_row_whose_window_the_watermark_has_passed_goes_by_itself(opened: Any) -> None:
    harness = opened(triples())
    harness.watermark(9)
    harness.push(("a", 1), ("a", 2), ("a", 4), timestamps=[3, 10, 4])
    assert taken(harness) == [(("a", None, ("a", 1)), 3), (("a", None, ("a", 4)), 4)]
    harness.watermark(19)
    assert taken(harness) == [(("a", ("a", 2), None), 10)]


def test_a_barrier_sends_partial_values_before_it_and_leaves_no_keyed_state(opened: Any) -> None:
    harness = opened(triples(function=NumbersInPlace()))
    harness.push(("a", 1), ("a", 2), timestamps=[1, 2])
    harness.barrier(1)
    elements = harness.elements()
    kinds = [type(each) for each in elements if isinstance(each, RowBatch | CheckpointBarrier)]
    assert kinds == [RowBatch, CheckpointBarrier]
    assert taken(harness) == [(("a", [1, 2], None), 0)]
    # Rows behind the barrier make a value of their own.
    harness.push(("a", 4), timestamps=[3])
    harness.watermark(9)
    assert taken(harness) == [(("a", [4], None), 0)]


def test_values_leave_at_the_end_of_a_chunk_that_reaches_the_bound(opened: Any) -> None:
    harness = opened(triples(), max_entries=3)
    harness.push(("a", 1), ("b", 1), ("a", 1), timestamps=[0, 0, 0])
    assert taken(harness) == []
    harness.push(("a", 1), ("a", 1), ("c", 1), timestamps=[0, 10, 0])
    assert [row for row, _ in taken(harness)] == [
        ("a", ("a", 3), None),
        ("b", ("b", 1), None),
        ("c", ("c", 1), None),
        ("a", ("a", 1), None),
    ]
    assert pre_aggregating(harness)._held.count == 0


def test_values_leave_before_idleness_and_rows_go_by_themselves_from_then_on(opened: Any) -> None:
    harness = opened(triples())
    harness.push(("a", 1), ("a", 2), timestamps=[1, 2])
    harness.idle()
    kinds = [type(each) for each in harness.elements() if isinstance(each, RowBatch | WatermarkStatus)]
    assert kinds == [RowBatch, WatermarkStatus]
    assert taken(harness) == [(("a", ("a", 3), None), 0)]
    harness.idle(False)
    harness.watermark(5)
    harness.push(("a", 4), ("a", 8), timestamps=[3, 25])
    assert taken(harness) == [(("a", None, ("a", 4)), 3), (("a", None, ("a", 8)), 25)]


@pytest.mark.parametrize(
    "assigner",
    [
        SlidingEventTimeWindows.of(Time.milliseconds(10), Time.milliseconds(5)),
        CumulativeEventTimeWindows.of(Time.milliseconds(15), Time.milliseconds(5)),
    ],
)
def test_a_row_of_overlapping_windows_goes_into_one_partial_value(assigner: Any, opened: Any) -> None:
    harness = opened(triples(assigner))
    harness.push(*[("a", 1)] * 5, timestamps=[0, 4, 5, 9, 10])
    harness.watermark(4)
    assert taken(harness) == [(("a", ("a", 2), None), 0)]
    harness.push(("a", 1), timestamps=[4])
    assert taken(harness) == [(("a", None, ("a", 1)), 4)]
    harness.watermark(100)
    assert taken(harness) == [(("a", ("a", 2), None), 5), (("a", ("a", 1), None), 10)]


def test_a_row_between_windows_goes_by_itself(opened: Any) -> None:
    harness = opened(triples(SlidingEventTimeWindows.of(Time.milliseconds(5), Time.milliseconds(10))))
    harness.push(("a", 1), ("a", 2), timestamps=[3, 7])
    assert taken(harness) == [(("a", None, ("a", 2)), 7)]


def test_equal_keys_of_other_types_have_one_value(opened: Any) -> None:
    harness = opened(triples(function=NumbersInPlace()))
    harness.push((1, 1), (1.0, 2), ("1", 3), (None, 4), timestamps=[0] * 4)
    harness.watermark(9)
    found = {repr(key): value for (key, value, _), _ in taken(harness)}
    assert found == {"1": [1, 2], "'1'": [3], "None": [4]}


def test_a_value_that_a_function_loses_leaves_nothing(opened: Any) -> None:
    harness = opened(triples(function=lambda a, b: None if b[1] < 0 else add(a, b)))
    harness.push(("a", 1), ("a", -1), ("b", 1), timestamps=[0, 0, 0])
    assert pre_aggregating(harness)._held.count == 1
    harness.watermark(9)
    assert taken(harness) == [(("b", ("b", 1), None), 0)]


def test_an_error_names_operator_record_window_and_key(opened: Any) -> None:
    def failing(first: Any, second: Any) -> Any:
        raise ValueError("no")

    harness = opened(triples(function=failing))
    harness.push(("a", 1), timestamps=[3])
    message = r"(?s)ValueError: no.*PreAggregation.*\('a', 2\) \(window TimeWindow\(start=0, end=10\) of the key 'a'"
    with pytest.raises(FragmentFailedError, match=message):
        harness.push(("a", 2), timestamps=[4])


def test_an_error_of_a_whole_stream_names_no_key(opened: Any) -> None:
    def failing(first: Any, second: Any) -> Any:
        raise ValueError("no")

    def fragment(stream: DataStream) -> DataStream:
        windows = stream.window_all(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        return windows.reduce(failing, pre_aggregate=True)

    harness = opened(fragment)
    harness.push(1, timestamps=[3])
    with pytest.raises(FragmentFailedError) as caught:
        harness.push(2, timestamps=[4])
    assert caught.value.cause.record == "2 (window TimeWindow(start=0, end=10))"


def test_a_row_without_time_is_refused_by_the_windows(opened: Any) -> None:
    harness = opened(triples())
    with pytest.raises(
        FragmentFailedError,
        match=r"(?s)without a timestamp.*'TumblingEventTimeWindows'.*\('a', 1\) \(of the key 'a'",
    ):
        harness.push(("a", 1))


def test_no_record_may_be_none(opened: Any) -> None:
    def fragment(rows: DataStream) -> DataStream:
        return rows.window_all(TUMBLING).reduce(add, pre_aggregate=True)

    with pytest.raises(FragmentFailedError, match=r"(?s)None.*PreAggregation"):
        opened(fragment).push(None, timestamps=[1])


def test_a_function_with_keyed_state_is_refused(opened: Any) -> None:
    with pytest.raises(FragmentFailedError, match=r"(?s)state.*PreAggregation"):
        opened(triples(function=CountedCalls()))
