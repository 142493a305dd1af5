"""Keyed process functions through the harness: value state, processing-time timers, the key at hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.datastream import (
    KeyedProcessFunction,
    OutputTag,
    RuntimeContext,
    ValueStateDescriptor,
)
from yarrow.datastream.functions import MapFunction
from yarrow.datastream.state import ValueState
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness


class Counting(KeyedProcessFunction[Any, Any, Any]):
    """Counts a key's records and tells the count a second after the last one."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count: ValueState[Any] = runtime_context.get_state(ValueStateDescriptor("count"))
        self.due: ValueState[Any] = runtime_context.get_state(ValueStateDescriptor("due"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        timers = ctx.timer_service()
        self.count.update((self.count.value() or 0) + 1)
        former = self.due.value()
        if former is not None:
            timers.delete_processing_time_timer(former)
        due = timers.current_processing_time() + 1000
        timers.register_processing_time_timer(due)
        self.due.update(due)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), self.count.value(), timestamp
        self.count.clear()
        self.due.clear()


def test_timers_fire_at_their_time_and_deleted_ones_do_not() -> None:
    with OperatorHarness(lambda s: s.key_by(lambda v: v).process(Counting())) as harness:
        harness.push("a", "b", "a")
        harness.advance(0.9)
        harness.push("b")
        harness.advance(0.1)
        assert harness.output == [("a", 2, 1000)]
        harness.advance(0.9)
        assert harness.output[1:] == [("b", 2, 1900)]
        harness.push("a")
        harness.advance(1)
        assert harness.output[2:] == [("a", 1, 2900)]


class Ticks(KeyedProcessFunction[Any, Any, Any]):
    """Registers the same timer twice, and in on_timer the next one, up to three."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        for _ in range(2):
            ctx.timer_service().register_processing_time_timer(value[1])

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp, ctx.timestamp()
        if timestamp < 30:
            ctx.timer_service().register_processing_time_timer(timestamp + 10)


def test_timers_are_deduplicated_and_on_timer_registers_more() -> None:
    with OperatorHarness(lambda s: s.key_by(lambda v: v[0]).process(Ticks())) as harness:
        harness.push(("a", 10), ("b", 15))
        harness.advance(1)
        times = [(key, timestamp) for key, timestamp, _ in harness.output]
        assert times == [("a", 10), ("b", 15), ("a", 20), ("b", 25), ("a", 30), ("b", 35)]
        assert all(stamp == timestamp for _, timestamp, stamp in harness.output)
        harness.end()
        assert len(harness.output) == 6


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50)), max_size=30), st.integers(1, 5))
def test_timers_fire_once_each_in_order_of_time(timers: list[tuple[str, int]], chunk_rows: int) -> None:
    class Once(KeyedProcessFunction[Any, Any, Any]):
        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
            ctx.timer_service().register_processing_time_timer(value[1])

        def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
            yield ctx.get_current_key(), timestamp

    with OperatorHarness(
        lambda s: s.key_by(lambda v: v[0]).process(Once()), chunk_rows=chunk_rows
    ) as harness:
        # At time -1 no timer is due before all are registered.
        harness.clock.advance(-0.001)
        harness.push(*timers)
        for _ in range(6):
            harness.advance(0.01)
        assert [time for _, time in harness.output] == sorted(time for _, time in harness.output)
        assert sorted(harness.output) == sorted(set(timers))


SIDE = OutputTag("side")


class Mixed(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        ctx.timer_service().register_processing_time_timer(5)
        yield "row", ctx.timestamp()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield "timer", timestamp
        yield SIDE, timestamp


def test_rows_with_a_timestamp_and_results_of_timers_share_an_output() -> None:
    """All of them arrive, each with its own timestamp or none."""

    def fragment(stream: Any) -> Any:
        processed = stream.key_by(lambda v: v).process(Mixed())
        return processed.map(lambda v: v), processed.get_side_output(SIDE)

    with OperatorHarness(fragment) as harness:
        harness.push("a", timestamps=[3])
        harness.advance(1)
        harness.push("b")
        harness.push("c", timestamps=[7])
        assert harness.output == [
            ("row", 3),
            ("timer", 5),
            ("row", None),
            ("timer", 5),
            ("row", 7),
            ("timer", 5),
        ]
        assert harness.timestamps() == [3, None, None, None, 7, None]
        assert harness.outputs(1) == [5, 5, 5]


def test_rows_of_a_buffer_with_and_without_timestamps_all_arrive() -> None:
    with OperatorHarness(lambda a, b: a.union(b).map(lambda v: v), inputs=2) as harness:
        for task in harness.tasks:
            task.outputs.buffer_timeout = 3600.0
        harness.push(1, 2)
        harness.push(3, input=1, timestamps=[30])
        harness.push(4)
        harness.end()
        assert harness.output == [1, 2, 3, 4]
        assert harness.timestamps() == [None, None, 30, None]


class Reused(KeyedProcessFunction[Any, Any, Any]):
    """Emits one list again and again, changed in between."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_processing_time_timer(1)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        shared: list[int] = []
        for number in range(3):
            shared.append(number)
            yield shared


def test_what_on_timer_emitted_is_fixed_when_it_was_emitted() -> None:
    with OperatorHarness(lambda s: s.key_by(lambda v: v).process(Reused())) as harness:
        harness.push("a")
        harness.advance(1)
        assert harness.output == [[0], [0, 1], [0, 1, 2]]


class Held(KeyedProcessFunction[Any, Any, Any]):
    """Keeps what it wrote and what it read, and changes both afterwards."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.state: ValueState[Any] = runtime_context.get_state(ValueStateDescriptor("held"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        yield self.state.value()
        written = [value]
        self.state.update(written)
        written.append("later")


@pytest.mark.parametrize(("reuse", "second"), [("false", ["x"]), ("true", ["x", "later"])])
def test_state_is_fixed_when_it_is_written(reuse: str, second: list[str]) -> None:
    with OperatorHarness(
        lambda s: s.key_by(lambda v: "k").process(Held()), configuration={"pipeline.object-reuse": reuse}
    ) as harness:
        harness.push("x", "y")
        assert harness.output == [None, second]


class StateInMap(MapFunction[Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen: ValueState[Any] = runtime_context.get_state(ValueStateDescriptor("seen"))

    def map(self, value: Any) -> Any:
        count = (self.seen.value() or 0) + 1
        self.seen.update(count)
        return value, count


def test_a_rich_map_on_a_keyed_stream_has_the_state_of_the_key() -> None:
    with OperatorHarness(lambda s: s.key_by(lambda v: v % 2).map(StateInMap())) as harness:
        harness.push(1, 2, 3, 4, 5)
        assert harness.output == [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)]


class StateInOpen(KeyedProcessFunction[Any, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        runtime_context.get_state(ValueStateDescriptor("early")).value()

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        return None


def test_state_outside_of_a_record_is_refused_by_name() -> None:
    with pytest.raises(FragmentFailedError) as failed:
        OperatorHarness(lambda s: s.key_by(lambda v: v).process(StateInOpen()).name("early bird"))
    assert failed.value.cause.operator_name == "early bird"
    assert "keyed state 'early' was used outside of a record or timer" in failed.value.cause.message
    assert "KeyError" not in failed.value.cause.stacktrace


class StateInTimer(KeyedProcessFunction[Any, Any, Any]):
    """Alternates records and timers of two keys."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.state: ValueState[Any] = runtime_context.get_state(ValueStateDescriptor("s"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        self.state.update(value)
        ctx.timer_service().register_processing_time_timer(1)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), self.state.value()


def test_on_timer_sees_the_state_of_its_key() -> None:
    with OperatorHarness(lambda s: s.key_by(lambda v: v[0]).process(StateInTimer())) as harness:
        harness.push((1, "x"), ("1", "y"), (None, "z"))
        harness.advance(1)
        # Timers of one time come in the order of their keys' encodings.
        assert harness.output == [(None, (None, "z")), (1, (1, "x")), ("1", ("1", "y"))]
