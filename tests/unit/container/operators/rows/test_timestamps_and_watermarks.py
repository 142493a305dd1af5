"""assign_timestamps_and_watermarks in a chain: stamps, watermarks of all generators, idleness, bounds, errors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.common import Duration, TimestampAssigner, WatermarkGenerator, WatermarkStrategy
from yarrow.runtime.data.elements import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    EndOfData,
    RowBatch,
    Watermark,
)
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness


class SecondField(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value[1]  # type: ignore[no-any-return]


class Former(TimestampAssigner):
    """Ten after the timestamp that the record came with."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return record_timestamp + 10


class Punctuated(WatermarkGenerator):
    """A record ("mark", t) is a watermark."""

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        if event[0] == "mark":
            output.emit_watermark(event_timestamp)

    def on_periodic_emit(self, output: Any) -> None:
        return None


MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondField())
PUNCTUATED = WatermarkStrategy.for_generator(Punctuated).with_timestamp_assigner(SecondField())


def behind(strategy: WatermarkStrategy, **options: Any) -> OperatorHarness:
    return OperatorHarness(lambda stream: stream.assign_timestamps_and_watermarks(strategy), **options)


def in_order(harness: OperatorHarness) -> list[Any]:
    found: list[Any] = []
    for element in harness.elements():
        if isinstance(element, RowBatch):
            found += element.rows
        elif isinstance(element, Watermark):
            found.append(element)
        elif not isinstance(element, EndOfData):
            found.append("idle" if element.idle else "active")  # type: ignore[union-attr]
    return found


def test_rows_are_stamped_and_the_watermark_comes_at_intervals() -> None:
    with behind(MONOTONOUS) as harness:
        harness.push(("a", 5), ("b", 3), ("c", 9))
        assert harness.timestamps() == [5, 3, 9]
        assert harness.controls() == []
        harness.advance(0.2)
        assert harness.controls() == [Watermark(8)]
        harness.advance(0.2)
        harness.push(("d", 9), ("e", 8), ("f", 12))
        harness.advance(0.2)
        assert harness.controls() == [Watermark(8), Watermark(11)]
        assert harness.metrics()["Timestamps_Watermarks.numLateRecords"] == 1


def test_the_interval_is_the_options() -> None:
    options = {"pipeline.auto-watermark-interval": "1 s"}
    with behind(MONOTONOUS, configuration=options) as harness:
        harness.push(("a", 5))
        harness.advance(0.9)
        assert harness.controls() == []
        harness.advance(0.1)
        assert harness.controls() == [Watermark(4)]


def test_an_interval_of_nothing_makes_no_periodic_watermarks() -> None:
    with behind(MONOTONOUS, configuration={"pipeline.auto-watermark-interval": "0 ms"}) as harness:
        harness.push(("a", 5))
        harness.advance(10)
        assert harness.controls() == []


def test_out_of_orderness_holds_the_watermark_back() -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(3)).with_timestamp_assigner(
        SecondField()
    )
    with behind(strategy) as harness:
        harness.push(("a", 10))
        harness.advance(0.2)
        assert harness.controls() == [Watermark(6)]


def test_the_assigner_sees_the_timestamp_that_a_record_came_with() -> None:
    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(Former())
    with behind(strategy) as harness:
        harness.push("a", "b", timestamps=[1, None])
        assert harness.timestamps() == [11, MIN_TIMESTAMP + 10]
        harness.advance(1)
        assert harness.controls() == []


def test_without_an_assigner_the_timestamps_of_the_records_count() -> None:
    with behind(WatermarkStrategy.for_monotonous_timestamps()) as harness:
        harness.push("a", "b", timestamps=[7, 5])
        harness.advance(0.2)
        assert harness.timestamps() == [7, 5]
        assert harness.controls() == [Watermark(6)]


def test_watermarks_from_upstream_end_here_but_for_the_last() -> None:
    with behind(MONOTONOUS) as harness:
        harness.push(("a", 5))
        harness.watermark(1000)
        harness.idle()
        harness.idle(False)
        assert harness.controls() == []
        harness.watermark(MAX_TIMESTAMP)
        harness.end()
        assert harness.controls()[0] == Watermark(MAX_TIMESTAMP)


def test_a_punctuated_watermark_cuts_the_batch_behind_its_record() -> None:
    with behind(PUNCTUATED) as harness:
        harness.push(("a", 1), ("mark", 5), ("b", 6), ("mark", 4), ("mark", 7), ("c", 9))
        assert in_order(harness) == [
            ("a", 1),
            ("mark", 5),
            Watermark(5),
            ("b", 6),
            ("mark", 4),
            ("mark", 7),
            Watermark(7),
            ("c", 9),
        ]
        assert harness.metrics()["Timestamps_Watermarks.numLateRecords"] == 1


_rows = st.lists(st.tuples(st.sampled_from(["row", "mark"]), st.integers(0, 50)), max_size=30)


@settings(max_examples=60, deadline=None)
@given(rows=_rows, cuts=st.lists(st.integers(1, 7), min_size=1, max_size=4), chunk_rows=st.integers(1, 6))
def test_batches_do_not_change_where_watermarks_stand(
    rows: list[tuple[str, int]], cuts: list[int], chunk_rows: int
) -> None:
    expected: list[Any] = []
    reached = MIN_TIMESTAMP
    for row in rows:
        expected += [row, row]
        if row[0] == "mark" and row[1] > reached:
            reached = row[1]
            expected.append(Watermark(reached))

    def fragment(stream: Any) -> Any:
        # The generator stands in the middle of a chain, behind an operator that makes several rows of one.
        stamped = stream.assign_timestamps_and_watermarks(PUNCTUATED)
        return stamped.flat_map(lambda row: [row, row]).map(lambda row: row)

    with OperatorHarness(fragment, chunk_rows=chunk_rows) as harness:
        rest, turn = rows, 0
        while rest:
            size = cuts[turn % len(cuts)]
            turn += 1
            harness.push(*rest[:size])
            rest = rest[size:]
        assert in_order(harness) == expected


IDLE = MONOTONOUS.with_idleness(Duration.of_seconds(1))


def test_an_idle_stream_says_so_and_is_active_with_its_next_record() -> None:
    with behind(IDLE) as harness:
        harness.push(("a", 5))
        for _ in range(7):
            harness.advance(0.2)
        assert in_order(harness) == [("a", 5), Watermark(4), "idle"]
        harness.push(("b", 9))
        assert in_order(harness)[3:] == [("b", 9), "active"]
        harness.advance(0.2)
        assert in_order(harness)[5:] == [Watermark(8)]


BOUND = {"pipeline.watermark.max-jump": "100 ms"}


@pytest.mark.parametrize("strategy", [MONOTONOUS, IDLE])
def test_one_record_pushes_the_watermark_by_the_bound_at_most(strategy: WatermarkStrategy) -> None:
    with behind(strategy, configuration=BOUND) as harness:
        harness.push(("first", 1_000_000), ("wrong clock", 9_000_000), ("right", 1_000_010))
        harness.advance(0.2)
        assert harness.timestamps() == [1_000_000, 9_000_000, 1_000_010]
        assert harness.controls() == [Watermark(1_000_099)]
        harness.push(("near", 1_000_200), ("far", 1_000_301))
        harness.advance(0.2)
        assert harness.controls()[1:] == [Watermark(1_000_299)]
        assert harness.metrics()["Timestamps_Watermarks.numWatermarkJumpsBounded"] == 2


def test_a_punctuated_watermark_is_bounded_too() -> None:
    with behind(PUNCTUATED, configuration=BOUND) as harness:
        harness.push(("mark", 10), ("mark", 5000), ("mark", 200))
        assert harness.controls() == [Watermark(10), Watermark(110), Watermark(200)]


class Fails(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return {"text": "noon", "float": 1.5, "large": 1 << 63, "none": None, "bool": True}[value]  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("text", "'noon' (str)"),
        ("float", "1.5 (float)"),
        ("large", "9223372036854775808 (int)"),
        ("none", "None (NoneType)"),
        ("bool", "True (bool)"),
    ],
)
def test_an_assigner_that_gives_no_timestamp_is_named(value: str, shown: str) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Fails())
    with (
        OperatorHarness(
            lambda stream: stream.assign_timestamps_and_watermarks(strategy).name("stamps")
        ) as harness,
        pytest.raises(FragmentFailedError) as failed,
    ):
        harness.push(value)
    cause = failed.value.cause
    assert f"operator 'stamps': the timestamp of a record is {shown}; expected whole" in cause.message
    assert cause.record == repr(value)


def test_a_record_without_timestamp_is_named_where_one_is_needed() -> None:
    with behind(WatermarkStrategy.for_monotonous_timestamps()) as harness:
        harness.push("stamped", timestamps=[5])
        with pytest.raises(FragmentFailedError) as failed:
            harness.push("bare")
    assert failed.value.cause.record == "'bare'"
    assert "a record has no timestamp, but its watermark strategy needs one" in failed.value.cause.message
    assert "with_timestamp_assigner" in failed.value.cause.message


def test_a_custom_generator_may_do_without_timestamps() -> None:
    with behind(WatermarkStrategy.for_generator(Counts)) as harness:
        harness.push("a", "b", "c")
        assert in_order(harness) == ["a", Watermark(1), "b", Watermark(2), "c", Watermark(3)]


class Counts(WatermarkGenerator):
    def __init__(self) -> None:
        self.count = 0

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        assert event_timestamp == MIN_TIMESTAMP
        self.count += 1
        output.emit_watermark(self.count)

    def on_periodic_emit(self, output: Any) -> None:
        return None


class EmitsText(Counts):
    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        output.emit_watermark("noon")


def test_a_generator_that_emits_no_timestamp_is_named() -> None:
    strategy = WatermarkStrategy.for_generator(EmitsText)
    with behind(strategy) as harness, pytest.raises(FragmentFailedError) as failed:
        harness.push("row")
    assert "a watermark generator emitted 'noon' (str)" in failed.value.cause.message
    assert failed.value.cause.operator_name == "Timestamps/Watermarks"


def test_the_assigner_is_called_once_a_record_in_the_fused_loop() -> None:
    with behind(MONOTONOUS, configuration={"pipeline.inline-functions": "false"}) as harness:
        harness.push(("a", 5))
        assert harness.generated_code.count("extract_1(") == 1
        assert ".greatest" in harness.generated_code


def test_the_assigner_is_computed_once_a_record_in_the_fused_loop() -> None:
    with behind(MONOTONOUS) as harness:
        harness.push(("a", 5))
        assert harness.generated_code.count("v0[1]") == 1
        assert "extract_" not in harness.generated_code


class FailsPeriodically(Counts):
    def on_periodic_emit(self, output: Any) -> None:
        raise ValueError("no watermark today")


def test_a_failure_of_a_periodic_generator_names_the_operator() -> None:
    strategy = WatermarkStrategy.for_generator(FailsPeriodically)
    with behind(strategy) as harness, pytest.raises(FragmentFailedError) as failed:
        harness.advance(0.2)
    assert failed.value.cause.operator_name == "Timestamps/Watermarks"
    assert failed.value.cause.message == "no watermark today"


def test_a_stream_is_not_idle_while_its_task_takes_no_rows() -> None:
    with behind(IDLE) as harness:
        (task,) = harness.tasks
        harness.push(("a", 5))
        for _ in range(2):
            harness.advance(0.2)
        task.chain.rows_wait(True)
        harness.clock.advance(30)
        task.chain.rows_wait(False)
        harness.run()
        assert in_order(harness) == [("a", 5), Watermark(4)]
        for _ in range(7):
            harness.advance(0.2)
        assert in_order(harness) == [("a", 5), Watermark(4), "idle"]


def test_a_task_without_credit_tells_its_generators(monkeypatch: pytest.MonkeyPatch) -> None:
    with behind(IDLE, output_credit=1) as harness:
        (task,) = harness.tasks
        told: list[bool] = []
        monkeypatch.setattr(task.chain, "rows_wait", told.append)
        harness.hold_outputs = True
        harness.push(("a", 5))
        harness.push(("b", 6))
        harness.hold_outputs = False
        harness.run()
        assert told == [True, False]
