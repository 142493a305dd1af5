"""Keyed operators over bounded input: one key after the other, each with time and state of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.batch_runner import collect, collecting_graph, run_batch, shuffled
from tests.unit.runtime.graph.programs import environment
from yarrow.common import Duration, Types, WatermarkStrategy
from yarrow.common.watermark_strategy import TimestampAssigner
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.datastream import (
    DataStream,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from yarrow.datastream.state import StateTtlConfig, ValueState, ValueStateDescriptor
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP

#: (key, time, number); times are out of order.
ROWS = [("a", 30, 1), ("b", 10, 2), ("a", 10, 3), ("a", 20, 4), ("b", 10, 5), ("a", 10, 6)]
Row = tuple[str, int, int]


class ByField(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


def timed(env: StreamExecutionEnvironment, rows: list[Row]) -> DataStream:
    """The rows with their times, from one source."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(1))
    source = env.from_collection(rows)
    return source.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(ByField()))


class Seen(KeyedProcessFunction[Any, Any, Any]):
    """Emits the numbers that came before with the same key, and where event time is."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.before: ValueState[Any] = runtime_context.get_state(
            ValueStateDescriptor("before", Types.PICKLED_BYTE_ARRAY())
        )

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        before = self.before.value() or []
        yield value[2], before, ctx.timestamp(), ctx.timer_service().current_watermark()
        self.before.update([*before, value[2]])


def test_rows_of_a_key_come_in_order_of_time() -> None:
    env = environment(1)
    found = collect(env, timed(env, ROWS).key_by(lambda row: row[0]).process(Seen()))
    low = MIN_TIMESTAMP
    assert sorted(found) == [
        (1, [3, 6, 4], 30, low), (2, [], 10, low), (3, [], 10, low),
        (4, [3, 6], 20, low), (5, [2], 10, low), (6, [3], 10, low),
    ]  # fmt: skip


class Timers(KeyedProcessFunction[Any, Any, Any]):
    """Registers timers of both clocks with its first record, and emits what happens in its order."""

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        timers = ctx.timer_service()
        for time in (50, 5, 25):
            timers.register_event_time_timer(time)
            timers.register_processing_time_timer(time + 1)
        timers.delete_event_time_timer(25)
        yield "record", value[0], value[2]

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        domain = ctx.time_domain().name
        yield domain, ctx.get_current_key(), timestamp, ctx.timer_service().current_watermark()


def test_timers_fire_at_the_end_of_their_key() -> None:
    env = environment(1)
    env.set_max_parallelism(1)
    found = collect(env, timed(env, ROWS).key_by(lambda row: row[0]).process(Timers()))
    expected: list[Any] = []
    for key in "ab":
        expected += [("record", key, row[2]) for row in sorted(ROWS, key=lambda row: row[1]) if row[0] == key]
        expected += [("EVENT_TIME", key, time, MAX_TIMESTAMP) for time in (5, 50)]
        expected += [("PROCESSING_TIME", key, time, MAX_TIMESTAMP) for time in (6, 26, 51)]
    assert found == expected


class Rearming(KeyedProcessFunction[Any, Any, Any]):
    """Registers a timer in each callback."""

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(value[1])

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        ctx.timer_service().register_event_time_timer(timestamp + 1)
        ctx.timer_service().register_processing_time_timer(timestamp + 1)
        yield ctx.get_current_key(), timestamp


def test_timers_of_callbacks_are_ignored_counted_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    env = environment(1)
    stream = timed(env, ROWS).key_by(lambda row: row[0]).process(Rearming()).name("rearms")
    with caplog.at_level(logging.WARNING):
        run = run_batch(collecting_graph(env, stream))
    assert sorted(run.rows()) == [("a", 10), ("a", 20), ("a", 30), ("b", 10)]
    assert run.metric("numIgnoredTimers") == 8
    assert [record.getMessage().count("'rearms'") for record in caplog.records] == [1]


class KeepsLong(KeyedProcessFunction[Any, Any, Any]):
    """State whose time to live has ended at the second record, if time passes."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor: ValueStateDescriptor[int] = ValueStateDescriptor("kept", Types.INT())
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_millis(1)).build())
        self.kept = runtime_context.get_state(descriptor)

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        yield value[0], self.kept.value()
        self.kept.update(value[2])


class Ticking:
    """A clock that runs ahead with each look at it."""

    def __init__(self) -> None:
        self.now = 0

    def epoch_ms(self) -> int:
        self.now += 1000
        return self.now

    def passed_ms(self) -> int:
        return self.epoch_ms()

    def monotonic(self) -> float:
        return self.epoch_ms() / 1000


def test_state_does_not_grow_old_within_a_key() -> None:
    env = environment(1)
    stream = env.from_collection([("a", 0, 1), ("a", 0, 2)]).key_by(lambda row: row[0])
    found = collect(env, stream.process(KeepsLong(ManualClock())), clock=Ticking())
    assert found == [("a", None), ("a", 1)]


class Joined(KeyedCoProcessFunction[Any, Any, Any, Any]):
    """Emits the side and number of each record of a key, in the order in which it sees them."""

    def process_element1(self, value: Row, ctx: KeyedCoProcessFunction.Context) -> Iterator[Any]:
        yield value[0], value[1], 1, value[2]

    def process_element2(self, value: Row, ctx: KeyedCoProcessFunction.Context) -> Iterator[Any]:
        yield value[0], value[1], 2, value[2]


def test_two_keyed_inputs_are_merged_by_key_and_time_the_first_input_first() -> None:
    env = environment(1)
    env.set_max_parallelism(1)
    first, second = timed(env, ROWS), timed(env, [("a", 10, 7), ("b", 5, 8), ("c", 1, 9), ("a", 25, 10)])
    joined = first.connect(second).key_by(lambda row: row[0], lambda row: row[0]).process(Joined())
    assert collect(env, joined) == [
        ("a", 10, 1, 3), ("a", 10, 1, 6), ("a", 10, 2, 7), ("a", 20, 1, 4), ("a", 25, 2, 10), ("a", 30, 1, 1),
        ("b", 5, 2, 8), ("b", 10, 1, 2), ("b", 10, 1, 5),
        ("c", 1, 2, 9),
    ]  # fmt: skip


def many_keys(env: StreamExecutionEnvironment, parallelism: int = 2) -> DataStream:
    rows = [(f"k{n * 7919 % 50}", n * 31 % 97, n) for n in range(3000)]
    return timed(env, rows).rebalance().map(lambda row: row).set_parallelism(parallelism)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"execution.batch.sort-memory": "1 mb"}])
def test_results_depend_neither_on_arrival_nor_on_memory(settings: dict[str, str]) -> None:
    def graph() -> Any:
        env = environment(3)
        padded = many_keys(env).map(lambda row: (*row, "x" * 2000))
        stream = padded.key_by(lambda row: row[0])
        return collecting_graph(env, stream.process(Seen()).union(stream.process(Timers())))

    expected = run_batch(graph()).collected
    assert run_batch(graph(), settings, deal=shuffled(3)).collected == expected


def test_reduce_takes_records_in_order_of_time_and_gives_the_last_time() -> None:
    env = environment(1)
    reduced = (
        timed(env, ROWS)
        .key_by(lambda row: row[0])
        .reduce(lambda one, two: (one[0], two[1], one[2] * 10 + two[2]))
    )
    stamps = reduced.process(WithTime())
    assert sorted(collect(env, stamps)) == [(("a", 30, 3641), 30), (("b", 10, 25), 10)]


class WithTime(ProcessFunction[Any, Any]):
    """Emits rows with their timestamps."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield value, ctx.timestamp()


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        ("sum", [("a", 10, 14), ("b", 10, 7)]),
        ("min", [("a", 10, 1), ("b", 10, 2)]),
        ("max", [("a", 10, 6), ("b", 10, 5)]),
        ("min_by", [("a", 30, 1), ("b", 10, 2)]),
        ("max_by", [("a", 10, 6), ("b", 10, 5)]),
    ],
)
def test_rolling_aggregates_give_the_last_row_of_the_stream(aggregate: str, expected: list[Row]) -> None:
    env = environment()
    keyed = timed(env, ROWS).key_by(lambda row: row[0])
    assert sorted(collect(env, getattr(keyed, aggregate)(2))) == expected


class Breaks(KeyedProcessFunction[Any, Any, Any]):
    """Fails in a callback."""

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(7)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> None:
        raise LookupError("nothing there")


def test_a_failing_timer_names_its_key() -> None:
    env = environment(1)
    stream = timed(env, ROWS[:1]).key_by(lambda row: row[0]).process(Breaks()).name("breaks")
    with pytest.raises(OperatorFailure) as raised:
        collect(env, stream)
    assert raised.value.operator_name == "breaks"
    assert raised.value.record == "(timer at 7 of the key 'a')"
