"""Operators of event time on rows, parallelism 2 in two worker processes, beside the keyed reduce on the same rows.

Rows are (key, 1) with declared types. 100 000 rows are one second of event time if nothing else is said, out of order
by up to two seconds. Both readers begin at the same event time: otherwise rows of the later one would wait for all rows
of the other. Each job ends in a sink that drops its rows. The first argument is the number of rows.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

from bench.programs.rows import DroppingSink
from yarrow.common import Configuration, Duration, Time, Types, WatermarkStrategy
from yarrow.common.watermark_strategy import TimestampAssigner
from yarrow.datastream import DataStream, KeyedStream, StreamExecutionEnvironment
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.datastream.functions import AggregateFunction
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
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("records", type=int)
    arguments.add_argument("--job", choices=JOBS, default="tumbling-count")
    arguments.add_argument("--keys", type=int, default=1000)
    arguments.add_argument("--rows-a-second", type=int, default=ROWS_A_SECOND, help="of event time")
    arguments.add_argument("--backend", choices=("hashmap", "rocksdb"), default="hashmap")
    given = arguments.parse_args()

    stamps = Stamps(max(1, given.records // PARALLELISM), given.rows_a_second)
    with tempfile.TemporaryDirectory(prefix="bench-checkpoints-") as folder:
        options = {
            "parallelism.default": str(PARALLELISM),
            "state.backend.type": given.backend,
            "state.backend.rocksdb.memory.fixed-per-slot": "256 mb",
            "execution.checkpointing.interval": "1 s",
            "execution.checkpointing.dir": folder,
        }
        env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(DISORDER_MS))
        numbers = env.from_source(
            NumberSequenceSource(0, given.records - 1),
            strategy.with_timestamp_assigner(stamps),
            "integers",
        )
        keys = given.keys
        rows = numbers.map(lambda x: (x * 1_299_709 % keys, 1), PAIR)
        JOBS[given.job](rows.key_by(lambda row: row[0], Types.LONG())).sink_to(DroppingSink())
        env.execute(f"bench {given.job}")


if __name__ == "__main__":
    main()
