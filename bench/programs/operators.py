"""Operators of event time on rows, parallelism 2 in two worker processes, beside the keyed reduce on the same rows.

Rows are (key, 1) with declared types. 100 000 rows are one second of event time if nothing else is said, out of order
by up to two seconds. Both readers begin at the same event time: otherwise rows of the later one would wait for all rows
of the other. Each job ends in a sink that drops its rows. The first argument is the number of rows.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from bench.programs.rows import DroppingSink
from yarrow.cep import CEP, Pattern
from yarrow.common import Configuration, Duration, Time, Types, WatermarkStrategy
from yarrow.common.watermark_strategy import TimestampAssigner
from yarrow.datastream import DataStream, KeyedStream, ProcessJoinFunction, StreamExecutionEnvironment
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.datastream.functions import (
    AggregateFunction,
    KeyedProcessFunction,
    RuntimeContext,
)
from yarrow.datastream.window import EventTimeTrigger, SlidingEventTimeWindows, TumblingEventTimeWindows

PARALLELISM = 2
ROWS_A_SECOND = 100_000
DISORDER_MS = 2000
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


class Stamps(TimestampAssigner):
    """Times of numbers, out of order without a pattern, and alike for each reader's share of the numbers."""

    def __init__(self, share: int, rows_a_second: int) -> None:
        self._share, self._rate = share, rows_a_second

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        place = value % self._share
        return int(place * PARALLELISM * 1000 // self._rate - value * 7919 % DISORDER_MS)


class StampsOfReader(Stamps):
    """The same times, a millisecond later for the second reader: no two rows of a key have one time.

    That holds for shares of whole thousands, as all cases have.
    """

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        # A call of the other method would cost the job more than the difference.
        place, reader = value % self._share, value // self._share
        return int(place * PARALLELISM * 1000 // self._rate - value * 7919 % DISORDER_MS + reader)


class Count(AggregateFunction[Any, int, int]):
    """The number of rows."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


def kind_of(x: int, percent: int) -> int:
    """0, 1 and 2 for `percent` of all numbers each, without a pattern, and 3 for the others."""
    return min(x * 2_654_435_761 % 1_000_003 % 100 // percent, 3)


class OwnTrigger(EventTimeTrigger):
    """A custom trigger, which asks for the general operator."""


def keyed_reduce(rows: KeyedStream) -> DataStream:
    return rows.reduce(lambda a, b: (a[0], a[1] + b[1]))


def tumbling_count(rows: KeyedStream, *, pre_aggregate: bool = False) -> DataStream:
    windows = rows.window(TumblingEventTimeWindows.of(Time.seconds(10)))
    return windows.aggregate(Count(), None, Types.LONG(), Types.LONG(), pre_aggregate=pre_aggregate)


def count_of_all(rows: KeyedStream, *, pre_aggregate: bool = False) -> DataStream:
    windows = rows.window_all(TumblingEventTimeWindows.of(Time.seconds(10)))
    return windows.aggregate(Count(), None, Types.LONG(), Types.LONG(), pre_aggregate=pre_aggregate)


def tumbling_reduce(rows: KeyedStream) -> DataStream:
    windows = rows.window(TumblingEventTimeWindows.of(Time.seconds(10)))
    return windows.reduce(lambda a, b: (a[0], a[1] + b[1]))


def sliding_count(rows: KeyedStream, seconds: int) -> DataStream:
    windows = rows.window(SlidingEventTimeWindows.of(Time.seconds(seconds), Time.seconds(1)))
    return windows.aggregate(Count(), accumulator_type=Types.LONG(), output_type=Types.LONG())


def custom_trigger(rows: KeyedStream) -> DataStream:
    windows = rows.window(TumblingEventTimeWindows.of(Time.seconds(10))).trigger(OwnTrigger())
    return windows.aggregate(Count(), accumulator_type=Types.LONG(), output_type=Types.LONG())


def in_order(rows: KeyedStream) -> DataStream:
    return rows.in_event_time_order()


def pattern(rows: KeyedStream) -> DataStream:
    steps = Pattern.begin("a").where(lambda row: row[1] == 0)
    steps = steps.followed_by("b").where(lambda row: row[1] == 1)
    steps = steps.followed_by("c").where(lambda row: row[1] == 2)
    return CEP.pattern(rows, steps.within(Time.seconds(10))).select(lambda match: 1, output_type=Types.LONG())


class TimerARow(KeyedProcessFunction[int, Any, int]):
    """A timer of processing time for each row, at once due."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        self._last += 1
        ctx.timer_service().register_processing_time_timer(self._last)

    def open(self, runtime_context: RuntimeContext) -> None:
        self._last = 0

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[int]:
        yield timestamp


def processing_timers(rows: KeyedStream) -> DataStream:
    return rows.process(TimerARow(), Types.LONG())


class Pairs(ProcessJoinFunction[Any, Any, Any]):
    """Both values of a match."""

    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Iterator[Any]:
        yield left[1], right[1]


def interval_join(left: KeyedStream, right: KeyedStream) -> DataStream:
    """Each row meets one row: that of the other stream which was made of the same number."""
    pairs = left.interval_join(right).between(Time.seconds(0), Time.seconds(0))
    return pairs.process(Pairs(), PAIR)


def checkpointed(folder: str, backend: str = "hashmap") -> StreamExecutionEnvironment:
    """The environment of a job that checkpoints each second into a folder."""
    options = {
        "parallelism.default": str(PARALLELISM),
        "state.backend.type": backend,
        "state.backend.rocksdb.memory.fixed-per-slot": "256 mb",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": folder,
    }
    return StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))


def with_disorder() -> WatermarkStrategy:
    """Watermarks for rows that are out of order by up to two seconds."""
    return WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(DISORDER_MS))


JOBS: dict[str, Callable[[KeyedStream], DataStream]] = {
    "keyed-reduce": keyed_reduce,
    "tumbling-count": tumbling_count,
    "tumbling-count-pre-aggregated": partial(tumbling_count, pre_aggregate=True),
    "count-of-all": count_of_all,
    "count-of-all-pre-aggregated": partial(count_of_all, pre_aggregate=True),
    "tumbling-reduce": tumbling_reduce,
    "sliding-minute": partial(sliding_count, seconds=60),
    "sliding-10-minutes": partial(sliding_count, seconds=600),
    "custom-trigger": custom_trigger,
    "in-order": in_order,
    "pattern": pattern,
    "processing-timers": processing_timers,
}
INTERVAL_JOIN: Final = "interval-join"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("records", type=int)
    arguments.add_argument("--job", choices=[*JOBS, INTERVAL_JOIN], default="tumbling-count")
    arguments.add_argument("--keys", type=int, default=1000)
    arguments.add_argument("--rows-a-second", type=int, default=ROWS_A_SECOND, help="of event time")
    arguments.add_argument("--percent", type=int, help="of kinds 0, 1 and 2; rows are (key, kind) then")
    arguments.add_argument("--backend", choices=("hashmap", "rocksdb"), default="hashmap")
    given = arguments.parse_args()

    keys, percent = given.keys, given.percent

    def row_of(x: int) -> tuple[int, int]:
        return (x * 1_299_709 % keys, 1 if percent is None else kind_of(x, percent))

    with tempfile.TemporaryDirectory(prefix="bench-checkpoints-") as folder:
        env, strategy = checkpointed(folder, given.backend), with_disorder()

        def keyed(count: int) -> KeyedStream:
            kind = StampsOfReader if given.job == INTERVAL_JOIN else Stamps
            stamps = kind(max(1, count // PARALLELISM), given.rows_a_second)
            numbers = env.from_source(
                NumberSequenceSource(0, count - 1), strategy.with_timestamp_assigner(stamps), "integers"
            )
            return numbers.map(row_of, PAIR).key_by(lambda row: row[0], Types.LONG())

        if given.job == INTERVAL_JOIN:
            results = interval_join(keyed(given.records // 2), keyed(given.records // 2))
        else:
            results = JOBS[given.job](keyed(given.records))
        results.sink_to(DroppingSink())
        env.execute(f"bench {given.job}")


if __name__ == "__main__":
    main()
