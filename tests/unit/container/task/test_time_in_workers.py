"""Time from sources to timers in a worker: the end of input, marks of SourceFunctions, ingestion time, idleness."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.worker_harness import JobFailedInHarness, WorkerHarness
from yarrow.cli.generated_code import print_generated_code
from yarrow.common import Duration, TimestampAssigner, WatermarkGenerator, WatermarkStrategy
from yarrow.datastream import (
    KeyedProcessFunction,
    ProcessFunction,
    SourceFunction,
    StreamExecutionEnvironment,
    TimeCharacteristic,
)
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP


@pytest.fixture(scope="module")
def workers() -> Iterator[WorkerHarness]:
    with WorkerHarness(1, processes=False) as harness:
        yield harness


def environment() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)


def run(workers: WorkerHarness, env: StreamExecutionEnvironment) -> list[str]:
    workers.output.clear()
    workers.run(env.get_job_graph("time"))
    return list(workers.output)


class Itself(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value  # type: ignore[no-any-return]


class Last(KeyedProcessFunction[Any, Any, Any]):
    """A timer far behind all records, and what it sees."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(1 << 50)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), ctx.timer_service().current_watermark() == MAX_TIMESTAMP


@pytest.mark.parametrize("where", ["none", "source", "stream"])
def test_the_end_of_input_ends_event_time(workers: WorkerHarness, where: str) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Itself())
    env = environment()
    in_source = strategy if where == "source" else WatermarkStrategy.no_watermarks()
    numbers = env.from_source(NumberSequenceSource(1, 5), in_source, "numbers")
    if where == "stream":
        numbers = numbers.assign_timestamps_and_watermarks(strategy)
    numbers.key_by(lambda x: x % 2).process(Last()).print()
    assert sorted(run(workers, env)) == ["(0, True)", "(1, True)"]


class Seen(ProcessFunction[Any, Any]):
    """What each record sees of time."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield value, ctx.timestamp(), ctx.timer_service().current_watermark()


class Marked(SourceFunction[Any]):
    """Records and watermarks in a fixed order; a watermark that goes back has no effect."""

    def run(self, ctx: Any) -> None:
        ctx.emit_watermark(1)
        ctx.collect_with_timestamp("a", 5)
        ctx.collect_with_timestamp("b", 6)
        ctx.emit_watermark(5)
        ctx.emit_watermark(4)
        ctx.collect("c")
        ctx.mark_as_temporarily_idle()
        ctx.collect_with_timestamp("d", 9)
        ctx.emit_watermark(9)
        ctx.collect_with_timestamp("e", 12)

    def cancel(self) -> None:
        return None


MARKED = [("a", 5, 1), ("b", 6, 1), ("c", None, 5), ("d", 9, 5), ("e", 12, 9)]


@pytest.mark.parametrize("chained", [True, False])
def test_marks_of_a_source_function_stand_where_it_put_them(workers: WorkerHarness, chained: bool) -> None:
    env = environment()
    if not chained:
        env.disable_operator_chaining()
    env.add_source(Marked()).process(Seen()).print()
    assert run(workers, env) == [str(row) for row in MARKED]


class WrongMark(Marked):
    def run(self, ctx: Any) -> None:
        ctx.emit_watermark(1.5)


class WrongStamp(Marked):
    def run(self, ctx: Any) -> None:
        ctx.collect_with_timestamp("first", 1)
        ctx.collect_with_timestamp("second", "noon")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (WrongMark(), "emit_watermark(1.5): expected whole milliseconds"),
        (WrongStamp(), "the timestamp of a record is 'noon' (str); expected whole"),
    ],
)
def test_a_source_function_that_gives_no_timestamp_is_named(
    workers: WorkerHarness, source: SourceFunction[Any], message: str
) -> None:
    env = environment()
    env.add_source(source, "marks").print()
    with pytest.raises(JobFailedInHarness) as failed:
        run(workers, env)
    assert message in str(failed.value)
    assert "marks" in str(failed.value)


@pytest.mark.parametrize("kind", ["source", "function"])
def test_ingestion_time_stamps_at_the_source(workers: WorkerHarness, kind: str) -> None:
    env = environment().set_stream_time_characteristic(TimeCharacteristic.INGESTION_TIME)
    assert env.get_stream_time_characteristic() is TimeCharacteristic.INGESTION_TIME
    stream = env.from_sequence(1, 5) if kind == "source" else env.add_source(Marked())
    stream.process(Seen()).print()
    rows = [eval(line) for line in run(workers, env)]
    assert len(rows) == 5
    stamps = [stamp for _, stamp, _ in rows]
    assert stamps == sorted(stamps)
    assert stamps[0] > 1_500_000_000_000
    assert all(watermark < stamp for _, stamp, watermark in rows)


def test_processing_time_asks_no_generator() -> None:
    env = environment()
    assert env.get_stream_time_characteristic() is TimeCharacteristic.EVENT_TIME
    env.get_config().set_auto_watermark_interval(70)
    env.set_stream_time_characteristic(TimeCharacteristic.EVENT_TIME)
    assert env.get_config().get_auto_watermark_interval() == 70
    env.set_stream_time_characteristic(TimeCharacteristic.PROCESSING_TIME)
    assert env.get_config().get_auto_watermark_interval() == 0
    env.set_stream_time_characteristic(TimeCharacteristic.INGESTION_TIME)
    assert env.get_config().get_auto_watermark_interval() == 200


class Tens(WatermarkGenerator):
    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        if event_timestamp % 10 == 0:
            output.emit_watermark(event_timestamp)

    def on_periodic_emit(self, output: Any) -> None:
        return None


@pytest.mark.parametrize("where", ["source", "stream"])
def test_each_record_sees_the_watermark_of_those_before_it(workers: WorkerHarness, where: str) -> None:
    strategy = WatermarkStrategy.for_generator(Tens).with_timestamp_assigner(Itself())
    env = environment()
    in_source = strategy if where == "source" else WatermarkStrategy.no_watermarks()
    numbers = env.from_source(NumberSequenceSource(1, 3000), in_source, "numbers")
    if where == "stream":
        numbers = numbers.assign_timestamps_and_watermarks(strategy)
    numbers.rebalance().process(Seen()).print()
    expected = [(n, n, (n - 1) // 10 * 10 if n > 10 else MIN_TIMESTAMP) for n in range(1, 3001)]
    assert run(workers, env) == [str(row) for row in expected]


def test_a_strategy_is_pickled_where_it_is_passed() -> None:
    env = environment()
    numbers = env.from_sequence(1, 5)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(Duration.of_seconds(1))
    assigned = numbers.assign_timestamps_and_watermarks(strategy)
    assert assigned.get_name() == "Timestamps/Watermarks"
    assert assigned.get_type() == numbers.get_type()


def test_generated_code_is_shown_as_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Itself())
    env = environment()
    numbers = env.from_source(NumberSequenceSource(1, 5), strategy, "numbers")
    numbers.rebalance().assign_timestamps_and_watermarks(strategy).print()
    print_generated_code(env.get_job_graph("time"))
    shown = capsys.readouterr().out
    assert "def behind_0(rows, timestamps" in shown
    # The assigner, which returns its record, is written into the loop.
    assert "t2 = v0\n" in shown
    assert "extract_" not in shown


def test_constants_of_inlined_functions_are_shown_below_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    env = environment()
    env.from_collection([1, 2]).map(lambda x: f"key\n{x}").print()
    print_generated_code(env.get_job_graph("texts"))
    shown = capsys.readouterr().out
    assert "= f'{constant_" in shown
    assert " = 'key\\n'\n" in shown
