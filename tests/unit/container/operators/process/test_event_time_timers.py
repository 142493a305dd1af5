"""Process functions with timers of both clocks, driven by hand: when they fire, in which order, what they see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.container.task.stream_task import StreamTask
from yarrow.datastream import (
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    TimeDomain,
)
from yarrow.runtime.data.elements import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    RowBatch,
    Watermark,
    WatermarkStatus,
)
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

SIDE = OutputTag("side")


class Alarms(KeyedProcessFunction[Any, Any, Any]):
    """A record (key, times) sets timers at these times."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        for time in value[1]:
            ctx.timer_service().register_event_time_timer(time)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp


def by_first(function: Any) -> Any:
    return lambda stream: stream.key_by(lambda value: value[0]).process(function)


def ordered(harness: OperatorHarness) -> list[Any]:
    """Rows and control elements of the output in their order."""
    found: list[Any] = []
    for element in harness.elements():
        found += element.rows if isinstance(element, RowBatch) else [element]
    return found


def test_timers_fire_when_the_watermark_passes_and_before_it_goes_on() -> None:
    with OperatorHarness(by_first(Alarms())) as harness:
        harness.push(("a", [10, 30]), ("b", [20, 10]))
        harness.watermark(9)
        assert harness.output == []
        harness.watermark(20)
        assert ordered(harness) == [Watermark(9), ("a", 10), ("b", 10), ("b", 20), Watermark(20)]
        assert harness.timestamps() == [10, 10, 20]
        harness.watermark(20)
        harness.watermark(15)
        assert harness.controls() == [Watermark(9), Watermark(20)]
        harness.watermark(MAX_TIMESTAMP)
        harness.end()
        assert harness.output[3:] == [("a", 30)]


def test_a_timer_behind_the_watermark_fires_with_the_next() -> None:
    with OperatorHarness(by_first(Alarms())) as harness:
        harness.watermark(50)
        harness.push(("a", [10]))
        assert harness.output == []
        harness.watermark(51)
        assert harness.output == [("a", 10)]


class Chain(KeyedProcessFunction[Any, Any, Any]):
    """A timer registers another of its key, at or below the watermark as long as there is room."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(value[1])

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        timers = ctx.timer_service()
        yield ctx.get_current_key(), timestamp, timers.current_watermark(), ctx.timestamp(), ctx.time_domain()
        timers.register_event_time_timer(timestamp + 10)


def test_what_on_timer_registers_below_the_watermark_fires_in_the_same_advance() -> None:
    with OperatorHarness(by_first(Chain())) as harness:
        harness.push(("a", 10), ("b", 15))
        harness.watermark(30)
        seen = [(key, time) for key, time, *_ in harness.output]
        assert seen == [("a", 10), ("b", 15), ("a", 20), ("b", 25), ("a", 30)]
        assert all(rest == [30, time, TimeDomain.EVENT_TIME] for _, time, *rest in harness.output)
        harness.watermark(35)
        assert harness.output[5][:2] == ("b", 35)


class Both(KeyedProcessFunction[Any, Any, Any]):
    """A timer of either clock at the same number."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        timers = ctx.timer_service()
        timers.register_event_time_timer(1000)
        timers.register_processing_time_timer(1000)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.time_domain().name
        yield SIDE, timestamp


def test_the_clocks_are_apart_and_side_outputs_of_timers_work() -> None:
    def fragment(stream: Any) -> Any:
        processed = stream.key_by(lambda value: value).process(Both())
        return processed, processed.get_side_output(SIDE)

    with OperatorHarness(fragment) as harness:
        harness.push("a")
        harness.advance(1)
        assert harness.output == ["PROCESSING_TIME"]
        harness.watermark(1000)
        assert harness.output == ["PROCESSING_TIME", "EVENT_TIME"]
        assert harness.timestamps() == [None, 1000]
        assert harness.outputs(1) == [1000, 1000]
        assert harness.timestamps(1) == [None, 1000]


class Deleting(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        timers = ctx.timer_service()
        if value[1] == "delete":
            timers.delete_event_time_timer(10)
        else:
            timers.register_event_time_timer(10)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key()


def test_a_deleted_timer_of_one_key_leaves_those_of_others() -> None:
    with OperatorHarness(by_first(Deleting())) as harness:
        harness.push((1, "set"), (2, "set"), (1.0, "delete"), (3, "delete"))
        harness.watermark(10)
        assert harness.output == [2]


class Joining(KeyedCoProcessFunction[Any, Any, Any, Any]):
    """Either input sets a timer of the key."""

    def process_element1(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(value[1])

    def process_element2(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(value[1])

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp


def test_two_inputs_share_timers_and_the_lower_watermark_counts() -> None:
    def fragment(first: Any, second: Any) -> Any:
        return first.connect(second).key_by(lambda v: v[0], lambda v: v[0]).process(Joining())

    with OperatorHarness(fragment, inputs=2) as harness:
        harness.push(("a", 10), ("b", 20))
        harness.push(("a", 10), ("c", 15), input=1)
        harness.watermark(100)
        assert harness.output == []
        harness.watermark(15, input=1)
        assert harness.output == [("a", 10), ("c", 15)]
        harness.idle(input=1)
        assert harness.output == [("a", 10), ("c", 15), ("b", 20)]
        assert harness.controls() == [Watermark(15), Watermark(100)]


class Times(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        timers = ctx.timer_service()
        yield value, ctx.timestamp(), timers.current_watermark(), timers.current_processing_time()


def test_a_function_without_keys_reads_both_clocks() -> None:
    with OperatorHarness(lambda stream: stream.process(Times())) as harness:
        harness.push("a")
        harness.watermark(7)
        harness.advance(2)
        harness.push("b", timestamps=[9])
        assert harness.output == [("a", None, MIN_TIMESTAMP, 0), ("b", 9, 7, 2000)]


class Registers(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(value[1])


@pytest.mark.parametrize(
    ("time", "message"),
    [
        (None, "was registered for None, the result of ctx.timestamp() for a record without timestamp"),
        (1.5, "was registered for 1.5: give whole milliseconds"),
        (1 << 63, "was registered for 9223372036854775808: give whole milliseconds"),
    ],
)
def test_a_timer_for_no_timestamp_names_operator_and_record(time: Any, message: str) -> None:
    with (
        OperatorHarness(lambda s: by_first(Registers())(s).name("alarm clock")) as harness,
        pytest.raises(FragmentFailedError) as failed,
    ):
        harness.push(("k", time))
    cause = failed.value.cause
    assert f"operator 'alarm clock': a timer {message}" in cause.message
    assert cause.record == repr(("k", time))


class FailsInTimer(Registers):
    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield 1 // 0


def test_a_failure_in_on_timer_names_operator_key_and_time() -> None:
    with OperatorHarness(by_first(FailsInTimer())) as harness:
        harness.push(("k", 5))
        with pytest.raises(FragmentFailedError) as failed:
            harness.watermark(5)
    cause = failed.value.cause
    assert cause.operator_name == "KeyedProcess"
    assert cause.record == "(timer at 5 of the key 'k')"
    assert "ZeroDivisionError" in cause.exception_name


def test_late_records_are_processed_and_counted() -> None:
    with OperatorHarness(by_first(Alarms())) as harness:
        harness.watermark(50)
        harness.push(("a", []), ("a", []), ("a", []), timestamps=[50, 51, None])
        assert harness.metrics()["KeyedProcess.numLateRecords"] == 1
        assert harness.metrics()["KeyedProcess.currentInputWatermark"] == 50
        assert harness.metrics()["KeyedProcess.currentOutputWatermark"] == 50


class Flood(KeyedProcessFunction[Any, Any, Any]):
    """Many timers at once, and another for each that fires."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(value % 7)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        if timestamp < 10:
            ctx.timer_service().register_event_time_timer(10)
        yield timestamp, ctx.get_current_key()


def test_a_flood_of_due_timers_lets_mails_in_and_holds_the_watermark_back() -> None:
    count = 300
    # No slice is long enough for two timers.
    options = {"execution.batch.slice-time": "1 ns"}
    with OperatorHarness(lambda s: s.key_by(lambda v: v).process(Flood()), configuration=options) as harness:
        harness.push(*range(count))
        (task,) = harness.tasks
        seen: list[tuple[int, bool]] = []
        post_between_slices(task, lambda: seen.append((len(harness.output), bool(harness.controls()))))
        harness.watermark(20)
        assert len(harness.output) == 2 * count
        assert [time for time, _ in harness.output] == sorted(time for time, _ in harness.output)
        assert ordered(harness)[-1] == Watermark(20)
        during = [fired for fired, _ in seen if 0 < fired < 2 * count]
        assert len(during) > count, "mails had to wait"
        assert not any(passed for fired, passed in seen if fired < 2 * count)


def post_between_slices(task: StreamTask, look: Any) -> None:
    """Posts a mail after each slice, up to some number."""

    def note(running: bool) -> None:
        if not running and task.mails_waiting == 0 and len(calls) < 2000:
            calls.append(None)
            task.post(look)

    calls: list[None] = []
    task._on_slice = note


def test_a_barrier_that_comes_between_due_timers_finds_the_rest_in_the_state() -> None:
    options = {"execution.batch.slice-time": "1 ns"}
    with OperatorHarness(by_first(Alarms()), configuration=options) as harness:
        harness.push(("a", range(50)))
        (task,) = harness.tasks
        timers = task.chain.operators[0]._timers  # type: ignore[attr-defined]
        cuts: list[tuple[int, set[int]]] = []

        def cut() -> None:
            left = {timer.timestamp for timer in timers.event_timers.snapshot_timers()}
            cuts.append((len(harness.output), left))

        post_between_slices(task, cut)
        harness.watermark(100)
        middle = [left for _, left in cuts if 0 < len(left) < 50]
        assert middle
        # What has fired is not in a cut, what has not is.
        assert all(left == set(range(min(left), 50)) for left in middle)


_records = st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.integers(0, 30), max_size=3)), max_size=12)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.one_of(_records, st.integers(0, 40)), max_size=12),
    cuts=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    chunk_rows=st.integers(1, 5),
    slice_time=st.sampled_from(["1 ns", "5 ms"]),
)
def test_batches_and_slices_change_nothing(
    steps: list[Any], cuts: list[int], chunk_rows: int, slice_time: str
) -> None:
    expected = fired(steps, [100], 2048, "5 ms")
    assert fired(steps, cuts, chunk_rows, slice_time) == expected
    # Between two watermarks timers come in order of time, then of the key's encoding.
    group: list[Any] = []
    for element in expected:
        if isinstance(element, Watermark):
            assert group == sorted(group, key=lambda row: (row[1], row[0]))
            group = []
        else:
            group.append(element)


def fired(steps: list[Any], cuts: list[int], chunk_rows: int, slice_time: str) -> list[Any]:
    options = {"execution.batch.slice-time": slice_time}
    with OperatorHarness(by_first(Alarms()), configuration=options, chunk_rows=chunk_rows) as harness:
        turn = 0
        for step in steps:
            if isinstance(step, int):
                harness.watermark(step)
            while isinstance(step, list) and step:
                size = cuts[turn % len(cuts)]
                turn += 1
                harness.push(*step[:size])
                step = step[size:]
        harness.watermark(MAX_TIMESTAMP)
        harness.end()
        return [element for element in ordered(harness) if not isinstance(element, WatermarkStatus)][:-1]
