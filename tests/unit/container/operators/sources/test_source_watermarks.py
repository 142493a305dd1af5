"""Watermarks made inside a source: the minimum over its splits, cut batches, ingestion time; and SourceFunctions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.container.task.parts import Target, operator_context
from yarrow.common import Duration, TimestampAssigner, WatermarkGenerator, WatermarkStrategy
from yarrow.container.operators.event_time import TimeSettings
from yarrow.container.operators.sources.source_watermarks import IngestionTime, SourceTime, SplitWatermarks
from yarrow.container.protocol.errors import TimestampError
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.datastream.connectors.base import SourceRecords
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.data.elements import MIN_TIMESTAMP


class Itself(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        if value == "broken":
            raise KeyError(value)
        return value  # type: ignore[no-any-return]


class Tens(WatermarkGenerator):
    """Multiples of ten are watermarks."""

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        if event_timestamp % 10 == 0:
            output.emit_watermark(event_timestamp)

    def on_periodic_emit(self, output: Any) -> None:
        return None


MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Itself())
PUNCTUATED = WatermarkStrategy.for_generator(Tens).with_timestamp_assigner(Itself())


class Bench:
    """A SplitWatermarks with its clock and what it sent, rows and watermarks in their order."""

    def __init__(self, strategy: WatermarkStrategy, **options: str) -> None:
        self.clock = ManualClock()
        self.target = Target()
        context = operator_context(self.clock, {key.replace("_", "."): v for key, v in options.items()})
        self.context = context
        self.time = SplitWatermarks("numbers", strategy, context, TimeSettings(context), self.target)

    def read(self, *rows: Any, split: str | None = None, ended: Sequence[str] = ()) -> None:
        for part in self.time.timed(SourceRecords(list(rows), split_id=split, finished_before=tuple(ended))):
            self.target.seen += list(zip(part.rows, part.timestamps or [], strict=True))

    def status(self) -> str:
        return "idle" if self.target.idle else "active"

    def tick(self, seconds: float = 0.2) -> None:
        self.clock.advance(seconds)
        self.time.emit_if_due(self.clock.epoch_ms())


def test_the_watermark_is_the_minimum_over_the_splits() -> None:
    bench = Bench(MONOTONOUS)
    bench.time.add_splits(["a", "b"])
    bench.read(100, 101, split="a")
    bench.tick()
    assert bench.target.watermarks == [], "a split that has not been read yet counts"
    bench.read(50, split="b")
    bench.tick()
    bench.read(80, split="b")
    bench.tick()
    assert bench.target.watermarks == [49, 79]


def test_a_split_that_has_ended_leaves() -> None:
    bench = Bench(MONOTONOUS)
    bench.time.add_splits(["a", "b"])
    bench.read(100, split="a")
    bench.read(50, split="b")
    bench.tick()
    bench.read(110, split="a", ended=["b"])
    bench.tick()
    assert bench.target.watermarks == [49, 99, 109]
    bench.time.add_splits(["c"])
    bench.read(5, split="c", ended=["a"])
    bench.tick()
    bench.read(200, split="c")
    bench.tick()
    assert bench.target.watermarks == [49, 99, 109, 199], "a new split does not take the watermark back"


def test_idle_splits_are_left_out() -> None:
    bench = Bench(MONOTONOUS.with_idleness(Duration.of_seconds(1)))
    bench.time.add_splits(["a", "b"])
    bench.read(50, split="b")
    for time in range(100, 110):
        bench.read(time, split="a")
        bench.tick()
    assert bench.target.watermarks[-1] == 108
    assert bench.status() == "active"
    for _ in range(8):
        bench.tick()
    assert bench.status() == "idle"
    bench.read(60, split="b")
    assert bench.status() == "active"
    bench.tick()
    assert bench.target.watermarks[-1] == 108
    assert bench.target.watermarks == sorted(set(bench.target.watermarks))


def test_a_split_that_cannot_be_reached_is_not_idle() -> None:
    bench = Bench(MONOTONOUS.with_idleness(Duration.of_seconds(1)))
    bench.time.add_splits(["quiet", "lost"])
    bench.read(50, split="quiet")
    bench.read(60, split="lost")
    bench.time.unreachable(["lost"])
    for _ in range(12):
        bench.tick()
    idle = {split_id: split.tracker.idle for split_id, split in bench.time.splits()}
    assert idle == {"quiet": True, "lost": False}
    assert bench.status() == "active"
    bench.time.unreachable([])
    for _ in range(12):
        bench.tick()
    assert bench.status() == "idle", "it can be read again and gives nothing"


def test_a_reader_without_splits_becomes_idle_and_active_with_its_first() -> None:
    bench = Bench(MONOTONOUS.with_idleness(Duration.of_seconds(1)))
    for _ in range(8):
        bench.tick()
    assert bench.status() == "idle"
    bench.time.add_splits(["a"])
    assert bench.status() == "active"
    bench.read(10, split="a")
    bench.read(11, ended=["a"])
    bench.tick()
    assert bench.target.watermarks[-1] == 10


def test_records_that_name_no_split_have_one_generator() -> None:
    bench = Bench(MONOTONOUS)
    bench.time.add_splits(["a", "b"])
    bench.read(10)
    bench.read(20)
    bench.tick()
    assert bench.target.watermarks == [19]


def test_a_punctuated_watermark_cuts_the_batch() -> None:
    bench = Bench(PUNCTUATED)
    bench.read(1, 10, 5, 20, 21, split="a")
    stamped = [(row, row) for row in (1, 10, 5, 20, 21)]
    assert bench.target.seen == [*stamped[:2], 10, *stamped[2:4], 20, stamped[4]]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), max_size=25),
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
)
def test_batches_do_not_change_where_watermarks_stand(
    records: list[tuple[str, int]], sizes: list[int]
) -> None:
    single, batched = Bench(PUNCTUATED), Bench(PUNCTUATED)
    for bench in (single, batched):
        bench.time.add_splits(["a", "b"])
    for split, value in records:
        single.read(value, split=split)
    turn = 0
    rest = records
    while rest:
        split = rest[0][0]
        limit = sizes[turn % len(sizes)]
        turn += 1
        count = 1
        while count < min(limit, len(rest)) and rest[count][0] == split:
            count += 1
        batched.read(*(value for _, value in rest[:count]), split=split)
        rest = rest[count:]
    assert batched.target.seen == single.target.seen


def test_late_records_and_bounded_jumps_are_counted_of_ended_splits_too() -> None:
    bench = Bench(MONOTONOUS, **{"pipeline_watermark_max-jump": "100 ms"})
    bench.read(1000, split="a")
    bench.tick()
    bench.read(500, 999, 5000, split="a")
    bench.tick()
    bench.read(1, split="b", ended=["a"])
    assert bench.target.watermarks == [999, 1099]
    values = bench.time._context.environment.metrics.values()
    assert values["numbers.numLateRecords"] == 2
    assert values["numbers.numWatermarkJumpsBounded"] == 1


def test_a_failing_assigner_names_its_record() -> None:
    with pytest.raises(OperatorFailure) as failed:
        Bench(MONOTONOUS).read(1, "broken", 2, split="a")
    assert failed.value.record == "'broken'"
    assert isinstance(failed.value.cause, KeyError)


def test_a_timestamp_of_another_type_names_its_record() -> None:
    with pytest.raises(OperatorFailure) as failed:
        Bench(MONOTONOUS).read(1, 2.5, 3)
    assert failed.value.record == "2.5"
    assert "is 2.5 (float); expected whole milliseconds" in str(failed.value.cause)


def test_records_without_timestamp_make_no_watermark() -> None:
    bench = Bench(WatermarkStrategy.for_monotonous_timestamps())
    bench.read("a", "b")
    bench.tick()
    assert bench.target.watermarks == []
    for part in bench.time.timed(SourceRecords(["c", "d", "e"], [4, 9, None])):
        assert (part.rows, part.timestamps) == (["c", "d", "e"], [4, 9, None])
    bench.tick()
    assert bench.target.watermarks == [8]


def test_a_bound_on_jumps_counts_from_the_first_record_with_a_timestamp() -> None:
    bench = Bench(WatermarkStrategy.for_monotonous_timestamps(), **{"pipeline.watermark.max-jump": "1 s"})
    bench.read("a")
    list(bench.time.timed(SourceRecords(["b"], [1_700_000_000_000])))
    bench.tick()
    assert bench.target.watermarks == [1_699_999_999_999]


def test_records_without_timestamp_end_idleness() -> None:
    idle = WatermarkStrategy.for_monotonous_timestamps().with_idleness(Duration.of_seconds(1))
    bench = Bench(idle)
    for _ in range(8):
        bench.tick()
    assert bench.status() == "idle"
    bench.read("a")
    assert bench.status() == "active"


def test_an_assigner_that_gives_no_timestamp_names_its_record() -> None:
    with pytest.raises(OperatorFailure, match="numbers") as failed:
        Bench(MONOTONOUS).read(1, None, 3)
    assert failed.value.record == "None"
    assert isinstance(failed.value.cause, TimestampError)


@pytest.mark.parametrize("stamp", [1.0, "1", True, 1 << 63, -(1 << 63) - 1])
def test_timestamps_of_a_reader_are_checked_without_a_strategy(stamp: Any) -> None:
    time = SourceTime("numbers")
    records = SourceRecords(["a", "b", "c"], [1, stamp, None])
    with pytest.raises(OperatorFailure) as failed:
        time.timed(records)
    assert failed.value.record == "'b'"
    records = SourceRecords(["a", "b"], [1, None])
    assert list(time.timed(records)) == [records]
    assert list(time.timed(SourceRecords([], [])))


def test_record_batches_have_the_timestamps_of_their_reader() -> None:
    bench = Bench(WatermarkStrategy.for_monotonous_timestamps())
    batch = pa.record_batch({"n": [1, 2]})
    assert list(bench.time.timed(SourceRecords(batch, [5, 7], "a")))
    bench.tick()
    assert bench.target.watermarks == [6]
    assert list(bench.time.timed(SourceRecords(batch, None, "a")))
    assert list(bench.time.timed(SourceRecords(batch, [None, 9], "a")))
    bench.tick()
    assert bench.target.watermarks == [6, 8]


def test_ingestion_time_stamps_with_the_clock_and_its_watermark_follows() -> None:
    clock, target = ManualClock(1000), Target()
    context = operator_context(clock, {})
    time = IngestionTime("numbers", context, TimeSettings(context), target)
    (records,) = time.timed(SourceRecords(["a", "b"], [1, 2]))
    assert records.timestamps == [1000, 1000]
    clock.advance(0.2)
    time.emit_if_due(clock.epoch_ms())
    assert target.watermarks == [1199]
    clock.advance(-0.1)
    (records,) = time.timed(SourceRecords(["c"]))
    assert records.timestamps == [1200], "a clock that is set back makes no late records"
    assert records.timestamps[0] > target.watermarks[-1]
    assert time.next_emission() == 1400
    assert MIN_TIMESTAMP not in target.watermarks
