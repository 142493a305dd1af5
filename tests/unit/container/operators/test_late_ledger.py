"""The ledgers of operators: which records are late, where they went, and the lateness that would have kept them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest

from yarrow.cep import CEP, Pattern
from yarrow.common import Time, Types, WatermarkStrategy
from yarrow.common.watermark_strategy import TimestampAssigner
from yarrow.container.metrics.metric_registry import MetricRegistry
from yarrow.container.operators.late_ledger import LateLedger, LateTime
from yarrow.datastream import (
    DataStream,
    KeyedProcessFunction,
    KeyedStream,
    OutputTag,
    ProcessFunction,
    ProcessJoinFunction,
    ReduceFunction,
)
from yarrow.datastream.window import SlidingEventTimeWindows, TumblingEventTimeWindows
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.late_records import MOST_NAMED, LatePlace, LateRecords, LateRemedy
from yarrow.testing.operator_harness import OperatorHarness

LATE = OutputTag("late", Types.PICKLED_BYTE_ARRAY())


def reports(harness: OperatorHarness) -> list[LateRecords]:
    return [report for task in harness.tasks for report in task.environment.metrics.late_records()]


class Pairs(ProcessJoinFunction[Any, Any, Any]):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        yield left, right


class Same(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield value


class SameOfKey(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield value


class First(ReduceFunction[Any]):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1


def keyed(stream: DataStream) -> KeyedStream:
    return stream.key_by(lambda row: row[0])


def tumbling(stream: DataStream) -> DataStream:
    windows = keyed(stream).window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    return windows.allowed_lateness(5).reduce(First())


def sliding_with_gaps(stream: DataStream) -> DataStream:
    return (
        keyed(stream)
        .window(SlidingEventTimeWindows.of(Time.milliseconds(5), Time.milliseconds(10)))
        .reduce(First())
    )


def sliding(stream: DataStream) -> DataStream:
    return (
        keyed(stream)
        .window(SlidingEventTimeWindows.of(Time.milliseconds(20), Time.milliseconds(10)))
        .reduce(First())
    )


def ordered(stream: DataStream) -> DataStream:
    return keyed(stream).in_event_time_order()


#: The operator, time of a row behind the watermark 100, the place, and the lateness that would have kept the row.
CASES: list[tuple[Callable[[DataStream], DataStream], int, LatePlace, int]] = [
    # The window ends at 59: 59 + 5 <= 100. With a lateness of 42 it would be 101.
    (tumbling, 52, LatePlace.DROPPED, 42),
    # The later one of its windows ends at 69.
    (sliding, 52, LatePlace.DROPPED, 32),
    (ordered, 52, LatePlace.DROPPED, 49),
    (ordered, 100, LatePlace.DROPPED, 1),
    (lambda stream: stream.in_event_time_order().side_output_late_data(LATE), 99, LatePlace.SIDE_OUTPUT, 2),
    (lambda stream: stream.process(Same()), 98, LatePlace.FUNCTION, 3),
    (lambda stream: keyed(stream).process(SameOfKey()), 98, LatePlace.FUNCTION, 3),
]  # fmt: skip


@pytest.mark.parametrize(("build", "time", "place", "delay"), CASES)
def test_a_late_row_is_noted_with_the_lateness_that_would_have_kept_it(
    build: Callable[[DataStream], DataStream], time: int, place: LatePlace, delay: int
) -> None:
    with OperatorHarness(build) as harness:
        harness.watermark(100)
        assert reports(harness) == []
        harness.push(("a", "x"), timestamps=[time])
        (report,) = reports(harness)
    assert report.places == {place: 1}
    assert report.longest_ms == report.lateness_for(99) == delay
    (record,) = report.last
    assert (record.timestamp, record.watermark, record.delay_ms) == (time, 100, delay)
    assert record.key in ("'a'", "('a', 'x')")


@pytest.mark.parametrize("lateness", [41, 42])
def test_the_noted_lateness_is_the_least_that_keeps_the_row(lateness: int) -> None:
    def build(stream: DataStream) -> DataStream:
        windows = keyed(stream).window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        return windows.allowed_lateness(lateness).reduce(First())

    with OperatorHarness(build) as harness:
        harness.watermark(100)
        harness.push(("a", "x"), timestamps=[52])
        assert [report.longest_ms for report in reports(harness)] == ([42] if lateness == 41 else [])


def test_the_last_window_of_a_late_row_is_named() -> None:
    with OperatorHarness(sliding) as harness:
        harness.watermark(100)
        harness.push(("a", "x"), timestamps=[52])
        (report,) = reports(harness)
    assert "50" in report.last[0].window
    assert "70" in report.last[0].window


def test_rows_of_no_window_are_counted_apart() -> None:
    with OperatorHarness(sliding_with_gaps) as harness:
        harness.push(("a", "x"), ("a", "y"), timestamps=[7, 12])
        (report,) = reports(harness)
        assert (report.of_no_window, report.places) == (1, {})
        values = harness.metrics()
        assert [value for name, value in values.items() if name.endswith("numLateRecordsDropped")] == [1]


def test_late_rows_of_both_sides_of_an_interval_join_are_noted() -> None:
    def build(first: DataStream, second: DataStream) -> list[DataStream]:
        joined = keyed(first).interval_join(keyed(second)).between(Time.milliseconds(0), Time.milliseconds(9))
        result = joined.side_output_right_late_data(LATE).process(Pairs())
        return [result, result.get_side_output(LATE)]

    with OperatorHarness(build, inputs=2) as harness:
        harness.watermark(100, 0)
        harness.watermark(100, 1)
        harness.push(("a", "x"), ("a", "in time"), timestamps=[99, 100])
        harness.push(("b", "y"), input=1, timestamps=[40])
        (report,) = reports(harness)
    assert report.places == {LatePlace.DROPPED: 1, LatePlace.SIDE_OUTPUT: 1}
    assert [(record.key, record.delay_ms) for record in report.last] == [("'a'", 1), ("'b'", 60)]


def test_late_rows_of_a_pattern_are_noted() -> None:
    def build(stream: DataStream) -> list[DataStream]:
        pattern = Pattern.begin("first").where(lambda row: row[1] == "x")
        matches = CEP.pattern(keyed(stream), pattern).side_output_late_data(LATE)
        found = matches.select(lambda match: match)
        return [found, found.get_side_output(LATE)]

    with OperatorHarness(build) as harness:
        harness.watermark(100)
        harness.push(("a", "x"), ("b", "y"), timestamps=[90, 101])
        (report,) = reports(harness)
    assert report.places == {LatePlace.SIDE_OUTPUT: 1}
    assert [(record.key, record.delay_ms) for record in report.last] == [("'a'", 11)]


def test_a_late_row_of_a_delayed_join_is_noted() -> None:
    def build(first: DataStream, second: DataStream) -> DataStream:
        return keyed(first).delayed_join(keyed(second)).after(Time.milliseconds(5)).process(Pairs())

    with OperatorHarness(build, inputs=2) as harness:
        harness.watermark(100, 0)
        harness.watermark(100, 1)
        harness.push(("a", "x"), timestamps=[100])
        (report,) = reports(harness)
    assert [record.delay_ms for record in report.last] == [1]


class SecondField(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


def test_rows_too_far_ahead_of_time_stand_beside_late_ones() -> None:
    def build(stream: DataStream) -> DataStream:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondField())
        return stream.assign_timestamps_and_watermarks(strategy)

    with OperatorHarness(build, configuration={"pipeline.watermark.max-jump": "1 s"}) as harness:
        harness.push(("a", 1000), ("a", 2000), ("a", 9500))
        (report,) = reports(harness)
    assert (report.ahead, report.late) == (1, 0)
    (record,) = report.last_ahead
    # The last row that was believed is of 2000.
    assert (record.timestamp, record.delay_ms) == (9500, 6500)


def test_a_ledger_is_bounded_and_names_the_last_records() -> None:
    ledger = LateLedger("windows", LateRemedy.ALLOWED_LATENESS)
    registry = MetricRegistry(ManualClock())
    ledger.register(registry)
    for number in range(20_000):
        ledger.late(LatePlace.DROPPED, number, LateTime(0, number, number + 1))
    (report,) = registry.late_records()
    assert [record.key for record in report.last] == [str(20_000 - MOST_NAMED + n) for n in range(MOST_NAMED)]
    assert len(report.delays) < 200
    assert ledger.dropped == report.late == sum(report.delays.values()) == 20_000


def test_late_rows_of_columns_are_noted_as_those_of_rows() -> None:
    rows = [("a", 52), ("b", 57), ("a", 61), ("a", 99), ("c", 12)]
    schema = pa.schema({"k": pa.string(), "t": pa.int64()})
    size = Time.milliseconds(10)

    with OperatorHarness(
        lambda stream: stream.key_by("k").window(TumblingEventTimeWindows.of(size), "t").sum("t"),
        types=[schema],
    ) as harness:
        harness.watermark(80)
        harness.push_batch(pa.RecordBatch.from_pylist([{"k": k, "t": t} for k, t in rows], schema))
        (of_columns,) = reports(harness)
    with OperatorHarness(
        lambda stream: keyed(stream).window(TumblingEventTimeWindows.of(size)).reduce(First())
    ) as harness:
        harness.watermark(80)
        harness.push(*rows, timestamps=[time for _, time in rows])
        (of_rows,) = reports(harness)
    assert of_columns.places == of_rows.places == {LatePlace.DROPPED: 4}
    assert (of_columns.delays, of_columns.longest_ms) == (of_rows.delays, of_rows.longest_ms)
    named = [
        [(each.key, each.timestamp, each.watermark, each.delay_ms) for each in report.last]
        for report in (of_columns, of_rows)
    ]
    assert named[0] == named[1]
