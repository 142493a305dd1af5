"""Timestamps out of a column: stamps, watermarks a batch, idleness, bounds of jumps, and rows that are refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batch_runner import collect
from tests.unit.container.operators.columnar.columns import times_of
from tests.unit.runtime.graph.programs import environment
from yarrow.common import Duration, Types, WatermarkStrategy
from yarrow.common.time import Time
from yarrow.common.watermark_strategy import TimestampAssigner
from yarrow.datastream import DataStream
from yarrow.datastream.window import TumblingEventTimeWindows
from yarrow.runtime.data.elements import MAX_TIMESTAMP, ArrowBatch, Watermark
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

SCHEMA = pa.schema([("k", pa.string()), ("at", pa.int64())])
BOUNDED = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(5)).with_timestamp_column("at")


def behind(strategy: WatermarkStrategy = BOUNDED, schema: Any = SCHEMA, **options: Any) -> OperatorHarness:
    return OperatorHarness(lambda s: s.assign_timestamps_and_watermarks(strategy), types=[schema], **options)


def batch(times: list[int | None], schema: Any = SCHEMA) -> Any:
    return pa.record_batch(
        [pa.array(["a"] * len(times)), pa.array(times, schema.field("at").type)], schema=schema
    )


def metric(harness: OperatorHarness, name: str) -> float:
    (found,) = (value for key, value in harness.metrics().items() if key.endswith(f".{name}"))
    return found


def test_batches_stay_batches_with_the_times_of_the_column() -> None:
    with behind() as harness:
        harness.push_batch(batch([3, 9, 7]))
        harness.push_batch(batch([]))
        harness.push_batch(batch([4]))
        made = [element for element in harness.elements() if isinstance(element, ArrowBatch)]
        assert [times_of(each) for each in made] == [[3, 9, 7], [4]]
        assert [each.batch for each in made] == [batch([3, 9, 7]), batch([4])]
        assert harness.controls() == []
        harness.advance(0.2)
        assert harness.controls() == [Watermark(3)]


@settings(max_examples=15, deadline=None)
@given(batches=st.lists(st.lists(st.integers(-50, 50), max_size=5), max_size=5))
def test_watermarks_are_those_of_rows(batches: list[list[int]]) -> None:
    class At(TimestampAssigner):
        def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
            return int(value[1])

    rows_strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(5))
    of_rows = OperatorHarness(
        lambda s: s.assign_timestamps_and_watermarks(rows_strategy.with_timestamp_assigner(At()))
    )
    with behind() as by_columns, of_rows as by_rows:
        for times in batches:
            by_columns.push_batch(batch(list(times)))
            by_rows.push(*(("a", time) for time in times))
            by_columns.advance(0.2)
            by_rows.advance(0.2)
            assert by_columns.controls() == by_rows.controls()
            assert metric(by_columns, "numLateRecords") == metric(by_rows, "numLateRecords")


def test_upstream_watermarks_end_here_but_for_the_last() -> None:
    with behind() as harness:
        harness.watermark(40)
        harness.watermark(MAX_TIMESTAMP)
        assert harness.controls() == [Watermark(MAX_TIMESTAMP)]


def test_one_row_does_not_advance_time_by_more_than_the_bound_on_jumps() -> None:
    monotonous = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    with behind(monotonous, configuration={"pipeline.watermark.max-jump": "10 ms"}) as harness:
        harness.push_batch(batch([0, 5, 1_000_000, 7]))
        harness.advance(0.2)
        assert harness.controls() == [Watermark(14)]
        harness.push_batch(batch([20]))
        harness.advance(0.2)
        assert harness.controls()[-1] == Watermark(19)
        assert metric(harness, "numWatermarkJumpsBounded") == 1


def test_a_stream_without_batches_is_idle_until_the_next() -> None:
    with behind(BOUNDED.with_idleness(Duration.of_millis(300))) as harness:
        harness.push_batch(batch([9]))
        for _ in range(6):
            harness.advance(0.2)
        assert [getattr(each, "idle", None) for each in harness.controls()] == [None, True]
        harness.push_batch(batch([20]))
        assert harness.controls()[2].idle is False  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", [pa.int32(), pa.timestamp("us"), pa.timestamp("s", "UTC")])
def test_a_null_time_is_refused_with_its_row(kind: Any) -> None:
    schema = pa.schema([("k", pa.string()), ("at", kind)])
    with pytest.raises(FragmentFailedError) as raised, behind(schema=schema) as harness:
        harness.push_batch(batch([1, None], schema))
    cause = raised.value.cause
    assert cause.operator_name == "Timestamps/Watermarks"
    assert (
        "a row has no time in column 'at', and its watermark strategy takes times from there" in cause.message
    )
    assert "before assign_timestamps_and_watermarks" in cause.message
    assert "'at': None" in cause.record


def test_a_time_that_is_none_is_refused_with_its_row() -> None:
    with pytest.raises(FragmentFailedError, match="which is no event time"), behind() as harness:
        harness.push_batch(batch([1, MAX_TIMESTAMP]))


def test_windows_of_columns_fire_by_these_watermarks() -> None:
    def fragment(stream: DataStream) -> DataStream:
        timed = stream.assign_timestamps_and_watermarks(BOUNDED)
        return timed.key_by("k").window(TumblingEventTimeWindows.of(Time.milliseconds(10))).count()

    with OperatorHarness(fragment, types=[SCHEMA]) as harness:
        harness.push_batch(batch([3, 9, 12, 16]))
        harness.advance(0.2)
        found = [row for made in harness.record_batches() for row in made.to_pylist()]
        assert found == [{"k": "a", "window_start": 0, "window_end": 10, "count": 2}]


def test_bounded_input_has_the_times_without_watermarks() -> None:
    env = environment(2)
    columns = env.from_collection(
        [("a", 3), ("a", 14), ("b", 4)], Types.TUPLE([Types.STRING(), Types.LONG()])
    )
    timed = columns.to_arrow(SCHEMA).assign_timestamps_and_watermarks(BOUNDED)
    made = timed.key_by("k").window(TumblingEventTimeWindows.of(Time.milliseconds(10))).count()
    assert sorted(collect(env, made.to_rows(as_tuple=True))) == [
        ("a", 0, 10, 1), ("a", 10, 20, 1), ("b", 0, 10, 1),
    ]  # fmt: skip
